"""Who runs shard tasks: the contract, the engine of this process, and what it means when a worker fails.

No engine changes a vector: the same tasks go through the same function with the same weights.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from pipeline.embedding.shard import DocumentEncoder, Progress, ShardResult, ShardTask, embed_shard
from pipeline.embedding.store import ShardFolder
from pipeline.errors import DataError, LastpageError, UsageError


class WorkerError(LastpageError):
    """A worker ended before its time, or failed for a reason that is not the data's (exit code 1)."""


class Engine(Protocol):
    """Runs tasks, in any order."""

    def run(self, tasks: Iterable[ShardTask], progress: Progress) -> Iterator[ShardResult]:
        """Yield the result of each task as soon as its shards are written.

        Raises:
            LastpageError: a task failed. Finished shards stay, no worker goes on.
        """


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs one task after the other in this process."""

    encoder: DocumentEncoder
    folders: Mapping[str, ShardFolder]

    def run(self, tasks: Iterable[ShardTask], progress: Progress) -> Iterator[ShardResult]:
        """Yield the result of each task as soon as its shards are written."""
        for task in tasks:
            yield embed_shard(task, self.encoder, self.folders, progress=progress)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way from a worker: exceptions themselves do not all survive the journey.

    Attributes:
        message: what to tell the user.
        exit_code: of an error that the user can mend; None for any other.
    """

    message: str
    exit_code: int | None

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Keep what the user needs: of an error nobody foresaw, where it came from."""
        if isinstance(error, LastpageError):
            return cls(str(error), error.exit_code)
        return cls("".join(traceback.format_exception(error)).strip(), None)

    def as_error(self, worker: str) -> LastpageError:
        """Make it an error again, in the process that asked for the work."""
        if self.exit_code == UsageError.exit_code:
            return UsageError(self.message)
        if self.exit_code is not None:
            return DataError(self.message)
        return WorkerError(f"{worker} failed; finished shards are kept. It says:\n{self.message}")
