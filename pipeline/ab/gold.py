"""Where the answer is known to stand: gold spans, checked against the build, in place of an estimate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.ab.lookup import StoredChunk, Tables
from pipeline.ab.windows import Span
from pipeline.errors import DataError


@dataclass(frozen=True, slots=True, order=True)
class GoldSpan:
    """The answer's place: character offsets in a document, end exclusive."""

    doc_id: str
    start: int
    end: int


GoldSpans = Mapping[str, Sequence[GoldSpan]]


def checked_gold(gold: Iterable[GoldSpan] | None, tables: Tables) -> GoldSpans:
    """Group gold spans by document, in the order of their offsets.

    Raises:
        DataError: a document that the build does not have, or a span that is not inside its text.
    """
    by_document: dict[str, list[GoldSpan]] = {}
    for span in sorted(set(gold or ())):
        by_document.setdefault(span.doc_id, []).append(span)
    for doc_id, spans in by_document.items():
        n_chars = tables.chunk(tables.rows_of(doc_id)[0]).doc_chars
        for span in spans:
            if not 0 <= span.start < span.end <= n_chars:
                raise DataError(
                    f"gold span {span.start}-{span.end} of document {doc_id!r}: expected 0 <= start < end <= "
                    f"{n_chars}, its length in characters; correct the query file, or was the corpus changed?"
                )
    return by_document


def span_in_chunk(chunk: StoredChunk, spans: Sequence[GoldSpan]) -> Span | None:
    """The first gold span that touches a chunk, as far as it lies in it, as offsets in the chunk."""
    for span in spans:
        start, end = max(span.start, chunk.start), min(span.end, chunk.end)
        if start < end:
            return start - chunk.start, end - chunk.start
    return None


def chunk_with_gold(tables: Tables, doc_id: str, spans: Sequence[GoldSpan]) -> StoredChunk:
    """The first chunk of a document that a gold span touches.

    Raises:
        DataError: none does: the spans hold nothing but white space.
    """
    for row in tables.rows_of(doc_id):
        chunk = tables.chunk(row)
        if span_in_chunk(chunk, spans) is not None:
            return chunk
    raise DataError(
        f"gold spans of document {doc_id!r}: no indexed text stands at "
        + ", ".join(f"{span.start}-{span.end}" for span in spans)
    )
