"""Generations of builds, one of which is current.

    <root>/current              the id of the current build
    <root>/builds/<build_id>/   complete builds
    <root>/builds/.staging-*/   builds in the making, and leftovers of killed ones

A build is made in a staging folder, renamed into place when it is complete, and then becomes current by
replacing one small file: a crash at any moment leaves the previous build current. Locks are advisory and held
through open folders, so they end with the process that holds them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from indexes.build import Build, open_build, record_files
from indexes.errors import InvalidIndexError, NoBuildError
from indexes.files import flush, flush_tree, locked, replacing
from indexes.manifest import JSON, BuildManifest
from indexes.vector_index import check_count

_BUILD_ID = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{8}", re.ASCII)
_STAGING = ".staging-"


class BuildStore:
    """The builds below one folder. Several processes may publish, read, roll back and prune at once."""

    def __init__(self, root: Path) -> None:
        self._builds = root / "builds"
        self._pointer = root / "current"

    def publish(
        self,
        write: Callable[[Path], None],
        *,
        arms: Sequence[str],
        n_rows: int,
        dim: int,
        manifest: Mapping[str, JSON],
    ) -> Build:
        """Make a new build and let it become current.

        `write` fills the empty folder that it is given with `BuildLayout.rows`, a `BuildLayout.arm_index` for
        every arm, and whatever files the application wants beside them. `manifest` is the application's own
        part of the manifest. If anything fails, the previous build stays current.

        Raises:
            InvalidIndexError: what was written would be refused on opening.
            ValueError: `manifest` holds a number that is not finite; checked before `write` is called.
        """
        json.dumps(dict(manifest), allow_nan=False)
        with self._staging() as staging:
            write(staging)
            draft = BuildManifest("", tuple(arms), n_rows, dim, record_files(staging), manifest)
            complete = replace(draft, build_id=_new_build_id(draft))
            staged = Build(staging, complete)
            complete.write(staged.layout.manifest)
            open_build(staged, verify=False)
            flush_tree(staging)
            with locked(self._builds):
                build = Build(staging.rename(self._builds / complete.build_id), complete)
                flush(self._builds)
                self._point_to(build)
        return build

    def current(self) -> Build:
        """Return the build that serves now.

        Raises:
            NoBuildError: nothing has been published yet.
            InvalidIndexError: the pointer, or the build that it names, is damaged.
        """
        build_id = self.current_id()
        if build_id is None:
            raise NoBuildError(f"{self._pointer}: there is no build yet; build the index first")
        if not (self._builds / build_id).is_dir():
            raise InvalidIndexError(
                f"{self._pointer}: names build {build_id}, which is not there; "
                f"roll back to one of: {', '.join(self.build_ids()) or 'none, build again'}"
            )
        return Build.read(self._builds / build_id)

    def current_id(self) -> str | None:
        """Return the id of the build that serves now, None before the first; reads one small file.

        Raises:
            InvalidIndexError: the pointer is damaged.
        """
        try:
            text = self._pointer.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            text = "bytes that are not text"
        if not _BUILD_ID.fullmatch(text):
            raise InvalidIndexError(
                f"{self._pointer}: expected a build id, got {text[:80]!r}; roll back to a build by its id"
            )
        return text

    def build_ids(self) -> tuple[str, ...]:
        """Return the ids of all complete builds, oldest first."""
        if not self._builds.is_dir():
            return ()
        return tuple(sorted(path.name for path in self._builds.iterdir() if _BUILD_ID.fullmatch(path.name)))

    def get(self, build_id: str) -> Build:
        """Return one build by its id.

        Raises:
            NoBuildError: there is no such build.
            InvalidIndexError: its manifest is damaged.
        """
        if build_id not in self.build_ids():
            raise NoBuildError(
                f"{self._builds}: no build {build_id!r}; there are: {', '.join(self.build_ids()) or 'none'}"
            )
        return Build.read(self._builds / build_id)

    def rollback(self, build_id: str) -> Build:
        """Make an earlier (or later) build current again, and return it.

        Raises:
            NoBuildError: there is no such build.
            InvalidIndexError: its manifest is damaged; the current build stays.
        """
        if not self.build_ids():
            raise NoBuildError(f"{self._builds}: there is no build to roll back to; build the index first")
        with locked(self._builds):
            build = self.get(build_id)
            self._point_to(build)
        return build

    def prune(self, keep: int) -> tuple[str, ...]:
        """Remove all but the newest `keep` builds and the current one; return the removed ids, oldest first.

        Raises:
            InvalidQueryError: `keep` is below 1.
        """
        check_count("keep", keep)
        if not self._builds.is_dir():
            return ()
        with locked(self._builds):
            current = self.current_id()
            removed = tuple(build_id for build_id in self.build_ids()[:-keep] if build_id != current)
            for build_id in removed:
                # Renamed first: a build that is half removed must not look like a build.
                shutil.rmtree((self._builds / build_id).rename(self._builds / f"{_STAGING}{build_id}"))
        return removed

    def _point_to(self, build: Build) -> None:
        with replacing(self._pointer) as temporary:
            temporary.write_text(build.build_id + "\n", encoding="utf-8")

    @contextmanager
    def _staging(self) -> Iterator[Path]:
        """Yield a new folder that this process owns by its lock; what is left of it afterwards is removed."""
        self._builds.mkdir(parents=True, exist_ok=True)
        staging = self._builds / f"{_STAGING}{uuid.uuid4().hex}"
        with ExitStack() as ownership:
            with locked(self._builds):
                self._remove_abandoned()
                staging.mkdir()
                ownership.enter_context(locked(staging))
            try:
                yield staging
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def _remove_abandoned(self) -> None:
        """Remove the staging folders whose owners are dead; call it only while holding the store's lock."""
        for folder in self._builds.glob(f"{_STAGING}*"):
            with suppress(BlockingIOError, FileNotFoundError), locked(folder, wait=False):
                shutil.rmtree(folder)


def _new_build_id(manifest: BuildManifest) -> str:
    content = json.dumps(asdict(manifest), sort_keys=True, allow_nan=False)
    fingerprint = hashlib.sha256(content.encode()).hexdigest()[:8]
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{fingerprint}"
