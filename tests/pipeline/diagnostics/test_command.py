"""`lastpage diagnose`, end to end on a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Outcome, save_tiny_model, write_jsonl

Command = Callable[..., Outcome]
WORDS = ("the", "cat", "dog", "sat", "on", "mat", "river", "blue", "late", "early", "alpha", "beta", "gamma")


def paragraph(number: int) -> str:
    """Six words, from another word on; from the 14th paragraph on every second word."""
    step = 1 + number // len(WORDS)
    return " ".join(WORDS[(number + step * place) % len(WORDS)] for place in range(6)) + "."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("diagnosed") / "tiny-model")


@pytest.fixture
def options(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Five documents of three paragraphs; baskets of 4 tokens."""
    monkeypatch.chdir(tmp_path)
    records = [
        {"id": f"d{number}", "text": "\n\n".join(paragraph(3 * number + place) for place in range(3))}
        for number in range(5)
    ]
    source = write_jsonl(tmp_path / "notes.jsonl", records)
    return [
        "diagnose", "--model", model, "--corpus", source, "--set", "model.max_length=64",
        "--set", "arms.calibrated.basket_size=4", "--min-tokens", 4, "--quiet",
    ]  # fmt: skip


def test_a_run_leaves_a_table_rows_plots_and_a_page(lastpage, options, tmp_path):
    outcome = lastpage(*options)
    assert (outcome.code, outcome.err) == (0, "")
    for part in (
        "place 3",
        "sigma",
        "tau",
        "front-loading",
        "the 2nd segment",
        "Caution: only 5",
        "encoder:",
    ):
        assert part in outcome.out or part.replace("2nd", "3rd") in outcome.out
    run = tmp_path / "runs" / "diagnose-tiny-model-notes-jsonl"
    assert f"report: {run.relative_to(tmp_path)}/report.html" in outcome.out
    assert pq.read_table(run / "similarities.parquet").num_rows == 30 * 2 * 3
    assert pq.read_table(run / "attention.parquet").num_rows == 30 * 2 * 2 * 2
    for name in ("profile.svg", "profile.png", "attention.svg", "attention.png"):
        assert (run / name).stat().st_size > 1000
    page = (run / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "Does position decide" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_run_without_attention_leaves_none_of_an_earlier_one(lastpage, options, tmp_path):
    lastpage(*options)
    again = lastpage(*options, "--attention-documents", 0)
    assert again.code == 0, again.err
    run = tmp_path / "runs" / "diagnose-tiny-model-notes-jsonl"
    assert sorted(path.name for path in run.glob("attention.*")) == []
    assert (run / "profile.png").exists()


def test_json_has_everything_and_strengths_are_arms(lastpage, options):
    value = lastpage(*options, "--json", "--strength", "0.5,1").json
    assert list(value["calibrations"]) == ["plain", "strength-0.5", "strength-1"]
    assert value["calibrations"]["plain"] is None
    assert value["calibrations"]["strength-1"]["basket_size"] == 4
    assert value["counts"]["documents"] == value["cost"]["watched_documents"] == 30
    assert {profile["arm"] for profile in value["profiles"]} == set(value["calibrations"])
    fidelity = {each["arm"]: each for each in value["fidelity"]}
    assert fidelity["plain"]["documents"] == pytest.approx(1.0)
    assert fidelity["strength-1"]["documents"] < fidelity["strength-0.5"]["documents"] < 1.0


def test_a_second_run_measures_nothing_and_says_the_same(lastpage, options, monkeypatch):
    first = lastpage(*options, "--json")
    from pipeline.encoders.contextual import ContextualEncoder

    def refused(*arguments, **values):
        raise AssertionError("measured again")

    monkeypatch.setattr(ContextualEncoder, "observe", refused)
    second = lastpage(*options, "--json")
    assert second.code == 0
    assert second.json == first.json


def test_a_dry_run_counts_and_writes_nothing(lastpage, options, tmp_path):
    outcome = lastpage(*options, "--dry-run", "--segments", 3)
    assert outcome.out.startswith("5 segment sets x 6 orders = 30 documents, ")
    assert lastpage(*options, "--dry-run", "--json").json["orders"] == 6
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--segments", 7], "--segments: Input should be less than or equal to 6"),
        (["--mixed"], "mixed documents need two languages or more"),
        (["--languages", "en,de"], "no file corpus.en.parquet or .jsonl in it"),
        (["--max-orders", 2], "a balanced part has at least n = 3 orders"),
        (["--strength", 0], "--strength 0.0: expected a number above 0"),
        (["--data", "there"], "give one of them"),
        (["--set", "arms.plain.strength=0.5"], "the first arm must be plain"),
        (["--mixed-at", 4], "mixed_at = 4, but a document has 3 segments"),
    ],
)
def test_what_cannot_be_asked_is_refused(lastpage, options, wrong, message):
    outcome = lastpage(*options, *wrong)
    assert outcome.code == 2
    assert message in outcome.err


def test_a_corpus_without_sets_says_what_stood_in_the_way(lastpage, options):
    outcome = lastpage(*options, "--min-tokens", 30)
    assert outcome.code == 1
    assert "15 paragraphs shorter than the minimum" in outcome.err


def test_a_comparison_takes_the_section_in(lastpage, options, model, tmp_path):
    lastpage(*options)
    settings = ["--model", model, "--set", "model.max_length=64", "--set", "arms.calibrated.basket_size=4"]
    assert lastpage("index", "--corpus", "notes.jsonl", "--run", "runs/notes", "--quiet", *settings).code == 0
    queries = write_jsonl(tmp_path / "queries.jsonl", [{"id": "q", "query": "late river"}])
    asked = ["compare", "--run", "runs/notes", "--queries", queries, "--out", "ab", "--no-explain", "--quiet"]
    outcome = lastpage(*asked, "--diagnosis", "runs/diagnose-tiny-model-notes-jsonl")
    assert outcome.code == 0, outcome.err
    page = (tmp_path / "ab" / "report.html").read_text()
    assert 'id="diagnosis"' in page
    assert page.count("data:image/svg+xml;base64,") == 2
    missing = lastpage(*asked, "--overwrite", "--diagnosis", "runs/notes")
    assert missing.code == 2
    assert "runs/notes: no diagnosis in it" in missing.err


def test_the_page_stands_in_a_browser_and_loads_nothing(lastpage, options, tmp_path, browser):
    lastpage(*options)
    page = browser.new_page()
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto((tmp_path / "runs" / "diagnose-tiny-model-notes-jsonl" / "report.html").as_uri())
    widths = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 2
    assert min(widths) > 100
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert complaints == []
    page.close()
