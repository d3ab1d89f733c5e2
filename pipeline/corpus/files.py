"""Files of a source, on the local disk or a remote file system, in a fixed order."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from pipeline.corpus.fields import printable
from pipeline.errors import DataError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_MAGIC = re.compile(r"[*?\[]")
_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source.

    Attributes:
        filesystem: where it lies.
        path: its path there.
        name: its path relative to the source, with forward slashes; a lone file's own name.
        place: how it is shown to the user.
    """

    filesystem: AbstractFileSystem
    path: str
    name: str
    place: str

    def open(self) -> BinaryIO:
        """Open it for reading bytes.

        Raises:
            OSError: it cannot be opened, or is no regular file (reading a pipe would never end).
        """
        if _is_local(self.filesystem) and not Path(self.path).is_file():
            raise OSError("a broken link or not a regular file")
        return cast(BinaryIO, self.filesystem.open(self.path, "rb"))

    def digest(self) -> str:
        """Hash its content; an unreadable file has a digest of its own kind, since reading reports it."""
        digest = hashlib.sha256()
        try:
            with self.open() as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        except OSError:
            return "unreadable"
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source's path stands for: one file, or the visible files below a folder or of a glob."""

    files: tuple[SourceFile, ...]
    is_single: bool


def list_files(source: str) -> Listing:
    """Find the files of a path, folder, glob or URL; hidden ones are left out, links that loop end.

    Raises:
        DataError: there is nothing at `source`, or it cannot be read.
    """
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(source)
        return _list(filesystem, path, source)
    except (OSError, ImportError, ValueError) as error:
        raise DataError(
            f"{source}: the corpus cannot be read ({error}); check the path and its rights"
        ) from error


def _list(filesystem: AbstractFileSystem, path: str, source: str) -> Listing:
    if filesystem.isfile(path):
        return Listing((SourceFile(filesystem, path, PurePosixPath(path).name, source),), is_single=True)
    if filesystem.isdir(path):
        root, paths = path, _walk(path) if _is_local(filesystem) else filesystem.find(path)
        shown = source
    else:
        root, paths = _fixed_part(path), _glob(filesystem, path)
        shown = _fixed_part(source)
    if not paths and not filesystem.isdir(path):
        raise DataError(
            f"{source}: no such file or folder; check corpus.source, or set corpus.format = 'dataset' "
            "if it names a dataset of the Hugging Face hub"
        )
    return Listing(tuple(_sorted_files(filesystem, root, paths, shown.rstrip("/"))), is_single=False)


def _sorted_files(
    filesystem: AbstractFileSystem, root: str, paths: list[str], shown: str
) -> Iterator[SourceFile]:
    names = {path.removeprefix(root).lstrip("/"): path for path in paths}
    for name in sorted(names, key=natural_order):
        if not any(part.startswith(".") for part in PurePosixPath(name).parts):
            place = printable(f"{shown}/{name}" if shown else name)
            yield SourceFile(filesystem, names[name], name, place)


def _glob(filesystem: AbstractFileSystem, pattern: str) -> list[str]:
    if not _MAGIC.search(pattern):
        return []
    return [path for path in filesystem.glob(pattern) if filesystem.isfile(path)]


def natural_order(name: str) -> list[tuple[str, int]]:
    """Sort key by which `part-2` comes before `part-10`."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]


def _fixed_part(path: str) -> str:
    """The folder of a path up to its first wildcard; the whole path if it has none."""
    parts = path.split("/")
    wild = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return "/".join(parts[:wild])


def _is_local(filesystem: AbstractFileSystem) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(filesystem, LocalFileSystem)


def _walk(root: str) -> list[str]:
    """List the files below a local folder, following links, but entering each real folder only once."""

    def stop(error: OSError) -> None:
        raise error

    found: list[str] = []
    entered = {Path(root).resolve()}
    for folder, folders, names in os.walk(root, onerror=stop, followlinks=True):
        folders[:] = [name for name in sorted(folders) if _enter(Path(folder, name), entered)]
        found += [Path(folder, name).as_posix() for name in names]
    return found


def _enter(folder: Path, entered: set[Path]) -> bool:
    """Note that a folder is entered, unless it is hidden or was entered before."""
    real = folder.resolve()
    if folder.name.startswith(".") or real in entered:
        return False
    entered.add(real)
    return True
