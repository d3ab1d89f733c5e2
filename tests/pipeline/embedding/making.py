"""Encoders whose vectors anyone can recompute, some of which break, and runs with a tiny real model.

What workers load has to be importable in their processes, so that it stands here and not in a test.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import load_config
from pipeline.embedding import (
    EmbedPlan,
    EmbedSummary,
    Engine,
    PendingChunk,
    ShardStore,
    Vectors,
    carry_out,
    cut_tasks,
)
from pipeline.errors import NonFiniteVectorsError
from pipeline.stages import Run, Stage, StageResult
from tests.conftest import save_tiny_model, write_jsonl

ARMS = ("plain", "calibrated")
TEXTS = [f"text number {number}" for number in range(20)]
WORDS = ["the", "cat", "dog", "sat", "on", "mat", "answer", "is", "river", "blue", "late", "alpha", "beta"]


def key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def vector(text: str, arm: str) -> np.ndarray:
    """A vector that anyone can recompute from the text and the arm."""
    seed = int.from_bytes(hashlib.sha256((arm + text).encode()).digest()[:4], "big")
    values = np.random.default_rng(seed).normal(size=3).astype(np.float32)
    return values / np.linalg.norm(values)


@dataclass
class FakeEncoder:
    """Embeds by `vector`, keeps count in a file a process, and does something else at some texts.

    Attributes:
        log: folder of the counts: one line a text in the file of each process.
        at: the texts at which `do` is called.
        do: what happens there; by default the vector is not finite.
        seconds: how long each call takes.
    """

    log: Path
    at: Sequence[str] = ()
    do: Callable[[], object] | None = None
    seconds: float = 0.0

    def encode_documents(
        self,
        texts: Sequence[str],
        arms: Sequence[str] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Vectors]:
        time.sleep(self.seconds)
        for row in [row for row, text in enumerate(texts) if text in self.at]:
            if self.do is None:
                raise NonFiniteVectorsError("plain", ["text"], [row])
            self.do()
        self.log.mkdir(exist_ok=True)
        with (self.log / str(os.getpid())).open("a") as file:
            file.writelines(f"{','.join(arms or ())}:{text}\n" for text in texts)
        if progress is not None:
            progress(len(texts), 5 * len(texts))
        return {arm: np.stack([vector(text, arm) for text in texts]) for arm in arms or ()}


@dataclass(frozen=True)
class Load:
    """What an engine calls to get an encoder, whatever it tells about the worker."""

    encoder: Any

    def __call__(self, *_: object) -> Any:
        return self.encoder


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DieOnce:
    """Kill the process that calls it, but only the first."""

    marker: Path

    def __call__(self) -> None:
        if not self.marker.exists():
            self.marker.touch()
            die()


def fail() -> None:
    raise ValueError("a fault nobody foresaw")


def encoded(log: Path) -> list[str]:
    """What went through fake encoders, as `arms:text`."""
    return [line for path in log.glob("*") for line in path.read_text().splitlines()]


def chunks(texts: Sequence[str]) -> list[PendingChunk]:
    return [PendingChunk(key(text), text, 5, f"doc-{number}#0") for number, text in enumerate(texts)]


def open_stores(folder: Path) -> dict[str, ShardStore]:
    return {arm: ShardStore(folder / arm, arm * 10) for arm in ARMS}


def embed(
    folder: Path,
    texts: Sequence[str],
    engine: Callable[[Mapping[str, Any]], Engine],
    *,
    shard_size: int = 4,
    tally: Callable[[int, int], None] | None = None,
) -> EmbedSummary:
    """Plan, cut and carry out, as the stage does, from a list instead of a chunk table."""
    stores = open_stores(folder)
    pending = chunks(texts)
    plan = EmbedPlan(((chunk.content_key, chunk.n_tokens) for chunk in pending), stores)
    tasks = list(cut_tasks(pending, stores, shard_size))
    folders = {arm: store.shards for arm, store in stores.items()}
    return carry_out(plan, tasks, engine(folders), progress=tally)


def stored(folder: Path, texts: Sequence[str]) -> dict[str, Vectors]:
    return {
        arm: np.concatenate(list(store.read([key(text) for text in texts])))
        for arm, store in open_stores(folder).items()
    }


def assert_complete(folder: Path, texts: Sequence[str] = TEXTS) -> None:
    for arm, vectors in stored(folder, texts).items():
        np.testing.assert_array_equal(vectors, [vector(text, arm) for text in texts])


class TinyRun:
    """A corpus and a tiny real model; each call runs the stages up to the vectors."""

    def __init__(self, folder: Path, n_documents: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        save_tiny_model(folder / "model")
        write_jsonl(folder / "docs.jsonl", [self._document(number) for number in range(n_documents)])

    @staticmethod
    def _document(number: int) -> dict[str, str]:
        words = [WORDS[(number * place + place) % len(WORDS)] for place in range(3 + number % 40)]
        return {"id": f"d{number}", "title": f"title {number}", "text": f"{' '.join(words)} answer {number}."}

    def settings(self, run: str, **changes: Any) -> dict[str, Any]:
        """Of a run directory beside the corpus; `embed__workers` stands for `embed.workers`."""
        return {
            "run": str(self.folder / run),
            "corpus.source": str(self.folder / "docs.jsonl"),
            "model.name": str(self.folder / "model"),
            "model.max_length": 64,
            "chunk.max_tokens": 16,
            "arms.plain.strength": 0.0,
            "arms.calibrated.basket_size": 4,
            "embed.shard_size": 16,
            **{name.replace("__", "."): value for name, value in changes.items()},
        }

    def embed(self, run: str, **changes: Any) -> StageResult:
        config = load_config(None, self.settings(run, **changes))
        return Run(config).upto(Stage.EMBED)[-1]

    def vectors(self, run: str, **changes: Any) -> dict[str, Vectors]:
        """Of all chunks in the order of the table, by arm."""
        from pipeline.indexing import content_keys

        here = Run(load_config(None, self.settings(run, **changes)))
        keys = list(content_keys(here.layout.chunks))
        return {arm: np.concatenate(list(store.read(keys))) for arm, store in here._stores().items()}


def assert_same_vectors(these: Mapping[str, Vectors], those: Mapping[str, Vectors]) -> None:
    assert these.keys() == those.keys()
    for arm in these:
        np.testing.assert_allclose(these[arm], those[arm], atol=1e-5)


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.005)


def group_is_empty(group: int) -> bool:
    """Whether no process of a process group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def get_stuck(folder: str) -> None:
    """Run two workers of which each makes two shards or so and then stands still; for a process to end."""
    from pipeline.embedding.workers import WorkersEngine

    encoder = FakeEncoder(Path(folder) / "log", at=TEXTS[4:6], do=partial(time.sleep, 100))
    embed(Path(folder), TEXTS, lambda folders: WorkersEngine(Load(encoder), folders, 2), shard_size=1)
