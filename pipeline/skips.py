"""Counting what is left out, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pipeline.records import Skipped, SkipReason

MAX_EXAMPLES = 10_000


@dataclass(slots=True)
class SkipTally:
    """The exact count of each reason, and the first `MAX_EXAMPLES` records by name."""

    examples: list[Skipped] = field(default_factory=list)
    counts: Counter[SkipReason] = field(default_factory=Counter)

    def add(self, skipped: Skipped) -> None:
        """Count one record."""
        self.counts[skipped.reason] += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(skipped)
