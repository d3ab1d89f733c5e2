"""Similarity by place: means with bands, plain and calibrated, one language pair at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Values = NDArray[np.floating]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class PlaceMean:
    """The mean similarity at one place, counted from 1, with its 95 % interval."""

    position: int
    mean: float
    low: float
    high: float


def mean_by_place(values: Values, sets: Sequence[str]) -> tuple[PlaceMean, ...]:
    """Average similarities over documents; the interval is Student's t over the means of the segment sets.

    Args:
        values: (documents, places).
        sets: (documents,), the segment set of each.
    """
    by_set = means_of_sets(values, sets)
    n_sets = len(by_set)
    margin = student.ppf((1 + CONFIDENCE) / 2, n_sets - 1) * by_set.std(axis=0, ddof=1) / np.sqrt(n_sets)
    return tuple(
        PlaceMean(place + 1, float(mean), float(mean - half), float(mean + half))
        for place, (mean, half) in enumerate(zip(by_set.mean(axis=0), margin, strict=True))
    )


def means_of_sets(values: Values, sets: Sequence[str]) -> NDArray[np.float64]:
    """Average (documents, …) within each segment set: (sets, …), in the order of their first documents."""
    members: dict[str, list[int]] = {}
    for number, name in enumerate(sets):
        members.setdefault(name, []).append(number)
    return np.stack([values[rows].astype(np.float64).mean(axis=0) for rows in members.values()])
