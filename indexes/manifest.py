"""The manifest of a build: what lies in it, and how its files can be told from any others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from indexes.errors import InvalidIndexError
from indexes.files import replacing, sha256

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The size in bytes and the SHA-256 (hex) of one file of a build."""

    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileRecord:
        """Record a file as it is on the disk."""
        return cls(path.stat().st_size, sha256(path))


@dataclass(frozen=True, slots=True)
class BuildManifest:
    """What a build holds; `files` is keyed by POSIX path below the build's folder.

    `application` belongs to the caller of this package, which keeps it but never looks into it.
    """

    build_id: str
    arms: tuple[str, ...]
    n_rows: int
    dim: int
    files: Mapping[str, FileRecord]
    application: Mapping[str, JSON]

    def write(self, path: Path) -> None:
        """Write strict JSON to `path`, complete or not at all.

        Raises:
            ValueError: `application` holds a number that is not finite.
        """
        value = {"format_version": FORMAT_VERSION, **asdict(self)}
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        with replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> BuildManifest:
        """Read a manifest that `write` wrote.

        Raises:
            InvalidIndexError: it is missing, no manifest, or of another format version.
        """
        value = _read_object(path)
        version = value.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise InvalidIndexError(
                f"{path}: expected format version {FORMAT_VERSION}, got {version}; "
                "build it again, or use the version of lastpage that wrote it"
            )
        try:
            return cls._parse(**value)
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidIndexError(f"{path}: not a build manifest ({error}); build it again") from error

    @classmethod
    def _parse(
        cls,
        *,
        build_id: str,
        arms: list[str],
        n_rows: int,
        dim: int,
        files: dict[str, Any],
        application: dict[str, JSON],
    ) -> BuildManifest:
        records = {name: FileRecord(**record) for name, record in files.items()}
        return cls(str(build_id), tuple(map(str, arms)), int(n_rows), int(dim), records, dict(application))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except FileNotFoundError as error:
        raise InvalidIndexError(
            f"{path}: the manifest is missing, so the build is incomplete; build it again"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidIndexError(f"{path}: not valid JSON ({error}); build it again") from error
    if not isinstance(value, dict):
        raise InvalidIndexError(f"{path}: expected a JSON object, got {type(value).__name__}; build it again")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
