"""A build: every arm's index, the row map, the application's files, and the manifest that ties them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from indexes.errors import InvalidIndexError
from indexes.files import sha256
from indexes.manifest import BuildManifest, FileRecord
from indexes.rows import Rows, read_rows
from indexes.vector_index import VectorIndex

_ARM_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class BuildLayout:
    """The paths in a build's folder."""

    root: Path

    @property
    def manifest(self) -> Path:
        """What lies here; written last."""
        return self.root / "manifest.json"

    @property
    def rows(self) -> Path:
        """The map from row to chunk and document."""
        return self.root / "rows.parquet"

    def arm_index(self, name: str) -> Path:
        """Return the path of an arm's index.

        Raises:
            InvalidIndexError: the name could lead out of the folder, or into a hidden file.
        """
        if not _ARM_NAME.fullmatch(name):
            raise InvalidIndexError(
                f"arm name {name!r}: use letters, digits, '_', '-' and '.', not starting with '.'"
            )
        return self.root / f"{name}.faiss"


@dataclass(frozen=True, slots=True)
class Build:
    """A build on the disk: its folder and its manifest."""

    path: Path
    manifest: BuildManifest

    @classmethod
    def read(cls, path: Path) -> Build:
        """Read the manifest of the build in a folder, which bears the build's id as its name.

        Raises:
            InvalidIndexError: no valid manifest, or that of another build.
        """
        manifest = BuildManifest.read(BuildLayout(path).manifest)
        if manifest.build_id != path.name:
            raise InvalidIndexError(
                f"{path}: expected build {path.name}, got the manifest of {manifest.build_id}; build it again"
            )
        return cls(path, manifest)

    @property
    def build_id(self) -> str:
        """The build's id, which sorts by time."""
        return self.manifest.build_id

    @property
    def layout(self) -> BuildLayout:
        """The paths in the build's folder."""
        return BuildLayout(self.path)


@dataclass(frozen=True, slots=True, eq=False)
class OpenBuild:
    """A build in memory, checked: row i of `rows` is row i of every arm."""

    build: Build
    arms: Mapping[str, VectorIndex]
    rows: Rows


def open_build(build: Build, *, verify: bool = True) -> OpenBuild:
    """Load a build and refuse it if anything in it does not belong together.

    Sizes, counts and dimensions are always compared, and so is the checksum of the row map: a map of another
    build would give one document's hits to another. `verify` extends the checksums to all files.

    Raises:
        InvalidIndexError: a file is missing, damaged, or from another build.
    """
    rows_file = _recorded_name(build, build.layout.rows)
    _check_files(build, checksummed=build.manifest.files if verify else [rows_file])
    return _load_checked(build)


def record_files(folder: Path) -> dict[str, FileRecord]:
    """Return the record of every file below `folder`, keyed by POSIX path, in the order of the keys."""
    paths = sorted(
        (path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file()
    )
    return {name: FileRecord.of(path) for name, path in paths}


def _recorded_name(build: Build, path: Path) -> str:
    """Return the name under which the manifest records a file that the build cannot do without."""
    name = path.relative_to(build.path).as_posix()
    if name not in build.manifest.files:
        raise InvalidIndexError(f"{build.layout.manifest}: {name} is not recorded; build it again")
    return name


def _check_files(build: Build, *, checksummed: Iterable[str]) -> None:
    sizes = {
        path.relative_to(build.path).as_posix(): path.stat().st_size
        for path in build.path.rglob("*")
        if path.is_file()
    }
    for name, record in build.manifest.files.items():
        if name not in sizes:
            raise InvalidIndexError(f"{build.path}: {name} is missing; build it again or roll back")
        _check_equal(build.path / name, "bytes", record.size, sizes[name])
    for name in checksummed:
        _check_equal(
            build.path / name, "SHA-256", build.manifest.files[name].sha256, sha256(build.path / name)
        )


def _load_checked(build: Build) -> OpenBuild:
    manifest, layout = build.manifest, build.layout
    rows = read_rows(layout.rows)
    _check_equal(layout.rows, "rows", manifest.n_rows, rows.n_rows)
    arms = {}
    for name in manifest.arms:
        path = layout.arm_index(name)
        _recorded_name(build, path)
        arms[name] = VectorIndex.load(path)
        _check_equal(path, "rows", manifest.n_rows, arms[name].n_rows)
        _check_equal(path, "dimensions", manifest.dim, arms[name].dim)
    return OpenBuild(build, arms, rows)


def _check_equal(path: Path, what: str, expected: int | str, got: int | str) -> None:
    if expected != got:
        raise InvalidIndexError(
            f"{path}: expected {what}: {expected}, got {got}; the file is damaged or from another build: "
            "build it again or roll back"
        )
