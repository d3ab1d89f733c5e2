"""What lies in a run directory, and how it gets there: written aside, flushed, renamed.

All file names are here and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from pipeline.errors import DataError

_TEMPORARY = ".tmp-"


@dataclass(frozen=True, slots=True)
class RunLayout:
    """The paths of a run directory."""

    root: Path

    @property
    def config(self) -> Path:
        """The resolved configuration of the last run."""
        return self.root / "config.json"

    @property
    def lock(self) -> Path:
        """Held by the one process that writes here."""
        return self.root / ".lock"

    @property
    def documents(self) -> Path:
        """The documents, as stored."""
        return self.root / "corpus" / "documents.parquet"

    @property
    def documents_manifest(self) -> Path:
        """What the documents were made from."""
        return self.root / "corpus" / "manifest.json"

    @property
    def chunks(self) -> Path:
        """The chunk table: row i is vector row i."""
        return self.root / "chunks" / "chunks.parquet"

    @property
    def chunks_manifest(self) -> Path:
        """What the chunks were made from."""
        return self.root / "chunks" / "manifest.json"

    @property
    def all_vectors(self) -> Path:
        """Holds one folder an embedding identity."""
        return self.root / "vectors"

    @property
    def identities(self) -> Path:
        """The embedding identities that the arms of the last run asked for."""
        return self.all_vectors / "identities.json"

    @property
    def embed_record(self) -> Path:
        """How fast the last embedding was."""
        return self.all_vectors / "record.json"

    def vectors(self, identity: str) -> Path:
        """The folder of the vector shards of one embedding identity (a hex digest)."""
        return self.all_vectors / identity[:32]


@dataclass(frozen=True, slots=True)
class BuildFiles:
    """What the application puts beside the indexes of a build."""

    root: Path

    @property
    def chunks(self) -> Path:
        """The chunk table that the rows stand for."""
        return self.root / "chunks.parquet"

    @property
    def documents(self) -> Path:
        """The documents that the chunks are cut from."""
        return self.root / "documents.parquet"


@dataclass(frozen=True, slots=True)
class EvaluationFiles:
    """What an evaluation puts beside the chunks and vectors of its run directory."""

    root: Path

    @property
    def lengths(self) -> Path:
        """How long each document is, and how much of it was embedded."""
        return self.root / "chunks" / "lengths.parquet"

    @property
    def results(self) -> Path:
        """All figures of the last evaluation, with what they were made from."""
        return self.root / "results.json"

    @property
    def scores(self) -> Path:
        """The measures of each query, one row a query and system."""
        return self.root / "scores.parquet"

    def run(self, system: str) -> Path:
        """The ranking of one system in TREC's format."""
        return self.root / "rankings" / f"{system}.trec"


@dataclass(frozen=True, slots=True)
class DiagnosisFiles:
    """What a diagnosis leaves in its run directory."""

    root: Path

    @property
    def cache(self) -> Path:
        """What was measured, by what it was measured on: a killed run goes on from it."""
        return self.root / "cache"

    @property
    def results(self) -> Path:
        """All figures of the last diagnosis."""
        return self.root / "diagnosis.json"

    @property
    def similarities(self) -> Path:
        """Sigma and tau, one row a document, arm and place."""
        return self.root / "similarities.parquet"

    @property
    def attention(self) -> Path:
        """Attention masses, one row a document, arm, layer and head group."""
        return self.root / "attention.parquet"

    @property
    def profile_plot(self) -> Path:
        """The stem of the plots of similarity by place."""
        return self.root / "profile"

    @property
    def attention_plot(self) -> Path:
        """The stem of the heat maps of attention."""
        return self.root / "attention"

    @property
    def page(self) -> Path:
        """The self-contained report."""
        return self.root / "report.html"

    @property
    def section(self) -> Path:
        """The report's section by itself, for other reports to take in."""
        return self.root / "section.json"


@dataclass(frozen=True, slots=True)
class SweepFiles:
    """What a sweep, or a tuning, puts beside the chunks and vectors of its run directory."""

    root: Path

    @property
    def results(self) -> Path:
        """All figures that are the same for the same data, model and settings."""
        return self.root / "sweep.json"

    @property
    def table(self) -> Path:
        """One row a setting."""
        return self.root / "sweep.parquet"

    @property
    def proposals(self) -> Path:
        """What a tuning proposes, and why."""
        return self.root / "tune.json"

    @property
    def timings(self) -> Path:
        """Embedding time and query latency, which differ from run to run."""
        return self.root / "timings.json"

    def figure(self, name: str) -> Path:
        """A plot, without its suffix."""
        return self.root / "plots" / name


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed and takes the name `path`.

    On failure the temporary file is removed and whatever stood at `path` stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def run_lock(layout: RunLayout) -> Iterator[None]:
    """Hold the lock of a run directory; one process at a time writes there. Leftovers of killed ones go.

    A directory that was made for work which then failed before it wrote anything is removed again.

    Raises:
        DataError: another process holds it.
    """
    is_new = not layout.root.exists()
    layout.root.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(layout.lock, timeout=0):
            _remove_temporaries(layout.root)
            try:
                yield
            except BaseException:
                if is_new:
                    _remove_if_bare(layout)
                raise
    except Timeout:
        raise DataError(
            f"{layout.root}: another lastpage process is writing here; wait for it to end"
        ) from None


@contextmanager
def scratch_layout(layout: RunLayout) -> Iterator[RunLayout]:
    """Yield a run layout of its own, inside the run directory, that is gone afterwards."""
    with TemporaryDirectory(dir=layout.root, prefix=_TEMPORARY) as folder:
        yield RunLayout(Path(folder))


def _remove_if_bare(layout: RunLayout) -> None:
    """Remove a run directory that holds no file but its lock; `FileLock` notices a lock file that is gone."""
    if any(path.is_file() and path != layout.lock for path in layout.root.rglob("*")):
        return
    shutil.rmtree(layout.root)


def _remove_temporaries(folder: Path) -> None:
    for leftover in list(folder.glob(f"**/{_TEMPORARY}*")):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write strict JSON (no NaN) atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if there is no such file.

    Raises:
        DataError: the file is there but is not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: not valid JSON ({error}); delete it to build it again") from error
    if not isinstance(value, dict):
        raise DataError(
            f"{path}: expected a JSON object, got {type(value).__name__}; delete it to build it again"
        )
    return value


def fingerprint(value: Any) -> str:
    """Hash a JSON-like value: equal values give equal digests, whatever the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_digest(path: Path) -> str:
    """Hash a file by its content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link_or_copy(source: Path, target: Path) -> None:
    """Give `source` a second name, or copy it where the file system has no hard links.

    Safe because files of a run are only ever replaced as a whole, never changed in place.
    """
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
