"""Chunks that end where the text does: at headings, paragraphs, sentences, else words.

The borders are those of the `semantic-text-splitter` package. Neighbours share at most the overlap, as whole
semantic units. The library knows no contexts: a text is cut to what its longest context leaves, then measured
with the context that each piece has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from pipeline.chunking.context import Contexts
from pipeline.chunking.headings import headings_joined
from pipeline.chunking.meter import Budget, TokenMeter
from pipeline.chunking.spans import Piece, Span, tidy
from pipeline.records import embedded_text

# The library tokenizes the rest of a sentence anew for each chunk that it cuts from it: quadratic for text
# without sentence borders. Long texts therefore go through it window by window.
_CHARACTERS_PER_WINDOW = 16_384
# It also takes seconds for thousands of blank lines: no chunk spans such a gap. The lookbehind allows one
# attempt a run of white space, which keeps the search linear.
_GAP = re.compile(r"(?<!\s)\s{500,}")
# A splitter copies the tokenizer, which takes some 50 MB for a large vocabulary. Few are kept, and what
# contexts leave is rounded down to sixteenths of the budget, so that few are needed.
_SPLITTERS_KEPT = 10
_STEPS = 16


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
        self._splitter = lru_cache(maxsize=_SPLITTERS_KEPT)(self._build)

    def pieces(self, texts: Sequence[str], contexts: Sequence[Contexts]) -> list[list[Piece]]:
        """Cut each text, all texts of equal capacity at once.

        Raises:
            UsageError: a single character needs more tokens than the budget.
        """
        capacities = [self._capacity(own.most_tokens) for own in contexts]
        found: dict[int, list[Piece]] = {}
        for capacity in dict.fromkeys(capacities):
            chosen = [index for index, own in enumerate(capacities) if own == capacity]
            pairs = [(texts[index], contexts[index]) for index in chosen]
            measured = self._measured(pairs, capacity)
            for index, pair, pieces in zip(chosen, pairs, measured, strict=True):
                fitting = self._fitting(*pair, pieces, capacity)
                found[index] = self._with_headings(*pair, fitting, capacity)
        return [found[index] for index in range(len(texts))]

    def _capacity(self, n_context: int) -> int:
        """What a context of so many tokens leaves, rounded down; the whole budget without one."""
        room = self._budget.max_tokens - n_context
        return self._rounded(room) if n_context else room

    def _rounded(self, capacity: int) -> int:
        step = max(1, self._budget.max_tokens // _STEPS)
        return max(1, capacity - capacity % step)

    def _fitting(self, text: str, contexts: Contexts, pieces: list[Piece], capacity: int) -> list[Piece]:
        """Split again, smaller, while a piece is too long as embedded (prompt and context may add to it)."""
        while too_long := [piece for piece in pieces if piece.n_tokens > self._budget.limit]:
            worst = max(too_long, key=lambda piece: piece.n_tokens)
            single = next((piece for piece in too_long if piece.end - piece.start == 1), None)
            if single or capacity == 1:
                start, end, n_tokens = single or worst
                before = contexts.before(Span(start, end)).text
                raise self._budget.refusal(text[start:end], n_tokens, before)
            capacity = max(1, capacity - (worst.n_tokens - self._budget.limit))
            pieces = self._measured([(text, contexts)], capacity)[0]
        return pieces

    def _with_headings(
        self, text: str, contexts: Contexts, pieces: list[Piece], capacity: int
    ) -> list[Piece]:
        """Move headings from the ends of pieces to what they head."""
        spans = [Span(piece.start, piece.end) for piece in pieces]
        joined = headings_joined(text, spans, partial(self._shortened, text, contexts, capacity))
        return pieces if joined == spans else self._counted(text, contexts, joined)

    def _shortened(
        self, text: str, contexts: Contexts, capacity: int, span: Span, floor: int
    ) -> tuple[Span, list[Span]] | None:
        """Cut what stands in `span` from `floor` on, so that the first part fits with all before it."""
        capacity -= self._meter.count_own(text[span.start : floor])
        parts = [span]
        while (excess := self._excess(text, contexts, parts)) > 0:
            if capacity < 1:
                return None
            cut = self._spans([text[floor : span.end]], self._rounded(capacity))[0]
            parts = [Span(floor + start, floor + end) for start, end in cut]
            parts[0] = Span(span.start, parts[0].end)
            capacity = self._rounded(capacity) - excess
        return parts[0], parts[1:]

    def _excess(self, text: str, contexts: Contexts, spans: Sequence[Span]) -> int:
        longest = max(piece.n_tokens for piece in self._counted(text, contexts, spans))
        return longest - self._budget.limit

    def _counted(self, text: str, contexts: Contexts, spans: Sequence[Span]) -> list[Piece]:
        parts = [embedded_text(contexts.before(span).text, text[span.start : span.end]) for span in spans]
        counts = self._meter.count(parts)
        return [Piece(*span, n_tokens) for span, n_tokens in zip(spans, counts, strict=True)]

    def _measured(self, pairs: Sequence[tuple[str, Contexts]], capacity: int) -> list[list[Piece]]:
        spans = self._spans([text for text, _ in pairs], capacity)
        parts = [
            embedded_text(contexts.before(span).text, text[span.start : span.end])
            for (text, contexts), own in zip(pairs, spans, strict=True)
            for span in own
        ]
        counts = iter(self._meter.count(parts))
        return [[Piece(start, end, next(counts)) for start, end in own] for own in spans]

    def _build(self, capacity: int) -> TextSplitter | MarkdownSplitter:
        overlap = min(self._budget.overlap, capacity - 1)
        return self._library.from_huggingface_tokenizer(self._meter.tokenizer, capacity, overlap=overlap)

    def _spans(self, texts: Sequence[str], capacity: int) -> list[list[Span]]:
        splitter = self._splitter(capacity)
        stretches = [list(_stretches(text)) for text in texts]
        parts = [text[start:end] for text, own in zip(texts, stretches, strict=True) for start, end in own]
        short = iter(splitter.chunk_all_indices([part for part in parts if len(part) <= self._window]))
        cut = (
            _spans(next(short)) if len(part) <= self._window else self._windows(splitter, part)
            for part in parts
        )
        return [
            tidy(text, [Span(begin + start, begin + end) for begin, _ in own for start, end in next(cut)])
            for text, own in zip(texts, stretches, strict=True)
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


def _stretches(text: str) -> Iterator[Span]:
    """The parts of `text` between long gaps."""
    start = 0
    for gap in _GAP.finditer(text):
        if start < gap.start():
            yield Span(start, gap.start())
        start = gap.end()
    if start < len(text):
        yield Span(start, len(text))
