"""Tuning proposes what is really better, and keeps still where there is only noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.config import ArmSettings
from pipeline.evaluation.grid import Setting
from pipeline.evaluation.proposing import Advice, Proposal, propose
from pipeline.evaluation.results import Cost
from pipeline.evaluation.statistics import Design, Floats
from pipeline.evaluation.sweep import Scored
from tests.conftest import Outcome, write_jsonl

N_PASSAGES, N_GROUPS, PER_BLOCK = 120, 3, 2
ONE_VECTOR = Cost(n_vectors=100, n_documents=100, dimension=8)
PLAIN = Setting("plain", ArmSettings(strength=0.0), None)


def design() -> Design:
    shape = (N_PASSAGES, N_GROUPS * PER_BLOCK, N_GROUPS)
    passages, questions, groups = np.indices(shape)
    return Design(
        [str(group) for group in groups.ravel()],
        questions=[f"{p}/{q}" for p, q in zip(passages.ravel(), questions.ravel(), strict=True)],
        clusters=[str(p) for p in passages.ravel()],
    )


def scores(rng: np.random.Generator, means: Sequence[float], base: Floats) -> Floats:
    """Hits with the given chance by position, correlated over settings through `base`."""
    latent = np.sqrt(0.95) * base + np.sqrt(0.05) * rng.normal(size=base.shape)
    return np.asarray(latent < np.quantile(base, means)).astype(float).ravel()


def measured(rng: np.random.Generator, settings: dict[Setting, Sequence[float]]) -> list[Scored]:
    base = rng.normal(size=(N_PASSAGES * N_GROUPS * PER_BLOCK, N_GROUPS))
    return [Scored(setting, scores(rng, means, base), ONE_VECTOR, 0) for setting, means in settings.items()]


def calibrated(number: int, chunk_tokens: int | None = None) -> Setting:
    return Setting(f"arm{number}", ArmSettings(basket_size=number + 1), chunk_tokens)


def proposal_of(scored: list[Scored], seed: int = 0) -> Proposal:
    own = design()
    chosen_on = np.random.default_rng(seed).permutation(own.n_clusters)[own.clusters] < own.n_clusters // 2
    return propose("which?", scored, scored[0], own, chosen_on, rounds=200, seed=seed)


BIASED, FLAT = (0.85, 0.75, 0.6), (0.75, 0.75, 0.75)


def test_a_setting_that_is_really_fairer_is_proposed_with_its_effect() -> None:
    scored = measured(np.random.default_rng(1), {PLAIN: BIASED, calibrated(0): FLAT, calibrated(1): BIASED})
    found = proposal_of(scored)

    assert (found.advice, found.setting.arm) == (Advice.CALIBRATE, "arm0")
    assert found.gain is not None
    assert found.gain.psi.high < 0
    assert found.reference.psi.value > 0.2 > found.summary.psi.value


def test_smaller_chunks_are_called_what_they_are() -> None:
    rng = np.random.default_rng(2)
    smaller = Setting("plain", ArmSettings(strength=0.0), 126)
    assert proposal_of(measured(rng, {PLAIN: BIASED, smaller: FLAT})).advice is Advice.CUT
    assert proposal_of(measured(rng, {PLAIN: BIASED, calibrated(0, 126): FLAT})).advice is Advice.BOTH


def test_a_fairer_setting_that_loses_quality_is_not_proposed() -> None:
    worse = (0.6, 0.6, 0.6)
    found = proposal_of(measured(np.random.default_rng(3), {PLAIN: (0.85, 0.85, 0.75), calibrated(0): worse}))

    assert found.advice is Advice.LEAVE


def test_of_twelve_settings_that_change_nothing_hardly_any_is_proposed() -> None:
    advised = []
    for seed in range(40):
        settings = {PLAIN: (0.8, 0.75, 0.7), **{calibrated(n): (0.8, 0.75, 0.7) for n in range(12)}}
        advised.append(proposal_of(measured(np.random.default_rng([7, seed]), settings), seed).advice)

    # Two one-sided chances of 2.5 % each would give 2 of 40; picking the best of twelve, far more.
    assert sum(advice is not Advice.LEAVE for advice in advised) <= 5


# -- the command ---------------------------------------------------------------------------------------

WORDS = ("the cat dog sat on mat answer is river blue late early alpha beta gamma cafe hello world").split()  # noqa: SIM905


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """60 documents of three sentences, each of eleven words that the tiny tokenizer knows."""
    rng = np.random.default_rng(11)
    sentences = [
        [" ".join(rng.permutation(WORDS)[:11]).capitalize() + "." for _ in range(3)] for _ in range(60)
    ]
    return write_jsonl(
        tmp_path / "docs.jsonl", [{"id": f"d{n}", "text": " ".join(own)} for n, own in enumerate(sentences)]
    )


@pytest.fixture
def tune(
    lastpage: Callable[..., Outcome], tiny_model: Path, corpus: Path, tmp_path: Path
) -> Callable[..., Outcome]:
    def run(*options: object) -> Outcome:
        return lastpage(
            "tune", "--corpus", corpus, "--model", tiny_model, "--run", tmp_path / "run", "--quiet",
            "--set", "model.max_length=64", "--set", "evaluate.rounds=200",
            "--basket", "4", "--strength", "1", "--layers", "last,all", "--chunk-tokens", "none,16", *options,
        )  # fmt: skip

    return run


def test_tune_measures_the_corpus_and_keeps_what_it_found(
    tune: Callable[..., Outcome], tmp_path: Path
) -> None:
    found = tune("--json")
    assert found.code == 0, found.err
    result = found.json

    sizes = {size["chunk_tokens"]: size for size in result["corpus"]["sizes"]}
    assert sizes[None]["vectors_per_document"] == 1.0
    assert sizes[16]["vectors_per_document"] > 2.5
    assert result["corpus"]["passages"] == 60
    assert result["corpus"]["left_out"] == {}
    assert {row["setting"] for row in result["sweep"]["rows"]} == {
        f"{arm}{budget}" for arm in ("plain", "b4-llast-s1", "b4-lall-s1") for budget in ("", "@16")
    }
    assert len(result["proposals"]) == 2
    assert json.loads((tmp_path / "run/tune.json").read_text())["proposals"] == result["proposals"]
    assert (tmp_path / "run/plots/position-curves.png").is_file()

    shards = sorted((tmp_path / "run/vectors").rglob("*.parquet"))
    times = [shard.stat().st_mtime_ns for shard in shards]
    again = tune("--json")
    assert again.json == result
    assert [
        shard.stat().st_mtime_ns for shard in sorted((tmp_path / "run/vectors").rglob("*.parquet"))
    ] == times


def test_what_is_done_now_is_measured_even_if_only_smaller_budgets_are_named(
    tune: Callable[..., Outcome],
) -> None:
    found = tune("--json", "--chunk-tokens", "16").json
    assert {size["chunk_tokens"] for size in found["corpus"]["sizes"]} == {None, 16}
    refused = tune("--chunk-tokens", "32,16", "--set", "chunk.max_tokens=20")
    assert refused.code == 2
    assert "--chunk-tokens 32 is more than chunk.max_tokens = 20" in refused.err


def test_a_corpus_with_new_ids_is_measured_anew_in_the_same_run(
    tune: Callable[..., Outcome], corpus: Path
) -> None:
    once = ("--json", "--chunk-tokens", "none")
    tune(*once)
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    write_jsonl(corpus, [{**row, "id": f"renamed-{row['id']}"} for row in rows])

    renamed = tune(*once)

    assert renamed.code == 0, renamed.err
    assert {row["harmonic_mean"] > 0 for row in renamed.json["sweep"]["rows"]} == {True}


def test_sizes_count_the_context_that_an_index_would_embed(
    tune: Callable[..., Outcome], corpus: Path
) -> None:
    """A title takes the room of text, so that the same corpus makes more chunks."""
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    write_jsonl(corpus, [{**row, "title": " ".join(WORDS[:5])} for row in rows])

    sizes = [
        {size["chunk_tokens"]: size["vectors"] for size in tune("--json", *options).json["corpus"]["sizes"]}
        for options in ((), ("--set", "chunk.context=title"))
    ]

    assert sizes[0][None] == sizes[1][None] == 60
    assert sizes[1][16] > sizes[0][16]


def test_limits_keep_smaller_chunks_out_of_the_proposal(tune: Callable[..., Outcome]) -> None:
    result = tune("--json", "--max-vectors", "1.5").json

    assert [proposal["chunk_tokens"] for proposal in result["proposals"]] == [None, None]


def test_limits_that_nothing_meets_are_refused_with_both_numbers(tune: Callable[..., Outcome]) -> None:
    refused = tune("--max-bytes", "1kB")

    assert refused.code == 2
    assert "1000 bytes" in refused.err
    assert "7,680 bytes" in refused.err


def test_a_tuning_within_other_limits_sets_the_earlier_one_aside(
    tune: Callable[..., Outcome], tmp_path: Path
) -> None:
    tune()
    before = (tmp_path / "run/tune.json").read_bytes()
    # As many bytes as users write them.
    assert tune("--max-bytes", "200M", "--json").json["limits"]["max_bytes"] == 200_000_000
    (folder,) = (tmp_path / "run/earlier").iterdir()
    assert (folder / "tune.json").read_bytes() == before
    assert tune("--max-bytes", "200MB", "--json").json["earlier"] is None


def test_tune_says_what_its_queries_cannot_show(
    tune: Callable[..., Outcome], lastpage: Callable[..., Outcome]
) -> None:
    printed = tune().out

    assert "not how well your users' questions" in " ".join(printed.split())
    assert "cannot show" in lastpage("tune", "--help").out


def test_a_corpus_too_small_is_refused(
    lastpage: Callable[..., Outcome], tiny_model: Path, tmp_path: Path
) -> None:
    small = write_jsonl(tmp_path / "small.jsonl", [{"id": "a", "text": "the cat sat"}])
    refused = lastpage(
        "tune", "--corpus", small, "--model", tiny_model, "--run", tmp_path / "small", "--quiet",
        "--set", "model.max_length=64", "--chunk-tokens", "none",
    )  # fmt: skip

    assert refused.code == 1
    assert "only 0 of 1 chunks can be asked about" in refused.err


def test_a_run_that_holds_an_index_is_not_overwritten(
    lastpage: Callable[..., Outcome], tune: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "run/current").mkdir(parents=True)
    refused = tune()

    assert refused.code == 2
    assert "holds an index" in refused.err
