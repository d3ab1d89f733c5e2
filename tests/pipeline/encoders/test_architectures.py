"""Every architecture, every padding, several arms in one pass, against the formula in float64."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.encoders.attention import ATTENTION_NAME
from pipeline.encoders.calibrated_model import CalibratedModel
from pipeline.encoders.calibration import Calibration, Pooling
from tests.pipeline.encoders import reference, tiny_models
from tests.pipeline.encoders.reference import Formula
from tests.pipeline.encoders.tiny_models import ARCHITECTURES, VOCABULARY, Architecture

TOLERANCE = 1e-5
ARMS: Sequence[Calibration | None] = (
    None,
    Calibration(strength=0.5, basket_size=6),
    Calibration(strength=1.0, basket_size=5, layers="all"),
    Calibration(strength=0.8, basket_size=7, layers="last", isolate_first=True, first_mass="original"),
    Calibration(
        strength=0.7,
        basket_size=4,
        layers=[1, 3],
        isolate_first=True,
        isolate_last=True,
        first_mass=0.3,
        last_mass="original",
    ),
    Calibration(strength=1.0, basket_size=14, layers="all"),  # more than a row of a local layer sees
    Calibration(
        strength=0.5, basket_size=6, layers=[0], isolate_first=False, isolate_last=True, last_mass=0.2
    ),
)
PADDINGS = {"right": (33, 20, 4), "left": (33, 20, 4), "none": (33, 33), "single": (33,)}
CASES = [(architecture, pooling) for architecture in ARCHITECTURES for pooling in architecture.poolings]


def make_batch(padding: str) -> tuple[Tensor, Tensor]:
    lengths = PADDINGS[padding]
    longest = max(lengths)
    ids = torch.randint(5, VOCABULARY, (len(lengths), longest), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(longest).expand(len(lengths), -1)
    shortest = torch.tensor(lengths)[:, None]
    real = positions >= longest - shortest if padding == "left" else positions < shortest
    return ids, real.long()


def formula_of(arm: Calibration | None, pooling: str, n_layers: int) -> Formula:
    """Translate an arm; the defaults of isolation are stated once more, not read from the code under test."""
    if arm is None:
        return Formula(pooling)
    layers = {0.5: range(n_layers // 2, n_layers), "all": range(n_layers), "last": [n_layers - 1]}
    chosen = arm.layers if isinstance(arm.layers, list) else layers[arm.layers]
    isolate_first = {"cls": True, "lasttoken": True, "mean": False}[pooling]
    isolate_last = {"cls": False, "lasttoken": True, "mean": False}[pooling]
    return Formula(
        pooling,
        frozenset(chosen),
        arm.strength,
        arm.basket_size,
        isolate_first if arm.isolate_first is None else arm.isolate_first,
        isolate_last if arm.isolate_last is None else arm.isolate_last,
        arm.first_mass,
        arm.last_mass,
    )


def prepare(architecture: Architecture, pooling: str) -> tuple[CalibratedModel, object]:
    model = tiny_models.build(architecture)
    twin = reference.twin(model)
    model.set_attn_implementation(ATTENTION_NAME)
    return CalibratedModel(model, Pooling(pooling)), twin


def worst_error(ours: CalibratedModel, twin, padding: str) -> float:
    """The largest difference in any component of the unit-length vectors, over all texts and arms."""
    ids, mask = make_batch(padding)
    together = ours.embed(ids, mask, ARMS)
    errors = []
    for arm, vectors in zip(ARMS, together, strict=True):
        expected = reference.embed(twin, ids, mask, formula_of(arm, ours.pooling.value, ours.n_layers))
        errors.append((normalize(vectors.double()) - normalize(expected)).abs().max())
    return float(torch.stack(errors).max())


@pytest.mark.parametrize(("architecture", "pooling"), CASES, ids=lambda value: getattr(value, "name", value))
def test_all_arms_in_one_pass_equal_the_formula(architecture, pooling):
    ours, twin = prepare(architecture, pooling)
    ours.prove(ARMS)
    errors = {padding: worst_error(ours, twin, padding) for padding in PADDINGS}
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_calibration_changes_every_arm_noticeably(pooling):
    ours, _ = prepare(tiny_models.named("BERT"), pooling)
    plain, *calibrated = ours.embed(*make_batch("none"), ARMS)
    for vectors in calibrated:
        assert (normalize(vectors) - normalize(plain)).abs().max() > 1e-3
