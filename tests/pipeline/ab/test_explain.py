"""Verdicts on planted corpora: every score, rank and verdict is known by construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from indexes import Hits, MovementStatus, VectorIndex
from pipeline.ab import ABResult, ABSearcher, DocumentResult, GoldSpan, Verdict
from pipeline.ab.evidence import EvidenceSource
from pipeline.config import ArmSettings, ExplainSettings
from pipeline.errors import DataError, UsageError
from tests.pipeline.ab.planted_build import FLAT, PLAIN, PlaceEncoder, planted_build

Documents = Mapping[str, str | Sequence[str]]
Open = Callable[..., ABSearcher]

# Scores for "river": plainly the n-th sentence weighs 1/n, calibrated each weighs 1/(number of sentences).
LATE = "Sun. Sun. Sun. River river."  # plain 2/4 = .5, calibrated 2/4 = .5; answer first: 2
FRONT = "River. Sun. Sun. Sun. Sun. Sun. Sun. Sun. Sun. Sun."  # plain 1, calibrated .1; answer last: .1


@pytest.fixture
def searcher(tmp_path: Path) -> Open:
    def make(documents: Documents, settings: ExplainSettings | None = None, **options: object) -> ABSearcher:
        build = planted_build(tmp_path / "run", documents, **options)  # type: ignore[arg-type]
        return ABSearcher.from_parts(build, PlaceEncoder(), settings)  # type: ignore[arg-type]

    return make


def of(result: ABResult, doc_id: str) -> DocumentResult:
    (found,) = [document for document in result.documents if document.doc_id == doc_id]
    return found


def verdict(document: DocumentResult) -> Verdict:
    assert document.explanation is not None
    return document.explanation.verdict


def test_late_answer_surfaces_and_early_answer_is_pushed_out(searcher: Open) -> None:
    result = searcher({"late": LATE, "front": FRONT}).search("river", k=1)
    late, front = of(result, "late"), of(result, "front")
    assert (late.status, front.status) == (MovementStatus.ENTERED, MovementStatus.LEFT)

    assert verdict(late) is Verdict.LATE_ANSWER
    assert late.explanation is not None
    assert late.explanation.reference_score == pytest.approx(0.5)
    assert late.explanation.counterfactual_score == pytest.approx(2.0)
    assert (late.explanation.reference_rank, late.explanation.counterfactual_rank) == (2, 1)
    assert late.explanation.reason == (
        "Its answer stands at 78 % of the chunk. With it first: rank 1 in plain, now rank 2 (score +1.500)."
    )

    assert verdict(front) is Verdict.EARLY_ANSWER
    assert front.explanation is not None
    assert front.explanation.counterfactual_score == pytest.approx(0.1)
    assert (front.explanation.reference_rank, front.explanation.counterfactual_rank) == (1, 2)


def test_what_surfaced_for_another_reason_is_no_late_answer(searcher: Open) -> None:
    # Spread evenly: plain 1 + 1/2 + 1/3 + 1/4 = 2.08 < 3, calibrated 1 > .3. The first sentence is evidence.
    result = searcher({"spread": "River. River. River. River.", "rival": "River river river." + " Sun." * 9})
    spread = of(result.search("river", k=1), "spread")
    assert spread.status is MovementStatus.ENTERED
    assert verdict(spread) is Verdict.NOT_POSITION
    assert spread.explanation is not None
    assert spread.explanation.counterfactual_score is None
    assert spread.explanation.reason == (
        "Nothing to test with its answer first: its answer stands there already."
    )


def test_a_late_answer_whose_move_changes_nothing_is_not_position(searcher: Open) -> None:
    # Every sentence speaks of the river once; a gold span in the last one makes it the evidence.
    text = "River sun. River fog. River snow. River rain."
    asked = searcher({"spread": text, "rival": "River river river." + " Sun." * 9})
    gold = [GoldSpan("spread", text.rindex("River"), len(text))]
    spread = of(asked.search("river", k=1, gold=gold), "spread")
    assert spread.evidence is not None
    assert spread.evidence.source is EvidenceSource.GOLD
    assert verdict(spread) is Verdict.NOT_POSITION
    assert spread.explanation is not None
    assert spread.explanation.counterfactual_score == pytest.approx(25 / 12, abs=1e-6)
    assert "is about the same (+0.000)" in spread.explanation.reason


def test_a_move_that_helps_too_little_is_uncertain(searcher: Open) -> None:
    # With the answer first it would score 2, and the rival scores 2.5 plainly and .25 calibrated.
    result = searcher({"late": LATE, "rival": "River river. River." + " Sun." * 10}).search("river", k=1)
    late = of(result, "late")
    assert late.status is MovementStatus.ENTERED
    assert verdict(late) is Verdict.UNCERTAIN
    assert late.explanation is not None
    assert late.explanation.counterfactual_rank == 2
    assert late.explanation.reason.endswith("which does not show the same movement.")


def test_a_tie_is_no_rank(searcher: Open) -> None:
    # With the answer first it would score exactly what the rival scores: 2.
    late = of(searcher({"late": LATE, "rival": "River river." + " Sun." * 9}).search("river", k=1), "late")
    assert late.status is MovementStatus.ENTERED
    assert verdict(late) is Verdict.UNCERTAIN
    assert late.explanation is not None
    assert late.explanation.counterfactual_score == pytest.approx(2.0)
    assert late.explanation.counterfactual_rank == 2


def test_documents_moved_by_a_tie_are_not_explained(searcher: Open) -> None:
    # Calibrated, both score .5: which is first is decided by the id alone.
    result = searcher({"a": "Sun. River.", "b": "River. Sun."}).search("river", k=1)
    assert [document.status for document in result.documents] == [MovementStatus.TIED] * 2
    assert [document.explanation for document in result.documents] == [None, None]
    assert all(document.evidence is not None for document in result.documents)


@pytest.mark.parametrize(("late_from", "expected"), [(0.3, Verdict.LATE_ANSWER), (0.9, Verdict.UNCERTAIN)])
def test_where_late_begins_is_a_setting(searcher: Open, late_from: float, expected: Verdict) -> None:
    asked = searcher({"late": LATE, "front": FRONT}, ExplainSettings(late_from=late_from))
    late = of(asked.search("river", k=1), "late")
    assert verdict(late) is expected
    assert late.explanation is not None
    assert ("does not stand late" in late.explanation.reason) == (expected is Verdict.UNCERTAIN)


def test_what_counts_as_no_change_is_a_setting(searcher: Open) -> None:
    asked = searcher({"late": LATE, "front": FRONT}, ExplainSettings(least_shift=1.6))
    assert verdict(of(asked.search("river", k=1), "late")) is Verdict.NOT_POSITION


def test_rising_and_falling_within_the_top_k_is_explained(searcher: Open) -> None:
    result = searcher({"late": LATE, "front": FRONT, "none": "Sun. Fog."}).search("river", k=2)
    late, front = of(result, "late"), of(result, "front")
    assert (late.status, late.rank_change, front.rank_change) == (MovementStatus.MOVED, 1, -1)
    assert (verdict(late), verdict(front)) == (Verdict.LATE_ANSWER, Verdict.EARLY_ANSWER)


def test_unmoved_documents_have_evidence_and_no_explanation(searcher: Open) -> None:
    result = searcher({"best": "River river river.", "late": LATE, "front": FRONT}).search("river", k=3)
    best = of(result, "best")
    assert best.status is MovementStatus.SAME
    assert best.evidence is not None
    assert best.explanation is None


def test_k_beyond_the_corpus_reports_what_there_is(searcher: Open) -> None:
    result = searcher({"late": LATE, "front": FRONT}).search("river", k=50, depth=1)
    assert [document.doc_id for document in result.documents] == ["late", "front"]
    assert verdict(result.documents[0]) is Verdict.LATE_ANSWER


def test_below_the_depth_there_is_no_rank(searcher: Open) -> None:
    # Ten rivals stand plainly at 3 to 12, calibrated below .3: the late document comes from below depth 2.
    rivals = {f"rival-{n}": "River " * (3 + n) + "." + " Sun." * 50 for n in range(10)}
    late = of(searcher({"late": LATE, **rivals}).search("river", k=1, depth=2), "late")
    assert late.reference is None
    assert verdict(late) is Verdict.UNCERTAIN
    assert late.explanation is not None
    assert (late.explanation.reference_rank, late.explanation.counterfactual_rank) == (None, None)
    assert "below the depth in plain, now below the depth" in late.explanation.reason


def test_another_chunk_of_the_document_counts_in_the_test(searcher: Open) -> None:
    # "held" stands plainly at 2 by its first chunk and at 1.5 by its second, "other" at 1.33; calibrated,
    # "other" leads by 1 to .67. With its answer last the first chunk scores .67; the second one holds it.
    held = ["River river. Sun. Sun.", "River. River." + " Sun." * 40]
    found = of(searcher({"held": held, "other": "Sun. River river. River."}).search("river", k=1), "held")
    assert found.status is MovementStatus.LEFT
    assert verdict(found) is Verdict.UNCERTAIN
    assert found.explanation is not None
    assert found.explanation.counterfactual_score == pytest.approx(2 / 3)
    assert found.explanation.counterfactual_rank == 1


def test_gold_in_another_chunk_is_shown_and_leaves_the_verdict_open(searcher: Open) -> None:
    documents = {"late": ["Fog. Fog.", LATE], "front": FRONT}
    result = searcher(documents).search("river", k=1, gold=[GoldSpan("late", 5, 9)])
    late = of(result, "late")
    assert late.evidence is not None
    assert (late.evidence.text, late.evidence.position_in_chunk) == ("Fog.", pytest.approx(7 / 9))
    assert verdict(late) is Verdict.UNCERTAIN
    assert late.explanation is not None
    assert "another chunk" in late.explanation.reason


def test_gold_over_a_border_is_taken_as_far_as_the_chunk_holds_it(searcher: Open) -> None:
    asked = searcher({"late": ["Fog. Fog.", LATE], "front": FRONT})
    late = of(asked.search("river", k=1, gold=[GoldSpan("late", 5, 14)]), "late")
    assert late.evidence is not None
    assert (late.evidence.start, late.evidence.end, late.evidence.text) == (10, 14, "Sun.")


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        (GoldSpan("nobody", 0, 1), "no document 'nobody'"),
        (GoldSpan("late", 3, 3), "0 <= start < end <= 27"),
        (GoldSpan("late", -1, 3), "gold span -1-3 of document 'late'"),
        (GoldSpan("late", 0, 28), "gold span 0-28"),
    ],
)
def test_gold_that_does_not_fit_is_refused_by_name(searcher: Open, gold: GoldSpan, message: str) -> None:
    asked = searcher({"late": LATE, "front": FRONT})
    with pytest.raises(DataError) as refusal:
        asked.search("river", k=1, gold=[gold])
    assert message in str(refusal.value)


def test_gold_that_is_only_white_space_between_chunks_is_refused(searcher: Open) -> None:
    asked = searcher({"late": ["Fog. Fog.", LATE], "front": FRONT})
    with pytest.raises(DataError, match="no indexed text stands at 9-10"):
        asked.search("river", k=1, gold=[GoldSpan("late", 9, 10)])


def test_the_context_stays_in_front_of_the_turned_chunk(searcher: Open) -> None:
    asked = searcher({"late": LATE, "front": FRONT}, context={"late": "Harbour."})
    late = of(asked.search("river", k=1), "late")
    # The context is a sentence of its own: the answer stands fifth, turned around second.
    assert late.explanation is not None
    assert late.explanation.reference_score == pytest.approx(2 / 5)
    assert late.explanation.counterfactual_score == pytest.approx(2 / 2)
    assert "Harbour.\n\nRiver river. Sun. Sun. Sun." in asked.encoder.calls[-1]  # type: ignore[attr-defined]


def test_a_turned_chunk_that_the_model_would_cut_is_not_judged(searcher: Open, tmp_path: Path) -> None:
    build = planted_build(tmp_path / "short", {"late": LATE, "front": FRONT})
    asked = ABSearcher.from_parts(build, PlaceEncoder(max_length=4))  # type: ignore[arg-type]
    late = of(asked.search("river", k=1), "late")
    assert verdict(late) is Verdict.UNCERTAIN
    assert late.explanation is not None
    assert "longer than the model reads" in late.explanation.reason


def test_the_test_is_made_in_the_reference_arm_also_where_that_is_calibrated(searcher: Open) -> None:
    asked = searcher({"late": LATE, "front": FRONT}, arms={"half": ArmSettings(strength=0.1), "full": FLAT})
    late = of(asked.search("river", k=1), "late")
    assert late.explanation is not None
    # .9 * 2 + .1 * 2/4
    assert late.explanation.counterfactual_score == pytest.approx(1.85)
    assert "in half" in late.explanation.reason


# -- what is embedded -----------------------------------------------------------------------------------


def test_without_explaining_nothing_but_the_query_is_embedded(searcher: Open) -> None:
    asked = searcher({"late": LATE, "front": FRONT})
    result = asked.search("river", k=1, explain=False)
    assert asked.encoder.calls == []  # type: ignore[attr-defined]
    assert [(document.evidence, document.explanation) for document in result.documents] == [(None, None)] * 2
    assert set(result.seconds) == {"encode", "search"}
    assert asked.search("river", k=1).documents[0].status is result.documents[0].status


def test_a_query_takes_two_batches_and_asking_again_none(searcher: Open) -> None:
    asked = searcher({"late": LATE, "front": FRONT})
    first = asked.search("river", k=1)
    calls = asked.encoder.calls  # type: ignore[attr-defined]
    assert [sorted(call) for call in calls] == [
        ["River river.", "River.", "Sun."],
        [
            "River river. Sun. Sun. Sun.",
            "Sun. Sun. Sun. Sun. Sun. Sun. Sun. Sun. Sun. River.",
        ],
    ]
    again = asked.search("river", k=1)
    assert len(calls) == 2
    assert again.documents == first.documents


def test_the_cache_holds_no_more_than_it_may(searcher: Open) -> None:
    asked = searcher({"late": LATE, "front": FRONT}, ExplainSettings(cache_mb=0))
    first, again = asked.search("river", k=1), asked.search("river", k=1)
    assert again.documents == first.documents
    assert asked.cache.n_bytes == 0
    assert len(asked.encoder.calls) == 4  # type: ignore[attr-defined]


def test_builds_share_an_encoder_and_its_cache(searcher: Open, tmp_path: Path) -> None:
    first = searcher({"late": LATE, "front": FRONT})
    first.search("river", k=1)
    n_texts = first.encoder.n_texts  # type: ignore[attr-defined]
    build = planted_build(tmp_path / "next", {"late": LATE, "front": FRONT, "new": "Fog. Fog."})
    second = ABSearcher.from_parts(build, first.encoder, cache=first.cache)
    second.search("river", k=1)
    assert first.encoder.n_texts == n_texts  # type: ignore[attr-defined]


# -- several arms, and one alone ------------------------------------------------------------------------


@pytest.fixture
def three(searcher: Open) -> ABSearcher:
    arms = {"plain": PLAIN, "half": ArmSettings(strength=0.5), "full": FLAT}
    return searcher({"late": LATE, "front": FRONT, "none": "Sun. Fog."}, arms=arms)


def test_every_arm_is_compared_with_the_first(three: ABSearcher) -> None:
    result = three.search_arms("river", k=1)
    assert [comparison.other_arm for comparison in result.comparisons] == ["half", "full"]
    # half: late .5, front .55; full: late .5, front .1
    assert [document.doc_id for document in result.against("half").documents] == ["front"]
    assert [document.doc_id for document in result.against("full").documents] == ["late", "front"]
    assert verdict(of(result.against("full"), "late")) is Verdict.LATE_ANSWER
    assert three.search("river", k=1, other="full").documents == result.against("full").documents
    with pytest.raises(KeyError):
        result.against("plain")


def test_arms_come_in_the_order_of_the_build_and_once(three: ABSearcher) -> None:
    result = three.search_arms("river", k=1, others=["full", "half", "full"])
    assert [comparison.other_arm for comparison in result.comparisons] == ["half", "full"]
    n_calls = len(three.encoder.calls)  # type: ignore[attr-defined]
    assert n_calls == 2


@pytest.mark.parametrize("others", [["plain"], ["nobody"], []])
def test_arms_that_cannot_be_compared_are_refused(three: ABSearcher, others: list[str]) -> None:
    with pytest.raises(UsageError, match="there are half, full"):
        three.search_arms("river", others=others)


def test_one_arm_alone(three: ABSearcher) -> None:
    result = three.rank("river", arm="full", k=2)
    assert [(found.doc_id, found.hit.rank, found.text) for found in result.documents] == [
        ("late", 1, LATE),
        ("front", 2, FRONT),
    ]
    assert result.documents[0].hit.score == pytest.approx(0.5)
    assert three.encoder.calls == []  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="no arm 'nobody'"):
        three.rank("river", arm="nobody")


def test_questions_are_encoded_in_one_batch_and_can_be_used_later(three: ABSearcher) -> None:
    river, wind = three.encode(["river", "wind"])
    assert (river.text, river.n_tokens, river.truncated) == ("river", 1, False)
    assert three.search(river, k=1).documents == three.search("river", k=1).documents
    assert wind.vector.tolist() != river.vector.tolist()
    assert three.encode([]) == []
    with pytest.raises(UsageError, match="the query is empty"):
        three.encode(["river", " \n"])


@pytest.mark.parametrize("counts", [{"k": 0}, {"depth": 0}, {"k": -1}])
def test_counts_below_one_are_refused(three: ABSearcher, counts: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(counts))} = "):
        three.search("river", **counts)  # type: ignore[arg-type]


def test_documents_are_given_whole(three: ABSearcher) -> None:
    document = three.document("late")
    assert (document.doc_id, document.text, dict(document.metadata)) == ("late", LATE, {})
    with pytest.raises(DataError, match="no document 'nobody'"):
        three.document("nobody")


def test_explaining_searches_no_more_than_ranking(three: ABSearcher, monkeypatch: pytest.MonkeyPatch) -> None:
    depths = []
    search = VectorIndex.search

    def counted(index: VectorIndex, *arguments: Any, **options: Any) -> Hits:
        depths.append(arguments[1])
        return search(index, *arguments, **options)

    monkeypatch.setattr(VectorIndex, "search", counted)
    three.search("river", k=1, other="full", explain=False)
    n_ranking = len(depths)
    explained = three.search("river", k=1, other="full")
    assert verdict(of(explained, "late")) is Verdict.LATE_ANSWER
    assert len(depths) == 2 * n_ranking


def test_results_become_json(three: ABSearcher) -> None:
    plain = three.search("river", k=1, other="full").as_json()
    late = plain["documents"][0]
    assert late["explanation"]["verdict"] == "late answer"
    assert late["evidence"]["source"] == "estimate"
    assert late["rank_change"] == 1
