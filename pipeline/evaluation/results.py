"""What an evaluation found: figures by system and position group, and what they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline.evaluation.statistics import ArmComparison, GroupSummary

BM25 = "bm25"


@dataclass(frozen=True, slots=True)
class LengthClassResult:
    """One system on the questions whose gold document is of one length.

    Attributes:
        name: the class, in tokens.
        summary: of nDCG@k by position group.
    """

    name: str
    summary: GroupSummary


@dataclass(frozen=True, slots=True)
class SystemResult:
    """One arm, or BM25.

    Attributes:
        name: of the arm, or `bm25`.
        overall: mean over all questions, by measure.
        measures: by measure (`nDCG@10`, `recall@10`, `MRR@10`), summed up by position group.
        by_length: nDCG@k by length class, of classes with enough questions in every group.
        untruncated: nDCG@k of the questions whose gold documents were embedded whole at all their positions;
            None if all were, or if too few were.
        n_not_found: questions for which nothing was retrieved at all.
    """

    name: str
    overall: Mapping[str, float]
    measures: Mapping[str, GroupSummary]
    by_length: Sequence[LengthClassResult]
    untruncated: GroupSummary | None
    n_not_found: int

    @property
    def main(self) -> GroupSummary:
        """nDCG@k, which everything is judged by."""
        return next(iter(self.measures.values()))


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much better an arm is than the first, in nDCG@k on the same questions.

    Attributes:
        untruncated: the same on questions whose gold documents were embedded whole; None as there.
    """

    system: str
    reference: str
    difference: ArmComparison
    untruncated: ArmComparison | None


@dataclass(frozen=True, slots=True)
class GroupTruncation:
    """What was cut off in one position group.

    Attributes:
        n_queries: questions of the group.
        golds_cut: questions whose gold document was not embedded to its end.
        answers_cut: questions whose answer, or a part of it, lies behind the cut.
        answers_known: questions of which it is known where the answer stands.
    """

    group: str
    n_queries: int
    golds_cut: int
    answers_cut: int
    answers_known: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What an index of this kind takes: the other side of the figures.

    Attributes:
        n_vectors: of one arm.
        n_documents: that they stand for.
        dimension: of the vectors.
    """

    n_vectors: int
    n_documents: int
    dimension: int

    @property
    def vectors_per_document(self) -> float:
        """How many vectors a document has on average."""
        return self.n_vectors / self.n_documents if self.n_documents else 0.0

    @property
    def index_bytes(self) -> int:
        """Of an exact index of one arm: four bytes a number."""
        return 4 * self.n_vectors * self.dimension


@dataclass(frozen=True, slots=True)
class DataFacts:
    """The data set as it was measured on."""

    name: str
    layout: str
    protocol: str
    n_queries: int
    n_documents: int
    n_indexes: int
    group_names: Sequence[str]
    n_clusters: int
    is_paired: bool
    left_out: Mapping[str, int]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Everything that an evaluation found; the same for the same data, model and settings.

    Attributes:
        data: what was measured on.
        k: depth of the measures.
        systems: the arms in the order of the configuration, then BM25.
        comparisons: each further arm with the first.
        truncation: by position group.
        documents: counts of documents, chunks, tokens, documents cut, queries cut.
        cost: of each arm's index.
        warnings: what keeps the figures from meaning what they seem to mean.
        provenance: settings, seed, versions and fingerprints.
    """

    data: DataFacts
    k: int
    systems: Sequence[SystemResult]
    comparisons: Sequence[Comparison]
    truncation: Sequence[GroupTruncation]
    documents: Mapping[str, int]
    cost: Cost
    warnings: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def golds_cut(self) -> int:
        """Questions whose gold document was cut."""
        return sum(group.golds_cut for group in self.truncation)

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        cost = {
            **asdict(self.cost),
            "vectors_per_document": self.cost.vectors_per_document,
            "index_bytes": self.cost.index_bytes,
        }
        return {**asdict(self), "cost": cost}
