"""The regression against closed forms, and its intervals against their nominal rate."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import t as student

from pipeline.diagnostics.measuring import cosine
from pipeline.diagnostics.regression import fit_positions
from pipeline.diagnostics.similarity import mean_by_place
from tests.pipeline.diagnostics.planted import PlantedEncoder, words


def noisy(n_sets: int, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    random = np.random.default_rng(seed)
    values = random.normal(size=(n_sets, 6, 3)) + random.normal(size=(n_sets, 1, 3))
    return values.reshape(-1, 3), [f"s{number}" for number in range(n_sets) for _ in range(6)]


def test_coefficients_and_clustered_intervals_by_the_textbook():
    """CR1: the sandwich with (sets / (sets - 1)) ((rows - 1) / (rows - terms)), and t with sets - 1."""
    values, sets = noisy(12)
    fit = fit_positions(values, sets)
    means = values.mean(axis=0)
    design = np.tile([[1, 0, 0], [1, 1, 0], [1, 0, 1]], (len(values), 1)).astype(float)
    bread = np.linalg.inv(design.T @ design)
    beta = bread @ design.T @ values.ravel()
    residuals = values.ravel() - design @ beta
    scores = [
        design[start : start + 18].T @ residuals[start : start + 18] for start in range(0, len(design), 18)
    ]
    meat = sum(np.outer(score, score) for score in scores)
    correction = 12 / 11 * (len(design) - 1) / (len(design) - 3)
    errors = np.sqrt(np.diag(correction * bread @ meat @ bread))
    np.testing.assert_allclose(
        [term.estimate for term in fit.coefficients],
        [means[0], means[1] - means[0], means[2] - means[0]],
    )
    margin = student.ppf(0.975, 11) * errors
    np.testing.assert_allclose([term.low for term in fit.coefficients], beta - margin)
    np.testing.assert_allclose([term.high for term in fit.coefficients], beta + margin)
    expected = [2 * student.sf(abs(b) / e, 11) for b, e in zip(beta, errors, strict=True)]
    np.testing.assert_allclose([term.p for term in fit.coefficients], expected)
    assert (fit.n_rows, fit.n_sets) == (216, 12)


def test_language_and_its_interaction_with_position():
    """Place 2 costs .1, German costs .2, and German at place 2 gains .05 back."""
    expected = {("en", 1): 0.9, ("en", 2): 0.8, ("de", 1): 0.7, ("de", 2): 0.65}
    spoken = [["en", "en"], ["de", "de"], ["de", "en"], ["en", "de"]] * 12
    values = np.array([[expected[name, place + 1] for place, name in enumerate(own)] for own in spoken])
    random = np.random.default_rng(0)
    values += random.normal(scale=1e-9, size=values.shape)
    fit = fit_positions(values, [f"s{number // 4}" for number in range(48)], spoken)
    found = {term.term: round(term.estimate, 6) for term in fit.coefficients}
    assert found == {"intercept": 0.9, "position 2": -0.1, "de": -0.2, "position 2 x de": 0.05}
    assert fit.at(2).estimate == pytest.approx(-0.1)
    assert fit.r_squared == pytest.approx(1.0)


def test_an_arm_that_changes_nothing_is_certain_to_change_nothing():
    """As tau in causal models with last-token pooling: only the last row is calibrated."""
    fit = fit_positions(np.zeros((12, 3)), [f"s{number // 6}" for number in range(12)])
    found = {(term.estimate, term.low, term.high, term.p) for term in fit.coefficients}
    assert found == {(0.0, 0.0, 0.0, 1.0)}
    assert fit.r_squared == 0.0


def test_few_sets_are_said_to_be_few():
    few, enough = fit_positions(*noisy(9)), fit_positions(*noisy(10))
    assert "only 9 segment sets: intervals by t with 8 degrees of freedom" in few.caution
    assert enough.caution is None


@pytest.mark.parametrize("n_sets", [10, 20])
def test_a_position_blind_encoder_is_flat_and_its_intervals_hold_0_at_the_nominal_rate(n_sets):
    """Content differs between segments, and vectors are noisy; place makes no difference."""
    random = np.random.default_rng(n_sets)
    encoder = PlantedEncoder({"plain": [1, 1, 1]}, noise=random)
    orders = list(permutations(range(3)))
    sets = [f"s{number}" for number in range(n_sets) for _ in orders]
    held, levels = [], []
    for _ in range(150):
        starts = random.integers(50, size=(n_sets, 3))
        segments = [[words(start, 4) for start in own] for own in starts]
        texts = [[own[place] for place in order] for own in segments for order in orders]
        parts = [_parts(each) for each in texts]
        joined = encoder.observe(["\n\n".join(each) for each in texts], parts)["plain"]
        sigma = cosine(joined.vectors[:, None], joined.parts)
        fit = fit_positions(sigma, sets)
        held += [term.low <= 0 <= term.high for term in fit.coefficients[1:]]
        levels.append([place.mean for place in mean_by_place(sigma, sets)])
    # Within three standard errors of 95 % (300 intervals, two from each simulation, correlated by half).
    assert 0.90 <= np.mean(held) <= 0.995
    assert np.ptp(np.mean(levels, axis=0)) < 0.002


def _parts(texts: list[str]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(text) + 2 for text in texts])
    return [(int(end) - 2 - len(text), int(end) - 2) for end, text in zip(ends, texts, strict=True)]
