"""Rows of any file kind, and ids for documents that have none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipeline.corpus.parquet import column_names
from pipeline.evaluation.datasets.records import LabelledDocument
from pipeline.evaluation.datasets.rows import Row, jsonl_rows, parquet_rows, source_file, text_of

_ID_DIGITS = 16
_CORPUS = "all"


def content_id(text: str) -> str:
    """Name a text by its content, so that equal texts are one document."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_DIGITS]


def distinct_documents(rows: Iterable[Row], column: str) -> Iterator[LabelledDocument]:
    """Stream the distinct texts of a column as the documents of one index, each where it comes first."""
    seen: set[str] = set()
    for place, row in rows:
        text = text_of(row, column, place)
        doc_id = content_id(text)
        if doc_id not in seen:
            seen.add(doc_id)
            yield LabelledDocument(doc_id, text, _CORPUS, doc_id, place)


class FileRows:
    """The rows of a Parquet or JSON Lines file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def columns(self) -> list[str]:
        """The columns; of JSON Lines the keys of the first object."""
        if self._path.suffix == ".parquet":
            return column_names(source_file(self._path))
        return list(next((row for _, row in jsonl_rows(self._path, [])), {}))

    def rows(self) -> Iterator[Row]:
        """Stream places and rows."""
        if self._path.suffix == ".parquet":
            return parquet_rows(self._path, self.columns())
        return jsonl_rows(self._path, [])

    def digest(self) -> str:
        """Hash the file by content."""
        return source_file(self._path).digest()


class DatasetRows:
    """The rows of a saved or hub dataset."""

    def __init__(self, name: str, split: str | None) -> None:
        from pipeline.corpus.dataset import read_records

        self._name, self._split = name, split
        self._columns, _, self._digest = read_records(name, split=split)

    def columns(self) -> list[str]:
        """The columns of all splits."""
        return self._columns

    def rows(self) -> Iterator[Row]:
        """Stream places and rows."""
        from pipeline.corpus.dataset import read_records

        return read_records(self._name, split=self._split)[1]

    def digest(self) -> str:
        """What identifies the dataset's content."""
        return self._digest
