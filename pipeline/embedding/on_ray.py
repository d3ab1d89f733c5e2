"""The embed stage on Ray Data: the same tasks on the machines of a cluster that share a file system.

One Ray task reads the chunk table and cuts it; each cut is a row of a streaming Dataset, and a pool of
actors, each with its own encoder, embeds the rows and writes the shards. Ray restarts actors that die.
Needs the extra `.[ray]`. Start lastpage where `ray.init()` finds the cluster (`RAY_ADDRESS`);
without one, Ray starts on this machine. The run directory has to be on the shared file system, lastpage on
every node.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.embedding.engine import Failure, WorkerError
from pipeline.embedding.shard import (
    DocumentEncoder,
    PendingChunk,
    Progress,
    ShardResult,
    ShardTask,
    embed_shard,
)
from pipeline.embedding.store import ShardFolder
from pipeline.errors import UsageError

# One row a task. Large lists and strings: a task may hold more than 2 GiB of text.
_CHUNK = pa.struct(
    [
        ("content_key", pa.string()),
        ("text", pa.large_string()),
        ("n_tokens", pa.int64()),
        ("chunk_id", pa.large_string()),
    ]
)
_TASKS = pa.schema([("arms", pa.list_(pa.string())), ("chunks", pa.large_list(_CHUNK))])
_RESULTS = pa.schema(
    [
        ("arms", pa.list_(pa.string())),
        ("n_texts", pa.int64()),
        ("n_tokens", pa.int64()),
        ("message", pa.string()),
        ("exit_code", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Runs tasks on a Ray cluster.

    Attributes:
        load: makes an actor's encoder; must be picklable.
        folders: where each arm's shards go, seen from every node.
        workers: how many actors.
        device: `cuda` gives each actor one GPU; `auto` does so if the cluster has any.
    """

    load: Callable[[], DocumentEncoder]
    folders: Mapping[str, ShardFolder]
    workers: int
    device: str = "auto"

    def run(self, tasks: Iterable[ShardTask], progress: Progress) -> Iterator[ShardResult]:
        """Yield the result of each task as soon as its shards are written.

        Args:
            tasks: picklable, for they are iterated on the cluster; `PendingTasks` is made for that.
            progress: called once a shard.

        Raises:
            UsageError: Ray is not installed, or the cluster has too few GPUs.
            LastpageError: a task failed.
            WorkerError: Ray gave up.
        """
        ray = _import_ray()
        with _cluster(ray):
            try:
                for row in self._dataset(ray, tasks).iter_rows():
                    result = _result_of(row)
                    progress(result.n_texts, result.n_tokens)
                    yield result
            except (ray.exceptions.RayError, *_data_errors()) as error:
                raise WorkerError(
                    f"Ray gave up: {error}\nFinished shards are kept; run the same command again to go on"
                ) from error

    def _dataset(self, ray: Any, tasks: Iterable[ShardTask]) -> Any:
        context = ray.data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        # Blocks are handed out whole. Bounded like this, one holds one task and every actor gets some.
        context.target_max_block_size = 1
        with ray.data.DataContext.current(context):
            source = ray.data.from_items([0], override_num_blocks=1)
            # Reading asks for no CPU: on a small cluster the actors hold them all, and wait for what is read.
            rows = source.map_batches(_task_rows, batch_size=None, num_cpus=0, fn_args=(tasks,))
            return rows.map_batches(
                _Embedder,
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=self.workers, max_tasks_in_flight_per_actor=2),
                fn_constructor_args=(self.load, dict(self.folders)),
                **self._share(ray),
            )

    def _share(self, ray: Any) -> dict[str, float]:
        """Give each actor one GPU, or its part of the smallest node's cores: Ray sets its threads by that."""
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if self.device.startswith("cuda") or (self.device == "auto" and gpus):
            if self.workers > gpus:
                raise UsageError(
                    f"embed.workers = {self.workers}: the Ray cluster has {gpus} GPUs, one a worker"
                )
            return {"num_gpus": 1}
        cores = [node["Resources"]["CPU"] for node in ray.nodes() if node["Resources"].get("CPU")]
        if not cores:
            raise UsageError("embed.engine = 'ray': the Ray cluster has no CPUs to work with")
        share = min(cores) / math.ceil(self.workers / len(cores))
        return {"num_cpus": math.floor(share) if share >= 1 else share}


def _import_ray() -> Any:
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.data")
    except ImportError as error:
        raise UsageError(
            f"embed.engine = 'ray' needs Ray Data, which is not installed ({error}); "
            "run `pip install '.[ray]'`, or set embed.engine = 'local'"
        ) from error
    # It tells of its own plans and settings, in the middle of our progress.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return ray


def _data_errors() -> tuple[type[Exception], ...]:
    exceptions = importlib.import_module("ray.data.exceptions")
    return exceptions.RayDataUserCodeException, exceptions.SystemException


@contextmanager
def _cluster(ray: Any) -> Iterator[None]:
    """Use the cluster that this process is connected to; else connect to one, and part from it at the end."""
    if ray.is_initialized():
        yield
        return
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def _result_of(row: Mapping[str, Any]) -> ShardResult:
    if row["message"] is not None:
        raise Failure(row["message"], row["exit_code"]).as_error("a Ray worker")
    return ShardResult(tuple(row["arms"]), row["n_texts"], row["n_tokens"])


# -- on the cluster ------------------------------------------------------------------------------------


def _task_rows(_: Any, tasks: Iterable[ShardTask]) -> Iterator[pa.Table]:
    for task in tasks:
        chunks = [{name: getattr(chunk, name) for name in _CHUNK.names} for chunk in task.chunks]
        yield pa.Table.from_pylist([{"arms": task.arms, "chunks": chunks}], schema=_TASKS)


class _Embedder:
    """An actor: one encoder, one task at a time. Failures travel as rows: not every exception can be sent."""

    def __init__(self, load: Callable[[], DocumentEncoder], folders: Mapping[str, ShardFolder]) -> None:
        self._folders = folders
        self._encoder: DocumentEncoder | Failure
        try:
            self._encoder = load()
        except Exception as error:  # told with the first task; an actor that cannot start is started for ever
            self._encoder = Failure.of(error)

    def __call__(self, rows: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([self._embed(row) for row in rows.to_pylist()], schema=_RESULTS)

    def _embed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(self._encoder, Failure):
            return _as_row(self._encoder)
        task = ShardTask(tuple(row["arms"]), tuple(PendingChunk(**chunk) for chunk in row["chunks"]))
        try:
            return _as_row(embed_shard(task, self._encoder, self._folders))
        except Exception as error:  # whatever it is, the driver has to hear of it
            return _as_row(Failure.of(error))


def _as_row(outcome: ShardResult | Failure) -> dict[str, Any]:
    return {name: getattr(outcome, name, None) for name in _RESULTS.names}
