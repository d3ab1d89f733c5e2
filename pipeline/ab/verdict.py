"""Why a document moved: a counterfactual test, not its position alone. This is the one place of the rule.

**The test.** The chunk that moved the document is turned around, so that it is read from its evidence on and
then from its beginning: the same words, the same neighbours but at one seam, other positions. It is embedded
again with the reference (plain) arm. The document's new score is the better of this chunk's and its other
chunks'; its new rank counts the other documents as they stand in the reference ranking. A document that was
pushed out is turned the other way: its evidence stands last.

**The rule**, for a document that surfaced or rose in the other arm:

1. The chunk's score in the reference arm changes by less than `least_shift`: `not position`. So it is also
   where the evidence stands first already: there is nothing to move.
2. The new rank shows the same movement in the reference arm, and the evidence stands late (its middle at
   `late_from` of the chunk or further): `late answer`. The same movement: a document that entered the top k
   reaches the top k; one that rose within it rises by at least one rank.
3. Otherwise `uncertain`: the score changes, but not enough, or for an answer that does not stand late.

The mirror image, for a document that left or fell: `early answer`, where the evidence stands early (at
1 - `late_from` or before) and putting it last takes the document out of the top k, or down by a rank.

Equal scores prove nothing: a document that would only tie has not reached a rank, and not lost it either.
Where a gold span is known it is the evidence; if it stands in another chunk than the one that moved the
document, the verdict is `uncertain`, since that chunk's own test would say nothing of the gold answer.

**The thresholds** (`[explain]` in the configuration) were chosen on half of the questions of English XQuAD
documents with their paragraphs rotated: `late_from` = 0.3, and `least_shift` = 0.01, which is about what
moving any other sentence to the front changes (median 0.012). Measured on the other half, and on COVID-QA, by
`python -m tests.benchmarks.explain_quality verdict DATA`; the figures are in the README.

With a lossy index (PQ, scalar quantizer) the other documents' scores are approximations, the new one is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from indexes import Ranking, tied
from pipeline.config import ExplainSettings


class Verdict(StrEnum):
    """Why a document moved between the plain and the calibrated arm."""

    LATE_ANSWER = "late answer"  # surfaced, and would have stood there plainly with its answer in front
    EARLY_ANSWER = "early answer"  # pushed out, and stood there plainly only because its answer is in front
    NOT_POSITION = "not position"
    UNCERTAIN = "uncertain"


class Direction(StrEnum):
    """Which way a document moved from the reference arm to the other one."""

    UP = "up"
    DOWN = "down"

    @property
    def verdict(self) -> Verdict:
        """What it is called when position is the reason."""
        return Verdict.LATE_ANSWER if self is Direction.UP else Verdict.EARLY_ANSWER

    @property
    def end(self) -> str:
        """Where the test puts the evidence."""
        return "first" if self is Direction.UP else "last"

    @property
    def beginning(self) -> str:
        """Where the evidence must stand for position to be the reason."""
        return "late" if self is Direction.UP else "early"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one document, with the figures it rests on.

    Attributes:
        verdict: late answer, early answer, not position or uncertain.
        reason: the same in words, with the figures.
        reference_score: in the reference arm, of the chunk that moved the document; None without a test.
        counterfactual_score: there, of the same chunk turned around; None without a test.
        reference_rank: of the document in the reference arm; None below the depth that was looked at.
        counterfactual_rank: where it would stand there; None below the depth, or without a test.
    """

    verdict: Verdict
    reason: str
    reference_score: float | None
    counterfactual_score: float | None
    reference_rank: int | None
    counterfactual_rank: int | None


@dataclass(frozen=True, slots=True)
class Case:
    """A document that moved, as it is judged.

    Attributes:
        doc_id: the document.
        arm: the reference arm's name.
        direction: which way it moved.
        k: the top k that counts.
        reference_rank, other_rank: its places; None below the depth.
        position: of the evidence's middle in its chunk, 0 is the beginning, 1 the end.
    """

    doc_id: str
    arm: str
    direction: Direction
    k: int
    reference_rank: int | None
    other_rank: int | None
    position: float

    def stands_far(self, late_from: float) -> bool:
        """Whether the evidence stands where calibration lifts it from, or lowers it from."""
        return (
            self.position >= late_from if self.direction is Direction.UP else self.position <= 1 - late_from
        )

    def moves_as_well(self, rank: int | None) -> bool:
        """Whether a new rank in the reference arm is the movement that the other arm made."""
        was_in = self.reference_rank is not None and self.reference_rank <= self.k
        is_in = self.other_rank is not None and self.other_rank <= self.k
        last = self.k
        if was_in and is_in and self.reference_rank is not None:
            last = self.reference_rank - (self.direction is Direction.UP)
        reached = rank is not None and rank <= last
        return reached if self.direction is Direction.UP else not reached


class Untested(StrEnum):
    """Why a document was not tested, in words."""

    NOTHING_MOVES = "its answer stands there already"
    OTHER_CHUNK = "its known answer stands in another chunk than the one that moved it"
    TOO_LONG = "turned around, its chunk would be longer than the model reads"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What turning the chunk around did in the reference arm: its score before and after, and the rank."""

    before: float
    after: float
    rank: int | None


def counterfactual_rank(score: float, doc_id: str, ranking: Ranking, *, ties_lose: bool) -> int | None:
    """Where a document would stand with another score, the others standing as they do.

    Args:
        score: of the document.
        doc_id: the document; its own place in the ranking doesn't count.
        ranking: the reference arm's.
        ties_lose: whether the document stands behind those with an equal score, or before them.

    Returns:
        The rank; None where it is below all documents of a ranking that goes on.
    """
    others = [document for document in ranking if document.doc_id != doc_id]
    ahead = sum(ties_lose if tied(document.score, score) else document.score > score for document in others)
    return None if ahead == len(others) and not ranking.exhausted else ahead + 1


def judge(case: Case, outcome: Outcome | Untested, settings: ExplainSettings) -> Explanation:
    """Judge one document by the rule above.

    Args:
        case: the document that moved.
        outcome: of the test, or why there was none.
        settings: the thresholds.
    """
    if isinstance(outcome, Untested):
        verdict = Verdict.NOT_POSITION if outcome is Untested.NOTHING_MOVES else Verdict.UNCERTAIN
        told = f"Nothing to test with its answer {case.direction.end}: {outcome}."
        return Explanation(verdict, told, None, None, case.reference_rank, None)
    verdict = _verdict(case, outcome, settings)
    return Explanation(
        verdict,
        _reason(case, outcome, verdict, settings),
        outcome.before,
        outcome.after,
        case.reference_rank,
        outcome.rank,
    )


def _verdict(case: Case, outcome: Outcome, settings: ExplainSettings) -> Verdict:
    if abs(outcome.after - outcome.before) < settings.least_shift:
        return Verdict.NOT_POSITION
    if case.moves_as_well(outcome.rank) and case.stands_far(settings.late_from):
        return case.direction.verdict
    return Verdict.UNCERTAIN


def _reason(case: Case, outcome: Outcome, verdict: Verdict, settings: ExplainSettings) -> str:
    change = f"{outcome.after - outcome.before:+.3f}"
    if verdict is Verdict.NOT_POSITION:
        return f"With its answer {case.direction.end}, its score in {case.arm} is about the same ({change})."
    ranks = f"{_rank(outcome.rank)} in {case.arm}, now {_rank(case.reference_rank)} (score {change})"
    place = f"{100 * case.position:.0f} % of the chunk"
    told = f"Its answer stands at {place}. With it {case.direction.end}: {ranks}"
    if verdict is not Verdict.UNCERTAIN:
        return f"{told}."
    if case.stands_far(settings.late_from):
        return f"{told}, which does not show the same movement."
    return f"{told}; but it does not stand {case.direction.beginning}."


def _rank(rank: int | None) -> str:
    return "below the depth" if rank is None else f"rank {rank}"
