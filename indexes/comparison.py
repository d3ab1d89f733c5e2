"""How one ranking of documents differs from another: who entered the top k, who left, and how alike they are.

**Ties never make a document surface.** Where documents with tied scores stand on both sides of rank k, only
the order of their ids decides which of them are in the top k. Such documents are *on the border* of that
ranking. A document that is in one top k and not in the other has entered or left only if it is on the border
of neither; otherwise it is `TIED`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from indexes.errors import InvalidQueryError
from indexes.ranking import RankedDocument, Ranking, tied
from indexes.vector_index import check_count


class MovementStatus(StrEnum):
    """What happened to a document on the way from the reference to the other ranking."""

    ENTERED = "entered"
    LEFT = "left"
    TIED = "tied"
    MOVED = "moved"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Movement:
    """A document of either top k, with its place in both rankings; None where a ranking does not reach it."""

    doc_id: str
    reference: RankedDocument | None
    other: RankedDocument | None
    status: MovementStatus

    @property
    def rank_change(self) -> int | None:
        """The ranks gained on the way from the reference to the other; None if either rank is unknown."""
        if self.reference is None or self.other is None:
            return None
        return self.reference.rank - self.other.rank


def compare_rankings(reference: Ranking, other: Ranking, k: int) -> tuple[Movement, ...]:
    """Describe every document of either top k: the other's top k in its order, then who is missing there.

    The rankings must be deeper than k (or exhausted): the rest shows which ties stand across rank k, and from
    how far down a document came.

    Raises:
        InvalidQueryError: k below 1, or a ranking that ends at or before rank k without being exhausted.
    """
    check_count("k", k)
    places_reference = _Places.of(reference, k, "reference")
    places_other = _Places.of(other, k, "other")
    doc_ids = dict.fromkeys(other.doc_ids[:k] + reference.doc_ids[:k])
    return tuple(_movement(doc_id, places_reference, places_other) for doc_id in doc_ids)


def jaccard(reference: Sequence[str], other: Sequence[str], k: int) -> float:
    """Return the share of the two top k's documents that are in both; 1 if both are empty.

    P. Jaccard, "The distribution of the flora in the alpine zone", New Phytologist 11 (1912).
    """
    first, second = set(reference[:k]), set(other[:k])
    return len(first & second) / len(first | second) if first or second else 1.0


def rank_biased_overlap(reference: Sequence[str], other: Sequence[str], p: float = 0.9) -> float:
    """Return the extrapolated rank-biased overlap (RBO_EXT): 1 for equal rankings, 0 for disjoint ones.

    A reader looks at one more rank with probability `p`; p = 0.9 puts 86 % of the weight on the first ten.
    The rankings hold no document twice and may differ in length; two empty ones are equal.

    W. Webber, A. Moffat, J. Zobel, "A similarity measure for indefinite rankings", ACM TOIS 28(4), 2010,
    equation 32.
    """
    if not 0.0 < p < 1.0:
        raise ValueError(f"p must lie between 0 and 1, got {p}")
    short, long = sorted((reference, other), key=len)
    if not short:
        return 0.0 if long else 1.0
    overlap = _overlaps(short, long)
    n_short, n_long = len(short), len(long)
    at_short, at_long = overlap[n_short - 1], overlap[n_long - 1]
    seen = sum(overlap[d - 1] / d * p**d for d in range(1, n_long + 1))
    assumed = sum(at_short * (d - n_short) / (n_short * d) * p**d for d in range(n_short + 1, n_long + 1))
    rest = ((at_long - at_short) / n_long + at_short / n_short) * p**n_long
    return (1 - p) / p * (seen + assumed) + rest


def kendall_tau(reference: Sequence[str], other: Sequence[str]) -> float | None:
    """Return Kendall's tau-b over the documents of both rankings: 1 for the same order, -1 for the reverse.

    Documents that a ranking lacks are tied at its end. None where tau is undefined: a ranking without any two
    documents in order.

    M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33(3), 1945.
    """
    doc_ids = tuple(dict.fromkeys((*reference, *other)))
    first, second = _pair_orders(reference, doc_ids), _pair_orders(other, doc_ids)
    n_ordered = math.sqrt(np.count_nonzero(first) * np.count_nonzero(second))
    return float((first * second).sum() / n_ordered) if n_ordered else None


@dataclass(frozen=True, slots=True)
class _Places:
    """Where documents stand in one ranking, seen from its border at rank k."""

    k: int
    documents: dict[str, RankedDocument]
    border_score: float | None  # None: no tie stands across rank k
    border_is_open: bool  # the tie goes on below the last known document

    @classmethod
    def of(cls, ranking: Ranking, k: int, name: str) -> _Places:
        if len(ranking) <= k and not ranking.exhausted:
            raise InvalidQueryError(
                f"the {name} ranking has {len(ranking)} documents; comparing at k = {k} needs at least "
                f"{k + 1} to see ties across rank k"
            )
        scores = [document.score for document in ranking]
        is_split = len(scores) > k and tied(scores[k - 1], scores[k])
        return cls(
            k,
            {document.doc_id: document for document in ranking},
            scores[k - 1] if is_split else None,
            is_split and not ranking.exhausted and tied(scores[k - 1], scores[-1]),
        )

    def has_in_top(self, doc_id: str) -> bool:
        return doc_id in self.documents and self.documents[doc_id].rank <= self.k

    def has_on_border(self, doc_id: str) -> bool:
        if doc_id not in self.documents:
            return self.border_is_open
        return self.border_score is not None and tied(self.documents[doc_id].score, self.border_score)


def _movement(doc_id: str, reference: _Places, other: _Places) -> Movement:
    status = _status(doc_id, reference, other)
    return Movement(doc_id, reference.documents.get(doc_id), other.documents.get(doc_id), status)


def _status(doc_id: str, reference: _Places, other: _Places) -> MovementStatus:
    was_in, is_in = reference.has_in_top(doc_id), other.has_in_top(doc_id)
    if was_in and is_in:
        is_same = reference.documents[doc_id].rank == other.documents[doc_id].rank
        return MovementStatus.SAME if is_same else MovementStatus.MOVED
    if reference.has_on_border(doc_id) or other.has_on_border(doc_id):
        return MovementStatus.TIED
    return MovementStatus.ENTERED if is_in else MovementStatus.LEFT


def _overlaps(short: Sequence[str], long: Sequence[str]) -> list[int]:
    """Return, for each depth d from 1 to len(long), how many documents the first d of both have in common."""
    seen_short: set[str] = set()
    seen_long: set[str] = set()
    overlaps: list[int] = []
    for depth, doc_id in enumerate(long):
        seen_long.add(doc_id)
        seen_short.update(short[depth : depth + 1])
        overlaps.append(len(seen_short & seen_long))
    return overlaps


def _pair_orders(ranking: Sequence[str], doc_ids: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return, for each pair of `doc_ids`, the sign of the difference of their ranks: (n, n), 0 where tied."""
    ranks = {doc_id: rank for rank, doc_id in enumerate(ranking)}
    places = np.array([ranks.get(doc_id, len(ranking)) for doc_id in doc_ids], np.int64)
    signs: npt.NDArray[np.int64] = np.sign(places[:, np.newaxis] - places)
    return signs
