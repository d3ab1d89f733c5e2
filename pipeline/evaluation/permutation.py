"""How large a figure chance alone would make, and how often: p-values by permuting labels.

Position groups (`psi_test`), the null hypothesis being that position does not matter:

- the same questions in every group: groups change places within each cluster;
- independent queries: groups change places over all queries;
- queries that share documents, groups unequal within them: the sign of each cluster's deviations from the
  overall mean is flipped (the wild cluster bootstrap of Cameron, Gelbach and Miller 2008, with the null
  hypothesis imposed), since no exchange of labels would leave the clusters intact.

Arms (`arm_p_values`), the null hypothesis being that the arms are alike: the arms change places within each
cluster, which is the sign-flip test of paired differences.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics import (
    Design,
    Floats,
    PsiTest,
    all_statistics,
    position_sensitivity,
)

_CELLS = 4_000_000
# Permuted figures that differ from the observed one only by rounding count as equal to it.
_ROUNDING = 1e-12


def psi_test(values: Floats, design: Design, *, rounds: int, seed: int) -> PsiTest:
    """Compare PSI of the values, (n_queries,), with what chance gives."""
    observed = float(position_sensitivity(design.means(values)))
    by_chance = np.concatenate(
        [position_sensitivity(means) for means in _means_by_chance(values, design, rounds, seed)]
    )
    return PsiTest(
        value=observed,
        chance=float(by_chance.mean()),
        chance_high=float(np.quantile(by_chance, 0.95)),
        p_value=_share_at_least(by_chance, observed),
    )


def arm_p_values(
    values: Floats, reference: Floats, design: Design, *, rounds: int, seed: int
) -> NDArray[np.float64]:
    """Two-sided p-values (n_groups + 2,) of the differences: group means, harmonic mean, PSI."""
    generator = np.random.default_rng(seed)
    own, other = design.sums(values), design.sums(reference)
    sizes = design.counts.sum(axis=0)
    difference = other - own
    observed = np.abs(all_statistics(own.sum(axis=0) / sizes) - all_statistics(other.sum(axis=0) / sizes))
    n_extreme = np.zeros(design.n_groups + 2)
    for n_rounds in _parts(rounds, design.n_clusters):
        swapped = generator.integers(2, size=(n_rounds, design.n_clusters)).astype(np.float64) @ difference
        first = all_statistics((own.sum(axis=0) + swapped) / sizes)
        second = all_statistics((other.sum(axis=0) - swapped) / sizes)
        n_extreme += (np.abs(first - second) >= observed - _ROUNDING).sum(axis=0)
    return (1 + n_extreme) / (1 + rounds)


def _means_by_chance(values: Floats, design: Design, rounds: int, seed: int) -> Iterator[Floats]:
    """Yield (some rounds, n_groups): group means where the groups mean nothing."""
    generator = np.random.default_rng(seed)
    if design.is_paired:
        return _exchanged_within(values, design, rounds, generator)
    if design.n_clusters == design.n_queries:
        return _exchanged_over_all(values, design, rounds, generator)
    return _signs_flipped(values, design, rounds, generator)


def _exchanged_within(
    values: Floats, design: Design, rounds: int, generator: np.random.Generator
) -> Iterator[Floats]:
    sums = design.sums(values)
    sizes = design.counts.sum(axis=0)
    for n_rounds in _parts(rounds, sums.size):
        copies = np.broadcast_to(sums, (n_rounds, *sums.shape))
        yield generator.permuted(copies, axis=2).sum(axis=1) / sizes


def _exchanged_over_all(
    values: Floats, design: Design, rounds: int, generator: np.random.Generator
) -> Iterator[Floats]:
    order = np.argsort(design.groups, kind="stable")
    sizes = design.counts.sum(axis=0)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    for n_rounds in _parts(rounds, design.n_queries):
        copies = np.broadcast_to(values[order], (n_rounds, design.n_queries))
        yield np.add.reduceat(generator.permuted(copies, axis=1), starts, axis=1) / sizes


def _signs_flipped(
    values: Floats, design: Design, rounds: int, generator: np.random.Generator
) -> Iterator[Floats]:
    sizes = design.counts.sum(axis=0)
    # From the overall mean, not from each group's: those have taken up part of the noise, and p-values of few
    # clusters would come out too small.
    deviations = design.sums(values - values.mean())
    for n_rounds in _parts(rounds, design.n_clusters):
        signs = generator.choice((-1.0, 1.0), size=(n_rounds, design.n_clusters))
        yield values.mean() + signs @ deviations / sizes


def _parts(rounds: int, n_cells: int) -> Iterator[int]:
    """Cut the rounds into parts of bounded memory, `n_cells` a round."""
    n_at_once = max(1, _CELLS // n_cells)
    for start in range(0, rounds, n_at_once):
        yield min(n_at_once, rounds - start)


def _share_at_least(by_chance: Floats, observed: float) -> float:
    n_extreme = int(np.count_nonzero(by_chance >= observed - _ROUNDING))
    return (1 + n_extreme) / (1 + len(by_chance))
