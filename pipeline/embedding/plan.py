"""What an embed stage has to do, cut into shard tasks that are read as they are needed, and carried out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.embedding.engine import Engine, WorkerError
from pipeline.embedding.shard import PendingChunk, Progress, ShardTask
from pipeline.embedding.store import ShardStore
from pipeline.records import embedded_text
from pipeline.tables import read_rows

# Shards are made smaller than asked for where some workers would have nothing to do. Four for each let the
# quick ones help out the slow ones; in much smaller ones more of a batch would be padding.
_SHARDS_PER_WORKER = 4
_SMALLEST_SHARD = 256


class EmbedPlan:
    """How many chunks lack a vector in which arms; holds no texts.

    Attributes:
        arms: all of them, those that lack nothing included.
        missing: for each group of arms, how many distinct texts lack a vector in exactly these arms.
        tokens: tokens that have to go through the encoder.
        n_texts: distinct texts in all, missing or not.
    """

    def __init__(self, keys_and_tokens: Iterable[tuple[str, int]], stores: Mapping[str, ShardStore]) -> None:
        self.arms = tuple(stores)
        self.missing: dict[tuple[str, ...], int] = {}
        self.tokens = 0
        seen: set[str] = set()
        for key, n_tokens in keys_and_tokens:
            if key in seen:
                continue
            seen.add(key)
            if arms := _lacking(key, stores):
                self.missing[arms] = self.missing.get(arms, 0) + 1
                self.tokens += n_tokens
        self.n_texts = len(seen)

    def __bool__(self) -> bool:
        return bool(self.missing)

    def shard_size(self, asked: int, workers: int) -> int:
        """Give every worker something to do: shards of the size asked for, or smaller."""
        if workers == 1:
            return asked
        fair = -(-sum(self.missing.values()) // (workers * _SHARDS_PER_WORKER))
        return min(asked, max(fair, _SMALLEST_SHARD))

    def n_shards(self, shard_size: int) -> int:
        """How many tasks of this size there are."""
        return sum(-(-count // shard_size) for count in self.missing.values())


@dataclass(frozen=True, slots=True)
class PendingTasks:
    """The tasks of a chunk table, read and cut while they are iterated.

    A recipe of a few bytes: it can be sent to another machine that sees the same files, and run there.

    Attributes:
        chunks: the chunk table.
        stores: the vectors of each arm, as they are before anything is embedded.
        shard_size: the most chunks of a task.
    """

    chunks: Path
    stores: Mapping[str, ShardStore]
    shard_size: int

    def __iter__(self) -> Iterator[ShardTask]:
        return cut_tasks(read_pending(self.chunks), self.stores, self.shard_size)


def read_pending(chunks: Path) -> Iterator[PendingChunk]:
    """Stream a chunk table as chunks to embed, each with what stands before it."""
    for row in read_rows(chunks, ["content_key", "context", "text", "n_tokens", "doc_id", "ordinal"]):
        text = embedded_text(row["context"], row["text"])
        yield PendingChunk(row["content_key"], text, row["n_tokens"], f"{row['doc_id']}#{row['ordinal']}")


def cut_tasks(
    chunks: Iterable[PendingChunk], stores: Mapping[str, ShardStore], shard_size: int
) -> Iterator[ShardTask]:
    """Cut what is missing into tasks, each distinct text once; holds one unfinished task a group of arms."""
    handed_out: set[str] = set()
    waiting: dict[tuple[str, ...], list[PendingChunk]] = {}
    for chunk in chunks:
        arms = _lacking(chunk.content_key, stores)
        if not arms or chunk.content_key in handed_out:
            continue
        handed_out.add(chunk.content_key)
        group = waiting.setdefault(arms, [])
        group.append(chunk)
        if len(group) == shard_size:
            yield ShardTask(arms, tuple(waiting.pop(arms)))
    for arms, rest in waiting.items():
        yield ShardTask(arms, tuple(rest))


def _lacking(key: str, stores: Mapping[str, ShardStore]) -> tuple[str, ...]:
    return tuple(arm for arm, store in stores.items() if key not in store)


@dataclass(slots=True)
class EmbedSummary:
    """What an embed stage did: vectors made and reused by arm, and tokens sent through the encoder."""

    embedded: dict[str, int] = field(default_factory=dict)
    reused: dict[str, int] = field(default_factory=dict)
    tokens: int = 0


def carry_out(
    plan: EmbedPlan,
    tasks: Iterable[ShardTask],
    engine: Engine,
    *,
    progress: Progress | None = None,
) -> EmbedSummary:
    """Embed what is missing, shard by shard; killed at any moment, only unfinished shards are redone.

    Args:
        plan: what is missing.
        tasks: the same, cut into tasks.
        engine: what runs them.
        progress: called with the texts and tokens that were done since.

    Raises:
        DataError: a chunk gets a vector that is not finite or zero; nothing of its shard is written.
        WorkerError: a worker ended before its time. Shards that were finished are kept.
    """
    summary = EmbedSummary(dict.fromkeys(plan.arms, 0))
    for result in engine.run(tasks, progress or _silent):
        summary.tokens += result.n_tokens
        for arm in result.arms:
            summary.embedded[arm] += result.n_texts
    summary.reused = {arm: plan.n_texts - done for arm, done in summary.embedded.items()}
    _check_complete(plan, summary)
    return summary


def _silent(n_texts: int, n_tokens: int) -> None:
    """Show no progress."""


def _check_complete(plan: EmbedPlan, summary: EmbedSummary) -> None:
    for arm, embedded in summary.embedded.items():
        planned = sum(count for group, count in plan.missing.items() if arm in group)
        if embedded != planned:
            raise WorkerError(
                f"arm {arm!r}: {embedded:,} of {planned:,} missing vectors were made, but nothing failed; "
                "run the command again to go on"
            )
