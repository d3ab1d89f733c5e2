"""The formula with numbers that can be checked by hand, and the settings of a calibration."""

from __future__ import annotations

import pytest
import torch

from pipeline.encoders.baskets import BasketLayout, calibrated_attention
from pipeline.encoders.calibration import Calibration, Pooling
from pipeline.errors import UsageError


def attend(
    plain: list[float], calibration: Calibration, pooling: Pooling, visible: list[bool] | None = None
) -> list[float]:
    """Calibrate one row whose plain attention is given."""
    logits = torch.tensor(plain).log()[None, None, None]
    real = torch.ones(1, len(plain), dtype=torch.bool)
    sees = torch.tensor(visible or [True] * len(plain))[None, None, None]
    layout = BasketLayout(calibration.geometry(pooling), real)
    weights = calibrated_attention(logits, sees, layout, torch.tensor([calibration.strength]))
    return weights.flatten().tolist()


FULL = {"strength": 1.0, "basket_size": 2}


def test_each_basket_gets_the_same_mass():
    weights = attend([0.6, 0.2, 0.15, 0.05], Calibration(**FULL), Pooling.MEAN)
    assert weights == pytest.approx([0.375, 0.125, 0.375, 0.125])


def test_strength_mixes_with_plain_attention():
    weights = attend([0.6, 0.2, 0.15, 0.05], Calibration(strength=0.5, basket_size=2), Pooling.MEAN)
    assert weights == pytest.approx([0.4875, 0.1625, 0.2625, 0.0875])


def test_the_last_basket_may_be_short():
    weights = attend([0.4, 0.4, 0.2], Calibration(**FULL), Pooling.MEAN)
    assert weights == pytest.approx([0.25, 0.25, 0.5])


def test_cls_is_a_basket_of_its_own():
    weights = attend([0.9, 0.05, 0.03, 0.01, 0.01], Calibration(**FULL), Pooling.CLS)
    assert weights == pytest.approx([1 / 3, 1 / 3 * 5 / 8, 1 / 3 * 3 / 8, 1 / 6, 1 / 6])


@pytest.mark.parametrize(
    ("mass", "first", "rest"),
    [("equal", 1 / 3, 1 / 3), ("original", 0.9, 0.05), (0.2, 0.2, 0.4), (0.0, 0.0, 0.5)],
)
def test_the_mass_of_the_first_token(mass, first, rest):
    weights = attend([0.9, 0.05, 0.03, 0.01, 0.01], Calibration(**FULL, first_mass=mass), Pooling.CLS)
    assert weights == pytest.approx([first, rest * 5 / 8, rest * 3 / 8, rest / 2, rest / 2])


def test_isolated_tokens_that_claim_more_than_the_row_leave_nothing():
    calibration = Calibration(**FULL, first_mass="original", last_mass=0.5)
    weights = attend([0.97, 0.01, 0.01, 0.01], calibration, Pooling.LAST)
    assert weights == pytest.approx([0.97 / 1.47, 0.0, 0.0, 0.5 / 1.47])


def test_a_row_that_sees_less_than_a_basket_keeps_its_attention():
    plain = [0.7, 0.2, 0.1]
    assert attend(plain, Calibration(strength=1.0, basket_size=3), Pooling.CLS) == pytest.approx(plain)


def test_baskets_that_a_row_does_not_see_do_not_count():
    visible = [True, True, True, False, False, False]
    weights = attend([0.4, 0.4, 0.2, 1e-9, 1e-9, 1e-9], Calibration(**FULL), Pooling.MEAN, visible)
    assert weights == pytest.approx([0.25, 0.25, 0.5, 0.0, 0.0, 0.0])


def test_a_row_that_sees_nothing_attends_to_nothing():
    assert attend([0.5, 0.5], Calibration(**FULL), Pooling.MEAN, [False, False]) == [0.0, 0.0]


def test_attention_that_underflows_keeps_its_share():
    plain = torch.tensor([200.0, 0.0, -100.0, -100.0])[None, None, None]
    layout = BasketLayout(Calibration(**FULL).geometry(Pooling.MEAN), torch.ones(1, 4, dtype=torch.bool))
    naive = torch.softmax(plain, dim=-1)[..., 2:]
    assert (naive / naive.sum()).isnan().all()
    weights = calibrated_attention(
        plain, torch.ones(1, 1, 1, 4, dtype=torch.bool), layout, torch.tensor([1.0])
    )
    assert weights.flatten().tolist() == pytest.approx([0.5, 0.0, 0.25, 0.25])


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("last", {5}),
        ("all", set(range(6))),
        (0.5, {3, 4, 5}),
        (0.1, {5}),
        (2, {4, 5}),
        ([0, 5], {0, 5}),
        (1.0, set(range(6))),
    ],
)
def test_layers(layers, expected):
    assert Calibration(layers=layers).calibrated_layers(6) == expected


@pytest.mark.parametrize("layers", [0, 7, 0.0, 1.5, [], [6], [-1], "first", True])
def test_layers_that_are_not_there(layers):
    with pytest.raises(UsageError, match="layers"):
        Calibration(layers=layers).calibrated_layers(6)


@pytest.mark.parametrize(
    "values",
    [
        {"strength": 1.1},
        {"strength": -0.1},
        {"strength": float("nan")},
        {"basket_size": 0},
        {"first_mass": "some"},
        {"last_mass": 1.5},
    ],
)
def test_values_out_of_range(values):
    with pytest.raises(UsageError, match=next(iter(values))):
        Calibration(**values)
