"""Statistics against hand-computed values and other implementations, and checked by simulation.

The simulations are seeded; their bounds are what 250 simulated sets allow to be told apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from pipeline.errors import DataError
from pipeline.evaluation.permutation import arm_p_values, psi_test
from pipeline.evaluation.statistics import (
    Design,
    Floats,
    all_statistics,
    compare_arms,
    harmonic_mean,
    holm,
    position_sensitivity,
    summarise,
)

N_SETS = 250
ROUNDS = 300


def labels(codes: object) -> list[str]:
    return [str(code) for code in np.ravel(np.asarray(codes))]


def paired_design(n_questions: int, n_groups: int, clusters: object = None) -> Design:
    questions = np.repeat(np.arange(n_questions), n_groups)
    own = None if clusters is None else labels(np.repeat(np.asarray(clusters), n_groups))
    return Design(
        labels(np.tile(np.arange(n_groups), n_questions)), questions=labels(questions), clusters=own
    )


# -- values --------------------------------------------------------------------------------------------


def test_group_means_and_what_is_made_of_them() -> None:
    design = Design(["late", "early", "early"], names=["early", "late"])
    means = design.means(np.array([0.25, 0.4, 0.6]))

    assert means == pytest.approx([0.5, 0.25])
    assert harmonic_mean(means) == pytest.approx(stats.hmean([0.5, 0.25]))
    assert position_sensitivity(means) == pytest.approx(0.5)
    assert all_statistics(np.array([[0.0, 0.5], [0.0, 0.0]])).tolist() == [[0.0, 0.5, 0.0, 1.0], [0.0] * 4]


def test_holm_equals_statsmodels() -> None:
    p_values = np.random.default_rng(2).random(9) ** 3

    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_bootstrap_interval_of_a_mean_equals_scipy() -> None:
    rng = np.random.default_rng(8)
    values = rng.beta(5, 1, size=80)
    theirs = stats.bootstrap(
        (values,), np.mean, method="BCa", n_resamples=20_000, rng=rng
    ).confidence_interval

    own = summarise(values, Design(["all"] * 80), rounds=20_000).means[0]

    assert own.value == pytest.approx(values.mean())
    assert (own.low, own.high) == pytest.approx((theirs.low, theirs.high), abs=0.002)


def test_p_values_of_arms_equal_the_exact_sign_flip_test() -> None:
    values, reference = np.array([0.9, 0.8, 0.7, 0.9, 0.4, 0.9]), np.array([0.5, 0.6, 0.6, 0.2, 0.5, 0.1])
    exact = stats.permutation_test(
        (values, reference),
        lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
    ).pvalue

    own = arm_p_values(values, reference, Design(["all"] * 6), rounds=40_000, seed=1)[0]

    assert own == pytest.approx(exact, abs=0.006)


def test_psi_p_value_equals_exact_permutation_of_independent_queries() -> None:
    values, design = np.array([1.0, 0.9, 0.6, 0.5]), Design(["a", "a", "b", "b"])
    # Of the six ways to halve four values two separate as well as this one.
    assert psi_test(values, design, rounds=20_000, seed=0).p_value == pytest.approx(1 / 3, abs=0.015)


def test_psi_p_value_equals_exact_exchange_within_questions() -> None:
    design = paired_design(3, 2)
    # All three questions favour the first group: 2 of the 8 exchanges reach that.
    test = psi_test(np.array([1.0, 0.5] * 3), design, rounds=20_000, seed=0)

    assert design.is_paired
    assert test.p_value == pytest.approx(0.25, abs=0.015)
    assert test.value == pytest.approx(0.5)
    # By hand: means (3, 1.5)/3 in 2 of 8 exchanges, (2.5, 2)/3 in the other 6.
    assert test.chance == pytest.approx(0.25 * 0.5 + 0.75 * 0.2, abs=0.01)


def test_a_system_blind_to_position_has_no_psi_and_p_one() -> None:
    values = np.repeat(np.random.default_rng(0).random(50), 5)
    summary = summarise(values, paired_design(50, 5), rounds=200)

    assert summary.psi.value == pytest.approx(0.0, abs=1e-12)
    assert summary.psi_test.p_value == 1.0
    assert summary.psi_test.chance == pytest.approx(0.0, abs=1e-12)


def test_the_same_seed_gives_the_same_figures() -> None:
    values, design = np.random.default_rng(1).random(100), paired_design(20, 5)

    assert summarise(values, design, rounds=200, seed=4) == summarise(values, design, rounds=200, seed=4)
    assert summarise(values, design, rounds=200, seed=4) != summarise(values, design, rounds=200, seed=5)


def test_a_resample_that_misses_a_group_does_not_count_as_a_score_of_0() -> None:
    """Group b stands in 2 of 60 clusters, so that every eighth resample has none of it."""
    values = np.random.default_rng(0).uniform(0.6, 0.9, 120)
    clusters = [*range(60), *(number % 2 for number in range(60))]
    design = Design(["a"] * 60 + ["b"] * 60, clusters=labels(clusters))

    summary = summarise(values, design, rounds=500)
    compared = compare_arms(values, values - 0.1, design, rounds=500)

    assert np.isnan(harmonic_mean(np.array([0.5, np.nan])))
    assert np.isnan(position_sensitivity(np.array([0.5, np.nan])))
    assert summary.harmonic_mean.low > 0.6
    assert compared.harmonic_mean.low == pytest.approx(0.1, abs=0.01)


# -- designs -------------------------------------------------------------------------------------------


def test_what_counts_as_paired() -> None:
    questions = ["x", "x", "y", "y"]

    assert Design(["a", "b", "a", "b"], questions=questions).is_paired
    assert not Design(["a", "b", "a", "a"], questions=questions).is_paired
    assert not Design(["a", "b", "a", "b"]).is_paired
    assert Design(["a", "b", "a", "b"], questions=questions, clusters=["1"] * 4).is_paired
    # A question torn over two clusters leaves nothing to exchange within a cluster.
    assert not Design(["a", "b", "a", "b"], questions=questions, clusters=["1", "2", "1", "2"]).is_paired


def test_a_part_of_a_design_is_the_design_of_that_part() -> None:
    design = paired_design(6, 3, clusters=[0, 0, 1, 1, 2, 2])
    half = design.select(np.repeat([True, True, False, False, True, True], 3))

    assert half.is_paired
    assert (half.n_queries, half.n_clusters) == (12, 2)
    assert half.means(np.tile([3.0, 2.0, 1.0], 4)).tolist() == [3.0, 2.0, 1.0]


def test_empty_and_unknown_groups_are_refused() -> None:
    with pytest.raises(DataError, match=r"\['late'\] hold no query"):
        Design(["early"], names=["early", "late"])
    with pytest.raises(DataError, match=r"\['late'\] are not among \['early'\]"):
        Design(["late"], names=["early"])
    with pytest.raises(DataError, match="expected one entry for each of 2 queries, got 1"):
        Design(["a", "b"], clusters=["x"])


# -- simulations ---------------------------------------------------------------------------------------

Made = tuple[Floats, Floats, Design]
Maker = Callable[[np.random.Generator, Floats, Floats], Made]


def hits(latent: Floats, chances: Floats) -> Floats:
    """1 with the given chance, else 0; what is shared in `latent` (unit variance) makes hits correlate."""
    return np.asarray(latent > stats.norm.isf(chances), dtype=np.float64)


def mixed(rng: np.random.Generator, shared: Floats) -> Floats:
    return np.asarray(0.7 * shared + np.sqrt(1 - 0.49) * rng.normal(size=shared.shape))


def make_paired(rng: np.random.Generator, first: Floats, second: Floats) -> Made:
    """60 articles with 4 questions each, which stand in every group."""
    article = np.repeat(rng.normal(size=60), 4)
    question = np.repeat(mixed(rng, article)[:, None], len(first), axis=1)
    latent = mixed(rng, question)
    design = paired_design(240, len(first), clusters=np.repeat(np.arange(60), 4))
    return hits(latent, first).ravel(), hits(mixed(rng, latent), second).ravel(), design


def make_independent(rng: np.random.Generator, first: Floats, second: Floats) -> Made:
    groups = rng.permutation(np.arange(600) % len(first))
    latent = rng.normal(size=600)
    return hits(latent, first[groups]), hits(mixed(rng, latent), second[groups]), Design(labels(groups))


def make_clustered(rng: np.random.Generator, first: Floats, second: Floats) -> Made:
    """80 papers with 1 to 7 questions each, which mostly stand where the paper has its answers."""
    papers = np.repeat(np.arange(80), rng.integers(1, 8, 80))
    usual, n = rng.integers(len(first), size=80), len(papers)
    groups = np.where(rng.random(n) < 0.5, usual[papers], rng.integers(len(first), size=n))
    latent = mixed(rng, rng.normal(size=80)[papers])
    design = Design(labels(groups), clusters=labels(papers))
    return hits(latent, first[groups]), hits(mixed(rng, latent), second[groups]), design


MAKERS = {"paired": make_paired, "independent": make_independent, "clustered": make_clustered}
FLAT = np.full(4, 0.8)
STEEP = np.array([0.88, 0.82, 0.75, 0.66])


def simulated(make: Maker, first: Floats, second: Floats) -> list[Made]:
    return [make(np.random.default_rng([9, number]), first, second) for number in range(N_SETS)]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_p_values_are_uniform_where_position_does_not_matter(make: Maker) -> None:
    p_values = [
        psi_test(values, design, rounds=ROUNDS, seed=seed).p_value
        for seed, (values, _, design) in enumerate(simulated(make, FLAT, FLAT))
    ]

    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    assert np.mean(np.array(p_values) <= 0.05) < 0.09


def test_few_clusters_make_no_false_alarms() -> None:
    alarms = []
    for seed in range(N_SETS):
        rng = np.random.default_rng(seed)
        papers = np.repeat(np.arange(12), rng.integers(1, 8, 12))
        design = Design(labels(rng.integers(3, size=len(papers))), clusters=labels(papers))
        values = hits(mixed(rng, rng.normal(size=12)[papers]), np.full(len(papers), 0.8))
        alarms.append(psi_test(values, design, rounds=ROUNDS, seed=seed).p_value <= 0.05)

    assert np.mean(alarms) < 0.09


def test_p_values_of_arms_are_uniform_where_they_are_alike() -> None:
    sets = simulated(make_paired, STEEP, STEEP)
    # The second arm is noisier only in name: exchange makes the arms alike.
    coins = [
        np.random.default_rng([3, i]).random(60)[design.clusters] < 0.5
        for i, (_, _, design) in enumerate(sets)
    ]
    p_values = np.array(
        [
            arm_p_values(np.where(coin, a, b), np.where(coin, b, a), design, rounds=ROUNDS, seed=seed)
            for seed, ((a, b, design), coin) in enumerate(zip(sets, coins, strict=True))
        ]
    )

    for column in (-2, -1):  # harmonic mean and PSI; single groups of 0/1 values have many ties
        assert stats.kstest(p_values[:, column], "uniform").pvalue > 0.01
    assert (np.mean(p_values <= 0.05, axis=0) < 0.09).all()


@pytest.mark.parametrize("chances", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_intervals_cover_the_truth(make: Maker, chances: Floats) -> None:
    truth = all_statistics(chances)
    covered = []
    for seed, (values, _, design) in enumerate(simulated(make, chances, chances)):
        summary = summarise(values, design, rounds=ROUNDS, seed=seed)
        estimates = [*summary.means, summary.harmonic_mean, summary.psi]
        covered.append(
            [e.low <= true + 1e-12 and true <= e.high for e, true in zip(estimates, truth, strict=True)]
        )

    assert (np.mean(covered, axis=0) > 0.9).all()
    assert np.mean(covered, axis=0)[:-1].max() < 0.99


@pytest.mark.parametrize(
    "pair", [(FLAT, STEEP), (STEEP, FLAT), (STEEP, STEEP)], ids=["better", "worse", "alike"]
)
def test_intervals_of_differences_cover_the_truth(pair: tuple[Floats, Floats]) -> None:
    truth = all_statistics(pair[0]) - all_statistics(pair[1])
    covered = []
    for seed, (first, second, design) in enumerate(simulated(make_paired, *pair)):
        comparison = compare_arms(first, second, design, rounds=ROUNDS, seed=seed)
        estimates = [*comparison.groups, comparison.harmonic_mean, comparison.psi]
        covered.append([e.low <= true <= e.high for e, true in zip(estimates, truth, strict=True)])

    assert (np.mean(covered, axis=0) > 0.9).all()


def test_a_real_difference_is_found() -> None:
    first, second, design = make_paired(np.random.default_rng(1), FLAT, STEEP)
    comparison = compare_arms(first, second, design, rounds=2_000)

    assert comparison.groups[-1].p_holm < 0.01
    assert comparison.psi.high < 0
    assert comparison.psi.p_value < 0.01


def test_ten_thousand_rounds_over_5950_queries_take_seconds() -> None:
    values = np.random.default_rng(0).random(5950)
    begun = time.process_time()
    for design in (paired_design(1190, 5), Design(labels(np.tile(np.arange(5), 1190)))):
        summarise(values, design)

    assert time.process_time() - begun < 15
