"""Which run directory a command means."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.errors import UsageError


def find_run(asked: str | None) -> tuple[Path, str]:
    """The run directory to query, and a hint where it was chosen among several."""
    if named := asked or os.environ.get("LASTPAGE_RUN"):
        folder = Path(named)
        if not folder.is_dir():
            raise UsageError(f"run {folder}: no such directory; run `lastpage index --run {folder}` first")
        return folder, ""
    built = _built_runs()
    if not built:
        raise UsageError(
            "nothing is indexed below runs/ yet; run `lastpage index` first, or name a run with --run"
        )
    hint = f" (the newest of {len(built)} runs; choose with --run)" if len(built) > 1 else ""
    return built[-1], hint


def is_default_run(run: Path) -> bool:
    """Whether a command that names no run takes this one."""
    named = os.environ.get("LASTPAGE_RUN")
    default = [Path(named)] if named else _built_runs()[-1:]
    return [path.resolve() for path in default] == [run.resolve()]


def _built_runs() -> list[Path]:
    """The runs below runs/ that have a build, the one that was built last at the end."""
    pointers = sorted(Path("runs").glob("*/current"), key=lambda pointer: pointer.stat().st_mtime)
    return [pointer.parent for pointer in pointers]
