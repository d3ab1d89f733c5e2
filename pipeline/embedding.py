"""Vectors of chunks, kept by what they are: a shard is complete or absent, a vector is never made twice.

A vector's identity is the chunk's content and everything that decides how it is embedded: the model's files
by content, prompt, pooling, normalisation, precision, maximum length and calibration. Each embedding
identity has a folder of Parquet shards; a chunk is found in it by the hash of its text.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.artifacts import atomic_path, fingerprint
from pipeline.config import ArmSettings, ModelSettings
from pipeline.errors import DataError, NonFiniteVectorsError

Vectors = NDArray[np.float32]

_SHARD_FORMAT = "1"
_SHARDS_IN_MEMORY = 4


def embedding_identity(model_fingerprint: str, model: ModelSettings, arm: ArmSettings) -> str:
    """Hash what decides a vector besides its text; settings that cannot change a vector are left out."""
    calibration = arm.model_dump(mode="json") if arm.strength > 0 else None
    decisive = model.model_dump(
        mode="json", include={"max_length", "truncate_dim", "document_prompt", "dtype"}
    )
    return fingerprint({"model": model_fingerprint, "settings": decisive, "calibration": calibration})


@dataclass(frozen=True, slots=True)
class PendingChunk:
    """A chunk that has to be embedded: the hash of its text, the text, its tokens and where it stands."""

    content_key: str
    text: str
    n_tokens: int
    chunk_id: str


class ShardStore:
    """The shards of one embedding identity.

    Attributes:
        damaged: shards that were found incomplete or foreign, and are not used.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder = folder
        self.identity = identity
        self.damaged: list[str] = []
        self._place: dict[str, tuple[Path, int]] = {}
        self._loaded: OrderedDict[Path, Vectors] = OrderedDict()
        for path in sorted(folder.glob("*.parquet")):
            self._admit(path)

    def __contains__(self, content_key: str) -> bool:
        return content_key in self._place

    @property
    def dimension(self) -> int | None:
        """Of the stored vectors; None if there are none."""
        for path, _ in self._place.values():
            return int(pq.read_schema(path).field("vector").type.list_size)
        return None

    def write(self, content_keys: Sequence[str], vectors: Vectors) -> Path:
        """Store a shard.

        Args:
            content_keys: one a row.
            vectors: (len(content_keys), dimension).

        Returns:
            The shard. Its name is a hash of the keys: the same work has the same name, whoever does it.
        """
        name = hashlib.sha256("\n".join(content_keys).encode()).hexdigest()[:24]
        path = self.folder / f"{name}.parquet"
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        metadata = {"format": _SHARD_FORMAT, "identity": self.identity, "rows": str(len(content_keys))}
        schema = pa.schema([("content_key", pa.string()), ("vector", column.type)], metadata=metadata)
        table = pa.table([pa.array(content_keys, pa.string()), column], schema=schema)
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary, write_page_checksum=True, compression="none")
        self._admit(path)
        return path

    def read(self, content_keys: Iterable[str], *, block: int = 8192) -> Iterator[Vectors]:
        """Yield the vectors of some chunks in the order given, in blocks of (up to `block`, dimension).

        Raises:
            DataError: a vector is missing, not finite or zero, or its shard is damaged; the message names
                shard and row.
        """
        pending: list[str] = []
        for key in content_keys:
            pending.append(key)
            if len(pending) == block:
                yield self._gather(pending)
                pending = []
        if pending:
            yield self._gather(pending)

    def _gather(self, content_keys: Sequence[str]) -> Vectors:
        places = [self._find(key) for key in content_keys]
        by_shard: dict[Path, list[int]] = {}
        for index, (path, _) in enumerate(places):
            by_shard.setdefault(path, []).append(index)
        rows: Vectors | None = None
        for path, indices in by_shard.items():
            shard = self._load(path)
            rows = np.empty((len(places), shard.shape[1]), np.float32) if rows is None else rows
            rows[indices] = shard[[places[index][1] for index in indices]]
        return rows if rows is not None else np.empty((0, 0), np.float32)

    def _find(self, content_key: str) -> tuple[Path, int]:
        if content_key not in self._place:
            raise DataError(
                f"{self.folder}: no vector for a chunk ({content_key[:12]}…); run `lastpage embed`"
            )
        return self._place[content_key]

    def _load(self, path: Path) -> Vectors:
        if path not in self._loaded:
            self._loaded[path] = _read_vectors(path)
            if len(self._loaded) > _SHARDS_IN_MEMORY:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(path)
        return self._loaded[path]

    def _admit(self, path: Path) -> None:
        """Use a shard only if it is complete and was made for this identity."""
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                metadata = file.schema_arrow.metadata or {}
                keys = file.read(columns=["content_key"]).column(0).to_pylist()
        except (OSError, pa.ArrowException):
            self.damaged.append(path.name)
            return
        expected = {b"format": _SHARD_FORMAT, b"identity": self.identity, b"rows": str(len(keys))}
        if any(metadata.get(name) != value.encode() for name, value in expected.items()):
            self.damaged.append(path.name)
            return
        self._place.update((key, (path, row)) for row, key in enumerate(keys))


def _read_vectors(path: Path) -> Vectors:
    try:
        column = pq.read_table(path, columns=["vector"], page_checksum_verification=True).column(0)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"shard {path}: damaged ({error}); delete it and run `lastpage embed`") from error
    dimension = column.type.list_size
    vectors = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    vectors = np.ascontiguousarray(vectors, np.float32).reshape(-1, dimension)
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1) | ~vectors.any(axis=1))
    if broken.size:
        raise DataError(
            f"shard {path}: row {broken[0]} is not finite or zero ({broken.size} such rows); "
            "delete the shard and run `lastpage embed`"
        )
    return vectors


class DocumentEncoder(Protocol):
    """What the embed stage needs of an encoder: all asked arms in one pass."""

    def encode_documents(
        self,
        texts: Sequence[str],
        arms: Sequence[str] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Mapping[str, Vectors]:
        """Return (len(texts), dimension) for each arm, or raise NonFiniteVectorsError."""


@dataclass(slots=True)
class EmbedSummary:
    """What an embed stage did: vectors made and reused by arm, and tokens sent through the encoder."""

    embedded: dict[str, int] = field(default_factory=dict)
    reused: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    damaged_shards: list[str] = field(default_factory=list)


class EmbedPlan:
    """Which chunks lack a vector in which arms.

    Attributes:
        missing: for each group of arms, how many distinct texts lack a vector in exactly these arms.
        tokens: tokens that have to go through the encoder.
    """

    def __init__(self, keys_and_tokens: Iterable[tuple[str, int]], stores: Mapping[str, ShardStore]) -> None:
        self.stores = stores
        self.missing: dict[tuple[str, ...], int] = {}
        self.tokens = 0
        self.n_texts = 0
        self._lacking: dict[str, tuple[str, ...]] = {}
        seen: set[str] = set()
        for key, n_tokens in keys_and_tokens:
            if key in seen:
                continue
            seen.add(key)
            self._add(key, n_tokens)
        self.n_texts = len(seen)

    def _add(self, key: str, n_tokens: int) -> None:
        lacking = tuple(arm for arm, store in self.stores.items() if key not in store)
        if lacking:
            self._lacking[key] = lacking
            self.missing[lacking] = self.missing.get(lacking, 0) + 1
            self.tokens += n_tokens

    def __bool__(self) -> bool:
        return bool(self._lacking)

    def carry_out(
        self,
        chunks: Iterable[PendingChunk],
        encoder: DocumentEncoder,
        *,
        shard_size: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> EmbedSummary:
        """Embed what is missing, shard by shard; killed at any moment, only unfinished shards are redone.

        Raises:
            DataError: a chunk gets a vector that is not finite or zero; nothing of its shard is written.
        """
        summary = EmbedSummary(dict.fromkeys(self.stores, 0), damaged_shards=self._damaged())
        waiting: dict[tuple[str, ...], list[PendingChunk]] = {arms: [] for arms in self.missing}
        for chunk in chunks:
            arms = self._lacking.pop(chunk.content_key, None)
            if arms is None:
                continue
            waiting[arms].append(chunk)
            if len(waiting[arms]) == shard_size:
                self._embed(waiting[arms], arms, encoder, summary, progress)
                waiting[arms] = []
        for arms, rest in waiting.items():
            if rest:
                self._embed(rest, arms, encoder, summary, progress)
        summary.reused = {arm: self.n_texts - done for arm, done in summary.embedded.items()}
        return summary

    def _embed(
        self,
        chunks: Sequence[PendingChunk],
        arms: Sequence[str],
        encoder: DocumentEncoder,
        summary: EmbedSummary,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        try:
            vectors = encoder.encode_documents(
                [chunk.text for chunk in chunks], list(arms), progress=progress
            )
        except NonFiniteVectorsError as error:
            chunk_ids = [f"chunk {chunks[row].chunk_id!r}" for row in error.rows]
            raise NonFiniteVectorsError(error.arm, chunk_ids, error.rows) from error
        for arm in arms:
            self.stores[arm].write([chunk.content_key for chunk in chunks], vectors[arm])
            summary.embedded[arm] += len(chunks)
        summary.tokens += sum(chunk.n_tokens for chunk in chunks)

    def _damaged(self) -> list[str]:
        return [f"{store.folder.name}/{name}" for store in self.stores.values() for name in store.damaged]
