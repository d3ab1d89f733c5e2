"""What an A/B query returns: plain data, ready for a table or for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypedDict, TypeVar

from indexes import MovementStatus, RankedDocument, Ranking, jaccard, kendall_tau, rank_biased_overlap
from pipeline.ab.evidence import Evidence
from pipeline.ab.verdict import Explanation, Verdict


@dataclass(frozen=True, slots=True)
class Hit:
    """A document in one arm's ranking; the chunk is the document's best in that arm.

    Attributes:
        rank: counted from 1.
        score: inner product of query and chunk.
        ordinal, n_chunks: which chunk of how many (0 is the first).
        start, end: the chunk's character offsets in the document.
    """

    rank: int
    score: float
    ordinal: int
    n_chunks: int
    start: int
    end: int


_Place = TypeVar("_Place", Hit, RankedDocument)


def higher(other: _Place | None, reference: _Place | None) -> _Place:
    """The place in the arm that ranks a document higher: its chunk shows why it is there.

    One of them at least is a place; of equally high ones it is the other arm's.
    """
    return min((place for place in (other, reference) if place is not None), key=lambda place: place.rank)


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """A document that stands in the top k of at least one of two arms.

    Attributes:
        doc_id, title, doc_chars: the document, and its length in characters.
        status: how it moved from the reference arm to the other one.
        reference, other: its place in either arm; None below the depth that was looked at.
        evidence: where the answer seems to stand, in the best chunk of the arm that ranks it higher.
        explanation: why it moved; None for a document that did not move, or where nobody asked.
    """

    doc_id: str
    title: str
    doc_chars: int
    status: MovementStatus
    reference: Hit | None
    other: Hit | None
    evidence: Evidence | None
    explanation: Explanation | None = None

    @property
    def rank_change(self) -> int | None:
        """Ranks gained in the other arm (negative: lost); None where one rank is not known."""
        if self.reference is None or self.other is None:
            return None
        return self.reference.rank - self.other.rank

    @property
    def shown(self) -> Hit:
        """Its place in the arm that ranks it higher."""
        return higher(self.other, self.reference)


class Overlap(TypedDict):
    """How alike two top k's are, under the names that `ABResult` has for it."""

    jaccard: float
    rbo: float
    kendall_tau: float | None


def overlap(reference: Ranking, other: Ranking, k: int) -> Overlap:
    """Compare the top k's of two rankings."""
    first, second = reference.doc_ids[:k], other.doc_ids[:k]
    return {
        "jaccard": jaccard(first, second, k),
        "rbo": rank_biased_overlap(first, second),
        "kendall_tau": kendall_tau(first, second),
    }


@dataclass(frozen=True, slots=True)
class ABResult:
    """The answer to one query from two arms over the same rows.

    Attributes:
        query: as asked.
        n_tokens: of the query with prompt and special tokens, before any cut.
        truncated: whether the model saw only its beginning.
        build_id: the build that answered.
        reference_arm, other_arm: their names.
        k, depth: documents reported from each arm, and how deep ranks are known.
        n_documents: documents in the build; fewer than k mean fewer than k hits.
        documents: the other arm's top k in its order, then those that only the reference has.
        jaccard: share of the two top k's documents that both have.
        rbo: rank-biased overlap of the two top k's (p = 0.9).
        kendall_tau: tau-b over the union of the two top k's; None where undefined.
        seconds: wall time by step; of encode the query's share, where it was embedded with others.
    """

    query: str
    n_tokens: int
    truncated: bool
    build_id: str
    reference_arm: str
    other_arm: str
    k: int
    depth: int
    n_documents: int
    documents: tuple[DocumentResult, ...]
    jaccard: float
    rbo: float
    kendall_tau: float | None
    seconds: dict[str, float]

    def with_verdict(self, verdict: Verdict) -> list[DocumentResult]:
        """The documents that moved for one reason."""
        return [
            document
            for document in self.documents
            if document.explanation is not None and document.explanation.verdict is verdict
        ]

    def with_status(self, status: MovementStatus) -> list[DocumentResult]:
        """The documents that moved in one way."""
        return [document for document in self.documents if document.status is status]

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines, derived ones included."""
        value = asdict(self)
        for plain, document in zip(value["documents"], self.documents, strict=True):
            plain["rank_change"] = document.rank_change
        return value


@dataclass(frozen=True, slots=True)
class ArmsResult:
    """One query asked in several arms: a comparison with the reference for each other arm.

    Attributes:
        comparisons: one for each other arm, in the build's order; all of one build and one query.
    """

    comparisons: tuple[ABResult, ...]

    def against(self, arm: str) -> ABResult:
        """The comparison of the reference with one arm.

        Raises:
            KeyError: that arm was not asked.
        """
        return {result.other_arm: result for result in self.comparisons}[arm]


@dataclass(frozen=True, slots=True)
class RankedHit:
    """A document found by one arm alone, with the chunk that put it there."""

    doc_id: str
    title: str
    doc_chars: int
    hit: Hit
    text: str


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The answer of one arm: production search without comparison.

    Attributes:
        documents: at most k, best first.
        seconds: wall time by step, as in `ABResult`.
    """

    query: str
    n_tokens: int
    truncated: bool
    build_id: str
    arm: str
    k: int
    n_documents: int
    documents: tuple[RankedHit, ...]
    seconds: dict[str, float]
