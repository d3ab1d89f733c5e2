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
    built = sorted(Path("runs").glob("*/current"), key=lambda pointer: pointer.stat().st_mtime)
    if not built:
        raise UsageError(
            "nothing is indexed below runs/ yet; run `lastpage index` first, or name a run with --run"
        )
    hint = f" (the newest of {len(built)} runs; choose with --run)" if len(built) > 1 else ""
    return built[-1].parent, hint
