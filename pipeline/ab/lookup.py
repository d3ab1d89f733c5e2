"""The tables of a build, read by row or by id; what was read last stays in memory, up to a bound."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indexes import OpenBuild, Rows
from pipeline.artifacts import BuildFiles
from pipeline.errors import DataError
from pipeline.records import embedded_text

# Of each table; about as much text as stands behind a hundred thousand chunks. Row groups are read whole, so
# that a table which does not fit is read again and again.
_BYTES_IN_MEMORY = 512 * 2**20
_CHUNKS_IN_MEMORY = 4096


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it is stored: `text == document.text[start:end]`.

    Attributes:
        ordinal, n_chunks: which chunk of the document's how many (0 is the first).
        doc_chars: length of its document.
        context: what is put before it when it is embedded.
    """

    doc_id: str
    title: str
    ordinal: int
    n_chunks: int
    start: int
    end: int
    text: str
    doc_chars: int
    context: str = ""

    @property
    def embedded_text(self) -> str:
        """What is embedded, but for the model's prompt."""
        return embedded_text(self.context, self.text)


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document of the build, whole; offsets everywhere refer to this `text`."""

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class Tables:
    """Chunks and documents of a build. Any number of threads may read."""

    def __init__(self, build: OpenBuild) -> None:
        files = BuildFiles(build.build.path)
        self._build_id = build.build.build_id
        self._rows: Rows = build.rows
        chunks = _RowReader(files.chunks)
        self._chunk = lru_cache(_CHUNKS_IN_MEMORY)(lambda row: _as_chunk(chunks.row(row)))
        self._documents_path = files.documents

    def chunk(self, row: int) -> StoredChunk:
        """The chunk that stands in a row of the indexes."""
        return self._chunk(row)

    def rows_of(self, doc_id: str) -> range:
        """The rows of a document's chunks, in their order.

        Raises:
            DataError: the build has no such document.
        """
        code = pc.index(self._rows.doc_ids.dictionary, pa.scalar(doc_id, pa.large_string())).as_py()
        if code < 0:
            raise self._unknown(doc_id)
        rows = np.flatnonzero(self._rows.document_codes == code)
        return range(int(rows[0]), int(rows[-1]) + 1)

    def document(self, doc_id: str) -> StoredDocument:
        """One document, whole.

        Raises:
            DataError: the build has no such document.
        """
        place = pc.index(self._document_ids, pa.scalar(doc_id, pa.large_string())).as_py()
        if place < 0:
            raise self._unknown(doc_id)
        row = self._documents.row(place)
        return StoredDocument(doc_id, row["title"], row["text"], json.loads(row["metadata"]))

    @cached_property
    def _documents(self) -> _RowReader:
        return _RowReader(self._documents_path)

    @cached_property
    def _document_ids(self) -> pa.LargeStringArray:
        return self._documents.column("doc_id")

    def _unknown(self, doc_id: str) -> DataError:
        return DataError(
            f"build {self._build_id} has no document {doc_id!r}; ids are those of the corpus that was indexed"
        )


class _RowReader:
    """A Parquet table, read by row."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path, memory_map=True)
        self._starts: list[int] = []
        n_rows = 0
        for group in range(self._file.num_row_groups):
            self._starts.append(n_rows)
            n_rows += self._file.metadata.row_group(group).num_rows
        self._groups: OrderedDict[int, pa.Table] = OrderedDict()
        self._n_bytes = 0
        self._lock = RLock()

    def row(self, number: int) -> dict[str, Any]:
        """One row of the table as a dictionary."""
        group = bisect_right(self._starts, number) - 1
        table = self._group(group)
        row: dict[str, Any] = table.slice(number - self._starts[group], 1).to_pylist()[0]
        return row

    def column(self, name: str) -> pa.Array:
        """One whole column."""
        with self._lock:
            return self._file.read([name])[name].combine_chunks()

    def _group(self, group: int) -> pa.Table:
        with self._lock:
            if group not in self._groups:
                self._groups[group] = self._file.read_row_group(group)
                self._n_bytes += self._groups[group].nbytes
                while self._n_bytes > _BYTES_IN_MEMORY and len(self._groups) > 1:
                    self._n_bytes -= self._groups.popitem(last=False)[1].nbytes
            self._groups.move_to_end(group)
            return self._groups[group]


def _as_chunk(row: Mapping[str, Any]) -> StoredChunk:
    return StoredChunk(
        doc_id=row["doc_id"],
        title=row["title"],
        ordinal=row["ordinal"],
        n_chunks=row["doc_chunks"],
        start=row["start"],
        end=row["end"],
        text=row["text"],
        doc_chars=row["doc_chars"],
        context=row["context"],
    )
