"""From documents to what is embedded: whole, cut at the model's limit, or in chunks; all counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.chunking import Chunker
from pipeline.chunking.chunker import batches
from pipeline.chunking.meter import TokenMeter
from pipeline.chunking.table import write_chunks
from pipeline.config import ChunkSettings, Config, EvaluateSettings
from pipeline.errors import DataError, UsageError
from pipeline.records import Chunk, Document
from pipeline.tables import read_rows, table_writer

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_SCHEMA = pa.schema(
    [("doc_id", pa.large_string()), ("n_chars", pa.int64()), ("n_tokens", pa.int64()), ("seen", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class DocumentLength:
    """How long a document is, and how much of it the model sees.

    Attributes:
        n_chars: of the document.
        n_tokens: of the document by itself, without prompt and special tokens.
        seen: characters that are embedded, counted from its beginning.
    """

    doc_id: str
    n_chars: int
    n_tokens: int
    seen: int

    @property
    def is_cut(self) -> bool:
        """Whether its end is not embedded."""
        return self.seen < self.n_chars


class WholeDocuments:
    """Makes one chunk of each document; one that is too long ends with the last token that fits.

    Attributes:
        lengths: of the documents that were streamed.

    Args:
        tokenizer: the model's own.
        max_length: tokens that the model takes, prompt and special tokens included.
        prompt: what is put before each document when it is embedded.
        may_cut: refuse a document that is too long instead.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_length: int, prompt: str, may_cut: bool) -> None:
        self.lengths: list[DocumentLength] = []
        self._meter = TokenMeter(tokenizer, prompt)
        self._max_length = max_length
        self._prompt = prompt
        self._may_cut = may_cut

    def stream(self, documents: Iterable[Document]) -> Iterator[tuple[Document, list[Chunk]]]:
        """Make the chunks of a stream of documents.

        Raises:
            DataError: a document is too long and may not be cut.
        """
        for batch in batches(documents):
            texts = [self._prompt + document.text for document in batch]
            for document, encoding in zip(batch, self._meter.tokenizer.encode_batch(texts), strict=True):
                yield document, self._chunk(document, encoding)

    def _chunk(self, document: Document, encoding: Encoding) -> list[Chunk]:
        n_tokens, seen = len(encoding), len(document.text)
        if n_tokens > self._max_length:
            self._refuse(document, n_tokens)
            seen, n_tokens = self._cut(document.text, encoding)
        own = len(encoding) - self._meter.overhead
        self.lengths.append(DocumentLength(document.doc_id, len(document.text), own, seen))
        if own < 1:
            return []
        return [Chunk(document.doc_id, 0, 0, seen, document.text[:seen], n_tokens)]

    def _cut(self, text: str, encoding: Encoding) -> tuple[int, int]:
        """How many characters fit, and their tokens; a word that is cut may be tokenized anew, and longer."""
        specials_after = encoding.special_tokens_mask[::-1].index(0)
        for last in range(self._max_length - specials_after - 1, 0, -1):
            seen = encoding.offsets[last][1] - len(self._prompt)
            (n_tokens,) = self._meter.count([text[:seen]])
            if n_tokens <= self._max_length:
                return seen, n_tokens
        return 0, 0

    def _refuse(self, document: Document, n_tokens: int) -> None:
        if not self._may_cut:
            raise DataError(
                f"document {document.doc_id!r} has {n_tokens:,} tokens with prompt and special tokens, but "
                f"the model takes {self._max_length:,}; set evaluate.long_documents to truncate or chunk, or "
                "give --chunk-tokens"
            )


class ChunkedDocuments:
    """Cuts documents into chunks and notes their lengths; all of a document is embedded."""

    def __init__(self, chunker: Chunker) -> None:
        self.lengths: list[DocumentLength] = []
        self._chunker = chunker

    def stream(self, documents: Iterable[Document]) -> Iterator[tuple[Document, list[Chunk]]]:
        """Cut a stream of documents."""
        for document, chunks in self._chunker.stream(documents):
            n_chars = len(document.text)
            n_tokens = self._chunker.count_tokens(document.text)
            self.lengths.append(DocumentLength(document.doc_id, n_chars, n_tokens, n_chars))
            yield document, chunks


def make_cutter(
    config: Config, tokenizer: Tokenizer, *, max_length: int, prompt: str
) -> WholeDocuments | ChunkedDocuments:
    """Choose how documents are embedded, by `evaluate.chunk_tokens` and `evaluate.long_documents`.

    Raises:
        UsageError: the chunk budget does not fit the model.
    """
    if is_chunked(config.evaluate):
        settings = chunk_settings(config)
        return ChunkedDocuments(Chunker(tokenizer, settings, max_length=max_length, prompt=prompt))
    may_cut = config.evaluate.long_documents == "truncate"
    return WholeDocuments(tokenizer, max_length=max_length, prompt=prompt, may_cut=may_cut)


def is_chunked(settings: EvaluateSettings) -> bool:
    """Whether documents are ranked by their best chunk."""
    return settings.chunk_tokens is not None or settings.long_documents == "chunk"


def chunk_settings(config: Config) -> ChunkSettings:
    """The run's chunk settings with the budget of the evaluation.

    Raises:
        UsageError: neighbouring chunks are to share more than that.
    """
    budget, overlap = config.evaluate.chunk_tokens, config.chunk.overlap_tokens
    if budget is not None and overlap >= budget:
        raise UsageError(f"chunk.overlap_tokens = {overlap} must be smaller than --chunk-tokens {budget}")
    return config.chunk.model_copy(update={"max_tokens": budget})


def write_cut(
    documents: Iterable[Document], cutter: WholeDocuments | ChunkedDocuments, *, chunks: Path, lengths: Path
) -> dict[str, int]:
    """Write the chunk table and the lengths; return counts.

    Raises:
        DataError: a document is too long and may not be cut.
    """
    summary = write_chunks(documents, cutter, chunks)
    with table_writer(lengths, _SCHEMA) as rows:
        for length in cutter.lengths:
            rows.add(asdict(length), n_characters=len(length.doc_id))
    return {
        "documents": summary.n_documents,
        "chunks": summary.n_chunks,
        "tokens": summary.n_tokens,
        "longest_chunk": summary.longest_chunk,
        "cut": sum(length.is_cut for length in cutter.lengths),
        "invisible": sum(summary.skip_counts.values()),
    }


def read_lengths(path: Path) -> dict[str, DocumentLength]:
    """Read the lengths by doc_id."""
    return {row["doc_id"]: DocumentLength(**row) for row in read_rows(path, _SCHEMA.names)}
