"""Where something stands in a text, counted in parts of equal length."""

from __future__ import annotations

import math


def position_bin(position: float, n_bins: int) -> int:
    """The bin of a relative position, as PosIR's scripts cut: (0, 1/n], (1/n, 2/n], …, 0 in the first."""
    # Rounded, because 0.15 * 20 is a little more than 3.
    return max(0, min(n_bins, math.ceil(round(position * n_bins, 9))) - 1)
