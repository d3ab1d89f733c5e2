"""The pure core: a document in, its chunks out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tokenizers import Tokenizer

from pipeline.chunking.context import ContextLimiter, Contexts, DocumentContexts, NoContexts
from pipeline.chunking.meter import Budget, TokenMeter
from pipeline.chunking.semantic import SemanticSplitter
from pipeline.chunking.spans import Piece, Span
from pipeline.chunking.windows import TokenWindowSplitter
from pipeline.config import ChunkSettings
from pipeline.records import Chunk, Document

_DOCUMENTS_PER_BATCH = 512
_CHARACTERS_PER_BATCH = 2**20


class Splitter(Protocol):
    """A way to cut texts into pieces that fit a budget."""

    def pieces(self, texts: Sequence[str], contexts: Sequence[Contexts]) -> list[list[Piece]]:
        """Cut each text; starts and ends of its pieces strictly increase."""
        ...


class Chunker:
    """Cuts documents into chunks that the model takes whole.

    `text[start:end]` is the chunk, starts and ends strictly increase, and together the chunks hold every
    character that is neither white space nor invisible to the tokenizer.

    Attributes:
        max_tokens: of a chunk with its context.
        limit: of a chunk as it is embedded, with prompt and special tokens.

    Args:
        tokenizer: the model's own; it is copied, never changed.
        settings: `max_tokens` counts the chunk with its context; None stands for as many as fit.
        max_length: the model's limit in tokens, special tokens and prompt included.
        prompt: what is put before each chunk when it is embedded.

    Raises:
        UsageError: the settings do not fit the model.
    """

    def __init__(
        self, tokenizer: Tokenizer, settings: ChunkSettings, *, max_length: int, prompt: str = ""
    ) -> None:
        self._meter = TokenMeter(tokenizer, prompt)
        budget = Budget(
            self._meter,
            max_length=max_length,
            max_tokens=settings.max_tokens,
            overlap=settings.overlap_tokens,
        )
        self.max_tokens = budget.max_tokens
        self.limit = budget.limit
        self._splitter = _splitter(settings, self._meter, budget)
        self._context_kind = settings.context
        self._limiter = ContextLimiter(self._meter, budget.max_context)

    def chunk_document(self, document: Document) -> list[Chunk]:
        """Cut one document; one without any token gives no chunk.

        Raises:
            UsageError: a single character needs more tokens than the budget.
        """
        return self.chunk_documents([document])[0]

    def chunk_documents(self, documents: Sequence[Document]) -> list[list[Chunk]]:
        """Cut several documents at once, which is faster than one by one.

        Raises:
            UsageError: a single character needs more tokens than the budget.
        """
        contexts = [self._contexts(document) for document in documents]
        pieces = self._splitter.pieces([document.text for document in documents], contexts)
        return [self._chunks(*own) for own in zip(documents, contexts, pieces, strict=True)]

    def stream(self, documents: Iterable[Document]) -> Iterator[tuple[Document, list[Chunk]]]:
        """Cut a stream of documents, some at a time.

        Raises:
            UsageError: a single character needs more tokens than the budget.
        """
        for batch in batches(documents):
            yield from zip(batch, self.chunk_documents(batch), strict=True)

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text by itself, without prompt and special tokens."""
        return self._meter.count_own(text)

    def _contexts(self, document: Document) -> Contexts:
        if self._context_kind == "none":
            return NoContexts()
        return DocumentContexts(document, self._context_kind, self._limiter)

    def _chunks(self, document: Document, contexts: Contexts, pieces: Sequence[Piece]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for start, end, n_tokens in pieces:
            text, before = document.text[start:end], contexts.before(Span(start, end))
            if self._is_visible(text, n_tokens, before.text):
                chunks.append(Chunk(document.doc_id, len(chunks), start, end, text, n_tokens, *before))
        return chunks

    def _is_visible(self, text: str, n_tokens: int, context: str) -> bool:
        """Tell whether the model sees any of a chunk; only short ones or those in context need a look."""
        return (n_tokens > self._meter.overhead and not context) or self._meter.has_tokens(text)


def _splitter(settings: ChunkSettings, meter: TokenMeter, budget: Budget) -> Splitter:
    if settings.strategy == "tokens":
        return TokenWindowSplitter(meter, budget)
    return SemanticSplitter(meter, budget, markdown=settings.strategy == "markdown")


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
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
