"""What many comparisons come to: who surfaced and why, where the evidence stands; overlap, gold, latency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from indexes import MovementStatus
from pipeline.ab.comparing import QUERIES_PER_BATCH, QueryAnswer
from pipeline.ab.moves import Move, Third, change, count_moves, third_of
from pipeline.ab.results import ABResult
from pipeline.ab.verdict import Verdict

Cell = tuple[Move, Verdict | None, Third | None]


@dataclass(frozen=True, slots=True)
class GoldFigures:
    """How well one arm finds the gold documents of some queries.

    Attributes:
        n_queries: those with gold.
        mrr: mean reciprocal rank of the best gold document; below the depth that was looked at it is 0.
        in_top: queries with a gold document in the top k.
    """

    n_queries: int
    mrr: float
    in_top: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Wall time of one step in seconds, over all queries; of embedding, a query's share of its batch's."""

    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class Totals:
    """One comparison over all queries.

    Attributes:
        reference_arm, other_arm: their names.
        k: documents compared.
        n_queries: asked.
        n_changed: whose top k's differ in their documents or the order of them.
        moves: documents by move, verdict and third of the evidence; None where it is not known.
        jaccard, rbo: means over the queries.
        kendall_tau: mean over the queries where it is defined; None where it is nowhere.
        gold: by arm, then by third of the gold answer and "all"; empty without gold.
        latency: by step.
    """

    reference_arm: str
    other_arm: str
    k: int
    n_queries: int
    n_changed: int
    moves: Mapping[Cell, int]
    jaccard: float
    rbo: float
    kendall_tau: float | None
    gold: Mapping[str, Mapping[str, GoldFigures]]
    latency: Mapping[str, Latency]

    @property
    def batch(self) -> int:
        """How many queries were embedded together, at most."""
        return min(self.n_queries, QUERIES_PER_BATCH)

    def step_words(self, step: str) -> str:
        """What a step's time is the time of."""
        is_share = step == "encode" and self.batch > 1
        return f"{step} (share of a batch of up to {self.batch})" if is_share else step

    @property
    def has_evidence(self) -> bool:
        """Whether evidence was looked for: without, nothing can be said by position."""
        return not self.moves or any(third is not None for _, _, third in self.moves)

    @property
    def has_verdicts(self) -> bool:
        """Whether it was tested why documents moved."""
        return not self.moves or any(verdict is not None for _, verdict, _ in self.moves)

    def count(self, move: Move, *, verdict: Verdict | None = None, third: Third | None = None) -> int:
        """Documents that moved in one way, of one verdict or third where asked."""
        return sum(
            n
            for (moved, why, where), n in self.moves.items()
            if moved is move and verdict in (None, why) and third in (None, where)
        )

    @property
    def late_answers(self) -> int | None:
        """Documents surfaced by a late answer; None where it was not tested."""
        return self.count(Move.SURFACED, verdict=Verdict.LATE_ANSWER) if self.has_verdicts else None

    @property
    def early_answers(self) -> int | None:
        """Documents that left because their answer stands early; None where it was not tested."""
        return self.count(Move.LEFT, verdict=Verdict.EARLY_ANSWER) if self.has_verdicts else None

    def unplaced(self, move: Move) -> int:
        """Documents that moved in one way and have no evidence."""
        return sum(n for (moved, _, where), n in self.moves.items() if moved is move and where is None)

    def net(self, third: Third) -> int:
        """Documents surfaced less documents left, with their evidence in one third of the chunk."""
        return self.count(Move.SURFACED, third=third) - self.count(Move.LEFT, third=third)

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        tables = {
            move.value: {
                "documents": self.count(move),
                "by_verdict": {verdict.value: self.count(move, verdict=verdict) for verdict in Verdict},
                "by_third": {third.value: self.count(move, third=third) for third in Third}
                | {"unknown": self.unplaced(move)},
            }
            for move in Move
        }
        return {
            "reference_arm": self.reference_arm,
            "other_arm": self.other_arm,
            "k": self.k,
            "queries": self.n_queries,
            "queries_changed": self.n_changed,
            "surfaced_by_late_answers": self.late_answers,
            "lost_early_answers": self.early_answers,
            "net_by_third": {third.value: self.net(third) for third in Third} if self.has_evidence else None,
            "moves": tables,
            "means": {"jaccard": self.jaccard, "rbo": self.rbo, "kendall_tau": self.kendall_tau},
            "gold": {
                arm: {name: asdict(figures) for name, figures in groups.items()}
                for arm, groups in self.gold.items()
            },
            "latency_seconds": {step: asdict(latency) for step, latency in self.latency.items()},
            "queries_per_batch": self.batch if self.latency else None,
        }


def most_changed(answers: Iterable[QueryAnswer], arm: int) -> list[QueryAnswer]:
    """The answers by falling change of one comparison; of equal ones, in the order of their ids."""
    return sorted(answers, key=lambda answer: (-change(answer.comparisons[arm]), answer.query.query_id))


def total(answers: Sequence[QueryAnswer], arm: int) -> Totals:
    """Sum up one comparison of at least one query: the reference with the other arm of that number."""
    results = [answer.comparisons[arm] for answer in answers]
    first = results[0]
    taus = [result.kendall_tau for result in results if result.kendall_tau is not None]
    return Totals(
        reference_arm=first.reference_arm,
        other_arm=first.other_arm,
        k=first.k,
        n_queries=len(results),
        n_changed=sum(_is_changed(result) for result in results),
        moves=Counter(cell for result in results for cell in _cells(result)),
        jaccard=fmean(result.jaccard for result in results),
        rbo=fmean(result.rbo for result in results),
        kendall_tau=fmean(taus) if taus else None,
        gold=_gold(answers, first),
        latency=_latency(results),
    )


def _is_changed(result: ABResult) -> bool:
    return any(document.status is not MovementStatus.SAME for document in result.documents)


def _cells(result: ABResult) -> Iterable[Cell]:
    for document in result.documents:
        if (move := Move.of(document)) is not None:
            verdict = document.explanation.verdict if document.explanation else None
            yield move, verdict, third_of(document)


def _gold(answers: Sequence[QueryAnswer], result: ABResult) -> dict[str, dict[str, GoldFigures]]:
    with_gold = [answer for answer in answers if answer.query.gold]
    if not with_gold:
        return {}
    groups = {"all": with_gold}
    for third in Third:
        groups[third.value] = [answer for answer in with_gold if _gold_third(answer) is third]
    return {
        arm: {name: _gold_figures(group, arm, result.k) for name, group in groups.items() if group}
        for arm in (result.reference_arm, result.other_arm)
    }


def _gold_third(answer: QueryAnswer) -> Third | None:
    return Third.of(answer.gold_position) if answer.gold_position is not None else None


def _gold_figures(answers: Sequence[QueryAnswer], arm: str, k: int) -> GoldFigures:
    ranks = [answer.gold_rank(arm) for answer in answers]
    return GoldFigures(
        n_queries=len(ranks),
        mrr=fmean(1 / rank if rank else 0.0 for rank in ranks),
        in_top=sum(rank is not None and rank <= k for rank in ranks),
    )


def _latency(results: Sequence[ABResult]) -> dict[str, Latency]:
    steps = dict.fromkeys(step for result in results for step in result.seconds)
    latencies = {}
    for step in steps:
        seconds = [result.seconds[step] for result in results if step in result.seconds]
        p50, p95 = np.percentile(seconds, [50, 95])
        latencies[step] = Latency(float(p50), float(p95))
    return latencies


def query_row(answer: QueryAnswer, arm: int) -> dict[str, Any]:
    """One comparison of one query in figures, for machines; None stands for what was not tested."""
    result = answer.comparisons[arm]
    moves = Counter(move for document in result.documents if (move := Move.of(document)) is not None)
    was_tested = not moves or any(document.explanation for document in result.documents)
    late, early = (
        count_moves(result, move, verdict) if was_tested else None
        for move, verdict in ((Move.SURFACED, Verdict.LATE_ANSWER), (Move.LEFT, Verdict.EARLY_ANSWER))
    )
    return {
        "query_id": answer.query.query_id,
        "query": answer.query.text,
        "other_arm": result.other_arm,
        "change": change(result),
        "jaccard": result.jaccard,
        "rbo": result.rbo,
        "kendall_tau": result.kendall_tau,
        **{move.value: moves[move] for move in Move},
        "surfaced_by_late_answers": late,
        "lost_early_answers": early,
        "gold_rank": {name: answer.gold_rank(name) for name in (result.reference_arm, result.other_arm)}
        if answer.query.gold
        else None,
        "gold_third": third.value if (third := _gold_third(answer)) else None,
    }
