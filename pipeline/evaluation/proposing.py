"""Choose a setting on half of the queries and decide about it on the others, so that no noise is picked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.bootstrap import difference_intervals
from pipeline.evaluation.grid import Setting
from pipeline.evaluation.statistics import (
    ArmComparison,
    Design,
    GroupSummary,
    compare_arms,
    harmonic_mean,
    position_sensitivity,
    summarise,
)
from pipeline.evaluation.sweep import Scored

# Where PSI is surely lower, a harmonic mean that is surely not lower by this much counts as no loss. Fixed
# after bounds on one set had been seen: tests/benchmarks/README.md says what another value would have done.
TOLERATED_LOSS = 0.02
_SELECTION_ROUNDS = 1_000
Mask = NDArray[np.bool_]


class Advice(StrEnum):
    """What to do, in one word for machines."""

    CALIBRATE = "calibrate"
    CUT = "cut smaller"
    BOTH = "cut smaller and calibrate"
    LEAVE = "leave as it is"


@dataclass(frozen=True, slots=True)
class Proposal:
    """The answer to one question, such as which setting is best within the limits.

    Attributes:
        question: what was asked.
        advice: what to do.
        setting: the setting that won the selection, proposed unless the advice is to leave things.
        summary: its table by position on the held-out half.
        reference: that of plain with the largest chunks.
        gain: expected effect against that, on the held-out half.
        why: the rule that decided, in words.
    """

    question: str
    advice: Advice
    setting: Setting
    summary: GroupSummary
    reference: GroupSummary
    gain: ArmComparison | None
    why: str

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return {
            "question": self.question,
            "advice": str(self.advice),
            "setting": self.setting.name,
            "calibration": self.setting.calibration.model_dump(mode="json"),
            "chunk_tokens": self.setting.chunk_tokens,
            "why": self.why,
            "expected": asdict(self.summary),
            "now": asdict(self.reference),
            "gain": asdict(self.gain) if self.gain is not None else None,
        }


def propose(
    question: str,
    candidates: Sequence[Scored],
    reference: Scored,
    design: Design,
    chosen_on: Mask,
    *,
    rounds: int,
    seed: int,
) -> Proposal:
    """Choose a setting on some queries and decide about it on the others.

    Args:
        question: what is asked.
        candidates: settings to choose from.
        reference: what is done now: plain with the largest chunks.
        design: of all queries.
        chosen_on: (n_queries,), the queries to choose on; the others decide.
        rounds: of bootstrap and permutation.
        seed: of these.
    """
    best = _choose(candidates, design.select(chosen_on), chosen_on, seed)
    held_out = design.select(~chosen_on)
    summary, now = (
        summarise(one.values[~chosen_on], held_out, rounds=rounds, seed=seed) for one in (best, reference)
    )
    if best.setting == reference.setting:
        why = "no setting did better on the half of the passages that is chosen on"
        return Proposal(question, Advice.LEAVE, best.setting, summary, now, None, why)
    gain = compare_arms(
        best.values[~chosen_on], reference.values[~chosen_on], held_out, rounds=rounds, seed=seed
    )
    is_worth_it, why = _verdict(gain)
    advice = _advice(best.setting, reference.setting) if is_worth_it else Advice.LEAVE
    return Proposal(question, advice, best.setting, summary, now, gain, why)


def _choose(candidates: Sequence[Scored], design: Design, queries: Mask, seed: int) -> Scored:
    """Of the settings within one standard error of the best harmonic mean, take the one with least PSI."""
    means = [design.means(one.values[queries]) for one in candidates]
    best = max(range(len(candidates)), key=lambda i: (float(harmonic_mean(means[i])), -i))
    within = [
        i
        for i, one in enumerate(candidates)
        if i == best or _is_within_one_error(one, candidates[best], design, queries, seed)
    ]
    chosen = min(
        within, key=lambda i: (float(position_sensitivity(means[i])), candidates[i].cost.n_vectors, i)
    )
    return candidates[chosen]


def _is_within_one_error(one: Scored, best: Scored, design: Design, queries: Mask, seed: int) -> bool:
    *_, overall, _ = difference_intervals(
        one.values[queries], best.values[queries], design, rounds=_SELECTION_ROUNDS, seed=seed, level=0.6827
    )
    return overall.high >= 0.0


def _verdict(gain: ArmComparison) -> tuple[bool, str]:
    overall, psi = gain.harmonic_mean, gain.psi
    if overall.low > 0:
        return True, "the harmonic mean is surely higher on the half that was held out"
    if psi.high < 0 and overall.low > -TOLERATED_LOSS:
        return True, f"PSI is surely lower, and the harmonic mean surely not lower by {TOLERATED_LOSS}"
    if psi.high < 0:
        loss = f"the harmonic mean may be lower by more than {TOLERATED_LOSS}"
        return False, f"PSI is surely lower, but {loss}; more --passages would tell"
    return False, "the half that was held out does not confirm a gain"


def _advice(setting: Setting, reference: Setting) -> Advice:
    if setting.chunk_tokens == reference.chunk_tokens:
        return Advice.CALIBRATE
    return Advice.CUT if setting.is_plain else Advice.BOTH
