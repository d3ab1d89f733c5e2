"""Which settings no other one beats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics import Floats


def pareto(values: Floats, *, higher_is_better: Sequence[bool]) -> NDArray[np.bool_]:
    """Tell which rows no other row beats: at least as good in every column and better in one.

    Args:
        values: (n, n_columns).
        higher_is_better: for each column.
    """
    oriented = np.where(higher_is_better, values, -values)
    at_least = (oriented[:, None, :] >= oriented[None, :, :]).all(axis=2)
    better = (oriented[:, None, :] > oriented[None, :, :]).any(axis=2)
    return np.asarray(~(at_least & better).any(axis=0))
