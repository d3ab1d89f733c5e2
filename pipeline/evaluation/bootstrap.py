"""Intervals by resampling whole clusters, all statistics from the same resamples.

A resample is a vector of counts, one a cluster; means are two matrix products of the counts with each
cluster's sums and sizes, so that 10,000 rounds over thousands of queries take about a second. Intervals of
means are BCa (Efron 1987: corrected for bias and acceleration). PSI is biased upwards by noise, in a resample
even twice, so that neither such an interval nor a percentile interval covers it near 0; its own errs on the
safe side: the plain percentile interval joined with its reflection at the observed value, which turns the
bias around. Differences between arms have percentile intervals, those of PSI the joined ones. Which kind
serves where was chosen by simulated coverage (tests/pipeline/evaluation/test_statistics.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from pipeline.evaluation.statistics import Design, Estimate, Floats, all_statistics

# Counts held at a time: 32 MB.
_CELLS = 4_000_000
_NORMAL = NormalDist()


def intervals(
    values: Floats, design: Design, *, rounds: int, seed: int, level: float = 0.95
) -> tuple[Estimate, ...]:
    """Estimate each group mean, then the harmonic mean, then PSI; values are (n_queries,)."""
    drawn = _draw(values[None], design, lambda means: all_statistics(means[..., 0, :]), rounds, seed)
    *means, psi = drawn
    return (*(_bca(one, level) for one in means), _joined(psi, level, least=0.0))


def difference_intervals(
    values: Floats, reference: Floats, design: Design, *, rounds: int, seed: int, level: float = 0.95
) -> tuple[Estimate, ...]:
    """Estimate the differences of the same statistics between two arms on the same queries."""
    drawn = _draw(np.stack([values, reference]), design, _differences, rounds, seed)
    *means, psi = drawn
    return (*(_percentile(one, level) for one in means), _joined(psi, level, least=-1.0))


def _differences(means: Floats) -> Floats:
    statistics = all_statistics(means)
    return np.asarray(statistics[..., 0, :] - statistics[..., 1, :])


def resampled_means(values: Floats, design: Design, *, rounds: int, seed: int) -> Iterator[Floats]:
    """Yield the group means of resamples in parts.

    Args:
        values: (n_arms, n_queries); all arms share each resample.
        design: its clusters are what is drawn, with replacement.
        rounds: how many resamples in all.
        seed: of the generator.

    Yields:
        (some rounds, n_arms, n_groups); NaN where a resample has no query of a group.
    """
    generator = np.random.default_rng(seed)
    sums = _sums(values, design)
    n_clusters = design.n_clusters
    n_at_once = max(1, _CELLS // n_clusters)
    for start in range(0, rounds, n_at_once):
        n_rounds = min(n_at_once, rounds - start)
        drawn = generator.integers(n_clusters, size=(n_rounds, n_clusters))
        drawn += np.arange(n_rounds)[:, None] * n_clusters
        weights = np.bincount(drawn.ravel(), minlength=n_rounds * n_clusters).reshape(n_rounds, n_clusters)
        yield _means(weights.astype(np.float64), sums, design.counts)


def _sums(values: Floats, design: Design) -> Floats:
    """(n_clusters, n_arms, n_groups)."""
    return np.stack([design.sums(arm) for arm in values], axis=1)


def _means(weights: Floats, sums: Floats, counts: Floats) -> Floats:
    totals: Floats = np.tensordot(weights, sums, axes=1)
    sizes: Floats = (weights @ counts)[:, None, :]
    return np.divide(totals, sizes, out=np.full_like(totals, np.nan), where=sizes > 0)


def _jackknifed(values: Floats, design: Design) -> Floats:
    """(n_clusters, n_arms, n_groups): the means without each cluster; NaN where a group is then empty."""
    sums = _sums(values, design)
    totals: Floats = sums.sum(axis=0) - sums
    sizes: Floats = (design.counts.sum(axis=0) - design.counts)[:, None, :]
    return np.divide(totals, sizes, out=np.full_like(totals, np.nan), where=sizes > 0)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A statistic as observed, in each resample, and without each cluster; only what is defined."""

    observed: float
    resampled: Floats
    left_out: Floats


def _draw(
    values: Floats, design: Design, statistic: Callable[[Floats], Floats], rounds: int, seed: int
) -> list[_Drawn]:
    observed = statistic(np.stack([design.means(arm) for arm in values]))
    parts = resampled_means(values, design, rounds=rounds, seed=seed)
    resampled = np.concatenate([statistic(part) for part in parts])
    left_out = statistic(_jackknifed(values, design))
    return [
        _Drawn(float(value), of_rounds[np.isfinite(of_rounds)], without[np.isfinite(without)])
        for value, of_rounds, without in zip(observed, resampled.T, left_out.T, strict=True)
    ]


def _bca(drawn: _Drawn, level: float) -> Estimate:
    """The bias-corrected and accelerated interval."""
    observed, resampled = drawn.observed, drawn.resampled
    below = (np.mean(resampled < observed) + np.mean(resampled <= observed)) / 2
    # Where all resamples lie on one side the correction is undefined; half a resample stands for it.
    half = 0.5 / len(resampled)
    bias = _NORMAL.inv_cdf(float(np.clip(below, half, 1 - half)))
    # With a single cluster nothing can be left out, and there is no acceleration to estimate.
    centre = drawn.left_out.mean() if len(drawn.left_out) else observed
    deviations = centre - drawn.left_out
    spread = float(np.sum(deviations**2)) ** 1.5
    acceleration = float(np.sum(deviations**3)) / (6 * spread) if spread > 0 else 0.0
    tails = (_NORMAL.inv_cdf((1 - level) / 2), _NORMAL.inv_cdf((1 + level) / 2))
    shares = [_NORMAL.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in tails]
    low, high = np.quantile(resampled, shares)
    return Estimate(observed, float(low), float(high))


def _percentile(drawn: _Drawn, level: float) -> Estimate:
    low, high = np.quantile(drawn.resampled, ((1 - level) / 2, (1 + level) / 2))
    return Estimate(drawn.observed, float(low), float(high))


def _joined(drawn: _Drawn, level: float, *, least: float) -> Estimate:
    """The percentile interval joined with its reflection; figures lie between `least` and 1."""
    plain, value = _percentile(drawn, level), drawn.observed
    low, high = min(plain.low, 2 * value - plain.high), max(plain.high, 2 * value - plain.low)
    return Estimate(value, max(least, low), min(1.0, high))
