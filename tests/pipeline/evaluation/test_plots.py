"""Figures: they say what they should, and the same data gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from pipeline.evaluation.plots import (
    CostSeries,
    HeatPanel,
    Paths,
    Point,
    cost_panels,
    frontier_scatter,
    heat_map,
    position_curves,
)
from pipeline.evaluation.statistics import Design, GroupSummary, summarise


def summary(seed: int) -> GroupSummary:
    design = Design(["early", "middle", "late"] * 40, names=["early", "middle", "late"])
    return summarise(np.random.default_rng(seed).random(120), design, rounds=100)


def curves(stem: Path) -> Paths:
    return position_curves({"plain": summary(1), "b128": summary(2)}, stem, measure="nDCG@10")


def heat(stem: Path) -> Paths:
    panels = [
        HeatPanel(f"layers {layers}", np.array([[0.81, 0.83], [0.79, np.nan]]), 0.8)
        for layers in ("last", "all")
    ]
    return heat_map(panels, stem, rows=["32", "128"], columns=["0.5", "1"], n_across=2, label="harmonic mean")


def scatter(stem: Path) -> Paths:
    points = [
        Point("plain", "plain", "", 0.1, 0.8, on_frontier=False, is_named=False),
        Point("b128", "last", "", 0.05, 0.82, on_frontier=True, is_named=True),
    ]
    return frontier_scatter(points, stem, x_label="PSI", y_label="harmonic mean")


def costs(stem: Path) -> Paths:
    series = [
        CostSeries(name, {"vectors": np.array([1.0, 2.5])}, np.array([0.8, 0.9]), np.array([0.1, 0.05]))
        for name in ("plain", "b128")
    ]
    return cost_panels(series, stem, costs=["vectors"], measure="nDCG@10")


EXPECTED = {
    curves: ["plain: harmonic mean", "b128: harmonic mean", "early", "late", "nDCG@10"],
    heat: ["layers last", "layers all", "0.8100", "0.7900", "strength", "basket (tokens)"],
    scatter: ["b128", "PSI", "harmonic mean"],
    costs: ["plain", "b128", "vectors", "harmonic mean of nDCG@10"],
}


@pytest.mark.parametrize("draw", EXPECTED, ids=lambda draw: draw.__name__)
def test_figures_are_written_twice_the_same_and_say_what_they_show(
    draw: Callable[[Path], Paths], tmp_path: Path
) -> None:
    svg, png = draw(tmp_path / "first")
    again = draw(tmp_path / "second")

    text = svg.read_text()
    assert [words for words in EXPECTED[draw] if words not in text] == []
    assert imread(png).std() > 0.01
    assert [path.read_bytes() for path in again] == [svg.read_bytes(), png.read_bytes()]


def test_only_the_telling_settings_are_named(tmp_path: Path) -> None:
    points = [
        Point("beaten", "a", "", 0.1, 0.8, on_frontier=False, is_named=False),
        Point("best", "a", "", 0.05, 0.82, on_frontier=True, is_named=True),
    ]
    svg, _ = frontier_scatter(points, tmp_path / "scatter", x_label="x", y_label="y")

    assert "best" in svg.read_text()
    assert "beaten" not in svg.read_text()
