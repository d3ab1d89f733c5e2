"""The rule, case by case, without any model."""

from __future__ import annotations

import pytest

from indexes import RankedDocument, Ranking
from pipeline.ab.verdict import Case, Direction, Outcome, Untested, Verdict, counterfactual_rank, judge
from pipeline.config import ExplainSettings

SETTINGS = ExplainSettings(late_from=0.3, least_shift=0.01)
RANKING = Ranking(
    tuple(
        RankedDocument(name, rank, score, 0)
        for rank, (name, score) in enumerate([("a", 0.9), ("b", 0.8), ("c", 0.8), ("d", 0.5)], start=1)
    ),
    exhausted=True,
)


def case(**values: object) -> Case:
    usual = {
        "doc_id": "x",
        "arm": "plain",
        "direction": Direction.UP,
        "k": 3,
        "reference_rank": 7,
        "other_rank": 2,
        "position": 0.6,
    }
    return Case(**{**usual, **values})  # type: ignore[arg-type]


def verdict(asked: Case, *, shift: float = 0.1, rank: int | None) -> Verdict:
    return judge(asked, Outcome(0.5, 0.5 + shift, rank), SETTINGS).verdict


@pytest.mark.parametrize(
    ("rank", "expected"), [(1, "late answer"), (3, "late answer"), (4, "uncertain"), (None, "uncertain")]
)
def test_what_surfaced_must_reach_the_top_k(rank: int | None, expected: str) -> None:
    assert verdict(case(), rank=rank) == expected
    assert verdict(case(reference_rank=None), rank=rank) == expected


@pytest.mark.parametrize(
    ("position", "expected"), [(0.3, "late answer"), (0.29, "uncertain"), (1.0, "late answer")]
)
def test_a_late_answer_stands_late(position: float, expected: str) -> None:
    assert verdict(case(position=position), rank=1) == expected


@pytest.mark.parametrize(
    ("shift", "expected"),
    [(0.009, "not position"), (-0.009, "not position"), (0.011, "late answer"), (0.0, "not position")],
)
def test_a_score_that_stays_says_that_position_is_not_why(shift: float, expected: str) -> None:
    assert verdict(case(), shift=shift, rank=1) == expected


@pytest.mark.parametrize(("rank", "expected"), [(1, "late answer"), (2, "uncertain"), (3, "uncertain")])
def test_what_rose_must_rise(rank: int, expected: str) -> None:
    assert verdict(case(reference_rank=2, other_rank=1), rank=rank) == expected


@pytest.mark.parametrize(
    ("rank", "expected"), [(None, "early answer"), (4, "early answer"), (3, "uncertain"), (1, "uncertain")]
)
def test_what_was_pushed_out_must_leave_the_top_k(rank: int | None, expected: str) -> None:
    pushed = case(direction=Direction.DOWN, reference_rank=1, other_rank=None, position=0.1)
    assert verdict(pushed, shift=-0.1, rank=rank) == expected


@pytest.mark.parametrize(("rank", "expected"), [(2, "early answer"), (1, "uncertain")])
def test_what_fell_must_fall(rank: int, expected: str) -> None:
    fell = case(direction=Direction.DOWN, reference_rank=1, other_rank=3, position=0.1)
    assert verdict(fell, shift=-0.1, rank=rank) == expected


@pytest.mark.parametrize(("position", "expected"), [(0.7, "early answer"), (0.71, "uncertain")])
def test_an_early_answer_stands_early(position: float, expected: str) -> None:
    pushed = case(direction=Direction.DOWN, reference_rank=1, other_rank=9, position=position)
    assert verdict(pushed, shift=-0.1, rank=9) == expected


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        (Untested.NOTHING_MOVES, "not position"),
        (Untested.OTHER_CHUNK, "uncertain"),
        (Untested.TOO_LONG, "uncertain"),
    ],
)
def test_without_a_test_the_reason_says_why(why: Untested, expected: str) -> None:
    explanation = judge(case(), why, SETTINGS)
    assert explanation.verdict == expected
    assert str(why) in explanation.reason
    assert (explanation.reference_score, explanation.counterfactual_rank) == (None, None)


@pytest.mark.parametrize(
    ("score", "ties_lose", "rank"),
    [(1.0, True, 1), (0.8, True, 4), (0.8, False, 2), (0.8 + 4e-7, True, 4), (0.6, True, 4), (0.1, True, 5)],
)
def test_ranks_among_the_others(score: float, ties_lose: bool, rank: int) -> None:
    assert counterfactual_rank(score, "x", RANKING, ties_lose=ties_lose) == rank


def test_its_own_place_does_not_count() -> None:
    assert counterfactual_rank(0.85, "a", RANKING, ties_lose=True) == 1


def test_below_a_ranking_that_goes_on_there_is_no_rank() -> None:
    goes_on = Ranking(RANKING.documents, exhausted=False)
    assert counterfactual_rank(0.1, "x", goes_on, ties_lose=True) is None
    assert counterfactual_rank(0.5, "x", goes_on, ties_lose=True) is None
    assert counterfactual_rank(0.6, "x", goes_on, ties_lose=True) == 4
