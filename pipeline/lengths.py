"""Lengths in tokens, counted as they stream by."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """How many lengths lie from `lowest` to `highest`, both included."""

    lowest: int
    highest: int
    count: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many lengths there are, their sum, the extremes, and a histogram without empty ends."""

    count: int
    total: int
    shortest: int
    longest: int
    histogram: tuple[Bar, ...]

    @property
    def mean(self) -> float:
        """The mean length; 0 of nothing."""
        return self.total / self.count if self.count else 0.0


class LengthCounter:
    """Counts lengths in as much memory as there are bars.

    Args:
        edges: the highest length of each bar, ascending; what is longer than all belongs to the last.
    """

    def __init__(self, edges: Sequence[int]) -> None:
        self._edges = edges
        self._bars: Counter[int] = Counter()
        self._total = 0
        self._shortest = self._longest = 0

    def add(self, length: int) -> None:
        """Count one length."""
        self._shortest = min(self._shortest, length) if self._bars else length
        self._longest = max(self._longest, length)
        self._total += length
        self._bars[min(bisect_left(self._edges, length), len(self._edges) - 1)] += 1

    def result(self) -> Lengths:
        """Sum up what was counted."""
        used = range(min(self._bars), max(self._bars) + 1) if self._bars else range(0)
        bars = tuple(Bar(self._lowest(bar), self._edges[bar], self._bars[bar]) for bar in used)
        return Lengths(self._bars.total(), self._total, self._shortest, self._longest, bars)

    def _lowest(self, bar: int) -> int:
        return self._edges[bar - 1] + 1 if bar else 0
