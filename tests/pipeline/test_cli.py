"""The command line, end to end in a temporary folder: output, errors and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import CATS_AND_DOGS, Outcome, save_tiny_model, write_jsonl

Command = Callable[..., Outcome]

RECORDS = [
    *CATS_AND_DOGS,
    {"id": "greek", "text": "Alpha beta gamma. Gamma beta alpha. Late late late. The end is near the river."},
]


@pytest.fixture(autouse=True)
def _in_empty_folder(empty_folder: Path) -> None:
    """Before all other fixtures, which write there."""


@pytest.fixture
def corpus() -> Path:
    return write_jsonl(Path("docs.jsonl"), RECORDS)


def test_index_then_query_then_nothing_to_do(
    lastpage: Command, corpus: Path, tiny_settings: list[str]
) -> None:
    first = lastpage("index", "--corpus", corpus, *tiny_settings)
    assert first.code == 0, first.err
    assert "3 documents" in first.out
    assert "run directory: runs/docs-jsonl" in first.out
    second = lastpage("index", "--corpus", corpus, *tiny_settings)
    assert second.code == 0
    assert "nothing to do: runs/docs-jsonl is up to date" in second.out
    assert 'next: lastpage query "your question"' in second.out
    asked = lastpage("query", "where is the river?")
    assert asked.code == 0, asked.err
    assert "run    runs/docs-jsonl" in asked.out
    assert "only 3 documents in the index: fewer than k = 10" in asked.out


def test_the_hint_names_a_run_that_is_not_the_default(
    lastpage: Command, corpus: Path, tiny_settings: list[str]
) -> None:
    outcome = lastpage("index", "--corpus", corpus, "--run", "else where/run", *tiny_settings)
    assert "next: lastpage query --run 'else where/run' \"your question\"" in outcome.out


def test_json_for_machines(lastpage: Command, corpus: Path, tiny_settings: list[str]) -> None:
    summary = lastpage("index", "--corpus", corpus, "--json", *tiny_settings).json
    assert [stage["stage"] for stage in summary["stages"]] == ["corpus", "chunk", "embed", "index"]
    assert summary["changed"] is True
    assert lastpage("index", "--corpus", corpus, "--json", *tiny_settings).json["changed"] is False
    result = lastpage("query", "--json", "-k", 2, "where is the river?").json
    assert result["build_id"] == summary["stages"][-1]["build"]
    assert [document["other"]["rank"] for document in result["documents"][:2]] == [1, 2]
    texts = {record["id"]: record["text"] for record in RECORDS}
    for document in result["documents"]:
        evidence = document["evidence"]
        assert texts[document["doc_id"]][evidence["start"] : evidence["end"]] == evidence["text"]
        assert 0 <= evidence["position_in_chunk"] <= 1


def test_stages_are_commands_that_run_what_they_need(
    lastpage: Command, corpus: Path, tiny_settings: list[str]
) -> None:
    chunk = lastpage("chunk", "--corpus", corpus, "--json", *tiny_settings).json
    assert [stage["stage"] for stage in chunk["stages"]] == ["corpus", "chunk"]
    embed = lastpage("embed", "--corpus", corpus, "--json", *tiny_settings).json
    assert [stage["changed"] for stage in embed["stages"]] == [False, False, True]
    index = lastpage("index", "--corpus", corpus, "--json", *tiny_settings).json
    assert [stage["changed"] for stage in index["stages"]] == [False, False, False, True]


def test_a_folder_of_text_files_is_a_corpus(lastpage: Command, tiny_settings: list[str]) -> None:
    notes = Path("notes")
    notes.mkdir()
    (notes / "one.txt").write_text("The cat sat on the mat.", encoding="utf-8")
    (notes / "two.md").write_text("# Dogs\n\nA dog is late.", encoding="utf-8")
    assert lastpage("index", "--corpus", notes, *tiny_settings).code == 0
    documents = lastpage("query", "--json", "dog").json["documents"]
    assert {document["doc_id"] for document in documents} == {"one.txt", "two.md"}


def test_skipped_records_are_named_and_change_the_exit_code(
    lastpage: Command, tiny_settings: list[str]
) -> None:
    corpus = write_jsonl(Path("docs.jsonl"), [*RECORDS, {"id": "empty", "text": " \n"}])
    outcome = lastpage("index", "--corpus", corpus, *tiny_settings)
    assert outcome.code == 3
    assert "skipped at corpus: 1 blank" in outcome.out
    assert "empty (" in outcome.out
    again = lastpage("index", "--corpus", corpus, "--allow-skipped", *tiny_settings)
    assert again.code == 0
    assert "skipped at corpus: 1 blank" in again.out


BAD_CORPORA: dict[str, tuple[str, bytes, list[str]]] = {
    "broken line": ("docs.jsonl", b'{"id":"1","text":"a"}\n{"id":"2","te\n', ["docs.jsonl:2"]),
    "no text column": ("docs.jsonl", b'{"id":"1","words":"a","year":1}\n', ["words", "year"]),
    "duplicate ids": (
        "docs.jsonl",
        b'{"id":"1","text":"a"}\n\n{"id":1,"text":"the"}\n',
        ["'1'", "docs.jsonl:1", "docs.jsonl:3"],
    ),
    "empty": ("docs.jsonl", b"", ["docs.jsonl"]),
    "empty id": ("docs.jsonl", b'{"id":"","text":"a"}\n', ["docs.jsonl:1", "id"]),
}


@pytest.mark.parametrize(("name", "content", "told"), BAD_CORPORA.values(), ids=BAD_CORPORA)
def test_bad_corpora_are_data_errors_and_leave_nothing(
    lastpage: Command, tiny_settings: list[str], name: str, content: bytes, told: list[str]
) -> None:
    Path(name).write_bytes(content)
    outcome = lastpage("index", "--corpus", name, *tiny_settings)
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    for words in told:
        assert words in outcome.err
    assert not list(Path("runs").glob("*/corpus/*"))


BAD_REQUESTS: dict[str, tuple[list[str], int, list[str]]] = {
    "missing corpus": (["index", "--corpus", "nowhere.jsonl"], 1, ["nowhere.jsonl"]),
    "endless corpus": (["index", "--corpus", "x" * 5000], 1, ["no such file or folder"]),
    "empty corpus": (["index", "--corpus", ""], 2, ["corpus.source is empty"]),
    "unknown key": (["index", "--set", "chunk.max_token=5"], 2, ["chunk.max_token", "'max_tokens'"]),
    "no key": (["index", "--set", "5"], 2, ["KEY=VALUE"]),
    "missing config": (["index", "--config", "none.toml"], 2, ["none.toml"]),
    "missing model folder": (["index", "--model", "./none"], 2, ["./none"]),
    "budget over the limit": (["index", "--set", "chunk.max_tokens=600"], 2, ["600", "510"]),
    "length over the positions": (["index", "--set", "model.max_length=513"], 2, ["513", "512"]),
    "query before index": (["query", "hello"], 2, ["lastpage index"]),
    "query of an unknown run": (["query", "--run", "runs/none", "hello"], 2, ["runs/none"]),
    "unknown option": (["index", "--corpse", "x"], 2, ["--corpus"]),
    "unknown factory": (["index", "--set", "index.factory=Flut"], 2, ["Flut"]),
}


@pytest.mark.parametrize(("arguments", "code", "told"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_bad_requests_say_what_where_and_what_to_do(
    lastpage: Command, arguments: list[str], code: int, told: list[str]
) -> None:
    outcome = lastpage(*arguments)
    assert outcome.code == code, outcome.err
    for words in told:
        assert words in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(Path().glob("runs/*/vectors/*/*"))


@pytest.fixture
def indexed(lastpage: Command, corpus: Path, tiny_settings: list[str]) -> None:
    assert lastpage("index", "--corpus", corpus, *tiny_settings).code == 0


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["   "], "the query is empty"),
        (["-k", "0", "cat"], "k = 0"),
        (["-k", "-1", "cat"], "k = -1"),
        (["-k", "five", "cat"], "'five' is not a valid integer"),
        (["--depth", "0", "cat"], "depth = 0"),
        (["--arm", "full", "cat"], "no arm 'full'"),
        (["--arm", "plain", "cat"], "no arm 'plain'"),
    ],
)
def test_bad_queries_are_refused(lastpage: Command, arguments: list[str], told: str) -> None:
    outcome = lastpage("query", *arguments)
    assert outcome.code == 2
    assert told in outcome.err


@pytest.mark.usefixtures("indexed")
def test_a_cut_query_says_so(lastpage: Command) -> None:
    outcome = lastpage("query", "cat " * 100)
    assert outcome.code == 0
    assert "the query has 102 tokens" in outcome.out
    assert lastpage("query", "--json", "cat " * 100).json["truncated"] is True
    assert lastpage("query", "--json", "cat").json["truncated"] is False


@pytest.mark.usefixtures("indexed")
def test_a_query_needs_the_model_of_the_index(lastpage: Command, tiny_model: Path, tmp_path: Path) -> None:
    """Case A21: other weights are refused even at the same dimension; the same files elsewhere are fine."""
    moved = tiny_model.rename(tmp_path / "moved")
    assert lastpage("query", "--model", moved, "cat").code == 0
    other = save_tiny_model(tmp_path / "other", seed=8)
    refused = lastpage("query", "--model", other, "cat")
    assert refused.code == 1
    assert "the index was made with model" in refused.err
    wider = save_tiny_model(tmp_path / "wider", width=64)
    assert lastpage("query", "--model", wider, "cat").code == 1


@pytest.mark.usefixtures("indexed")
def test_the_newest_run_is_asked_by_default_and_named(lastpage: Command, tiny_settings: list[str]) -> None:
    other = write_jsonl(Path("other.jsonl"), RECORDS[:2])
    assert lastpage("index", "--corpus", other, *tiny_settings).code == 0
    outcome = lastpage("query", "cat")
    assert "run    runs/other-jsonl" in outcome.out
    assert "the newest of 2 runs" in outcome.out
    assert "run    runs/docs-jsonl" in lastpage("query", "--run", "runs/docs-jsonl", "cat").out


@pytest.mark.usefixtures("indexed")
def test_pickles_are_never_opened(
    lastpage: Command, corpus: Path, tiny_settings: list[str], tmp_path: Path
) -> None:
    """Case A23: pickles beside our files and under their names."""
    import pickle

    marker = tmp_path / "marker"

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (marker,))

    bomb = pickle.dumps(Bomb())
    build = next(Path("runs/docs-jsonl/builds").iterdir())
    (build / "index.pkl").write_bytes(bomb)
    assert lastpage("query", "cat").code == 0
    for path in [*build.glob("*.faiss"), *build.glob("*.parquet"), build / "manifest.json"]:
        kept = path.read_bytes()
        path.unlink()
        path.write_bytes(bomb)
        assert lastpage("query", "cat").code in (1, 2)
        path.write_bytes(kept)
    for path in Path("runs/docs-jsonl").glob("*/*.parquet"):
        path.write_bytes(bomb)
    for path in Path("runs/docs-jsonl/vectors").glob("*/*.parquet"):
        path.write_bytes(bomb)
    assert lastpage("index", "--corpus", corpus, *tiny_settings).code in (0, 1)
    assert not marker.exists()


def test_an_id_cannot_drive_the_terminal(lastpage: Command, tiny_settings: list[str]) -> None:
    corpus = write_jsonl(Path("docs.jsonl"), [{"id": "a\x1b[2Jb\x07", "text": "the cat \x1b[31m sat"}])
    assert lastpage("index", "--corpus", corpus, *tiny_settings).code == 0
    out = lastpage("query", "cat").out
    assert "a\ufffd[2Jb\ufffd" in out
    assert "\x1b" not in out
    assert lastpage("query", "--json", "cat").json["documents"][0]["doc_id"] == "a\x1b[2Jb\x07"


IDS = [
    "../../escape",
    "/etc/passwd",
    "a/b",
    "a\\b",
    ".",
    "con",
    "x" * 5000,
    "a\nb",
    "%2e%2e%2fq",
    "[/red]",
    "[bold]x",
    ":smile:",
]


def test_ids_are_never_paths(lastpage: Command, tiny_settings: list[str], tmp_path: Path) -> None:
    """Case A24."""
    corpus = write_jsonl(
        Path("docs.jsonl"), [{"id": name, "text": f"the cat {n}"} for n, name in enumerate(IDS)]
    )
    before = {path for path in tmp_path.rglob("*") if "runs" not in path.parts}
    assert lastpage("index", "--corpus", corpus, *tiny_settings).code == 0
    documents = lastpage("query", "--json", "-k", 20, "cat").json["documents"]
    assert {document["doc_id"] for document in documents} == set(IDS)
    assert lastpage("query", "-k", 20, "cat").code == 0
    assert {path for path in tmp_path.rglob("*") if "runs" not in path.parts} == before
    names = {part for path in Path("runs").rglob("*") for part in path.parts}
    assert not names & {"escape", "passwd", "con", "b"}


@pytest.mark.parametrize("command", ["index", "chunk", "embed", "query", "inspect"])
def test_help_has_an_example_and_the_exit_codes(lastpage: Command, command: str) -> None:
    outcome = lastpage(command, "--help")
    assert outcome.code == 0
    assert f"lastpage {command}" in outcome.out
    assert "Exit codes: 0 done" in outcome.out


def test_the_run_of_a_config_and_a_corpus_bears_both_names(
    lastpage: Command, corpus: Path, tiny_settings: list[str]
) -> None:
    Path("small.toml").write_text('run = "runs/small"\n[query]\nk = 3\n', encoding="utf-8")
    arguments = ["--config", "small.toml", "--corpus", corpus, "--json", *tiny_settings]
    assert lastpage("chunk", *arguments).json["run"] == "runs/docs-jsonl-small"
    assert lastpage("chunk", *arguments, "--run", "runs/mine").json["run"] == "runs/mine"


def test_an_option_for_one_arm_leaves_the_other(lastpage: Command, corpus: Path, tiny_model: Path) -> None:
    options = ["--model", tiny_model, "--set", "model.max_length=64", "--quiet"]
    options += ["--set", "arms.calibrated.basket_size=4"]
    assert lastpage("index", "--corpus", corpus, *options).code == 0
    result = lastpage("query", "--json", "cat").json
    assert (result["reference_arm"], result["other_arm"]) == ("plain", "calibrated")


def test_a_run_is_not_filled_with_a_corpus_that_nobody_named(
    lastpage: Command, corpus: Path, tiny_settings: list[str]
) -> None:
    assert lastpage("chunk", "--corpus", corpus, "--run", "runs/mine", *tiny_settings).code == 0
    refused = lastpage("chunk", "--run", "runs/mine", *tiny_settings)
    assert refused.code == 2
    assert "holds the corpus 'docs.jsonl'; name it again with --corpus" in refused.err


def test_a_full_disk_is_an_error_and_no_traceback(
    lastpage: Command, corpus: Path, tiny_settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "chunks.parquet")

    monkeypatch.setattr("pipeline.chunking.table.write_chunks", full)
    outcome = lastpage("index", "--corpus", corpus, *tiny_settings)
    assert outcome.code == 1
    assert "No space left on device: 'chunks.parquet'" in outcome.err


def test_strict_json(lastpage: Command, corpus: Path, tiny_settings: list[str]) -> None:
    out = lastpage("index", "--corpus", corpus, "--json", *tiny_settings).out

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(out, parse_constant=refuse)
