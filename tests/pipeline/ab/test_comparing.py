"""Comparisons over query files: totals counted by hand, the files they leave, and run files."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.ab.comparing import QueryAnswer
from pipeline.ab.comparison_files import ComparisonFolder
from pipeline.ab.moves import Move, Third, change
from pipeline.ab.queries import Gold, Query
from pipeline.ab.run_comparing import compare_runs
from pipeline.ab.run_pair import RunPair
from pipeline.ab.totals import most_changed, query_row, total
from pipeline.ab.trec import TrecRun, read_run, write_run
from pipeline.ab.verdict import Verdict
from pipeline.errors import DataError, UsageError
from pipeline.evaluation.datasets.positions import part_names
from pipeline.positions import position_bin
from pipeline.records import Document, Skipped, SkipReason
from tests.pipeline.comparisons import planted_answer, ranking

LATE, EARLY, OTHER = Verdict.LATE_ANSWER, Verdict.EARLY_ANSWER, Verdict.NOT_POSITION


@pytest.fixture
def answers() -> list[QueryAnswer]:
    """Three queries at k = 3: one where d enters for c, one where two enter and one rises, one the same."""
    return [
        planted_answer("q3", "abcde", "abcde", gold="b", gold_position=0.1),
        planted_answer(
            "q1", "abcde", "abdce", positions={"d": 0.9, "c": 0.1}, verdicts={"d": LATE, "c": EARLY},
            gold="d", gold_position=0.9,
        ),
        planted_answer(
            "q2", "abcdef", "efabcd", positions={"e": 0.5, "f": 2 / 3, "a": 0.0, "b": 0.2},
            verdicts={"e": LATE, "f": OTHER, "a": OTHER, "b": OTHER}, gold="h", gold_position=0.5,
        ),
    ]  # fmt: skip


def test_totals_are_those_counted_by_hand(answers: list[QueryAnswer]) -> None:
    totals = total(answers, 0)
    assert (totals.n_queries, totals.n_changed) == (3, 2)
    # q1: d. q2: e and f. q2: b and c leave, a falls; c of q2 has no evidence.
    assert [totals.count(move) for move in Move] == [3, 3, 0, 1]
    assert totals.count(Move.SURFACED, verdict=LATE) == 2
    assert totals.count(Move.LEFT, verdict=EARLY) == 1
    assert totals.count(Move.LEFT, verdict=OTHER) == 1
    assert [totals.count(Move.SURFACED, third=third) for third in Third] == [0, 2, 1]
    assert [totals.count(Move.LEFT, third=third) for third in Third] == [2, 0, 0]
    assert totals.unplaced(Move.LEFT) == 1
    assert [totals.net(third) for third in Third] == [-2, 2, 1]
    # Jaccard: 1, 2 of 4, 1 of 5.
    assert totals.jaccard == pytest.approx((1 + 2 / 4 + 1 / 5) / 3)
    assert totals.latency["search"].p50 == pytest.approx(0.002)


def test_gold_is_ranked_in_both_arms_and_below_the_depth_counts_nothing(answers: list[QueryAnswer]) -> None:
    gold = total(answers, 0).gold
    # q3: b at 2 and 2. q1: d at 4 and 3. q2: h is nowhere.
    assert gold["plain"]["all"].mrr == pytest.approx((1 / 2 + 1 / 4 + 0) / 3)
    assert gold["calibrated"]["all"].mrr == pytest.approx((1 / 2 + 1 / 3 + 0) / 3)
    assert (gold["plain"]["all"].in_top, gold["calibrated"]["all"].in_top) == (1, 2)
    assert {name: figures.n_queries for name, figures in gold["plain"].items()} == {
        "all": 3,
        "early": 1,
        "middle": 1,
        "late": 1,
    }
    assert gold["calibrated"]["late"].mrr == pytest.approx(1 / 3)


def test_most_changed_come_first_and_equal_ones_by_id(answers: list[QueryAnswer]) -> None:
    tied = replace(answers[1], query=replace(answers[1].query, query_id="q0"))
    ordered = most_changed([*answers, tied], 0)
    assert [answer.query.query_id for answer in ordered] == ["q2", "q0", "q1", "q3"]
    assert change(ordered[-1].comparisons[0]) == 0.0
    row = query_row(ordered[0], 0)
    assert (row["surfaced"], row["left"], row["surfaced_by_late_answers"]) == (2, 2, 1)
    assert row["gold_rank"] == {"plain": None, "calibrated": None}
    assert row["gold_third"] == "middle"


def test_what_was_not_tested_is_not_counted_as_none(answers: list[QueryAnswer]) -> None:
    totals = total([planted_answer("q1", "abcde", "abdce")], 0)
    assert not totals.has_verdicts
    assert totals.as_json()["surfaced_by_late_answers"] is None
    assert totals.as_json()["net_by_third"] is None
    unchanged = total([planted_answer("q1", "abcde", "abcde")], 0)
    assert unchanged.as_json()["surfaced_by_late_answers"] == 0


def test_thirds_have_no_gap_at_their_borders_and_are_those_of_an_evaluation() -> None:
    positions = (0, 0.33, 1 / 3, 0.34, 0.66, 2 / 3, 0.67, 1)
    assert [Third.of(position) for position in positions] == [
        *[Third.EARLY] * 3, *[Third.MIDDLE] * 3, *[Third.LATE] * 2
    ]  # fmt: skip
    assert [str(Third.of(position)) for position in positions] == [
        part_names(3)[position_bin(position, 3)] for position in positions
    ]


def test_a_share_of_a_batch_is_called_that(answers: list[QueryAnswer]) -> None:
    totals = total(answers, 0)
    assert totals.step_words("encode") == "encode (share of a batch of up to 3)"
    assert totals.step_words("search") == "search"
    assert totals.as_json()["queries_per_batch"] == 3
    assert total(answers[:1], 0).step_words("encode") == "encode"
    assert total(answers * 20, 0).step_words("encode") == "encode (share of a batch of up to 32)"


def test_files_hold_a_row_for_each_document_and_every_arms_ranking(
    tmp_path: Path, answers: list[QueryAnswer]
) -> None:
    folder = ComparisonFolder(tmp_path / "out")
    folder.begin({"version": 1})
    folder.write_tables(answers)
    folder.write_runs(answers)
    assert json.loads(folder.summary.read_text())["complete"] is False
    folder.complete({"version": 1}, {"comparisons": [total(answers, 0).as_json()]})
    assert json.loads(folder.summary.read_text())["complete"] is True
    rows = pq.read_table(folder.rows).to_pylist()
    # Unions of the top 3: 3 + 4 + 5 documents.
    assert len(rows) == 12
    (surfaced,) = [row for row in rows if row["query_id"] == "q1" and row["doc_id"] == "d"]
    assert (surfaced["reference_rank"], surfaced["other_rank"], surfaced["rank_change"]) == (4, 3, 1)
    assert (surfaced["verdict"], surfaced["third"], surfaced["is_gold"]) == ("late answer", "late", True)
    with folder.rows_csv.open(encoding="utf-8", newline="") as file:
        plain = list(csv.DictReader(file))
    assert [row["doc_id"] for row in plain] == [row["doc_id"] for row in rows]
    assert read_run(folder.run("calibrated")).rankings["q2"].doc_ids == tuple("efabcd")


def test_a_folder_of_other_content_is_never_overwritten(tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path / "out")
    folder.check({"version": 1}, overwrite=False)
    folder.begin({"version": 1})
    folder.check({"version": 1}, overwrite=False)
    with pytest.raises(UsageError, match="another comparison: give --overwrite"):
        folder.check({"version": 2}, overwrite=False)
    folder.check({"version": 2}, overwrite=True)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="other files"):
        ComparisonFolder(foreign).check({"version": 1}, overwrite=True)
    with pytest.raises(UsageError, match="this is a file"):
        ComparisonFolder(foreign / "thesis.txt").check({"version": 1}, overwrite=True)


# -- run files from elsewhere ------------------------------------------------------------------------------

CORPUS = [Document(letter, f"Text of {letter}. " * 4, letter.upper()) for letter in "abcdef"]
A, B = Path("a.run"), Path("b.run")


def a_run(name: str, **rankings: str) -> TrecRun:
    return TrecRun(name, {query_id: ranking(doc_ids) for query_id, doc_ids in rankings.items()}, 0)


def test_two_runs_are_compared_over_a_corpus() -> None:
    queries = [Query("q1", "one?", (Gold("c", 8, 17),)), Query("q2", "two?"), Query("q3", "three?")]
    skipped = Skipped("docs:9", SkipReason.BLANK, "z")
    pair = RunPair.of(
        ((A, a_run("old", q1="abc", q2="ab")), (B, a_run("new", q1="cab"))), queries, [*CORPUS, skipped], k=2
    )
    first, second = compare_runs(pair)
    (result,) = first.comparisons
    assert (result.reference_arm, result.other_arm, result.n_documents) == ("old", "new", 6)
    assert [(document.doc_id, str(document.status)) for document in result.documents] == [
        ("c", "entered"),
        ("a", "moved"),
        ("b", "left"),
    ]
    evidence = result.documents[0].evidence
    assert evidence is not None
    assert evidence.text == CORPUS[2].text[8:17]
    assert result.documents[1].evidence is None
    assert (first.gold_rank("old"), first.gold_rank("new")) == (3, 1)
    assert first.gold_position == pytest.approx(12.5 / len(CORPUS[2].text))
    # The other run answers q2 with nothing; q3 is answered by none, which is said.
    assert [str(document.status) for document in second.comparisons[0].documents] == ["left", "left"]
    assert pair.notes == (
        "neither run has a document for 1 of 3 queries, which are left out; the first is q3",
        "new has no document for 1 of 3 queries, such as q2",
    )


def test_our_own_run_files_are_read_back_whatever_the_ids(tmp_path: Path) -> None:
    corpus = [Document(doc_id, "Some text.") for doc_id in ("a b", "100%", "plain", "last\u00a0one")]
    queries = [Query("q 1", "one?", (Gold("100%"),)), Query("50%", "two?"), Query("q3", "three?")]
    scores = {"q 1": [("a b", 0.9), ("100%", 0.8)], "50%": [("last\u00a0one", 2.0)], "q3": [("plain", 1.0)]}
    first, second = tmp_path / "old.trec", tmp_path / "new.trec"
    write_run(first, "old", scores.items())
    write_run(second, "new", scores.items())
    pair = RunPair.of(((first, read_run(first)), (second, read_run(second))), queries, corpus, k=2)
    found = list(compare_runs(pair))
    assert [answer.query.query_id for answer in found] == ["q 1", "50%", "q3"]
    assert [answer.rankings["old"] for answer in found] == [tuple(own) for own in scores.values()]
    assert found[0].gold_rank("old") == 2
    assert pair.text_of("last\u00a0one") == "Some text."
    assert pair.notes == ()


@pytest.mark.parametrize("ids", [("a b", "a%20b"), ("a%20b", "a b")])
def test_an_id_that_stands_as_it_is_goes_before_one_that_is_only_written_so(ids: tuple[str, str]) -> None:
    corpus = [Document(doc_id, f"Text of {doc_id}.") for doc_id in ids]
    run = TrecRun("old", {"q1": read_tied(("a%20b", 1.0))}, 0)
    pair = RunPair.of(((A, run), (B, replace(run, name="new"))), [Query("q1", "one?")], corpus, k=1)
    (answer,) = compare_runs(pair)
    assert answer.rankings["old"] == (("a%20b", 1.0),)


def test_two_names_for_one_document_are_refused() -> None:
    corpus = [Document("5%", "Text."), Document("b", "Text.")]
    run = TrecRun("old", {"q1": read_tied(("5%", 1.0), ("5%25", 0.5))}, 0)
    with pytest.raises(DataError, match=r"a\.run: documents '5%' and '5%25' of the run are both '5%'"):
        RunPair.of(((A, run), (B, a_run("new", q1="b"))), [Query("q1", "one?")], corpus, k=1)


def test_ties_stand_by_the_ids_of_the_corpus() -> None:
    # As they are written "a!" stands before "a%20b", in the corpus "a b" before "a!".
    corpus = [Document(doc_id, "Text.") for doc_id in ("a b", "a!")]
    run = TrecRun("old", {"q1": read_tied(("a!", 1.0), ("a%20b", 1.0))}, 0)
    pair = RunPair.of(((A, run), (B, replace(run, name="new"))), [Query("q1", "one?")], corpus, k=1)
    (answer,) = compare_runs(pair)
    assert [document.doc_id for document in answer.comparisons[0].documents] == ["a b"]


def test_ties_in_run_files_never_surface() -> None:
    tied = read_tied(("a", 0.5), ("b", 0.4), ("c", 0.4))
    pair = RunPair.of(
        ((A, TrecRun("old", {"q1": tied}, 0)), (B, a_run("new", q1="acb"))),
        [Query("q1", "one?")],
        CORPUS,
        k=2,
    )
    (answer,) = compare_runs(pair)
    statuses = {document.doc_id: str(document.status) for document in answer.comparisons[0].documents}
    assert statuses == {"a": "same", "c": "tied", "b": "tied"}


def read_tied(*scores: tuple[str, float]):  # type: ignore[no-untyped-def]
    from indexes import RankedDocument, Ranking

    documents = (RankedDocument(doc_id, rank, score, rank) for rank, (doc_id, score) in enumerate(scores, 1))
    return Ranking(tuple(documents), exhausted=True)


def test_runs_that_do_not_fit_queries_or_corpus_are_refused() -> None:
    queries = [Query("q1", "one?")]
    with pytest.raises(DataError, match=r"b\.run: 1 documents of the run are not in the corpus: 'x'"):
        RunPair.of(((A, a_run("old", q1="ab")), (B, a_run("new", q1="ax"))), queries, CORPUS, k=2)
    with pytest.raises(DataError, match=r"a\.run: 1 queries of the run are not in the query file: 'q9'"):
        RunPair.of(((A, a_run("old", q9="ab")), (B, a_run("new", q1="ab"))), queries, CORPUS, k=2)


def test_runs_of_one_tag_go_by_their_files() -> None:
    queries = [Query("q1", "one?")]
    pair = RunPair.of(((A, a_run("bm25", q1="ab")), (B, a_run("bm25", q1="ba"))), queries, CORPUS, k=2)
    assert (pair.reference.name, pair.other.name) == ("a", "b")
    same = Path("elsewhere/a.run")
    pair = RunPair.of(((A, a_run("bm25", q1="ab")), (same, a_run("bm25", q1="ba"))), queries, CORPUS, k=2)
    assert (pair.reference.name, pair.other.name) == ("A", "B")
