"""Several processes on this machine, each with its own encoder.

They are spawned, never forked: a process that has used a tokenizer or OpenMP has threads, and a fork of it
may wait for ever for a lock that one of them held (huggingface/tokenizers#187, run-llama/llama_index#10104).

On CUDA it is one process a GPU: worker i uses `cuda:i` (see `load_in_worker`). On the CPU the cores are
divided between the workers.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from pipeline.embedding.engine import Failure, WorkerError
from pipeline.embedding.shard import DocumentEncoder, Progress, ShardResult, ShardTask, embed_shard
from pipeline.embedding.store import ShardFolder

_SPAWN = multiprocessing.get_context("spawn")
_SECONDS_TO_END = 5.0
_THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")

LoadEncoder = Callable[[int], DocumentEncoder]


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has loaded its encoder."""


@dataclass(frozen=True, slots=True)
class Advance:
    """A worker has embedded a batch of an unfinished task."""

    n_texts: int
    n_tokens: int


Message = Ready | Advance | ShardResult | Failure


@dataclass(frozen=True, slots=True)
class WorkersEngine:
    """Runs tasks in several processes on this machine.

    Attributes:
        load: makes a worker's encoder, given the worker's number from 0; must be picklable.
        folders: where each arm's shards go.
        workers: how many processes.
    """

    load: LoadEncoder
    folders: Mapping[str, ShardFolder]
    workers: int

    def run(self, tasks: Iterable[ShardTask], progress: Progress) -> Iterator[ShardResult]:
        """Yield the result of each task as soon as its shards are written.

        A task is read only when a worker asks for one, so that there are never more under way than workers.

        Raises:
            LastpageError: a task failed.
            WorkerError: a worker died.
        """
        pending = iter(tasks)
        crew = [_Worker(number, self) for number in range(self.workers)]
        try:
            for worker, message in _listen(crew):
                if isinstance(message, Failure):
                    raise message.as_error(worker.name)
                if isinstance(message, Advance):
                    progress(message.n_texts, message.n_tokens)
                    continue
                if isinstance(message, ShardResult):
                    yield message
                worker.give(next(pending, None))
        finally:
            for worker in crew:
                worker.stop()
            for worker in crew:
                worker.wait()


class _Worker:
    """A process, seen from the one that gives it work."""

    def __init__(self, number: int, engine: WorkersEngine) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self.name = f"worker {number}"
        self._task: ShardTask | None = None
        self._process: SpawnProcess = _SPAWN.Process(
            target=_work, args=(theirs, number, engine), name=self.name, daemon=True
        )
        self._process.start()
        # With this end still open here, the death of the worker would not be seen on the other.
        theirs.close()

    def hear(self) -> Message:
        """Wait for its next message.

        Raises:
            WorkerError: it has died.
        """
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        return message

    def give(self, task: ShardTask | None) -> None:
        """Send the next task to a worker that waits for one; None sends it home."""
        self._task = task
        try:
            self.connection.send(task)
        except OSError as error:
            raise self._died() from error
        if task is None:
            self.connection.close()

    def stop(self) -> None:
        """End a worker that was not sent home."""
        if not self.connection.closed:
            self._process.terminate()
            self.connection.close()

    def wait(self) -> None:
        """Wait until its process has ended; after a while, see to it."""
        self._process.join(_SECONDS_TO_END)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    def _died(self) -> WorkerError:
        self._process.join(_SECONDS_TO_END)
        work = f"embedding {self._task}" if self._task else "loading the model"
        return WorkerError(
            f"{self.name} (process {self._process.pid}) ended with {_ending(self._process.exitcode)} "
            f"while {work}; finished shards are kept: run the same command again to go on. "
            "If it was out of memory, lower embed.workers or embed.tokens_per_batch"
        )


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _listen(crew: Iterable[_Worker]) -> Iterator[tuple[_Worker, Message]]:
    """Yield messages as they come, until every worker was sent home."""
    crew = list(crew)
    while at_work := {worker.connection: worker for worker in crew if not worker.connection.closed}:
        for connection in wait(list(at_work)):
            worker = at_work[connection]  # type: ignore[index]  # typeshed: wait may return other kinds, too
            yield worker, worker.hear()


# -- in the worker's process ---------------------------------------------------------------------------


def _work(connection: Connection, number: int, engine: WorkersEngine) -> None:
    """Embed what comes over the connection, until None comes."""
    # Ctrl-C reaches the whole group of processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit_threads(engine.workers)
    try:
        encoder = engine.load(number)
        connection.send(Ready())
        while (task := connection.recv()) is not None:
            connection.send(embed_shard(task, encoder, engine.folders, progress=_reporting(connection)))
    except (EOFError, BrokenPipeError):
        return  # the parent is gone
    except Exception as error:  # whatever it is, the parent has to hear of it
        connection.send(Failure.of(error))


def _reporting(connection: Connection) -> Progress:
    return lambda n_texts, n_tokens: connection.send(Advance(n_texts, n_tokens))


def _end_with_parent() -> None:
    """End this process when its parent is gone: killed with -9 it had no chance to say so."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _limit_threads(workers: int) -> None:
    """Divide the cores between the workers; has to come before torch is imported, which reads these once."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    threads = max(1, (int(asked) if asked.isdigit() else _cores()) // workers)
    os.environ.update(dict.fromkeys(_THREAD_LIMITS, str(threads)))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
