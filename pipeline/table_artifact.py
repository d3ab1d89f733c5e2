"""A table beside the manifest that says what it was made from: same fingerprint, nothing to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.artifacts import file_digest, read_json, write_json
from pipeline.errors import UsageError


@dataclass(frozen=True, slots=True)
class TableArtifact:
    """A table on disk and its manifest; the manifest is written last, so that it vouches for the table."""

    table: Path
    manifest: Path

    def figures_if_made_from(self, wanted: str) -> dict[str, Any] | None:
        """The counts of the table if it is there, whole, and was made from what the fingerprint says."""
        known = read_json(self.manifest)
        if known is None or known.get("fingerprint") != wanted or not self.table.is_file():
            return None
        if self.table.stat().st_size != known.get("bytes"):
            return None
        figures: dict[str, Any] = known["figures"]
        return figures

    def forget(self) -> None:
        """Withdraw the manifest before the table is written again."""
        self.manifest.unlink(missing_ok=True)

    def remember(self, made_from: str, figures: Mapping[str, Any]) -> None:
        """Vouch for the table as it is now."""
        write_json(
            self.manifest,
            {
                "fingerprint": made_from,
                "bytes": self.table.stat().st_size,
                "sha256": file_digest(self.table),
                "figures": dict(figures),
            },
        )

    @property
    def record(self) -> dict[str, Any]:
        """The manifest.

        Raises:
            UsageError: the table was not made yet.
        """
        known = read_json(self.manifest)
        if known is None:
            raise UsageError(f"{self.manifest}: not there yet; run `lastpage index`")
        return known

    @property
    def figures(self) -> dict[str, Any]:
        """The counts of the table, from its manifest."""
        figures: dict[str, Any] = self.record["figures"]
        return figures
