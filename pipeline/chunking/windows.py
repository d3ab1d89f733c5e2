"""Chunks of a fixed number of tokens, wherever that ends.

A window ends only between characters: the tokens of one character (a byte-level tokenizer makes four of an
emoji) stay together. Neighbours share exactly the overlap where such borders allow it, else a little less. A
window that would be too long as embedded, because a cut word is tokenized anew or because of its context,
gives up its last tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from tokenizers import Encoding

from pipeline.chunking.context import Contexts
from pipeline.chunking.meter import Budget, TokenMeter
from pipeline.chunking.spans import Piece, Span, trim
from pipeline.records import embedded_text


class TokenWindowSplitter:
    """Cuts texts into windows of as many tokens as the budget has."""

    def __init__(self, meter: TokenMeter, budget: Budget) -> None:
        self._meter = meter
        self._budget = budget

    def pieces(self, texts: Sequence[str], contexts: Sequence[Contexts]) -> list[list[Piece]]:
        """Cut each text.

        Raises:
            UsageError: characters that cannot be parted need more tokens than the budget.
        """
        encodings = self._meter.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [
            list(self._windows(text, own, _Units(text, encoding)))
            for text, own, encoding in zip(texts, contexts, encodings, strict=True)
        ]

    def _windows(self, text: str, contexts: Contexts, units: _Units) -> Iterator[Piece]:
        first, n_covered, end = 0, 0, 0
        while n_covered < len(units):
            if units.is_space(first):
                first += 1
                n_covered = max(n_covered, first)
                continue
            last, piece = self._longest_fitting(text, contexts, units, first)
            if piece.end > end:
                end = piece.end
                yield piece
            first = (
                max(first + 1, units.back_from(last, self._budget.overlap)) if last > n_covered else first + 1
            )
            n_covered = max(n_covered, last)

    def _longest_fitting(self, text: str, contexts: Contexts, units: _Units, first: int) -> tuple[int, Piece]:
        """Find the longest window from unit `first` on; return the unit after it, and the window."""
        capacity = self._budget.max_tokens
        while True:
            last = max(first + 1, units.forward_from(first, capacity))
            span = trim(text, units.span(first, last))
            before = contexts.before(span).text
            (n_tokens,) = self._meter.count([embedded_text(before, text[span.start : span.end])])
            excess = n_tokens - self._budget.limit
            if excess <= 0:
                return last, Piece(*span, n_tokens)
            if last == first + 1:
                raise self._budget.refusal(text[span.start : span.end], n_tokens, before)
            capacity = units.n_tokens(first, last) - excess


class _Units:
    """The smallest parts of a text that windows may be made of: whole tokens that are whole characters.

    Unit i is the text from `_borders[i]` to `_borders[i + 1]`, so that no character is left out, and takes
    the tokens from `_tokens[i]` to `_tokens[i + 1]`.
    """

    def __init__(self, text: str, encoding: Encoding) -> None:
        self._text = text
        self._borders: list[int] = []
        self._tokens: list[int] = []
        reached = 0
        for token, (start, end) in enumerate(encoding.offsets):
            if not self._borders or (start >= reached and start < end):
                self._borders.append(start if self._borders else 0)
                self._tokens.append(token)
            reached = max(reached, end)
        self._borders.append(len(text))
        self._tokens.append(len(encoding))

    def __len__(self) -> int:
        return len(self._borders) - 1

    def span(self, first: int, last: int) -> Span:
        return Span(self._borders[first], self._borders[last])

    def n_tokens(self, first: int, last: int) -> int:
        return self._tokens[last] - self._tokens[first]

    def is_space(self, unit: int) -> bool:
        return self._text[self._borders[unit] : self._borders[unit + 1]].isspace()

    def forward_from(self, first: int, n_tokens: int) -> int:
        """Find the unit after the last one that `n_tokens` from unit `first` on hold."""
        return bisect_right(self._tokens, self._tokens[first] + n_tokens) - 1

    def back_from(self, last: int, n_tokens: int) -> int:
        """Find the first of the units before `last` that `n_tokens` hold."""
        return bisect_left(self._tokens, self._tokens[last] - n_tokens)
