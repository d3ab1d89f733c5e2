"""The settings that a sweep compares: every combination of calibration and chunk budget, each with a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf

from pipeline.config import ArmSettings, Config, LayerSelection, SpecialTokenMass
from pipeline.errors import UsageError

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to embed: a calibration, or none, and the most tokens of a chunk.

    Attributes:
        arm: its name among the arms, such as `b128-l0.5-s1`; `plain` without calibration.
        calibration: strength 0 is plain.
        chunk_tokens: None stands for as many as the model takes, one vector for a document that fits.
    """

    arm: str
    calibration: ArmSettings
    chunk_tokens: int | None

    @property
    def is_plain(self) -> bool:
        """Whether nothing is calibrated."""
        return self.calibration.strength == 0.0

    @property
    def name(self) -> str:
        """The setting in one word: the arm and, where documents are cut smaller, the budget."""
        return self.arm if self.chunk_tokens is None else f"{self.arm}@{self.chunk_tokens}"


@dataclass(frozen=True, slots=True)
class Grid:
    """The values to combine; plain is always among the settings, once for each chunk budget.

    Attributes:
        chunk_tokens: each once and the largest first, in whatever order they are given: gains are counted
            from plain with the first. None stands for as many as the model takes, and so before all others.

    Raises:
        UsageError: a dimension without values.
    """

    baskets: Sequence[int] = (32, 64, 128)
    strengths: Sequence[float] = (0.25, 0.5, 1.0)
    layers: Sequence[LayerSelection] = ("last", 0.5, "all")
    masses: Sequence[SpecialTokenMass] = ("equal",)
    chunk_tokens: Sequence[int | None] = (None,)

    def __post_init__(self) -> None:
        """Refuse a grid that would hold nothing but plain without anybody having asked for that."""
        for name in ("baskets", "strengths", "layers", "masses", "chunk_tokens"):
            if not getattr(self, name):
                raise UsageError(f"the grid has no {name}; give at least one value")
        budgets = sorted(set(self.chunk_tokens), key=lambda tokens: -inf if tokens is None else -tokens)
        object.__setattr__(self, "chunk_tokens", tuple(budgets))

    def arms(self) -> dict[str, ArmSettings]:
        """The arms by name, plain first; strengths of 0 are plain and not repeated."""
        combined = product(self.layers, self.baskets, self.strengths, self.masses)
        calibrated = {
            arm_name(arm): arm
            for arm in (
                ArmSettings(
                    strength=strength, basket_size=basket, layers=layers, first_mass=mass, last_mass=mass
                )
                for layers, basket, strength, mass in combined
                if strength > 0
            )
        }
        return {PLAIN: ArmSettings(strength=0.0), **calibrated}

    def settings(self) -> list[Setting]:
        """All settings: budget by budget, plain first in each."""
        return [
            Setting(name, arm, budget) for budget in self.chunk_tokens for name, arm in self.arms().items()
        ]


def arm_name(arm: ArmSettings) -> str:
    """Name an arm by what was swept: basket, layers, strength and, where it isn't the papers', mass."""
    if arm.strength == 0.0:
        return PLAIN
    layers = "_".join(map(str, arm.layers)) if isinstance(arm.layers, list) else f"{arm.layers}"
    name = f"b{arm.basket_size}-l{layers}-s{arm.strength:g}"
    return name if arm.first_mass == "equal" else f"{name}-m{arm.first_mass}"


def only_plain(config: Config) -> Config:
    """The configuration without its own arms, which a grid takes the place of and need not fit the model."""
    return config.model_copy(update={"arms": {PLAIN: ArmSettings(strength=0.0)}})


def passes(arms: dict[str, ArmSettings]) -> Iterator[dict[str, ArmSettings]]:
    """Share the arms out over passes: those that calibrate the same layers go together, plain with the first.

    Layers below the calibrated ones are run once for all arms of a pass; a pass of all arms would share
    hardly more, and be too wide for long texts.
    """
    first = next((arm.layers for arm in arms.values() if arm.strength > 0), None)
    by_layers: dict[str, dict[str, ArmSettings]] = {}
    for name, arm in arms.items():
        layers = first if arm.strength == 0 else arm.layers
        by_layers.setdefault(str(layers), {})[name] = arm
    yield from by_layers.values()
