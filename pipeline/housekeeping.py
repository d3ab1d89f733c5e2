"""The builds of a run: list them, return to one, and free what none of them needs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from indexes import Build, BuildStore, IndexesError
from pipeline.artifacts import BuildFiles, RunLayout, read_json, run_lock
from pipeline.errors import UsageError
from pipeline.tables import read_rows


@dataclass(frozen=True, slots=True)
class BuildSummary:
    """A build as it is listed.

    Attributes:
        build_id: sorts by time.
        current: whether it serves now.
        n_rows, n_documents: chunks and documents.
        arms: names, with their strengths.
        model: the name that was configured.
        n_bytes: of its folder; files that several builds share count in each.
    """

    build_id: str
    current: bool
    n_rows: int
    n_documents: int
    arms: dict[str, float]
    model: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed."""

    builds: tuple[str, ...]
    shards: int
    n_bytes: int


def list_builds(run: Path) -> list[BuildSummary]:
    """List the complete builds of a run directory, oldest first; damaged ones are left out.

    Raises:
        UsageError: there is no such run directory.
    """
    store = _store(run)
    current = _current_id(store)
    summaries = []
    for build_id in store.build_ids():
        try:
            summaries.append(_summary(store.get(build_id), current))
        except IndexesError:
            continue
    return summaries


def roll_back(run: Path, build_id: str) -> BuildSummary:
    """Let an earlier build serve again.

    Raises:
        NoBuildError: there is no such build.
        UsageError: there is no such run directory.
    """
    store = _store(run)
    with run_lock(RunLayout(run)):
        build = store.rollback(build_id)
    return _summary(build, build.build_id)


def prune(run: Path, keep: int) -> Pruned:
    """Remove all but the newest `keep` builds and the current one, and the vectors that no build needs.

    Vectors of the chunk table that the run holds now stay too, so that an interrupted run still resumes.

    Raises:
        UsageError: there is no such run directory, or `keep` is below 1.
    """
    if keep < 1:
        raise UsageError(f"keep = {keep}: at least 1 build stays")
    store, layout = _store(run), RunLayout(run)
    with run_lock(layout):
        before = _size(run)
        builds = store.prune(keep)
        shards = _prune_vectors(layout, [store.get(build_id) for build_id in store.build_ids()])
        return Pruned(builds, shards, before - _size(run))


def _prune_vectors(layout: RunLayout, builds: Iterable[Build]) -> int:
    identities = set((read_json(layout.identities) or {}).get("arms", {}).values())
    tables = [layout.chunks] if layout.chunks.is_file() else []
    for build in builds:
        identities.update(_application(build).get("identities", {}).values())
        tables.append(BuildFiles(build.path).chunks)
    keys = {row["content_key"] for table in tables for row in read_rows(table, ["content_key"])}
    needed = {layout.vectors(identity) for identity in identities}
    removed = 0
    for folder in list(layout.all_vectors.glob("*/")):
        shards = list(folder.glob("*.parquet"))
        unused = [shard for shard in shards if folder not in needed or not _holds_any(shard, keys)]
        for shard in unused:
            shard.unlink()
        removed += len(unused)
        if folder not in needed:
            shutil.rmtree(folder)
    return removed


def _holds_any(shard: Path, keys: set[str]) -> bool:
    try:
        held = pq.read_table(shard, columns=["content_key"]).column(0).to_pylist()
    except (OSError, pa.ArrowException):
        return False
    return not keys.isdisjoint(held)


def _store(run: Path) -> BuildStore:
    if not run.is_dir():
        raise UsageError(f"run {run}: no such directory; run `lastpage index --run {run}` first")
    return BuildStore(run)


def _current_id(store: BuildStore) -> str | None:
    try:
        return store.current().build_id
    except IndexesError:
        return None


def _application(build: Build) -> dict[str, Any]:
    return dict(build.manifest.application)


def _summary(build: Build, current: str | None) -> BuildSummary:
    application = _application(build)
    return BuildSummary(
        build_id=build.build_id,
        current=build.build_id == current,
        n_rows=build.manifest.n_rows,
        n_documents=application["documents"],
        arms={name: arm["strength"] for name, arm in application["arms"].items()},
        model=application["model"]["name"],
        n_bytes=_size(build.path),
    )


def _size(folder: Path) -> int:
    """Bytes below a folder; a file under several names counts once."""
    seen = {(status.st_dev, status.st_ino): status.st_size for status in map(Path.stat, _files(folder))}
    return sum(seen.values())


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
