from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes import (
    InvalidQueryError,
    MovementStatus,
    RankedDocument,
    Ranking,
    compare_rankings,
    jaccard,
    kendall_tau,
    rank_biased_overlap,
)


def ranking(*documents: tuple[str, float], exhausted: bool = False) -> Ranking:
    return Ranking(
        tuple(RankedDocument(doc_id, rank, score, rank) for rank, (doc_id, score) in enumerate(documents, 1)),
        exhausted,
    )


def statuses(reference: Ranking, other: Ranking, k: int) -> dict[str, str]:
    return {movement.doc_id: str(movement.status) for movement in compare_rankings(reference, other, k)}


def test_every_kind_of_movement() -> None:
    reference = ranking(("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.6), ("e", 0.5))
    other = ranking(("a", 0.9), ("c", 0.8), ("e", 0.7), ("x", 0.6), ("b", 0.5))
    movements = compare_rankings(reference, other, 3)
    assert [(m.doc_id, m.status, m.rank_change) for m in movements] == [
        ("a", MovementStatus.SAME, 0),
        ("c", MovementStatus.MOVED, 1),
        ("e", MovementStatus.ENTERED, 2),
        ("b", MovementStatus.LEFT, -3),
    ]
    assert movements[2].reference == reference.documents[4]
    assert movements[2].other == other.documents[2]


def test_a_document_from_beyond_the_known_depth_has_no_rank_change() -> None:
    reference = ranking(("a", 0.9), ("b", 0.8))
    (entered, left) = compare_rankings(reference, ranking(("x", 0.9), ("b", 0.8)), 1)
    assert (entered.doc_id, entered.status, entered.reference) == ("x", MovementStatus.ENTERED, None)
    assert (left.doc_id, left.status, left.rank_change) == ("a", MovementStatus.LEFT, None)


def test_a_tie_across_the_border_of_the_reference_lets_nothing_surface() -> None:
    reference = ranking(("a", 0.9), ("b", 0.8), ("c", 0.8), ("d", 0.7))
    other = ranking(("a", 0.9), ("c", 0.8), ("b", 0.7), ("d", 0.6))
    assert statuses(reference, other, 2) == {"a": "same", "c": "tied", "b": "tied"}


def test_a_tie_across_the_border_of_the_other_lets_nothing_surface() -> None:
    reference = ranking(("a", 0.9), ("c", 0.8), ("b", 0.7), ("d", 0.6))
    other = ranking(("a", 0.9), ("b", 0.8), ("c", 0.8 - 9e-7), ("d", 0.7))
    assert statuses(reference, other, 2) == {"a": "same", "b": "tied", "c": "tied"}


def test_a_difference_above_the_tolerance_decides() -> None:
    reference = ranking(("a", 0.9), ("c", 0.8), ("b", 0.7), ("d", 0.6))
    other = ranking(("a", 0.9), ("b", 0.8), ("c", 0.8 - 3e-6), ("d", 0.7))
    assert statuses(reference, other, 2) == {"a": "same", "b": "entered", "c": "left"}


def test_a_tie_inside_the_top_k_hides_nothing() -> None:
    reference = ranking(("a", 0.8), ("b", 0.8), ("c", 0.5), ("d", 0.4))
    other = ranking(("c", 0.9), ("a", 0.8), ("b", 0.7), ("d", 0.4))
    assert statuses(reference, other, 2) == {"c": "entered", "a": "moved", "b": "left"}


def test_a_tie_that_runs_past_the_known_depth_may_hold_any_document() -> None:
    reference = ranking(("a", 0.9), ("b", 0.8), ("c", 0.8))
    other = ranking(("z", 0.9), ("a", 0.8), ("d", 0.7))
    assert statuses(reference, other, 2)["z"] == "tied"
    exhausted = ranking(("a", 0.9), ("b", 0.8), ("c", 0.8), exhausted=True)
    assert statuses(exhausted, other, 2)["z"] == "entered"


def test_rankings_that_end_at_k_are_refused_unless_exhausted() -> None:
    short, deep = ranking(("a", 0.9), ("b", 0.8)), ranking(("b", 0.9), ("a", 0.8), ("c", 0.7))
    with pytest.raises(InvalidQueryError, match=r"reference ranking has 2 documents.* at least 3"):
        compare_rankings(short, deep, 2)
    with pytest.raises(InvalidQueryError, match=r"other ranking has 2 documents"):
        compare_rankings(deep, short, 2)
    all_there_is = ranking(("a", 0.9), exhausted=True)
    assert statuses(all_there_is, deep, 2) == {"b": "entered", "a": "moved"}
    with pytest.raises(InvalidQueryError, match="k must be"):
        compare_rankings(deep, deep, 0)


def test_empty_rankings_have_no_movements() -> None:
    nothing = ranking(exhausted=True)
    assert compare_rankings(nothing, nothing, 5) == ()


@given(st.lists(st.sampled_from([0.1, 0.5, 0.9]), min_size=1, max_size=8), st.integers(1, 8))
def test_a_ranking_compared_with_itself_is_the_same(scores: list[float], k: int) -> None:
    same = ranking(*((f"d{i}", s) for i, s in enumerate(sorted(scores, reverse=True))), exhausted=True)
    assert set(statuses(same, same, k).values()) == {"same"}


def test_jaccard_by_hand() -> None:
    assert jaccard("abc", "bcd", 3) == 2 / 4
    assert jaccard("abc", "bcd", 1) == 0.0
    assert jaccard("abc", "cba", 3) == 1.0
    assert jaccard("", "", 3) == 1.0
    assert jaccard("", "a", 3) == 0.0


def test_rank_biased_overlap_by_hand() -> None:
    # agreement 0 at depth 1 and 1 at depth 2: 0.5/0.5 * (0 * 0.5 + 1 * 0.25) + 1 * 0.25
    assert rank_biased_overlap("ab", "ba", p=0.5) == pytest.approx(0.5)
    # agreement 1 and 1/2: (1 * 0.5 + 0.5 * 0.25) + 0.5 * 0.25
    assert rank_biased_overlap("ab", "ac", p=0.5) == pytest.approx(0.75)
    assert rank_biased_overlap("abc", "abc") == pytest.approx(1.0)
    assert rank_biased_overlap("abc", "xyz") == 0.0


def test_rank_biased_overlap_of_unequal_lengths_by_hand() -> None:
    # S = a, L = ba, p = 1/2: X_1 = 0, X_2 = 1, s = 1, l = 2
    # seen: 0/1 * 1/2 + 1/2 * 1/4 = 1/8; assumed: X_s = 0; rest: ((1 - 0)/2 + 0) * 1/4 = 1/8
    assert rank_biased_overlap("a", "ba", p=0.5) == pytest.approx(0.25)
    # S = a, L = ab: X_1 = X_2 = 1; seen: 1/2 + 1/2 * 1/4 = 5/8; assumed: 1 * 1/(1*2) * 1/4 = 1/8;
    # rest: (0 + 1) * 1/4
    assert rank_biased_overlap("a", "ab", p=0.5) == pytest.approx(1.0)
    assert rank_biased_overlap("ab", "a", p=0.5) == pytest.approx(1.0)


def test_rank_biased_overlap_of_empty_rankings_and_bad_p() -> None:
    assert rank_biased_overlap("", "") == 1.0
    assert rank_biased_overlap("", "a") == 0.0
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        rank_biased_overlap("a", "a", p=1.0)


@given(st.lists(st.integers(0, 12), unique=True), st.lists(st.integers(0, 12), unique=True))
def test_measures_are_symmetric_and_bounded(first: list[int], second: list[int]) -> None:
    a, b = [str(i) for i in first], [str(i) for i in second]
    assert rank_biased_overlap(a, b) == pytest.approx(rank_biased_overlap(b, a))
    assert -1e-9 <= rank_biased_overlap(a, b) <= 1 + 1e-9
    tau = kendall_tau(a, b)
    assert tau == kendall_tau(b, a)
    assert tau is None or -1 <= tau <= 1


def test_kendall_tau_by_hand() -> None:
    assert kendall_tau("abcd", "abcd") == 1.0
    assert kendall_tau("abcd", "dcba") == -1.0
    # of the three pairs only (b, c) is reversed: (2 - 1) / 3
    assert kendall_tau("abc", "acb") == pytest.approx(1 / 3)
    # union a b c, second ranking a, then b and c tied: pairs (a,b), (a,c) agree; 2 / sqrt(3 * 2)
    assert kendall_tau("abc", "a") == pytest.approx(2 / 6**0.5)
    # union a b c d: ab|cd against cd|ab: (a,b) and (c,d) tied on one side, the four others reversed; -4 / 5
    assert kendall_tau("ab", "cd") == pytest.approx(-4 / 5)


def test_kendall_tau_is_undefined_without_two_documents_in_order() -> None:
    assert kendall_tau("a", "a") is None
    assert kendall_tau("ab", "") is None
    assert kendall_tau("", "") is None
