"""Chunks that end where the text does: at headings, paragraphs, sentences, else words.

The borders are those of the `semantic-text-splitter` package. Neighbours share at most the overlap, as whole
semantic units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from pipeline.chunking.meter import Budget, TokenMeter
from pipeline.chunking.spans import Piece, Span, tidy

# The library tokenizes the rest of a sentence anew for each chunk that it cuts from it: quadratic for text
# without sentence borders. Long texts therefore go through it window by window.
_CHARACTERS_PER_WINDOW = 16_384


class SemanticSplitter:
    """Cuts texts at the highest borders that keep each piece within the budget."""

    def __init__(
        self,
        meter: TokenMeter,
        budget: Budget,
        *,
        markdown: bool = False,
        window: int = _CHARACTERS_PER_WINDOW,
    ) -> None:
        self._meter = meter
        self._budget = budget
        self._library = MarkdownSplitter if markdown else TextSplitter
        self._window = window
        # Building one copies the tokenizer; smaller capacities than the budget are rare.
        self._splitter = cache(self._build)

    def pieces(self, texts: Sequence[str]) -> list[list[Piece]]:
        """Cut each text.

        Raises:
            UsageError: a single character needs more tokens than the budget.
        """
        found = self._measured(texts, self._budget.max_tokens)
        return [self._fitting(text, own) for text, own in zip(texts, found, strict=True)]

    def _fitting(self, text: str, pieces: list[Piece]) -> list[Piece]:
        """Split again, smaller, while a piece is too long as embedded (the prompt may add to it)."""
        capacity = self._budget.max_tokens
        while too_long := [piece for piece in pieces if piece.n_tokens > self._budget.limit]:
            worst = max(too_long, key=lambda piece: piece.n_tokens)
            single = next((piece for piece in too_long if piece.end - piece.start == 1), None)
            if single or capacity == 1:
                refused = single or worst
                raise self._budget.refusal(text[refused.start : refused.end], refused.n_tokens)
            capacity = max(1, capacity - (worst.n_tokens - self._budget.limit))
            pieces = self._measured([text], capacity)[0]
        return pieces

    def _measured(self, texts: Sequence[str], capacity: int) -> list[list[Piece]]:
        spans = self._spans(texts, capacity)
        parts = [text[start:end] for text, own in zip(texts, spans, strict=True) for start, end in own]
        counts = iter(self._meter.count(parts))
        return [[Piece(start, end, next(counts)) for start, end in own] for own in spans]

    def _build(self, capacity: int) -> TextSplitter | MarkdownSplitter:
        overlap = min(self._budget.overlap, capacity - 1)
        return self._library.from_huggingface_tokenizer(self._meter.tokenizer, capacity, overlap=overlap)

    def _spans(self, texts: Sequence[str], capacity: int) -> list[list[Span]]:
        splitter = self._splitter(capacity)
        short = iter(splitter.chunk_all_indices([text for text in texts if len(text) <= self._window]))
        return [
            tidy(text, _spans(next(short)) if len(text) <= self._window else self._windows(splitter, text))
            for text in texts
        ]

    def _windows(self, splitter: TextSplitter | MarkdownSplitter, text: str) -> Iterator[Span]:
        """Split window by window; the last chunk of each starts the next, where it can grow."""
        start, window = 0, self._window
        while True:
            part = text[start : start + window]
            spans = tidy(part, _spans(splitter.chunk_indices(part)))
            if start + window >= len(text):
                yield from (Span(start + first, start + end) for first, end in spans)
                return
            if len(spans) < 2:
                window *= 2
                continue
            yield from (Span(start + first, start + end) for first, end in spans[:-1])
            start, window = start + spans[-1].start, self._window


def _spans(chunks: Sequence[tuple[int, str]]) -> list[Span]:
    return [Span(start, start + len(chunk)) for start, chunk in chunks]
