"""Builds over time: listed, returned to, and pruned without taking what is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Outcome, save_tiny_model, write_jsonl

Command = Callable[..., Outcome]


class Runs:
    """A run directory whose corpus is replaced and indexed again."""

    def __init__(self, lastpage: Command, folder: Path) -> None:
        self.lastpage = lastpage
        self.folder = folder
        model = save_tiny_model(folder / "model")
        self.options = ["--model", str(model), "--run", str(folder / "run"), "--quiet", "--json"]
        self.options += ["--set", "model.max_length=64", "--set", "arms.plain.strength=0.0"]
        self.options += ["--set", "arms.calibrated.basket_size=4", "--set", "embed.shard_size=2"]

    def index(self, *texts: str, **settings: object) -> str:
        records = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
        corpus = write_jsonl(self.folder / "docs.jsonl", records)
        changes = [
            part for key, value in settings.items() for part in ("--set", f"{key.replace('__', '.')}={value}")
        ]
        outcome = self.lastpage("index", "--corpus", corpus, *self.options, *changes)
        assert outcome.code == 0, outcome.err
        build: str = outcome.json["stages"][-1]["build"]
        return build

    def __call__(self, command: str, *arguments: object) -> Outcome:
        return self.lastpage(command, *arguments, "--run", self.folder / "run")

    def top(self, query: str) -> str:
        result = self("query", query, "--json").json
        return str(result["documents"][0]["doc_id"])

    @property
    def shards(self) -> set[Path]:
        return set((self.folder / "run" / "vectors").glob("*/*.parquet"))


@pytest.fixture
def runs(lastpage: Command, tmp_path: Path) -> Runs:
    return Runs(lastpage, tmp_path)


def test_builds_are_listed_oldest_first_and_the_current_one_is_marked(runs: Runs) -> None:
    first = runs.index("the cat sat")
    second = runs.index("the cat sat", "a dog is late")
    listed = runs("builds", "--json").json["builds"]
    assert [(build["build_id"], build["current"], build["n_documents"]) for build in listed] == [
        (first, False, 1),
        (second, True, 2),
    ]
    assert listed[0]["arms"] == {"plain": 0.0, "calibrated": 0.5}
    table = runs("builds").out
    assert table.index(first) < table.index("*") < table.index(second)


def test_a_rollback_serves_the_earlier_texts_and_index_goes_forward_again(runs: Runs) -> None:
    first = runs.index("the cat sat on the mat", "a dog is late")
    second = runs.index("a dog is late", "the cat sat on the mat")
    assert runs.top("the cat sat on the mat") == "1"
    assert runs("rollback", first).code == 0
    assert runs.top("the cat sat on the mat") == "0"
    third = runs.index("a dog is late", "the cat sat on the mat")
    assert third not in (first, second)
    assert runs.top("the cat sat on the mat") == "1"


def test_a_rollback_to_nothing_is_refused(runs: Runs) -> None:
    runs.index("the cat sat")
    outcome = runs("rollback", "20200101-000000-000000-00000000")
    assert outcome.code == 1
    assert "no build '20200101-000000-000000-00000000'" in outcome.err
    assert runs.top("cat") == "0"


def test_pruning_keeps_what_serves_and_what_it_needs(runs: Runs) -> None:
    runs.index("the cat sat", "a dog is late", "hello world", "river")
    runs.index("the cat sat", arms__calibrated__strength=0.9)
    current = runs.index("hello world", "river", "gamma")
    pruned = runs("prune", "--json").json
    assert len(pruned["builds"]) == 2
    assert pruned["n_bytes"] > 0
    assert [build["build_id"] for build in runs("builds", "--json").json["builds"]] == [current]
    assert runs.top("gamma") == "2"
    kept = runs.shards
    outcome = runs.lastpage("index", "--corpus", runs.folder / "docs.jsonl", *runs.options)
    assert outcome.json["changed"] is False
    assert runs.shards == kept
    # Of the first corpus one shard held only texts that are gone, in each arm; of the other strength, all.
    assert pruned["shards"] == 3


def test_pruning_can_keep_more(runs: Runs) -> None:
    builds = [runs.index("the cat sat", f"river {number}") for number in range(4)]
    assert runs("prune", "--keep", 2, "--json").json["builds"] == builds[:2]
    assert runs("rollback", builds[2]).code == 0
    assert runs("prune", "--keep", 1, "--json").json["builds"] == []


@pytest.mark.parametrize("keep", [0, -1])
def test_at_least_one_build_stays(runs: Runs, keep: int) -> None:
    runs.index("the cat sat")
    outcome = runs("prune", "--keep", keep)
    assert outcome.code == 2
    assert f"keep = {keep}" in outcome.err


def test_a_damaged_build_does_not_hide_the_others(runs: Runs) -> None:
    first = runs.index("the cat sat")
    second = runs.index("a dog is late")
    (runs.folder / "run" / "builds" / first / "manifest.json").write_text("{")
    assert [build["build_id"] for build in runs("builds", "--json").json["builds"]] == [second]


def test_reembed_says_the_plan_first_and_can_stop_there(runs: Runs) -> None:
    runs.index("the cat sat", "a dog is late")
    corpus = write_jsonl(runs.folder / "docs.jsonl", [{"id": "0", "text": "the cat sat on"}])
    dry = runs.lastpage("reembed", "--corpus", corpus, "--dry-run", *runs.options).json["plan"]
    assert dry["chunks"] == {"added": 0, "changed": 1, "removed": 1, "unchanged": 0}
    assert dry["missing"] == [{"arms": ["plain", "calibrated"], "texts": 1}]
    done = runs.lastpage("reembed", "--corpus", corpus, *runs.options).json
    assert done["plan"]["chunks"] == dry["chunks"]
    assert done["stages"][2]["vectors_made"] == {"plain": 1, "calibrated": 1}
    again = runs.lastpage("reembed", "--corpus", corpus, "--dry-run", *runs.options).json["plan"]
    assert again["chunks"] == {"added": 0, "changed": 0, "removed": 0, "unchanged": 1}
    assert again["missing"] == []
