"""From each query's scores to tables by position group, length class and truncation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.config import EvaluateSettings
from pipeline.evaluation.cutting import DocumentLength
from pipeline.evaluation.datasets.positions import LENGTH_CLASSES, length_class
from pipeline.evaluation.datasets.records import EvaluationQuery, EvaluationSet
from pipeline.evaluation.metrics import QueryScores
from pipeline.evaluation.results import Comparison, GroupTruncation, LengthClassResult, SystemResult
from pipeline.evaluation.statistics import Design, GroupSummary, compare_arms, summarise

Mask = NDArray[np.bool_]

# An answer behind the cut cannot be found: from so many of a group on, the group's figure says more of
# truncation than of position.
_TELLING_SHARE = 0.01
# Fewer independent documents (articles, papers) say nothing: no interval of theirs could be believed.
_FEWEST_CLUSTERS = 10


def design_of(queries: Sequence[EvaluationQuery], names: Sequence[str]) -> Design:
    """The statistical design of some queries; `names` are groups that hold some of them."""
    return Design(
        [query.group for query in queries],
        names=names,
        questions=[query.question_id for query in queries],
        clusters=[query.cluster for query in queries],
    )


@dataclass(frozen=True)
class Tables:
    """Makes the tables of one set: which queries count where is decided once for all systems.

    Attributes:
        data: the set.
        settings: rounds and seed.
        design: of all queries.
        untruncated: queries whose gold documents were embedded whole at all their positions; None if all
            were, or if too few.
        by_length: queries of each length class that has enough of them.
    """

    data: EvaluationSet
    settings: EvaluateSettings
    design: Design
    untruncated: Mask | None
    by_length: Mapping[str, Mask]

    @classmethod
    def of(
        cls, data: EvaluationSet, settings: EvaluateSettings, lengths: Mapping[str, DocumentLength]
    ) -> Tables:
        """Decide which queries count where."""
        cut = {query.question_id for query in data.queries if is_gold_cut(query, lengths)}
        whole = np.array([query.question_id not in cut for query in data.queries])
        tokens = [
            lengths[query.gold_doc].n_tokens if query.n_tokens is None else query.n_tokens
            for query in data.queries
        ]
        classes = np.array([length_class(number) for number in tokens])
        masks = {name: classes == name for name in LENGTH_CLASSES}
        return cls(
            data,
            settings,
            design_of(data.queries, data.group_names),
            whole if not whole.all() and _is_enough(data, whole) else None,
            {name: mask for name, mask in masks.items() if _is_enough(data, mask)},
        )

    def system(self, name: str, scores: QueryScores) -> SystemResult:
        """Sum up one system."""
        measures = scores.by_name
        ndcg = next(iter(measures.values()))
        return SystemResult(
            name=name,
            overall={measure: float(values.mean()) for measure, values in measures.items()},
            measures={measure: self._summary(values, self.design) for measure, values in measures.items()},
            by_length=tuple(
                LengthClassResult(length, self._summary(ndcg[mask], self._part(mask)))
                for length, mask in self.by_length.items()
            ),
            untruncated=self._untruncated(ndcg),
            n_not_found=len(scores.missing),
        )

    def comparison(
        self, system: str, scores: QueryScores, reference: str, of_reference: QueryScores
    ) -> Comparison:
        """Compare an arm with the first on the same queries."""
        values, base = scores.ndcg, of_reference.ndcg
        options = {"rounds": self.settings.rounds, "seed": self.settings.seed}
        whole = self.untruncated
        return Comparison(
            system,
            reference,
            compare_arms(values, base, self.design, **options),
            None if whole is None else compare_arms(values[whole], base[whole], self._part(whole), **options),
        )

    def _untruncated(self, ndcg: NDArray[np.float64]) -> GroupSummary | None:
        if self.untruncated is None:
            return None
        return self._summary(ndcg[self.untruncated], self._part(self.untruncated))

    def _summary(self, values: NDArray[np.float64], design: Design) -> GroupSummary:
        return summarise(values, design, rounds=self.settings.rounds, seed=self.settings.seed)

    def _part(self, mask: Mask) -> Design:
        queries = [query for query, chosen in zip(self.data.queries, mask, strict=True) if chosen]
        return design_of(queries, self.data.group_names)


def is_gold_cut(query: EvaluationQuery, lengths: Mapping[str, DocumentLength]) -> bool:
    """Whether the gold document of a query was not embedded to its end."""
    return lengths[query.gold_doc].is_cut


def count_truncation(
    data: EvaluationSet, lengths: Mapping[str, DocumentLength]
) -> tuple[GroupTruncation, ...]:
    """Count by position group what was cut off."""
    queries: Counter[str] = Counter(query.group for query in data.queries)
    known: Counter[str] = Counter(query.group for query in data.queries if query.span is not None)
    golds: Counter[str] = Counter(query.group for query in data.queries if is_gold_cut(query, lengths))
    answers: Counter[str] = Counter(
        query.group
        for query in data.queries
        if query.span is not None
        and is_gold_cut(query, lengths)
        and query.span[1] > lengths[query.gold_doc].seen
    )
    return tuple(
        GroupTruncation(name, queries[name], golds[name], answers[name], known[name])
        for name in data.group_names
    )


def warnings_of(
    data: EvaluationSet, tables: Tables, truncation: Sequence[GroupTruncation], counts: Mapping[str, int]
) -> Iterator[str]:
    """Say what keeps the figures from meaning what they seem to mean."""
    yield from _truncation_warnings(truncation, tables)
    if counts["queries_cut"]:
        yield f"{counts['queries_cut']:,} queries are too long for the model; their beginning was embedded"
    if counts["invisible"]:
        yield f"the tokenizer sees nothing of {counts['invisible']:,} documents; they cannot be found"
    yield from set_warnings(data, tables.design)


def set_warnings(data: EvaluationSet, design: Design) -> Iterator[str]:
    """Say what keeps figures from being believed that are measured on this set, however it is embedded."""
    if design.n_clusters < _FEWEST_CLUSTERS:
        yield (
            f"there are only {design.n_clusters} independent clusters: do not believe the intervals and "
            "p-values"
        )
    if not data.has_positions:
        yield "nothing is known of where answers stand, so that there is no figure by position"
    elif not design.is_paired:
        yield (
            "the groups hold different questions, which may be easier or harder in themselves: read PSI "
            "beside that of BM25, which cannot see position"
        )
    yield from data.notes


def _truncation_warnings(truncation: Sequence[GroupTruncation], tables: Tables) -> Iterator[str]:
    golds_cut = sum(group.golds_cut for group in truncation)
    if not golds_cut:
        return
    n_queries = sum(group.n_queries for group in truncation)
    sentence = (
        f"{golds_cut:,} of {n_queries:,} questions have a gold document that was cut at the model's limit"
    )
    if any(group.answers_known for group in truncation):
        parts = ", ".join(f"{group.group}: {group.answers_cut:,}" for group in truncation)
        sentence += f"; answers behind the cut by group: {parts}"
        if any(group.answers_cut > _TELLING_SHARE * group.n_queries for group in truncation):
            sentence += "; truncation passes for position bias there"
    else:
        sentence += "; how many answers lie behind the cut is not known"
    if tables.untruncated is None:
        sentence += ". Too few gold documents fit to measure on these alone; use --chunk-tokens"
    else:
        sentence += ". Read the rows of untruncated questions, or use --chunk-tokens"
    yield sentence


def _is_enough(data: EvaluationSet, mask: Iterable[bool]) -> bool:
    """Whether some queries fill every group and come from enough clusters to be summed up."""
    chosen = [query for query, is_chosen in zip(data.queries, mask, strict=True) if is_chosen]
    clusters = {query.cluster for query in chosen}
    return {query.group for query in chosen} == set(data.group_names) and len(clusters) >= _FEWEST_CLUSTERS
