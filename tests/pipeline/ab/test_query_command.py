"""`lastpage query`: one arm or several, explained or not, on a terminal of 80 columns or as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from indexes import OpenBuild
from pipeline.ab import ABSearcher
from pipeline.cli import report
from pipeline.config import ArmSettings
from tests.conftest import Outcome, save_tiny_model, write_jsonl
from tests.pipeline.ab.planted_build import FLAT, PLAIN, PlaceEncoder, planted_build

Command = Callable[..., Outcome]

LATE = "Sun. Sun. Sun. River river."
FRONT = "River. Sun. Sun. Sun. Sun. Sun. Sun. Sun. Sun. Sun."
LONG_NAME = "guide/a-rather-long-name-of-a-document.html"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three arms, made by the command itself."""
    from pipeline.config import load_config
    from pipeline.stages import Run, Stage

    folder = tmp_path_factory.mktemp("query-command")
    records = [
        {"id": "cats", "text": "The cat sat on the mat. A dog is late. The answer is river. Hello world."},
        {"id": "dogs", "text": "A dog sat on a cat. The river is blue. Hello hello hello world. Alpha."},
        {"id": "greek", "text": "Alpha beta gamma. Gamma beta alpha. Late late late. The end is the river."},
    ]
    settings = {
        "run": str(folder / "run"),
        "corpus.source": str(write_jsonl(folder / "docs.jsonl", records)),
        "model.name": str(save_tiny_model(folder / "model")),
        "model.max_length": 64,
        "arms.plain.strength": 0.0,
        "arms.calibrated.basket_size": 4,
        "arms.full.basket_size": 4,
        "arms.full.strength": 1.0,
    }
    Run(load_config(None, settings)).upto(Stage.INDEX)
    return folder / "run"


@pytest.fixture
def build(tmp_path: Path) -> OpenBuild:
    arms = {"plain": PLAIN, "half": ArmSettings(strength=0.5), "calibrated": FLAT}
    return planted_build(tmp_path / "run", {LONG_NAME: LATE, "front": FRONT, "none": "Sun. Fog."}, arms=arms)


def test_one_arm_by_default_and_several_by_name(lastpage: Command, run: Path) -> None:
    one = lastpage("query", "--run", run, "--json", "-k", 2, "where is the river?").json
    assert (one["reference_arm"], one["other_arm"]) == ("plain", "calibrated")
    named = lastpage(
        "query", "--run", run, "--json", "--arm", "full", "--arm", "calibrated", "where is the river?"
    ).json
    assert [comparison["other_arm"] for comparison in named["comparisons"]] == ["calibrated", "full"]
    every = lastpage("query", "--run", run, "--json", "--all-arms", "where is the river?").json
    assert [comparison["documents"] for comparison in every["comparisons"]] == [
        comparison["documents"] for comparison in named["comparisons"]
    ]
    printed = lastpage("query", "--run", run, "--all-arms", "where is the river?")
    assert "calibrated against plain" in printed.out
    assert "full against plain" in printed.out


def test_json_tells_why_every_moved_document_moved(lastpage: Command, run: Path) -> None:
    result = lastpage("query", "--run", run, "--json", "--arm", "full", "late gamma").json
    assert len(result["documents"]) == 3
    for document in result["documents"]:
        moved = document["status"] in ("entered", "left", "moved")
        assert (document["explanation"] is not None) == moved
        if moved:
            assert document["explanation"]["verdict"] in (
                "late answer",
                "early answer",
                "not position",
                "uncertain",
            )
            assert document["explanation"]["reason"].endswith(".")


def test_without_explaining_there_is_neither_evidence_nor_verdict(lastpage: Command, run: Path) -> None:
    result = lastpage("query", "--run", run, "--json", "--no-explain", "where is the river?").json
    assert {document["evidence"] for document in result["documents"]} == {None}
    assert "explain" not in result["seconds"]
    printed = lastpage("query", "--run", run, "--no-explain", "where is the river?").out
    assert "answer at" not in printed
    assert "why" not in printed


def test_requests_that_contradict_themselves_are_refused(lastpage: Command, run: Path) -> None:
    both = lastpage("query", "--run", run, "--all-arms", "--arm", "full", "river")
    assert both.code == 2
    assert "give one of them" in both.err
    unknown = lastpage("query", "--run", run, "--arm", "nobody", "river")
    assert unknown.code == 2
    assert "there are calibrated, full" in unknown.err


def test_the_report_fits_80_columns_and_says_why(
    build: OpenBuild, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "_PIPE_WIDTH", 80)
    searcher = ABSearcher.from_parts(build, PlaceEncoder())  # type: ignore[arg-type]
    report.print_report([searcher.search("river", k=1, other="calibrated")], Path("runs/x"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert f"{LONG_NAME}: late answer. Its answer stands at 78 % of the chunk." in text
    assert "front: early answer." in text
    assert "“River river.”" in text
    (row,) = [line for line in lines if line.rstrip().endswith("late answer")]
    assert "entered ▲1" in row
    assert "78 %" in row


def test_gold_is_marked_and_the_same_documents_are_said_to_be_the_same(
    build: OpenBuild, capsys: pytest.CaptureFixture[str]
) -> None:
    from pipeline.ab import GoldSpan

    searcher = ABSearcher.from_parts(build, PlaceEncoder())  # type: ignore[arg-type]
    gold = [GoldSpan(LONG_NAME, 15, 27)]
    report.print_report([searcher.search("river", k=2, other="calibrated", gold=gold)], Path("runs/x"))
    printed = capsys.readouterr().out
    assert "78 % gold" in printed
    assert "the same documents are in the top 2 of both arms" in printed
