"""What a run is about to do: which chunks came, changed and went, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.tables import read_rows


@dataclass(frozen=True, slots=True)
class ChunkChanges:
    """How a chunk table differs from the one that serves now, chunk by chunk.

    A chunk is known by its document and its place in it; it has changed if its text has.
    """

    added: int
    changed: int
    removed: int
    unchanged: int

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True, slots=True)
class ReembedPlan:
    """What embedding is about to do.

    Attributes:
        changes: against the build that serves now.
        missing: for each group of arms, how many distinct texts lack a vector in exactly these arms.
        tokens: tokens that have to go through the encoder.
        seconds: how long that takes at the rate of the last run; None if none is known.
    """

    changes: ChunkChanges
    missing: Mapping[tuple[str, ...], int]
    tokens: int
    seconds: float | None

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.changes or self.missing)

    def sentence(self) -> str:
        """Say the plan in one line."""
        changes = ", ".join(f"{count:,} {name}" for name, count in asdict(self.changes).items())
        if not self.missing:
            return f"plan: chunks {changes}; nothing to embed"
        work = ", ".join(
            f"{count:,} text{'' if count == 1 else 's'} in {' and '.join(arms)}"
            for arms, count in self.missing.items()
        )
        estimate = f", about {duration(self.seconds)}" if self.seconds is not None else ""
        return f"plan: chunks {changes}; to embed: {work} ({self.tokens:,} tokens{estimate})"

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return {
            "chunks": asdict(self.changes),
            "missing": [{"arms": list(arms), "texts": count} for arms, count in self.missing.items()],
            "tokens": self.tokens,
            "seconds": self.seconds,
        }


def compare_chunks(old: Path | None, new: Path) -> ChunkChanges:
    """Compare two chunk tables; `old` is None where nothing serves yet.

    Raises:
        DataError: a table is missing or damaged.
    """
    before = _contents(old) if old is not None else {}
    n_new = added = changed = 0
    for chunk_id, content in _contents(new).items():
        n_new += 1
        known = before.pop(chunk_id, None)
        added += known is None
        changed += known is not None and known != content
    return ChunkChanges(added, changed, removed=len(before), unchanged=n_new - added - changed)


def _contents(table: Path) -> dict[tuple[str, int], bytes]:
    """The content of each chunk by its place; digests as bytes, since there may be millions."""
    rows = read_rows(table, ["doc_id", "ordinal", "content_key"])
    return {(row["doc_id"], row["ordinal"]): bytes.fromhex(row["content_key"]) for row in rows}


def duration(seconds: float) -> str:
    """Say a number of seconds as people do."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
