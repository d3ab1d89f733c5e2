"""Every order of a set of segments, or a balanced part of them, and the documents that they make."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import factorial

from pipeline.diagnostics.segments import SEPARATOR, Segment, SegmentSet

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """The language of one segment (at the place where languages mix) and of the rest; mostly the same."""

    one: str
    rest: str

    @property
    def label(self) -> str:
        """How it is called in tables and plots."""
        return self.one if self.one == self.rest else f"{self.one} in {self.rest}"


@dataclass(frozen=True)
class PermutedDocument:
    """The segments of a set in one order.

    Attributes:
        set_id: its segment set.
        order: which segment of the set stands at each place.
        pair: its languages.
        segments: place by place.
    """

    set_id: str
    order: Order
    pair: LanguagePair
    segments: tuple[Segment, ...]

    @property
    def doc_id(self) -> str:
        """Set, languages and order."""
        return f"{self.set_id}|{self.pair.label}|{''.join(str(place + 1) for place in self.order)}"

    @cached_property
    def text(self) -> str:
        """The segments, joined by blank lines."""
        return SEPARATOR.join(segment.text for segment in self.segments)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Where each segment stands in the text, in characters."""
        spans, start = [], 0
        for segment in self.segments:
            spans.append((start, start + len(segment.text)))
            start += len(segment.text) + len(SEPARATOR)
        return spans


def orders_of_sets(n_sets: int, n: int, limit: int, seed: int) -> Iterator[list[Order]]:
    """Deal orders to sets: all n! of them, or as many as the limit allows, evenly.

    Orders come in groups of n, the rotations of one order: within a group every segment stands at every
    place once. Where not all groups are taken, a shuffled pack of them is dealt round, so that over all sets
    no order is taken more than once oftener than another.

    Args:
        n_sets: sets to serve.
        n: segments of a set.
        limit: the most orders of a set, at least n.
        seed: shuffles the pack.
    """
    if limit >= factorial(n):
        yield from ([list(permutations(range(n)))] * n_sets)
        return
    pack = [(0, *rest) for rest in permutations(range(1, n))]
    random.Random(seed).shuffle(pack)  # noqa: S311
    groups = limit // n
    for number in range(n_sets):
        dealt = (pack[(number * groups + group) % len(pack)] for group in range(groups))
        yield [(*order[shift:], *order[:shift]) for order in dealt for shift in range(n)]


def language_pairs(languages: Sequence[str], *, mixed: bool) -> list[LanguagePair]:
    """Every language by itself and, if mixed, every other pair."""
    if not mixed:
        return [LanguagePair(language, language) for language in languages or ("",)]
    pairs = [LanguagePair(one, rest) for rest, one in product(languages, repeat=2)]
    return sorted(pairs, key=lambda pair: pair.one != pair.rest)


def documents_of(
    segment_set: SegmentSet,
    orders: Sequence[Order],
    pairs: Sequence[LanguagePair],
    *,
    mixed_at: int,
) -> list[PermutedDocument]:
    """Make the documents of a set: every order in every language pair."""
    return [_arranged(segment_set, order, pair, mixed_at - 1) for pair in pairs for order in orders]


def _arranged(segment_set: SegmentSet, order: Order, pair: LanguagePair, mixed_at: int) -> PermutedDocument:
    segments = tuple(
        segment_set.segments[segment][pair.one if place == mixed_at else pair.rest]
        for place, segment in enumerate(order)
    )
    return PermutedDocument(segment_set.set_id, order, pair, segments)
