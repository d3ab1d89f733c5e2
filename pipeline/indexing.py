"""Both indexes over the same rows, published as one build."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexes import (
    Build,
    BuildLayout,
    BuildStore,
    IndexesError,
    IndexSpec,
    NoBuildError,
    Rows,
    VectorIndex,
    open_build,
    resolve_spec,
    write_rows,
)
from pipeline.artifacts import BuildFiles, link_or_copy
from pipeline.config import IndexSettings
from pipeline.embedding import ShardStore, Vectors
from pipeline.tables import read_rows


@dataclass(frozen=True, slots=True)
class IndexInputs:
    """What a build is made of.

    Attributes:
        chunks, documents: the tables; row i of `chunks` becomes row i of every arm.
        stores: the vectors of each arm.
        settings: the kind of index.
        manifest: what the application wants to find again in the build; holds its `fingerprint`.
    """

    chunks: Path
    documents: Path
    stores: Mapping[str, ShardStore]
    settings: IndexSettings
    manifest: Mapping[str, Any]


def index_spec(settings: IndexSettings) -> IndexSpec:
    """Turn settings into the spec that `indexes` understands.

    Raises:
        ImpossibleIndexError: an unknown factory, or a search setting that it does not have.
    """
    return IndexSpec(settings.factory, nprobe=settings.nprobe, ef_search=settings.ef_search)


def current_build(root: Path) -> Build | None:
    """Return the build that serves now, if there is one and its files are all there."""
    try:
        build = BuildStore(root).current()
        open_build(build, verify=False)
    except (NoBuildError, IndexesError):
        return None
    return build


def publish_build(
    root: Path, inputs: IndexInputs, *, n_rows: int, dim: int, progress: Callable[[int], None] | None = None
) -> tuple[Build, str]:
    """Build every arm's index and let them become current together.

    Args:
        root: the run directory.
        inputs: tables and vectors.
        n_rows: rows of the chunk table.
        dim: dimension of the vectors.
        progress: called with the number of rows added.

    Returns:
        The build, and a note where the kind of index was chosen automatically.
    """
    resolved = resolve_spec(index_spec(inputs.settings), n_rows=n_rows, dim=dim)

    def write(staging: Path) -> None:
        write_chunk_rows(inputs.chunks, BuildLayout(staging).rows)
        for arm, store in inputs.stores.items():
            vectors = _counted(store.read(content_keys(inputs.chunks)), progress)
            index = VectorIndex.build(vectors, dim=dim, spec=resolved.spec)
            index.save(BuildLayout(staging).arm_index(arm))
        link_or_copy(inputs.chunks, BuildFiles(staging).chunks)
        link_or_copy(inputs.documents, BuildFiles(staging).documents)

    build = BuildStore(root).publish(
        write, arms=list(inputs.stores), n_rows=n_rows, dim=dim, manifest=dict(inputs.manifest)
    )
    return build, resolved.note


def content_keys(chunks: Path) -> Iterator[str]:
    """Stream the identity of each chunk's content, in row order."""
    return (row["content_key"] for row in read_rows(chunks, ["content_key"]))


def write_chunk_rows(chunks: Path, target: Path) -> None:
    """Write which chunk and which document each row of an index is, in the order of the chunk table."""
    ids = [(row["doc_id"], row["ordinal"]) for row in read_rows(chunks, ["doc_id", "ordinal"])]
    chunk_ids = (f"{doc_id}#{ordinal}" for doc_id, ordinal in ids)
    write_rows(target, Rows.from_ids(chunk_ids, (doc_id for doc_id, _ in ids)))


def _counted(blocks: Iterator[Vectors], progress: Callable[[int], None] | None) -> Iterator[Vectors]:
    for block in blocks:
        yield block
        if progress is not None:
            progress(len(block))
