"""Planning and cutting: what lacks which vectors, in which order, and how little of it is held at once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.embedding import (
    EmbedPlan,
    LocalEngine,
    PendingChunk,
    ShardResult,
    WorkerError,
    carry_out,
    cut_tasks,
)
from tests.pipeline.embedding.making import ARMS, TEXTS, FakeEncoder, chunks, embed, key, open_stores


def plan_for(folder: Path, texts: list[str]) -> EmbedPlan:
    return EmbedPlan(((chunk.content_key, chunk.n_tokens) for chunk in chunks(texts)), open_stores(folder))


def test_a_plan_counts_each_distinct_text_once_by_what_it_lacks(tmp_path: Path) -> None:
    open_stores(tmp_path)["plain"].write([key("a"), key("b")], np.ones((2, 3), np.float32))
    plan = plan_for(tmp_path, ["a", "c", "a", "c", "d"])
    assert plan.missing == {("calibrated",): 1, ARMS: 2}
    assert (plan.n_texts, plan.tokens) == (3, 15)
    assert plan


def test_a_plan_with_nothing_missing_is_empty(tmp_path: Path) -> None:
    for store in open_stores(tmp_path).values():
        store.write([key("a")], np.ones((1, 3), np.float32))
    assert not plan_for(tmp_path, ["a", "a"])


def test_tasks_hold_what_lacks_the_same_arms_in_the_order_of_the_table(tmp_path: Path) -> None:
    open_stores(tmp_path)["plain"].write([key("b"), key("d")], np.ones((2, 3), np.float32))
    tasks = list(cut_tasks(chunks(["a", "b", "c", "a", "d", "e"]), open_stores(tmp_path), 2))
    found = [(task.arms, "".join(chunk.text for chunk in task.chunks)) for task in tasks]
    assert found == [(ARMS, "ac"), (("calibrated",), "bd"), (ARMS, "e")]
    assert str(tasks[0]) == "2 chunks from 'doc-0#0' to 'doc-2#0'"


def test_tasks_are_cut_while_they_are_asked_for(tmp_path: Path) -> None:
    """A corpus larger than memory: no more chunks are read than the task needs."""
    read = 0

    def endless() -> Iterator[PendingChunk]:
        nonlocal read
        while True:
            read += 1
            yield PendingChunk(key(str(read)), str(read), 5, f"d#{read}")

    tasks = cut_tasks(endless(), open_stores(tmp_path), 10)
    next(tasks)
    next(tasks)
    assert read == 20


@pytest.mark.parametrize(
    ("n_texts", "workers", "expected"),
    [(10_000, 1, 4096), (100_000, 2, 4096), (10_000, 2, 1250), (100, 2, 256)],
)
def test_several_workers_get_shards_small_enough_for_all(
    tmp_path: Path, n_texts: int, workers: int, expected: int
) -> None:
    plan = EmbedPlan(((str(number), 1) for number in range(n_texts)), open_stores(tmp_path))
    assert plan.shard_size(4096, workers) == expected
    assert plan.n_shards(expected) == -(-n_texts // expected)


def test_a_store_travels_as_a_place(tmp_path: Path) -> None:
    """A worker elsewhere opens it anew, and sees what was written meanwhile."""
    store = open_stores(tmp_path)["plain"]
    packed = pickle.dumps(store)
    store.shards.write([key("a")], np.ones((1, 3), np.float32))
    assert key("a") not in store
    assert key("a") in pickle.loads(packed)
    assert len(packed) < 1000


def test_progress_adds_up_to_the_plan(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    encoder = FakeEncoder(tmp_path / "log")
    embed(
        tmp_path, TEXTS, lambda folders: LocalEngine(encoder, folders), tally=lambda *done: seen.append(done)
    )
    assert [sum(column) for column in zip(*seen, strict=True)] == [20, 100]


def test_an_engine_that_loses_a_task_is_found_out(tmp_path: Path) -> None:
    class Forgetful(LocalEngine):
        def run(self, tasks, progress):  # type: ignore[no-untyped-def]
            yield ShardResult(ARMS, 4, 20)

    with pytest.raises(WorkerError, match="4 of 20 missing vectors were made"):
        carry_out(plan_for(tmp_path, TEXTS), [], Forgetful(FakeEncoder(tmp_path), {}))
