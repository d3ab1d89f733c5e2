"""The chunk table: one row per chunk, in the order of the documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from pipeline.records import Chunk, Document, Skipped, SkipReason
from pipeline.skips import SkipTally
from pipeline.tables import read_rows, table_writer

CHUNK_SCHEMA = pa.schema(
    [
        ("doc_id", pa.large_string()),
        ("ordinal", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("text", pa.large_string()),
        ("n_tokens", pa.int32()),
        ("doc_chars", pa.int64()),
        ("doc_chunks", pa.int32()),
        ("title", pa.large_string()),
        ("content_key", pa.string()),
        ("context", pa.large_string()),
        ("context_is_cut", pa.bool_()),
    ]
)


@dataclass(slots=True)
class ChunkSummary:
    """What a chunk table holds.

    Attributes:
        longest_chunk: in tokens, as embedded.
        n_contexts_cut: chunks whose context does not stand whole before them.
    """

    n_documents: int = 0
    n_chunks: int = 0
    n_tokens: int = 0
    longest_chunk: int = 0
    n_contexts_cut: int = 0
    tally: SkipTally = field(default_factory=SkipTally)

    @property
    def skipped(self) -> list[Skipped]:
        """The first documents of which the model would see nothing."""
        return self.tally.examples

    @property
    def skip_counts(self) -> dict[SkipReason, int]:
        """The exact number of documents left out."""
        return dict(self.tally.counts)

    def add(self, document: Document, chunks: Sequence[Chunk]) -> None:
        """Count the chunks of one document; without any it is left out."""
        if not chunks:
            detail = "the tokenizer sees no text"
            self.tally.add(Skipped(document.doc_id, SkipReason.BLANK, document.doc_id, detail))
            return
        self.n_documents += 1
        self.n_chunks += len(chunks)
        self.n_tokens += sum(chunk.n_tokens for chunk in chunks)
        self.n_contexts_cut += sum(chunk.context_is_cut for chunk in chunks)
        self.longest_chunk = max(self.longest_chunk, *(chunk.n_tokens for chunk in chunks))


def content_key(text: str) -> str:
    """Name a content, which is a chunk with its context: the SHA-256 of its UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class Cutter(Protocol):
    """What makes chunks of documents: the chunker, or whatever else an application cuts by."""

    def stream(self, documents: Iterable[Document]) -> Iterator[tuple[Document, list[Chunk]]]:
        """Cut a stream of documents."""


def write_chunks(documents: Iterable[Document], chunker: Cutter, path: Path) -> ChunkSummary:
    """Stream the chunks of `documents` into a Parquet file that appears only when complete."""
    summary = ChunkSummary()
    with table_writer(path, CHUNK_SCHEMA) as rows:
        for document, chunks in chunker.stream(documents):
            summary.add(document, chunks)
            for chunk in chunks:
                n_characters = len(chunk.embedded_text) + len(chunk.doc_id)
                rows.add(_row(document, chunk, len(chunks)), n_characters=n_characters)
    return summary


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Stream the chunks of a table, in the order of its rows.

    Raises:
        DataError: the table is missing or damaged.
    """
    columns = ["doc_id", "ordinal", "start", "end", "text", "n_tokens", "context", "context_is_cut"]
    return (Chunk(**row) for row in read_rows(path, columns))


def _row(document: Document, chunk: Chunk, n_chunks: int) -> dict[str, object]:
    return {
        "doc_id": chunk.doc_id,
        "ordinal": chunk.ordinal,
        "start": chunk.start,
        "end": chunk.end,
        "text": chunk.text,
        "n_tokens": chunk.n_tokens,
        "doc_chars": len(document.text),
        "doc_chunks": n_chunks,
        "title": document.title,
        "content_key": content_key(chunk.embedded_text),
        "context": chunk.context,
        "context_is_cut": chunk.context_is_cut,
    }
