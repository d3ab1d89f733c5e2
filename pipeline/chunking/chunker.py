"""The pure core: a document in, its chunks out."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from pipeline.chunking.meter import Budget, TokenMeter
from pipeline.chunking.semantic import SemanticSplitter
from pipeline.chunking.spans import Piece, Splitter
from pipeline.chunking.windows import TokenWindowSplitter
from pipeline.config import ChunkSettings
from pipeline.records import Chunk, Document


class Chunker:
    """Cuts documents into chunks that the model takes whole.

    `text[start:end]` is the chunk, starts and ends strictly increase, and together the chunks hold every
    character that is neither white space nor invisible to the tokenizer.

    Args:
        tokenizer: the model's own; it is copied, never changed.
        settings: `max_tokens` counts the chunk's own tokens; None stands for as many as fit.
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
        self._splitter = _splitter(settings, self._meter, budget)

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
        pieces = self._splitter.pieces([document.text for document in documents])
        return [self._chunks(document, own) for document, own in zip(documents, pieces, strict=True)]

    def _chunks(self, document: Document, pieces: Sequence[Piece]) -> list[Chunk]:
        visible = [piece for piece in pieces if self._is_visible(document.text, piece)]
        return [
            Chunk(document.doc_id, ordinal, start, end, document.text[start:end], n_tokens)
            for ordinal, (start, end, n_tokens) in enumerate(visible)
        ]

    def _is_visible(self, text: str, piece: Piece) -> bool:
        """Tell whether the model sees anything of the piece; only short ones need a second look."""
        return piece.n_tokens > self._meter.overhead or self._meter.has_tokens(text[piece.start : piece.end])


def _splitter(settings: ChunkSettings, meter: TokenMeter, budget: Budget) -> Splitter:
    if settings.strategy == "tokens":
        return TokenWindowSplitter(meter, budget)
    return SemanticSplitter(meter, budget, markdown=settings.strategy == "markdown")
