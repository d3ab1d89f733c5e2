"""Bins and classes, at their edges."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.evaluation.datasets.positions import (
    SQUAD_GROUPS,
    length_class,
    part_names,
    relative_position,
    squad_group,
)
from pipeline.positions import position_bin


@pytest.mark.parametrize(
    ("position", "n_bins", "expected"),
    [
        (0.0, 20, 0),
        (0.05, 20, 0),
        (0.0500001, 20, 1),
        (0.15, 20, 2),  # 0.15 * 20 is 3.0000000000000004
        (0.5, 20, 9),
        (1.0, 20, 19),
        (0.2, 5, 0),
        (0.6, 5, 2),
        (1 / 3, 3, 0),
        (2 / 3, 3, 1),
        (1.0, 3, 2),
    ],
)
def test_bins_are_closed_on_the_right_as_in_posir(position: float, n_bins: int, expected: int) -> None:
    assert position_bin(position, n_bins) == expected


def test_bins_are_those_of_pandas_cut_as_posir_uses_it() -> None:
    """`pd.cut(x, np.linspace(0, 1, 21), include_lowest=True)` is a right-closed search in the edges."""
    edges = np.linspace(0, 1, 21)
    values = np.random.default_rng(1).random(2000)
    expected = np.maximum(np.searchsorted(edges, values, side="left") - 1, 0)
    assert [position_bin(value, 20) for value in values] == expected.tolist()


def test_relative_position_is_the_middle_of_the_span() -> None:
    assert relative_position((10, 20), 60) == 0.25
    assert relative_position((0, 60), 60) == 0.5
    assert relative_position((80, 100), 60) == 1.0


@pytest.mark.parametrize(
    ("start", "group"),
    [
        (0, "0-100"),
        (99, "0-100"),
        (100, "100-200"),
        (199, "100-200"),
        (200, "200-300"),
        (300, "300-400"),
        (400, "400-500"),
        (499, "400-500"),
        (500, "500+"),
        (3120, "500+"),
    ],
)
def test_squad_edges_count_once(start: int, group: str) -> None:
    assert squad_group(start) == group
    assert group in SQUAD_GROUPS


@pytest.mark.parametrize(
    ("n_tokens", "name"),
    [
        (1, "1-512"),
        (512, "1-512"),
        (513, "513-1024"),
        (1024, "513-1024"),
        (1025, "1025-1536"),
        (1536, "1025-1536"),
        (1537, "over 1536"),
    ],
)
def test_length_classes_are_closed_on_the_right(n_tokens: int, name: str) -> None:
    assert length_class(n_tokens) == name


def test_parts_have_readable_names() -> None:
    assert part_names(3) == ("early", "middle", "late")
    assert part_names(5) == ("0-20%", "20-40%", "40-60%", "60-80%", "80-100%")
    assert part_names(20)[:2] == ("0-5%", "5-10%")
