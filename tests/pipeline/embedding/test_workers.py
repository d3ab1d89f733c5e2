"""Several processes: the same vectors, and nothing left behind however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import load_config
from pipeline.embedding import LocalEngine, ShardResult, ShardTask, WorkerError, cut_tasks, loading
from pipeline.embedding.workers import WorkersEngine
from pipeline.errors import DataError, UsageError
from tests.conftest import REPOSITORY
from tests.pipeline.embedding.making import (
    TEXTS,
    FakeEncoder,
    Load,
    TinyRun,
    assert_complete,
    assert_same_vectors,
    chunks,
    die,
    embed,
    encoded,
    fail,
    group_is_empty,
    key,
    open_stores,
    wait_until,
)

SECONDS = 60.0


def workers(load: Callable[[int], Any], count: int = 2) -> Callable[[Mapping[str, Any]], WorkersEngine]:
    return lambda folders: WorkersEngine(load, folders, count)


def test_workers_write_what_one_process_writes(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    encoder = FakeEncoder(tmp_path / "log", seconds=0.05)
    summary = embed(tmp_path / "two", TEXTS, workers(Load(encoder)), tally=lambda *done: seen.append(done))
    embed(tmp_path / "one", TEXTS, lambda folders: LocalEngine(FakeEncoder(tmp_path / "x"), folders))
    assert_complete(tmp_path / "two")
    for path in (tmp_path / "one").rglob("*.parquet"):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
    assert summary.embedded == {"plain": 20, "calibrated": 20}
    assert [sum(column) for column in zip(*seen, strict=True)] == [20, 100]
    assert len(list((tmp_path / "log").glob("*"))) == 2, "both workers had work"
    assert sorted(encoded(tmp_path / "log")) == sorted(f"plain,calibrated:{text}" for text in TEXTS)


def test_no_more_tasks_are_under_way_than_there_are_workers(tmp_path: Path) -> None:
    stores = open_stores(tmp_path)
    handed_out, finished = 0, 0

    def counted() -> Iterator[ShardTask]:
        nonlocal handed_out
        for task in cut_tasks(chunks(TEXTS), stores, 1):
            handed_out += 1
            assert handed_out - finished <= 2 + 1  # one more is counted while its result is on the way
            yield task

    engine = WorkersEngine(
        Load(FakeEncoder(tmp_path / "log")), {arm: store.shards for arm, store in stores.items()}, 2
    )
    for result in engine.run(counted(), lambda *_: None):
        assert isinstance(result, ShardResult)
        finished += 1
    assert handed_out == finished == 20


def test_a_killed_worker_is_an_error_and_its_shard_alone_is_redone(tmp_path: Path) -> None:
    killed = FakeEncoder(tmp_path / "log", at=[TEXTS[13]], do=die)
    with pytest.raises(WorkerError) as error:
        embed(tmp_path, TEXTS, workers(Load(killed)))
    assert "SIGKILL while embedding 4 chunks from 'doc-12#0' to 'doc-15#0'" in str(error.value)
    assert "run the same command again" in str(error.value)
    kept = {text for text in TEXTS if key(text) in open_stores(tmp_path)["calibrated"]}
    assert len(kept) >= 8
    embed(tmp_path, TEXTS, workers(Load(FakeEncoder(tmp_path / "again"))))
    assert {line.split(":")[1] for line in encoded(tmp_path / "again")} == set(TEXTS) - kept
    assert_complete(tmp_path)


def test_a_broken_vector_names_its_chunk(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="chunk 'doc-6#0'"):
        embed(tmp_path, TEXTS, workers(Load(FakeEncoder(tmp_path / "log", at=[TEXTS[6]]))))


def test_an_unforeseen_error_says_where_it_came_from(tmp_path: Path) -> None:
    with pytest.raises(
        WorkerError, match=r"(?s)worker \d failed.*in fail.*ValueError: a fault nobody foresaw"
    ):
        embed(tmp_path, TEXTS, workers(Load(FakeEncoder(tmp_path / "log", at=[TEXTS[6]], do=fail))))


def refuse(number: int) -> None:
    raise UsageError(f"no device for worker {number}")


def test_a_worker_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no device for worker"):
        embed(tmp_path, TEXTS, workers(refuse))


def die_at_once(number: int) -> None:
    die()


def test_a_worker_that_dies_while_loading_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="SIGKILL while loading the model"):
        embed(tmp_path, TEXTS, workers(die_at_once))


@dataclass(frozen=True)
class LoadWithTorch:
    """Writes down how many threads torch has in the worker."""

    log: Path

    def __call__(self, number: int) -> FakeEncoder:
        import torch

        (self.log / f"threads-{number}").write_text(str(torch.get_num_threads()))
        return FakeEncoder(self.log / "log", seconds=0.01)


def test_the_cores_are_divided_between_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    embed(tmp_path, TEXTS, workers(LoadWithTorch(tmp_path)))
    assert [(tmp_path / f"threads-{number}").read_text() for number in range(2)] == ["1", "1"]
    assert os.environ["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(
    ("picked", "expected"), [("cuda", ["cuda:0", "cuda:1"]), ("cuda:1", ["cuda:1"] * 2), ("cpu", ["cpu"] * 2)]
)
def test_each_worker_has_a_gpu_of_its_own(
    picked: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.encoders.loading.pick_device", lambda _: picked)
    monkeypatch.setattr(loading, "load_encoder", lambda config, folder, device: device)
    config = load_config(None, {})
    assert [loading.load_in_worker(config, Path("m"), number) for number in range(2)] == expected


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, so that whatever it leaves behind can be seen."""
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=REPOSITORY,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def start_stuck_workers(folder: Path) -> subprocess.Popen[bytes]:
    """Two workers in a process of their own; after four shards each is in one that never ends."""
    code = f"import tests.pipeline.embedding.making as making\nmaking.get_stuck({str(folder)!r})"
    process = start(["-c", code])
    wait_until(lambda: len(list(folder.glob("calibrated/[!.]*"))) == 4, SECONDS, "four shards in both arms")
    return process


def test_an_interrupt_ends_all_workers(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group at once; the workers leave it to the parent."""
    process = start_stuck_workers(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode not in (0, None)
    assert errors.count(b"Traceback") == 1, errors.decode()
    wait_until(lambda: group_is_empty(process.pid), 5, "no process left")


def test_killed_with_its_parent_a_run_leaves_no_process_and_resumes(tmp_path: Path) -> None:
    process = start_stuck_workers(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    wait_until(lambda: group_is_empty(process.pid), 5, "no process left")
    embed(tmp_path, TEXTS, workers(Load(FakeEncoder(tmp_path / "again"))), shard_size=1)
    assert {line.split(":")[1] for line in encoded(tmp_path / "again")} == set(TEXTS[4:])
    assert_complete(tmp_path)


def test_the_command_with_two_workers_ends_in_time_with_the_same_vectors(tmp_path: Path) -> None:
    """The parent has used the tokenizer to cut chunks before the workers start: forked ones would hang."""
    tiny = TinyRun(tmp_path, n_documents=150)
    options = [
        part
        for name, value in tiny.settings("two", embed__workers=2).items()
        for part in ("--set", f"{name}={json.dumps(value)}")
    ]
    process = start(["-m", "pipeline", "embed", "--quiet", *options])
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors.decode()
    wait_until(lambda: group_is_empty(process.pid), 5, "no process left")
    tiny.embed("one")
    assert_same_vectors(tiny.vectors("two"), tiny.vectors("one"))
