"""The settings of a calibration: strength, baskets, layers and the mass of special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from pipeline.errors import UsageError

Mass = Literal["equal", "original"] | float
LayerSelection = Literal["last", "all"] | float | int | Sequence[int]


class Pooling(Enum):
    """Which rows of the last layer become the embedding."""

    CLS = "cls"
    LAST = "lasttoken"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the attention of the pooled rows is calibrated.

    Attributes:
        strength: between 0 (plain) and 1 (full).
        basket_size: content tokens in a basket.
        layers: `"last"`, `"all"`, a fraction of the layers counted from the last (0.5 is the last half,
            rounded down, at least one), how many final layers, or a list of layer numbers (0 is the first).
        isolate_first, isolate_last: whether the first / last real token is a basket of its own; None means
            the default of the pooling: CLS isolates the first, last-token both, mean none.
        first_mass, last_mass: the attention that such a basket receives: `"equal"` (the papers' formula),
            `"original"` (what plain attention gave it) or a share between 0 and 1.
    """

    strength: float = 0.5
    basket_size: int = 128
    layers: LayerSelection = 0.5
    isolate_first: bool | None = None
    isolate_last: bool | None = None
    first_mass: Mass = "equal"
    last_mass: Mass = "equal"

    def __post_init__(self) -> None:
        """Check the ranges once, so that nobody has to check them again."""
        if not 0.0 <= self.strength <= 1.0:
            raise UsageError(f"strength = {self.strength}: expected a number from 0 (plain) to 1 (full)")
        if self.basket_size < 1:
            raise UsageError(f"basket_size = {self.basket_size}: a basket holds at least 1 token")
        for name, mass in (("first_mass", self.first_mass), ("last_mass", self.last_mass)):
            if isinstance(mass, str) and mass not in ("equal", "original"):
                raise UsageError(f"{name} = {mass!r}: expected 'equal', 'original' or a share from 0 to 1")
            if not isinstance(mass, str) and not 0.0 <= mass <= 1.0:
                raise UsageError(f"{name} = {mass}: a share lies between 0 and 1")

    def geometry(self, pooling: Pooling) -> BasketGeometry:
        """Resolve the defaults that depend on the pooling."""
        first = pooling is not Pooling.MEAN if self.isolate_first is None else self.isolate_first
        last = pooling is Pooling.LAST if self.isolate_last is None else self.isolate_last
        return BasketGeometry(self.basket_size, first, last, self.first_mass, self.last_mass)

    def calibrated_layers(self, n_layers: int) -> frozenset[int]:
        """Resolve `layers` for a model of `n_layers` layers.

        Raises:
            UsageError: a layer that the model does not have, or none at all.
        """
        return frozenset(_select_layers(self.layers, n_layers))


def _select_layers(selection: LayerSelection, n_layers: int) -> Sequence[int]:
    if selection == "all":
        return range(n_layers)
    if selection == "last":
        return [n_layers - 1]
    if isinstance(selection, float):
        if not 0.0 < selection <= 1.0:
            raise UsageError(f"layers = {selection}: a fraction lies above 0 and is at most 1")
        return range(n_layers - max(1, int(n_layers * selection)), n_layers)
    if isinstance(selection, int) and not isinstance(selection, bool):
        if not 1 <= selection <= n_layers:
            raise UsageError(f"layers = {selection}: the model has {n_layers} layers; choose 1 to {n_layers}")
        return range(n_layers - selection, n_layers)
    if isinstance(selection, Sequence) and not isinstance(selection, str) and selection:
        if outside := [layer for layer in selection if not 0 <= layer < n_layers]:
            raise UsageError(
                f"layers = {list(selection)}: no layer {outside[0]}; they run from 0 to {n_layers - 1}"
            )
        return selection
    raise UsageError(
        f"layers = {selection!r}: expected 'last', 'all', a fraction, a number or a list of numbers"
    )


@dataclass(frozen=True, slots=True)
class BasketGeometry:
    """A calibration without strength and layers: what decides who shares a basket, and its mass."""

    basket_size: int
    isolate_first: bool
    isolate_last: bool
    first_mass: Mass
    last_mass: Mass
