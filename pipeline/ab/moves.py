"""How documents moved, and where their evidence stands: the words that comparisons count in."""

from __future__ import annotations

from enum import StrEnum

from indexes import Movement, MovementStatus
from pipeline.ab.results import ABResult, DocumentResult
from pipeline.ab.verdict import Direction, Verdict
from pipeline.positions import position_bin


class Third(StrEnum):
    """In which third of its chunk the middle of the evidence stands."""

    EARLY = "early"
    MIDDLE = "middle"
    LATE = "late"

    @classmethod
    def of(cls, position: float) -> Third:
        """The third of a relative position, 0 to 1."""
        return tuple(cls)[position_bin(position, 3)]


class Move(StrEnum):
    """How a document moved; ties and documents that stay are no move."""

    SURFACED = "surfaced"
    LEFT = "left"
    ROSE = "rose"
    FELL = "fell"

    @classmethod
    def of(cls, document: Movement | DocumentResult) -> Move | None:
        """The move of a document from the reference to the other arm."""
        match document.status:
            case MovementStatus.ENTERED:
                return cls.SURFACED
            case MovementStatus.LEFT:
                return cls.LEFT
            case MovementStatus.MOVED:
                return cls.ROSE if (document.rank_change or 0) > 0 else cls.FELL
            case MovementStatus.TIED | MovementStatus.SAME:
                return None

    @property
    def direction(self) -> Direction:
        """Up or down."""
        return Direction.UP if self in (Move.SURFACED, Move.ROSE) else Direction.DOWN


def third_of(document: DocumentResult) -> Third | None:
    """The third of its chunk in which a document's evidence stands; None without evidence."""
    return Third.of(document.evidence.position_in_chunk) if document.evidence else None


def change(result: ABResult) -> float:
    """How much the top k changed: 1 - RBO, 0 for equal rankings."""
    # RBO of equal rankings comes out as 1 up to rounding.
    return max(0.0, round(1.0 - result.rbo, 12))


def count_moves(result: ABResult, move: Move, verdict: Verdict) -> int:
    """The documents of one comparison that moved in one way for one reason."""
    return sum(Move.of(document) is move for document in result.with_verdict(verdict))
