"""Earlier results of a run directory: those of other settings are set aside, so that nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from pipeline.artifacts import read_json
from pipeline.errors import DataError

_FOLDER = "earlier"


def read_earlier(path: Path) -> Mapping[str, Any]:
    """Read a result file; empty if there is none, or none that can be read (and so be the same again)."""
    try:
        return read_json(path) or {}
    except DataError:
        return {}


def as_read(value: Any) -> Any:
    """A value as it comes back from a JSON file, to be compared with one that was read."""
    return json.loads(json.dumps(value))


def set_aside(root: Path, files: Sequence[Path]) -> Path | None:
    """Move the result files that are there into `earlier/<their time in UTC>`; return that folder.

    Args:
        root: the run directory, whose lock is held.
        files: files or folders; the last one says what they were made from. It is moved last, so that a run
            which was killed meanwhile moves the rest. Without it there is no earlier result: None.
    """
    if not files[-1].exists():
        return None
    there = [path for path in files if path.exists()]
    moment = datetime.fromtimestamp(files[-1].stat().st_mtime, UTC)
    folder = next(
        each
        for each in _folders(root / _FOLDER, f"{moment:%Y%m%d-%H%M%S}")
        if not any((each / path.name).exists() for path in there)
    )
    folder.mkdir(parents=True, exist_ok=True)
    for path in there:
        path.rename(folder / path.name)
    return folder


def _folders(parent: Path, name: str) -> Iterator[Path]:
    """The folder of a second, then further ones, should several results be of that second."""
    yield parent / name
    yield from (parent / f"{name}-{number}" for number in count(2))
