"""The same stage on Ray Data: a real cluster of two workers on this machine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.embedding import DocumentEncoder, PendingTasks, ShardFolder, loading
from pipeline.embedding.on_ray import RayEngine
from pipeline.errors import DataError, UsageError
from tests.pipeline.embedding.making import (
    TEXTS,
    DieOnce,
    FakeEncoder,
    Load,
    TinyRun,
    assert_complete,
    assert_same_vectors,
    embed,
    encoded,
)

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'lastpage[ray]'"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def on_ray(encoder: Any) -> Callable[[Mapping[str, ShardFolder]], RayEngine]:
    return lambda folders: RayEngine(Load(encoder), folders, workers=2, device="cpu")


@needs_ray
def test_ray_goes_on_where_another_engine_stopped_with_the_same_vectors(
    cluster: None, tmp_path: Path
) -> None:
    tiny = TinyRun(tmp_path, n_documents=150)
    tiny.embed("run")
    expected = tiny.vectors("run")
    shards = sorted(tmp_path.glob("run/vectors/*/*.parquet"))
    n_missing = sum(pq.read_metadata(shard).num_rows for shard in [shards[0], *shards[3:]])
    shards[0].write_bytes(shards[0].read_bytes()[:100])
    for shard in shards[3:]:
        shard.unlink()
    kept = {path: path.stat().st_mtime_ns for path in shards[1:3]}
    result = tiny.embed("run", embed__engine="ray", embed__workers=2)
    assert_same_vectors(tiny.vectors("run"), expected)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert sum(result.figures["vectors_made"].values()) == n_missing


@needs_ray
def test_both_actors_work_and_one_that_dies_is_replaced(cluster: None, tmp_path: Path) -> None:
    encoder = FakeEncoder(tmp_path / "log", at=[TEXTS[9]], do=DieOnce(tmp_path / "marker"), seconds=0.3)
    embed(tmp_path, TEXTS, on_ray(encoder), shard_size=2)
    assert_complete(tmp_path)
    assert (tmp_path / "marker").exists()
    assert len(list((tmp_path / "log").glob("*"))) >= 2
    assert {line.split(":")[1] for line in encoded(tmp_path / "log")} == set(TEXTS)


@needs_ray
def test_a_broken_vector_names_its_chunk(cluster: None, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="chunk 'doc-6#0'"):
        embed(tmp_path, TEXTS, on_ray(FakeEncoder(tmp_path / "log", at=[TEXTS[6]])))


@dataclass(frozen=True)
class Refuse:
    def __call__(self) -> DocumentEncoder:
        raise UsageError("this node has no such device")


@needs_ray
def test_an_actor_that_cannot_load_says_why(cluster: None, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this node has no such device"):
        embed(tmp_path, TEXTS, lambda folders: RayEngine(Refuse(), folders, workers=2, device="cpu"))


@needs_ray
def test_more_workers_than_gpus_are_refused(cluster: None, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"embed.workers = 2: the Ray cluster has 0 GPUs"):
        embed(tmp_path, TEXTS, lambda folders: RayEngine(Refuse(), folders, workers=2, device="cuda"))


def test_without_ray_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install '.\[ray\]'"):
        embed(tmp_path, TEXTS, on_ray(FakeEncoder(tmp_path / "log")))


def test_a_node_with_other_model_files_is_refused(tmp_path: Path) -> None:
    tiny = TinyRun(tmp_path, n_documents=1)
    from pipeline.config import load_config

    config = load_config(None, tiny.settings("run"))
    with pytest.raises(DataError, match="put the same model on every node"):
        loading.load_on_node(config, tmp_path / "model", "0" * 64)


def test_the_work_is_sent_as_a_recipe(tmp_path: Path) -> None:
    """What travels to the cluster does not grow with the corpus."""
    import pickle

    tiny = TinyRun(tmp_path, n_documents=40)
    tiny.embed("run")
    from pipeline.config import load_config
    from pipeline.stages import Run

    run = Run(load_config(None, tiny.settings("run")))
    tasks = PendingTasks(run.layout.chunks, run._stores(), 16)
    assert len(pickle.dumps(tasks)) < 2000
