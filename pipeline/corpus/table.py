"""The document table: the corpus as it is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from pipeline.records import Document, Skipped, SkipReason
from pipeline.skips import SkipTally
from pipeline.tables import read_rows, table_writer

DOCUMENT_SCHEMA = pa.schema([(name, pa.large_string()) for name in ("doc_id", "text", "title", "metadata")])


@dataclass(slots=True)
class CorpusSummary:
    """What was read: documents stored, characters of their texts, and records left out."""

    n_documents: int = 0
    n_characters: int = 0
    tally: SkipTally = field(default_factory=SkipTally)

    @property
    def skipped(self) -> list[Skipped]:
        """The first records left out, by name."""
        return self.tally.examples

    @property
    def skip_counts(self) -> dict[SkipReason, int]:
        """The exact number of records left out for each reason."""
        return dict(self.tally.counts)

    def add(self, item: Document | Skipped) -> None:
        """Count one record."""
        if isinstance(item, Skipped):
            self.tally.add(item)
        else:
            self.n_documents += 1
            self.n_characters += len(item.text)


def write_documents(items: Iterable[Document | Skipped], path: Path) -> CorpusSummary:
    """Stream documents into a Parquet file that appears only when complete; count what is left out."""
    summary = CorpusSummary()
    with table_writer(path, DOCUMENT_SCHEMA) as rows:
        for item in items:
            summary.add(item)
            if isinstance(item, Document):
                row = _row(item)
                rows.add(row, n_characters=sum(map(len, row.values())))
    return summary


def read_documents(path: Path) -> Iterator[Document]:
    """Stream the documents of a table in the order in which they were read.

    Raises:
        DataError: the table is missing or damaged.
    """
    for row in read_rows(path, DOCUMENT_SCHEMA.names):
        yield Document(row["doc_id"], row["text"], row["title"], json.loads(row["metadata"]))


def _row(document: Document) -> dict[str, str]:
    metadata = json.dumps(dict(document.metadata), ensure_ascii=False) if document.metadata else "{}"
    return {"doc_id": document.doc_id, "text": document.text, "title": document.title, "metadata": metadata}
