"""The command from end to end on a tiny model: tables, files, warm runs, resumed runs, refusals."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import pytrec_eval

from pipeline.encoders import Encoder
from pipeline.evaluation.earlier import set_aside
from tests.conftest import Outcome, save_tiny_model
from tests.pipeline.evaluation.making import QUESTIONS, document, load, posir, qrel, query, rotated

Command = Callable[..., Outcome]
FEW = ["--set", "evaluate.rounds=200", "--quiet"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def options(tmp_path: Path, model: Path) -> list[str]:
    """Twelve articles in three rotations, a model of 64 tokens, baskets of 4."""
    rotated(tmp_path / "set", n_articles=12)
    settings = ["model.max_length=64", "arms.calibrated.basket_size=4"]
    return ["--data", "set", "--model", str(model), *(f"--set={setting}" for setting in settings), *FEW]


def _vectors(run: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path(run).glob("vectors/*/*.parquet")}


def test_result_and_files(lastpage: Command, options: list[str]) -> None:
    outcome = lastpage("evaluate", *options, "--json")
    assert outcome.code == 0, outcome.err
    result = outcome.json
    assert result["run"] == "runs/evaluate-set"
    assert result["data"]["n_queries"] == 108
    assert result["data"]["is_paired"] is True
    assert result["data"]["n_clusters"] == 12
    assert [system["name"] for system in result["systems"]] == ["plain", "calibrated", "bm25"]
    assert result["this_time"]["vectors_made"] == {"plain": 36, "calibrated": 36, "queries": 36}
    assert result["cost"] == {
        "n_vectors": 36,
        "n_documents": 36,
        "dimension": 32,
        "vectors_per_document": 1.0,
        "index_bytes": 4 * 36 * 32,
    }
    lexical = result["systems"][2]["measures"]["nDCG@10"]
    assert len({round(mean["value"], 12) for mean in lexical["means"]}) == 1
    assert lexical["psi"]["value"] == pytest.approx(0, abs=1e-12)
    run = Path("runs/evaluate-set")
    stored = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert stored == {key: value for key, value in result.items() if key not in ("run", "this_time")}
    assert set(stored["provenance"]) == {"data", "model", "identities", "seed", "versions", "settings"}
    assert json.loads((run / "config.json").read_text())["evaluate"]["data"] == "set"


def test_scores_are_what_pytrec_eval_says_of_the_encoders_vectors(
    lastpage: Command, options: list[str], model: Path
) -> None:
    """Recomputed without the evaluation's own code: encoder, dot product, trec_eval."""
    assert lastpage("evaluate", *options).code == 0
    data = load("set")
    encoder = Encoder.load(str(model), {"plain": None}, max_length=64)
    texts = {found.doc_id: found.text for found in data.documents()}
    vectors = dict(zip(texts, encoder.encode_documents(list(texts.values()))["plain"], strict=True))
    queries = encoder.encode_queries([asked.text for asked in data.queries])["plain"]
    run: dict[str, dict[str, float]] = {}
    for asked, vector in zip(data.queries, queries, strict=True):
        (corpus,) = (corpus for corpus in data.corpora if corpus.name == asked.corpus)
        run[asked.query_id] = {doc_id: float(vectors[doc_id] @ vector) for doc_id in corpus.doc_ids}
    qrels = {asked.query_id: dict(asked.qrels) for asked in data.queries}
    expected = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.10"}).evaluate(run)
    rows = pq.read_table("runs/evaluate-set/scores.parquet", filters=[("system", "=", "plain")]).to_pylist()
    assert len(rows) == 108
    for row in rows:
        assert row["ndcg"] == pytest.approx(expected[row["query_id"]]["ndcg_cut_10"], abs=1e-9)
        assert row["recall"] == expected[row["query_id"]]["recall_10"]
    by_group = [np.mean([row["ndcg"] for row in rows if row["group"] == name]) for name in data.group_names]
    stored = json.loads(Path("runs/evaluate-set/results.json").read_text())["systems"][0]
    means = [mean["value"] for mean in stored["measures"]["nDCG@10"]["means"]]
    np.testing.assert_allclose(means, by_group)


def test_rankings_are_a_run_file(lastpage: Command, options: list[str]) -> None:
    assert lastpage("evaluate", *options).code == 0
    lines = Path("runs/evaluate-set/rankings/calibrated.trec").read_text().splitlines()
    assert len(lines) == 108 * 12
    run = pytrec_eval.parse_run(lines)
    assert len(run) == 108
    assert {path.stem for path in Path("runs/evaluate-set/rankings").iterdir()} == {
        "plain",
        "calibrated",
        "bm25",
    }
    assert lastpage("evaluate", *options, "--no-bm25").code == 0
    assert not Path("runs/evaluate-set/rankings/bm25.trec").exists()


def test_a_warm_evaluation_embeds_nothing_and_says_the_same(lastpage: Command, options: list[str]) -> None:
    first = lastpage("evaluate", *options, "--json").json
    shards, result = _vectors("runs/evaluate-set"), Path("runs/evaluate-set/results.json").read_bytes()
    scores = Path("runs/evaluate-set/scores.parquet").read_bytes()
    again = lastpage("evaluate", *options, "--json").json
    assert again["this_time"]["vectors_made"] == {"plain": 0, "calibrated": 0, "queries": 0}
    assert _vectors("runs/evaluate-set") == shards
    assert Path("runs/evaluate-set/results.json").read_bytes() == result
    assert Path("runs/evaluate-set/scores.parquet").read_bytes() == scores
    assert first["systems"] == again["systems"]
    assert "nothing to embed" in lastpage("evaluate", *options).out


def _results(folder: Path) -> dict[str, bytes]:
    """The result files below a folder, without those that were set aside."""
    files = [folder / "results.json", folder / "scores.parquet", *folder.glob("rankings/*.trec")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_results_of_other_settings_are_set_aside_and_those_of_the_same_replaced(
    lastpage: Command, options: list[str]
) -> None:
    run = Path("runs/evaluate-set")
    first = lastpage("evaluate", *options, "--json").json
    full = _results(run)
    os.utime(run / "results.json", (0, datetime(2026, 11, 30, 13, 15, tzinfo=UTC).timestamp()))
    fewer = lastpage("evaluate", *options, "--sample", "20")
    again = lastpage("evaluate", *options, "--sample", "20", "--json").json
    assert first["this_time"]["earlier"] is None
    assert "earlier results, of other settings: runs/evaluate-set/earlier/20261130-131500" in fewer.out
    assert again["this_time"]["earlier"] is None
    assert [path.name for path in (run / "earlier").iterdir()] == ["20261130-131500"]
    assert _results(run / "earlier" / "20261130-131500") == full
    assert json.loads((run / "results.json").read_text())["data"]["n_queries"] == 60


def test_results_of_the_same_second_are_all_kept(tmp_path: Path) -> None:
    kept = []
    for text in ("one", "two", "three"):
        (tmp_path / "results.json").write_text(text)
        os.utime(tmp_path / "results.json", (0, 0))
        kept.append(set_aside(tmp_path, [tmp_path / "rankings", tmp_path / "results.json"]))
    names = ["19700101-000000", "19700101-000000-2", "19700101-000000-3"]
    assert kept == [tmp_path / "earlier" / name for name in names]
    assert [(folder / "results.json").read_text() for folder in kept if folder] == ["one", "two", "three"]
    assert set_aside(tmp_path, [tmp_path / "results.json"]) is None


def test_few_clusters_are_called_what_they_are(lastpage: Command, options: list[str], tmp_path: Path) -> None:
    rotated(tmp_path / "set", n_articles=9)
    note = "there are only 9 independent clusters: do not believe the intervals and p-values"
    assert note in " ".join(lastpage("evaluate", *options).out.split())
    rotated(tmp_path / "set", n_articles=10)
    assert lastpage("evaluate", *options, "--json").json["warnings"] == []


def test_an_arm_that_does_nothing_is_named_with_the_reason(lastpage: Command, options: list[str]) -> None:
    idle = lastpage("evaluate", *options, "--set", "arms.calibrated.basket_size=60", "--json").json
    (warning,) = idle["warnings"]
    longest = idle["documents"]["longest_chunk"]
    assert "arm 'calibrated' does nothing: it makes the vectors of 'plain'" in warning
    assert f"the longest has {longest} tokens, special ones included, and a basket 60" in warning
    assert longest <= 60


def test_another_strength_embeds_one_arm_and_a_smaller_chunk_only_its_texts(
    lastpage: Command, options: list[str]
) -> None:
    lastpage("evaluate", *options)
    stronger = lastpage("evaluate", *options, "--set", "arms.calibrated.strength=1.0", "--json").json
    assert stronger["this_time"]["vectors_made"] == {"plain": 0, "calibrated": 36, "queries": 0}
    chunked = lastpage("evaluate", *options, "--chunk-tokens", 8, "--json").json
    assert chunked["cost"]["vectors_per_document"] > 2
    assert chunked["this_time"]["vectors_made"]["queries"] == 0
    assert chunked["documents"]["cut"] == 0


def test_a_longer_query_prompt_cuts_queries_though_the_documents_stay(
    lastpage: Command, options: list[str]
) -> None:
    assert lastpage("evaluate", *options, "--json").json["documents"]["queries_cut"] == 0
    prompt = "cat " * 63
    longer = lastpage("evaluate", *options, "--set", f"model.query_prompt={prompt}", "--json").json
    assert longer["documents"]["queries_cut"] == 36
    assert longer["this_time"]["vectors_made"] == {"plain": 0, "calibrated": 0, "queries": 36}


def test_a_run_that_lost_a_shard_makes_only_that_again(lastpage: Command, options: list[str]) -> None:
    small = [*options, "--set", "embed.shard_size=10"]
    lastpage("evaluate", *small)
    before = Path("runs/evaluate-set/results.json").read_bytes()
    shards = sorted(_vectors("runs/evaluate-set"))
    shards[0].unlink()
    made = lastpage("evaluate", *small, "--json").json["this_time"]["vectors_made"]
    assert 1 <= sum(made.values()) <= 10
    assert sorted(_vectors("runs/evaluate-set")) == shards
    assert Path("runs/evaluate-set/results.json").read_bytes() == before


def test_report(lastpage: Command, options: list[str]) -> None:
    out = lastpage("evaluate", *options).out
    assert "set (posir, per-shift), 36 documents in 3 indexes" in out
    assert "108 questions in 12 independent clusters, the same questions in every group" in out
    assert "whole documents, none of them cut" in out
    for line in (
        "nDCG@10",
        "1 of 3",
        "harmonic mean",
        "PSI",
        "by chance",
        "recall@10",
        "MRR@10",
        "less plain",
    ):
        assert line in out
    assert "note:" not in out
    assert "a PSI difference is wide on purpose and may hold 0 though p is small" in " ".join(out.split())


def test_truncation_is_reported_and_the_untruncated_are_shown_apart(
    lastpage: Command, tmp_path: Path, options: list[str]
) -> None:
    rotated(tmp_path / "set", n_articles=24)  # article n has n more words: the later ones do not fit
    cut = [*options, "--set", "model.max_length=38"]
    result = lastpage("evaluate", *cut, "--json").json
    lengths = pq.read_table("runs/evaluate-set/chunks/lengths.parquet").to_pylist()
    n_cut = sum(row["seen"] < row["n_chars"] for row in lengths)
    assert 0 < n_cut == result["documents"]["cut"] < 72
    assert sum(group["golds_cut"] for group in result["truncation"]) == 3 * n_cut
    whole = result["systems"][0]["untruncated"]
    assert whole["counts"] == [72 - n_cut] * 3
    assert "have a gold document that was cut" in result["warnings"][0]
    out = lastpage("evaluate", *cut).out
    assert "only questions whose gold document was embedded whole" in out
    refused = lastpage("evaluate", *cut, "--long-documents", "refuse")
    assert refused.code == 1
    assert "but the model takes 38" in refused.err
    chunked = lastpage("evaluate", *cut, "--long-documents", "chunk", "--json").json
    assert chunked["documents"]["cut"] == 0
    assert chunked["cost"]["n_vectors"] > 72


def test_siblings_compete(lastpage: Command, options: list[str], tmp_path: Path) -> None:
    rotated(tmp_path / "set", n_articles=1)
    result = lastpage("evaluate", *options, "--protocol", "siblings", "--json").json
    assert (result["data"]["protocol"], result["data"]["n_indexes"]) == ("siblings", 1)
    # To BM25 the three are the same text, so that they stand by id: each is first, second and third once.
    (lexical,) = (system for system in result["systems"] if system["name"] == "bm25")
    assert lexical["overall"]["nDCG@10"] == pytest.approx((1 + 1 / np.log2(3) + 1 / 2) / 3)


def test_data_without_positions(lastpage: Command, model: Path, tmp_path: Path) -> None:
    corpus = [document(f"d{n}", f"the cat {'alpha ' * n}") for n in range(3)]
    queries = [query(f"q{n}", f"cat {'alpha ' * n}", None, None) for n in range(3)]
    posir(tmp_path / "bare", corpus, queries, [qrel(f"q{n}", f"d{n}") for n in range(3)])
    arms = ["--set", "model.max_length=64", "--set", "arms.calibrated.basket_size=4"]
    outcome = lastpage("evaluate", "--data", "bare", "--model", model, *arms, *FEW)
    assert outcome.code == 0, outcome.err
    assert "nothing is known of where answers stand" in outcome.out.replace("\n", " ")
    assert "PSI" not in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--data", "nowhere"], 1, "nowhere: no such file or folder"),
        (["--data", "nope/"], 1, "nope/: no such file or folder, and not a `datasets` name"),
        ([], 2, "no labelled data is named; give --data"),
        (["--data", "set", "--language", "en"], 2, "has no languages to choose from"),
        (["--data", "set", "--set", "evaluate.kk=1"], 2, "evaluate.kk: unknown key; did you mean 'k'?"),
        (["--data", "set", "--set", "arms.bm25.strength=0.5"], 2, "is taken by the lexical row"),
        (["--data", "set", "--chunk-tokens", "1000"], 2, "chunk.max_tokens = 1000 must be between 1 and 62"),
        (
            ["--data", "set", "--chunk-tokens", "8", "--set", "chunk.overlap_tokens=8"],
            2,
            "chunk.overlap_tokens = 8 must be smaller than --chunk-tokens 8",
        ),
        (["--data", "set", "--k", "0"], 2, "0 is not in the range"),
    ],
)
def test_refusals(
    lastpage: Command, model: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    rotated(tmp_path / "set", n_articles=1)
    fixed = ["--model", str(model), "--set=model.max_length=64", "--set=arms.calibrated.basket_size=4", *FEW]
    outcome = lastpage("evaluate", *arguments, *fixed)
    assert (outcome.code, message in outcome.err) == (code, True), outcome.err
    assert not list(Path().glob("runs/*"))


def test_the_run_of_an_index_is_left_alone(lastpage: Command, options: list[str], tmp_path: Path) -> None:
    documents = tmp_path / "runs" / "notes" / "corpus" / "documents.parquet"
    documents.parent.mkdir(parents=True)
    documents.touch()
    outcome = lastpage("evaluate", *options, "--out", "runs/notes")
    assert (outcome.code, "runs/notes holds an index; choose another" in outcome.err) == (2, True)
    (tmp_path / "notes.toml").write_text('run = "runs/notes"\n')
    result = lastpage("evaluate", *options, "--config", "notes.toml", "--json").json
    assert result["run"] == "runs/evaluate-set-notes"


def test_questions_of_the_set_are_what_is_asked(tmp_path: Path) -> None:
    data = load(rotated(tmp_path / "set", n_articles=1))
    assert {asked.text for asked in data.queries} == set(QUESTIONS)
