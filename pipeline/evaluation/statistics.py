"""What a table by answer position says, and how sure one can be of it.

    PSI = 1 - min(group means) / max(group means)        (the Position Sensitivity Index of the papers)

PSI over noisy means is above 0 even where position does not matter; so it never stands alone here, but with
the level expected by chance and a permutation p-value (`pipeline.evaluation.permutation`). Intervals come
from a bootstrap over clusters (`pipeline.evaluation.bootstrap`). The tests of these claims are simulations:
intervals cover what they should, p-values are uniform where nothing is to be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import DataError

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

ROUNDS = 10_000


class Design:
    """Which queries stand in which position group, and which of them belong together.

    Attributes:
        names: the groups in order, such as `("0", "1", "2")`; each holds at least one query.
        groups: (n_queries,) group of each query, as a number into `names`.
        clusters: (n_queries,) cluster of each query; clusters are independent of each other.
        is_paired: whether the same questions stand in every group equally often in every cluster, so that
            groups may be permuted within a cluster.

    Args:
        groups: the group's name of each query.
        names: the groups in order; by default sorted.
        questions: of each query, which question it asks; the same question in several groups is a pair.
        clusters: of each query, what it shares with others (its document, article or paper); by default its
            question, else itself.

    Raises:
        DataError: a group without queries, or columns of different lengths.
    """

    def __init__(
        self,
        groups: Sequence[str],
        *,
        names: Sequence[str] | None = None,
        questions: Sequence[str] | None = None,
        clusters: Sequence[str] | None = None,
    ) -> None:
        self.names: tuple[str, ...] = tuple(sorted(set(groups)) if names is None else names)
        own = questions if clusters is None else clusters
        for column in (questions, clusters):
            if column is not None and len(column) != len(groups):
                raise DataError(f"expected one entry for each of {len(groups)} queries, got {len(column)}")
        self.groups = _codes_in(groups, self.names)
        self.clusters: Codes = np.arange(len(groups)) if own is None else _codes(own)
        self.is_paired = questions is not None and self._is_balanced(_codes(questions))

    @property
    def n_queries(self) -> int:
        """How many queries there are."""
        return len(self.groups)

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return len(self.names)

    @cached_property
    def n_clusters(self) -> int:
        """How many independent clusters there are."""
        return int(self.clusters.max()) + 1

    @cached_property
    def counts(self) -> Floats:
        """(n_clusters, n_groups): queries of each cluster in each group."""
        return self.sums(np.ones(self.n_queries))

    def sums(self, values: Floats) -> Floats:
        """(n_clusters, n_groups): the sum of the values of each cluster in each group."""
        cells = self.clusters * self.n_groups + self.groups
        flat = np.zeros(self.n_clusters * self.n_groups)
        np.add.at(flat, cells, values)
        return flat.reshape(self.n_clusters, self.n_groups)

    def means(self, values: Floats) -> Floats:
        """(n_groups,): the mean of the values, shape (n_queries,), of each group."""
        return np.asarray(self.sums(values).sum(axis=0) / self.counts.sum(axis=0))

    def select(self, queries: NDArray[np.bool_]) -> Design:
        """The design of some of the queries; `queries` is a mask (n_queries,)."""
        chosen = object.__new__(Design)
        chosen.names = self.names
        chosen.groups = self.groups[queries]
        chosen.clusters = np.unique(self.clusters[queries], return_inverse=True)[1]
        chosen.is_paired = self.is_paired and bool(np.ptp(chosen.counts, axis=1).max(initial=0) == 0)
        _check_filled(chosen.groups, chosen.names)
        return chosen

    def _is_balanced(self, questions: Codes) -> bool:
        """Whether each question stands equally often in every group, and wholly in one cluster."""
        cells = questions * self.n_groups + self.groups
        n_questions = int(questions.max()) + 1
        table = np.bincount(cells, minlength=n_questions * self.n_groups).reshape(n_questions, self.n_groups)
        homes = np.unique(np.stack([questions, self.clusters]), axis=1).shape[1]
        return bool((np.ptp(table, axis=1) == 0).all()) and homes == n_questions


def harmonic_mean(means: Floats) -> Floats:
    """The harmonic mean over the last axis; 0 where any mean is 0, NaN where one is not defined."""
    # A NaN stays one: in a resample a group without queries must not pass for one that scored 0.
    inverse = np.divide(1.0, means, out=np.full_like(means, np.inf), where=~(means <= 0))
    return np.asarray(means.shape[-1] / inverse.sum(axis=-1))


def position_sensitivity(means: Floats) -> Floats:
    """PSI over the last axis: 1 - min / max; 0 where all means are 0, NaN where one is not defined."""
    highest = np.asarray(means.max(axis=-1))
    ratio = np.divide(means.min(axis=-1), highest, out=np.ones_like(highest), where=~(highest <= 0))
    return np.asarray(1.0 - ratio)


def holm(p_values: Floats) -> Floats:
    """Adjust p-values for their number by Holm's step-down procedure, in the order given."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    stepped = np.maximum.accumulate(p_values[order] * factors)
    adjusted = np.empty_like(stepped)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def all_statistics(means: Floats) -> Floats:
    """(..., n_groups + 2): the group means, then their harmonic mean, then PSI."""
    return np.concatenate(
        [means, harmonic_mean(means)[..., None], position_sensitivity(means)[..., None]], axis=-1
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval (95 % unless asked otherwise)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PsiTest:
    """PSI beside what chance alone would give.

    Attributes:
        value: PSI as observed.
        chance: its mean where groups mean nothing.
        chance_high: the level that chance exceeds in 5 % of cases.
        p_value: how often chance gives at least the observed PSI.
    """

    value: float
    chance: float
    chance_high: float
    p_value: float


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One arm's table by position: `means[i]` is the estimate of group `names[i]`."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    means: tuple[Estimate, ...]
    harmonic_mean: Estimate
    psi: Estimate
    psi_test: PsiTest


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher one arm's figure is than another's, with interval and p-value.

    `p_holm` is the p-value corrected for the number of groups; for harmonic mean and PSI it is `p_value`.
    """

    value: float
    low: float
    high: float
    p_value: float
    p_holm: float


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """An arm against another on the same queries: `groups[i]` is about group `names[i]`."""

    names: tuple[str, ...]
    groups: tuple[Difference, ...]
    harmonic_mean: Difference
    psi: Difference


def summarise(
    values: Floats, design: Design, *, rounds: int = ROUNDS, seed: int = 0, level: float = 0.95
) -> GroupSummary:
    """Summarise one measure of one arm by position group.

    Args:
        values: (n_queries,), such as nDCG@10 of each query.
        design: which query stands where.
        rounds: of the bootstrap and of the permutation.
        seed: the same seed gives the same figures, and the same resamples for every arm.
        level: of the intervals.
    """
    from pipeline.evaluation.bootstrap import intervals
    from pipeline.evaluation.permutation import psi_test

    estimates = intervals(values, design, rounds=rounds, seed=seed, level=level)
    *means, overall, psi = estimates
    counts = tuple(int(count) for count in design.counts.sum(axis=0))
    test = psi_test(values, design, rounds=rounds, seed=seed)
    if test.p_value > (1 - level) / 2:
        # The interval holds what the test cannot exclude; a resampled PSI alone would never be 0.
        psi = replace(psi, low=0.0)
    return GroupSummary(design.names, counts, tuple(means), overall, psi, test)


def compare_arms(
    values: Floats,
    reference: Floats,
    design: Design,
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    level: float = 0.95,
) -> ArmComparison:
    """Compare one measure of two arms on the same queries; differences are `values` less `reference`.

    Args:
        values: (n_queries,) of the one arm.
        reference: (n_queries,) of the arm that it is compared with.
        design: which query stands where.
        rounds: of the bootstrap and of the permutation.
        seed: the same seed gives the same figures.
        level: of the intervals.
    """
    from pipeline.evaluation.bootstrap import difference_intervals
    from pipeline.evaluation.permutation import arm_p_values, psi_test

    spans = difference_intervals(values, reference, design, rounds=rounds, seed=seed, level=level)
    p_values = arm_p_values(values, reference, design, rounds=rounds, seed=seed)
    n_groups = design.n_groups
    corrected = np.concatenate([holm(p_values[:n_groups]), p_values[n_groups:]])
    *groups, overall, psi = (
        Difference(span.value, span.low, span.high, float(p), float(p_holm))
        for span, p, p_holm in zip(spans, p_values, corrected, strict=True)
    )
    own, other = (psi_test(arm, design, rounds=rounds, seed=seed) for arm in (values, reference))
    least = (1 - level) / 2
    # PSI that may be all chance may as well be 0; resampled differences alone do not reach so far.
    low = psi.low - own.value if own.p_value > least else psi.low
    high = psi.high + other.value if other.p_value > least else psi.high
    return ArmComparison(design.names, tuple(groups), overall, replace(psi, low=low, high=high))


def _codes(labels: Sequence[str]) -> Codes:
    return np.asarray(np.unique(np.asarray(labels, dtype=str), return_inverse=True)[1], dtype=np.int64)


def _codes_in(labels: Sequence[str], names: Sequence[str]) -> Codes:
    numbers = {name: number for number, name in enumerate(names)}
    if unknown := sorted({label for label in labels if label not in numbers}):
        raise DataError(f"position groups {unknown} are not among {list(names)}")
    codes = np.array([numbers[label] for label in labels], dtype=np.int64)
    _check_filled(codes, names)
    return codes


def _check_filled(codes: Codes, names: Sequence[str]) -> None:
    counts = np.bincount(codes, minlength=len(names))
    if empty := [name for name, count in zip(names, counts, strict=True) if count == 0]:
        raise DataError(
            f"position groups {empty} hold no query, so that no mean is defined; leave these groups out"
        )
