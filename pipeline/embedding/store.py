"""Vectors of chunks, kept by what they are: a shard is complete or absent, a vector is never made twice.

A vector's identity is the chunk's content and everything that decides how it is embedded: the model's files
by content, prompt, pooling, normalisation, precision, maximum length and calibration. Each embedding
identity has a folder of Parquet shards; a chunk is found in it by the hash of its text.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.artifacts import atomic_path
from pipeline.errors import DataError

Vectors = NDArray[np.float32]

_SHARD_FORMAT = "1"
_SHARDS_IN_MEMORY = 4


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """Where the shards of one embedding identity are written; any number of processes may write at once."""

    folder: Path
    identity: str

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
        return path


class ShardStore:
    """The shards of one embedding identity, as they are when it is opened.

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

    def __reduce__(self) -> tuple[type[ShardStore], tuple[Path, str]]:
        """Travel to another process as a place: the store is opened anew where it arrives."""
        return ShardStore, (self.folder.absolute(), self.identity)

    def __contains__(self, content_key: str) -> bool:
        return content_key in self._place

    @property
    def dimension(self) -> int | None:
        """Of the stored vectors; None if there are none."""
        for path, _ in self._place.values():
            return int(pq.read_schema(path).field("vector").type.list_size)
        return None

    @property
    def shards(self) -> ShardFolder:
        """Where new shards go."""
        return ShardFolder(self.folder.absolute(), self.identity)

    def write(self, content_keys: Sequence[str], vectors: Vectors) -> Path:
        """Store a shard as `ShardFolder.write` does, and use it from now on."""
        path = self.shards.write(content_keys, vectors)
        self._admit(path)
        return path

    def remove_damaged(self) -> None:
        """Delete the damaged shards, so that no later run stumbles over them; hold the run's lock for it."""
        for name in self.damaged:
            (self.folder / name).unlink(missing_ok=True)
        self.damaged = []

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
