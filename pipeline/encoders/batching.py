"""Fill batches by tokens, not by count: one long text never decides the memory of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def token_batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Group texts of similar length, longest first, so that little is padding.

    Args:
        lengths: tokens of each text.
        tokens_per_batch: the most tokens of a batch, padding included; a text longer than that is alone.

    Yields:
        Indices into `lengths`; each index once.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        count = max(1, tokens_per_batch // max(lengths[order[start]], 1))
        yield order[start : start + count]
        start += count
