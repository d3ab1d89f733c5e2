"""One shard's work: some chunks, the arms that they lack, and the function that embeds and writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.embedding.store import ShardFolder, Vectors
from pipeline.errors import NonFiniteVectorsError

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A chunk that has to be embedded: the hash of its text, the text, its tokens and where it stands."""

    content_key: str
    text: str
    n_tokens: int
    chunk_id: str


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Chunks that lack a vector in the same arms, and become one shard in each of them; never empty."""

    arms: tuple[str, ...]
    chunks: tuple[PendingChunk, ...]

    @property
    def n_tokens(self) -> int:
        """Tokens that go through the encoder, once for all arms."""
        return sum(chunk.n_tokens for chunk in self.chunks)

    def __str__(self) -> str:
        first, last = self.chunks[0].chunk_id, self.chunks[-1].chunk_id
        return f"{len(self.chunks)} chunks from {first!r} to {last!r}"


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A finished task: the vectors lie on disk, under their final names."""

    arms: tuple[str, ...]
    n_texts: int
    n_tokens: int


class DocumentEncoder(Protocol):
    """What the embed stage needs of an encoder: all asked arms in one pass."""

    def encode_documents(
        self, texts: Sequence[str], arms: Sequence[str] | None = None, *, progress: Progress | None = None
    ) -> Mapping[str, Vectors]:
        """Return (len(texts), dimension) for each arm, or raise NonFiniteVectorsError."""


def embed_shard(
    task: ShardTask,
    encoder: DocumentEncoder,
    folders: Mapping[str, ShardFolder],
    *,
    progress: Progress | None = None,
) -> ShardResult:
    """Embed a task's chunks in all its arms at once and write one shard for each arm.

    Args:
        task: what to embed.
        encoder: with at least the arms of the task.
        folders: where each arm's shard goes.
        progress: called after each batch with the texts and tokens that were done.

    Raises:
        NonFiniteVectorsError: a chunk, which is named, gets a vector that is not finite or zero; nothing of
            the task is written.
    """
    try:
        vectors = encoder.encode_documents(
            [chunk.text for chunk in task.chunks], task.arms, progress=progress
        )
    except NonFiniteVectorsError as error:
        chunk_ids = [f"chunk {task.chunks[row].chunk_id!r}" for row in error.rows]
        raise NonFiniteVectorsError(error.arm, chunk_ids, error.rows) from error
    for arm in task.arms:
        folders[arm].write([chunk.content_key for chunk in task.chunks], vectors[arm])
    return ShardResult(task.arms, len(task.chunks), task.n_tokens)
