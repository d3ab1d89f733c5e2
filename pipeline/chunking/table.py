"""The chunk table: one row per chunk, in the order of the documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from pipeline.chunking.chunker import Chunker
from pipeline.records import Chunk, Document, Skipped, SkipReason
from pipeline.skips import SkipTally
from pipeline.tables import RowGroupWriter, read_rows, table_writer

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
    ]
)
_DOCUMENTS_PER_BATCH = 512
_CHARACTERS_PER_BATCH = 2**20


@dataclass(slots=True)
class ChunkSummary:
    """What a chunk table holds; `longest_chunk` is in tokens, as embedded."""

    n_documents: int = 0
    n_chunks: int = 0
    n_tokens: int = 0
    longest_chunk: int = 0
    tally: SkipTally = field(default_factory=SkipTally)

    @property
    def skipped(self) -> list[Skipped]:
        """The first documents of which the model would see nothing."""
        return self.tally.examples

    @property
    def skip_counts(self) -> dict[SkipReason, int]:
        """The exact number of documents left out."""
        return dict(self.tally.counts)


def content_key(text: str) -> str:
    """Name a content: the SHA-256 of its UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def write_chunks(documents: Iterable[Document], chunker: Chunker, path: Path) -> ChunkSummary:
    """Stream the chunks of `documents` into a Parquet file that appears only when complete."""
    summary = ChunkSummary()
    with table_writer(path, CHUNK_SCHEMA) as rows:
        for batch in _batches(documents):
            for document, chunks in zip(batch, chunker.chunk_documents(batch), strict=True):
                _add(rows, document, chunks, summary)
    return summary


def read_chunks(path: Path) -> Iterator[Chunk]:
    """Stream the chunks of a table, in the order of its rows.

    Raises:
        DataError: the table is missing or damaged.
    """
    columns = ["doc_id", "ordinal", "start", "end", "text", "n_tokens"]
    return (Chunk(**row) for row in read_rows(path, columns))


def _add(rows: RowGroupWriter, document: Document, chunks: list[Chunk], summary: ChunkSummary) -> None:
    if not chunks:
        summary.tally.add(
            Skipped(document.doc_id, SkipReason.BLANK, document.doc_id, "the tokenizer sees no text")
        )
        return
    summary.n_documents += 1
    for chunk in chunks:
        rows.add(_row(document, chunk, len(chunks)), n_characters=len(chunk.text) + len(chunk.doc_id))
        summary.n_chunks += 1
        summary.n_tokens += chunk.n_tokens
        summary.longest_chunk = max(summary.longest_chunk, chunk.n_tokens)


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
        "content_key": content_key(chunk.text),
    }


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Group documents so that the tokenizer's threads have work while memory stays bounded."""
    batch: list[Document] = []
    n_characters = 0
    for document in documents:
        batch.append(document)
        n_characters += len(document.text)
        if len(batch) >= _DOCUMENTS_PER_BATCH or n_characters >= _CHARACTERS_PER_BATCH:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch
