"""Why a document moved: a counterfactual test, not its position alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Why a document moved between the plain and the calibrated arm."""

    LATE_ANSWER = "late answer"  # surfaced, and would have stood there plainly with its answer in front
    EARLY_ANSWER = "early answer"  # pushed out, and stood there plainly only because its answer is in front
    NOT_POSITION = "not position"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one document, with the figures it rests on.

    Attributes:
        verdict: late answer, early answer, not position or uncertain.
        reason: the same in words, with the figures.
        reference_score: of the best chunk in the reference arm as it is.
        counterfactual_score: of the same chunk in the reference arm with its evidence moved.
        reference_rank: in the reference arm; None below the depth that was looked at.
        counterfactual_rank: where it would stand there with its evidence moved; None below the depth.
    """

    verdict: Verdict
    reason: str
    reference_score: float | None
    counterfactual_score: float | None
    reference_rank: int | None
    counterfactual_rank: int | None
