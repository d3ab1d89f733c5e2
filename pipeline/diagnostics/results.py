"""What a diagnosis found; presentation is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline.diagnostics.attention_profile import AttentionLink, AttentionProfile
from pipeline.diagnostics.fidelity import Fidelity
from pipeline.diagnostics.measuring import Cost
from pipeline.diagnostics.regression import Fit
from pipeline.diagnostics.similarity import PlaceMean

Measure = Literal["sigma", "tau"]
EVERY_PAIR = "all languages"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many documents there are, and what was left out.

    Attributes:
        sets: of segments.
        orders: of each set, of `all_orders` there are.
        pairs: labels of the language pairs.
        documents: sets x orders x pairs.
        tokens: of all documents, with special tokens and prompts.
        longest: tokens of the longest document, of `max_length` that the model takes.
        left_out: by reason.
    """

    sets: int
    orders: int
    all_orders: int
    pairs: tuple[str, ...]
    documents: int
    tokens: int
    longest: int
    max_length: int
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Profile:
    """One similarity by place, in one arm and one language pair."""

    measure: Measure
    arm: str
    pair: str
    places: tuple[PlaceMean, ...]


@dataclass(frozen=True, slots=True)
class NamedFit:
    """A regression and what it is of.

    Attributes:
        measure: sigma or tau.
        arm: whose similarities.
        minus: the arm whose similarities of the same documents are subtracted first, if any.
        pair: the language pair, or `EVERY_PAIR` for position x language over all of them.
        fit: what came out.
    """

    measure: Measure
    arm: str
    minus: str | None
    pair: str
    fit: Fit


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All of it.

    Attributes:
        model: its name.
        source: of the texts.
        settings: as plain values.
        calibrations: of each arm, plain values; None is plain.
        counts: of documents.
        profiles, fits, attention, links, fidelity: the findings.
        cost: of the encoder.
    """

    model: str
    source: str
    settings: Mapping[str, Any]
    calibrations: Mapping[str, Mapping[str, Any] | None]
    counts: Counts
    profiles: tuple[Profile, ...]
    fits: tuple[NamedFit, ...]
    attention: tuple[AttentionProfile, ...]
    links: tuple[AttentionLink, ...]
    fidelity: tuple[Fidelity, ...]
    cost: Cost

    @property
    def arms(self) -> tuple[str, ...]:
        """Their names, the plain one first."""
        return tuple(self.calibrations)

    def profile(self, measure: Measure, arm: str, pair: str) -> Profile:
        """Find one profile."""
        key = (measure, arm, pair)
        return next(each for each in self.profiles if (each.measure, each.arm, each.pair) == key)

    def fit(self, measure: Measure, arm: str, pair: str, minus: str | None = None) -> Fit:
        """Find one regression."""
        key = (measure, arm, minus, pair)
        return next(each.fit for each in self.fits if (each.measure, each.arm, each.minus, each.pair) == key)

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        value = asdict(self)
        value["cost"] |= {
            "per_thousand": self.cost.per_thousand,
            "per_thousand_watched": self.cost.per_thousand_watched,
        }
        for each, plain in zip(self.fits, value["fits"], strict=True):
            plain["fit"]["caution"] = each.fit.caution
            for coefficient, row in zip(each.fit.coefficients, plain["fit"]["coefficients"], strict=True):
                row["term"] = coefficient.term
        return value
