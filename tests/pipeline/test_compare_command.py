"""`lastpage compare`, end to end in a temporary folder: an index, and run files from elsewhere."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.ab.trec import read_run
from tests.conftest import CATS_AND_DOGS, Outcome, write_jsonl

Command = Callable[..., Outcome]

RECORDS = [
    *CATS_AND_DOGS,
    {"id": "my greek.md", "text": "Alpha beta gamma. Gamma beta alpha. Late late late. The end is near."},
    {"id": "letters", "text": "Beta gamma alpha. The mat is blue. A late cat sat on the answer. Beta."},
]
QUERIES: list[dict[str, Any]] = [
    {"id": "q1", "query": "where is the river?", "gold": [{"doc_id": "cats", "start": 43, "end": 63}]},
    {"id": "q2", "query": "alpha beta", "gold": ["my greek.md"]},
    {"id": "q3", "query": "is the cat late?"},
]


@pytest.fixture(autouse=True)
def _in_empty_folder(empty_folder: Path) -> None:
    """Before all other fixtures, which write there."""


@pytest.fixture
def queries() -> Path:
    return write_jsonl(Path("asked.jsonl"), QUERIES)


@pytest.fixture
def indexed(lastpage: Command, tiny_settings: list[str]) -> Path:
    corpus = write_jsonl(Path("docs.jsonl"), RECORDS)
    done = lastpage("index", "--corpus", corpus, *tiny_settings, "--set", "arms.strong.strength=1.0",
                    "--set", "arms.strong.basket_size=4")  # fmt: skip
    assert done.code == 0, done.err
    return Path("runs/docs-jsonl")


def test_a_comparison_agrees_with_single_queries_and_leaves_its_files(
    lastpage: Command, indexed: Path, queries: Path
) -> None:
    done = lastpage("compare", "--queries", queries, "-k", 2, "-q", "--json")
    assert done.code == 0, done.err
    folder = Path(done.json["folder"])
    assert folder.parent == indexed / "comparisons"
    assert re.fullmatch(r"asked-[0-9a-f]{8}", folder.name)
    assert sorted(path.name for path in folder.iterdir()) == [
        "calibrated.trec", "plain.trec", "report.html", "rows.csv", "rows.parquet", "summary.json"
    ]  # fmt: skip
    rows = pq.read_table(folder / "rows.parquet").to_pylist()
    for query in QUERIES:
        single = lastpage("query", query["query"], "-k", 2, "--json").json
        own = [row for row in rows if row["query_id"] == query["id"]]
        assert [row["doc_id"] for row in own] == [document["doc_id"] for document in single["documents"]]
        for row, document in zip(own, single["documents"], strict=True):
            assert row["status"] == document["status"]
            assert row["other_rank"] == (document["other"] or {}).get("rank")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["complete"] is True
    assert summary["comparisons"] == done.json["comparisons"]
    (comparison,) = summary["comparisons"]
    assert comparison["queries"] == 3
    moved = [row for row in rows if row["status"] == "entered"]
    assert comparison["moves"]["surfaced"]["documents"] == len(moved)
    gold = next(row for row in rows if row["query_id"] == "q1" and row["doc_id"] == "cats")
    assert (gold["evidence"], gold["evidence_source"]) == (RECORDS[0]["text"][43:63], "gold")
    assert (folder / "report.html").read_text().count('class="query"') == 3


def test_run_files_hold_every_arms_ranking_as_deep_as_asked(
    lastpage: Command, indexed: Path, queries: Path
) -> None:
    done = lastpage("compare", "--queries", queries, "--all-arms", "-k", 2, "--out", "out", "-q")
    assert done.code == 0, done.err
    runs = {arm: read_run(Path(f"out/{arm}.trec")) for arm in ("plain", "calibrated", "strong")}
    for arm, run in runs.items():
        assert run.name == arm
        assert {query_id: len(ranking) for query_id, ranking in run.rankings.items()} == {
            "q1": 4, "q2": 4, "q3": 4
        }  # fmt: skip
        assert "my%20greek.md" in run.rankings["q2"].doc_ids
    assert "plain against calibrated" in done.out
    assert "plain against strong" in done.out
    with Path("out/rows.csv").open(encoding="utf-8", newline="") as file:
        assert {row["other_arm"] for row in csv.DictReader(file)} == {"calibrated", "strong"}


def test_without_explanations_nothing_is_explained(lastpage: Command, indexed: Path, queries: Path) -> None:
    done = lastpage("compare", "--queries", queries, "--no-explain", "--no-html", "--out", "out", "-q")
    assert done.code == 0, done.err
    assert "note: Asked for without evidence" in done.out
    assert not Path("out/report.html").exists()
    rows = pq.read_table("out/rows.parquet").to_pylist()
    assert {row["evidence"] for row in rows} == {row["verdict"] for row in rows} == {None}


def test_a_folder_is_kept_unless_it_is_the_same_comparison(
    lastpage: Command, indexed: Path, queries: Path
) -> None:
    arguments = ("compare", "--queries", queries, "--no-explain", "--out", "out", "-q")
    assert lastpage(*arguments).code == 0
    assert lastpage(*arguments).code == 0
    other = lastpage(*arguments, "-k", 1)
    assert other.code == 2
    assert "out: the folder holds another comparison: give --overwrite" in other.err
    assert Path("out/report.html").exists()
    assert lastpage(*arguments, "-k", 1, "--overwrite", "--no-html", "--arm", "strong").code == 0
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "plain.trec", "rows.csv", "rows.parquet", "strong.trec", "summary.json"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"query": " "}, "query 'q1' is empty"),
        (
            {"query": "a", "gold": ["nobody"]},
            "gold document 'nobody' of query 'q1' is not among the documents",
        ),
        (
            {"query": "a", "gold": [{"doc_id": "cats", "start": 5, "end": 999}]},
            "the gold span 5-999 ends after document 'cats'",
        ),
    ],
)
def test_bad_queries_are_refused_before_anything_is_written(
    lastpage: Command, indexed: Path, query: dict[str, Any], message: str
) -> None:
    path = write_jsonl(Path("bad.jsonl"), [{"id": "q1", **query}])
    refused = lastpage("compare", "--queries", path, "--out", "out", "-q")
    assert refused.code == 1
    assert f"bad.jsonl:1: {message}" in refused.err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-k", "0"), "0 is not in the range x>=1"),
        (("--arm", "best"), "no arm 'best' to compare 'plain' with; there are calibrated, strong"),
        (("--arm", "strong", "--all-arms"), "give one of them"),
        (("--trec", "a.run", "b.run"), "--trec needs --corpus"),
        (("--corpus", "docs.jsonl"), "--corpus belongs to --trec"),
        (("--trec", "a", "b", "--corpus", "docs.jsonl", "--arm", "strong"), "leave out --run, --arm"),
    ],
)
def test_wrong_requests_are_refused(
    lastpage: Command, indexed: Path, queries: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = lastpage("compare", "--queries", queries, "--out", "out", *arguments)
    assert refused.code == 2
    assert message in refused.err
    assert not Path("out").exists()


@pytest.fixture
def runs() -> tuple[Path, Path]:
    old, new = Path("old.run"), Path("new.run")
    old.write_text("q1 Q0 dogs 1 0.9 bm25\nq1 Q0 letters 2 0.8 bm25\nq1 Q0 cats 3 0.1 bm25\n")
    new.write_text("q1 Q0 cats 1 12 dense\nq1 Q0 dogs 2 11 dense\n")
    return old, new


def test_run_files_from_elsewhere_are_compared_without_a_model(
    lastpage: Command, queries: Path, runs: tuple[Path, Path]
) -> None:
    corpus = write_jsonl(Path("docs.jsonl"), RECORDS)
    done = lastpage("compare", "--trec", *runs, "--corpus", corpus, "--queries", queries, "-k", 2, "-q")
    assert done.code == 0, done.err
    assert "bm25 against dense" in done.out
    words = " ".join(done.out.split())
    assert "cannot be tested, since the systems that made them are not here" in words
    assert "neither run has a document for 2 of 3 queries, which are left out; the first is q2" in words
    (folder,) = Path("runs/comparisons").iterdir()
    rows = {row["doc_id"]: row for row in pq.read_table(folder / "rows.parquet").to_pylist()}
    assert {name: row["status"] for name, row in rows.items()} == {
        "cats": "entered", "dogs": "moved", "letters": "left"
    }  # fmt: skip
    assert (rows["cats"]["evidence_source"], rows["dogs"]["evidence"]) == ("gold", None)
    assert "Without a model (--model)" in (folder / "report.html").read_text()


def test_with_a_model_run_files_get_evidence(
    lastpage: Command, queries: Path, runs: tuple[Path, Path], tiny_model: Path
) -> None:
    corpus = write_jsonl(Path("docs.jsonl"), RECORDS)
    done = lastpage(
        "compare", "--trec", *runs, "--corpus", corpus, "--queries", queries, "--model", tiny_model,
        "--out", "out", "-q",
    )  # fmt: skip
    assert done.code == 0, done.err
    for row in pq.read_table("out/rows.parquet").to_pylist():
        (record,) = [record for record in RECORDS if record["id"] == row["doc_id"]]
        assert row["evidence"] == record["text"][row["evidence_start"] : row["evidence_end"]]
        assert row["verdict"] is None


def test_run_files_of_a_comparison_are_compared_again(lastpage: Command, indexed: Path) -> None:
    queries = write_jsonl(Path("asked.jsonl"), [{"id": "q 1", "query": "is the cat late?"}])
    assert lastpage("compare", "--queries", queries, "--no-html", "--out", "out", "-q").code == 0
    again = lastpage(
        "compare", "--trec", "out/plain.trec", "out/calibrated.trec", "--corpus", "docs.jsonl",
        "--queries", queries, "--no-html", "--out", "again", "-q",
    )  # fmt: skip
    assert again.code == 0, again.err
    columns = ["query_id", "doc_id", "status", "reference_rank", "other_rank", "change"]
    assert pq.read_table("again/rows.parquet", columns=columns) == pq.read_table(
        "out/rows.parquet", columns=columns
    )


def test_a_run_over_another_corpus_is_refused(
    lastpage: Command, queries: Path, runs: tuple[Path, Path]
) -> None:
    corpus = write_jsonl(Path("docs.jsonl"), RECORDS[1:])
    refused = lastpage("compare", "--trec", *runs, "--corpus", corpus, "--queries", queries, "-q")
    assert refused.code == 1
    assert "old.run: 1 documents of the run are not in the corpus: 'cats'" in refused.err
