"""The figures of an evaluation and of a sweep; each is drawn from plain values and saved as SVG and PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.evaluation.statistics import Floats, GroupSummary
from pipeline.plots import COLOURS, figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Paths = tuple[Path, Path]
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def position_curves(summaries: Mapping[str, GroupSummary], stem: Path, *, measure: str) -> Paths:
    """Draw one curve an arm over the position groups, with the interval of each mean as a band.

    Args:
        summaries: by the arm's name, all over the same groups; the first is drawn in grey.
        stem: path of the figure, without suffix.
        measure: what the means are of, such as `nDCG@10`.
    """
    names = next(iter(summaries.values())).names
    places = np.arange(len(names))
    with figure(width=6.4, height=4.0) as drawn:
        axes = drawn.add_subplot()
        for number, (arm, summary) in enumerate(summaries.items()):
            colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
            low, high = ([getattr(mean, end) for mean in summary.means] for end in ("low", "high"))
            axes.fill_between(places, low, high, color=colour, alpha=0.12, linewidth=0)
            means = [mean.value for mean in summary.means]
            axes.plot(places, means, color=colour, marker=marker, markersize=4, label=_legend(arm, summary))
        axes.set_xticks(places, names)
        axes.set_xlabel("where the answer stands")
        axes.set_ylabel(measure)
        axes.legend(loc="best", fontsize=8)
        return save_figure(drawn, stem)


def _legend(arm: str, summary: GroupSummary) -> str:
    return f"{arm}: harmonic mean {summary.harmonic_mean.value:.3f}, PSI {summary.psi.value:.3f}"


@dataclass(frozen=True, slots=True)
class HeatPanel:
    """One panel of a heat map.

    Attributes:
        title: of the panel.
        values: (rows, columns); NaN where nothing was measured.
        reference: colours show how much higher or lower a value is.
    """

    title: str
    values: Floats
    reference: float


def heat_map(
    panels: Sequence[HeatPanel],
    stem: Path,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    n_across: int,
    label: str,
) -> Paths:
    """Draw values by basket and strength, `n_across` panels side by side; `label` says what values are."""
    gains = [panel.values - panel.reference for panel in panels]
    spread = max(1e-3, float(np.nanmax(np.abs(gains))))
    n_rows = -(-len(panels) // n_across)
    width = 1.5 + n_across * (1.0 + 0.62 * len(columns))
    with figure(width=width, height=n_rows * (1.1 + 0.5 * len(rows))) as drawn:
        all_axes = drawn.subplots(n_rows, n_across, squeeze=False, sharex=True, sharey=True)
        image: Any = None
        for axes, panel, gain in zip(all_axes.flat, panels, gains, strict=False):
            image = axes.imshow(gain, cmap="RdBu", vmin=-spread, vmax=spread, aspect="auto")
            _write_values(axes, panel.values, gain, spread)
            axes.set_title(panel.title, fontsize=9)
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(rows)), rows)
            axes.grid(visible=False)
        for axes in all_axes.flat[len(panels) :]:
            axes.set_axis_off()
        drawn.supxlabel("strength", fontsize=9)
        drawn.supylabel("basket (tokens)", fontsize=9)
        bar = drawn.colorbar(image, ax=all_axes, shrink=0.9)
        bar.set_label(f"{label}: gain over plain", fontsize=8)
        return save_figure(drawn, stem)


def _write_values(axes: Axes, values: Floats, gain: Floats, spread: float) -> None:
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if abs(gain[row, column]) > 0.6 * spread else "black"
            axes.text(column, row, f"{value:.4f}", ha="center", va="center", fontsize=8, color=colour)


@dataclass(frozen=True, slots=True)
class Point:
    """One setting in a scatter plot.

    Attributes:
        name: written beside it if `is_named`.
        family: points of a family share colour and marker.
        line: points of the frontier with the same are joined.
        x, y: where it lies.
        on_frontier: whether no other setting beats it.
        is_named: of many points only the telling ones.
    """

    name: str
    family: str
    line: str
    x: float
    y: float
    on_frontier: bool
    is_named: bool


def frontier_scatter(points: Sequence[Point], stem: Path, *, x_label: str, y_label: str) -> Paths:
    """Draw settings by two figures, the frontier filled and joined; the upper left is best.

    Colours follow the order in which families come, grey first.
    """
    with figure(width=7.2, height=4.6) as drawn:
        axes = drawn.add_subplot()
        for number, family in enumerate(dict.fromkeys(point.family for point in points)):
            _scatter(axes, [point for point in points if point.family == family], number, label=family)
        best = sorted((point for point in points if point.on_frontier), key=lambda point: point.x)
        for line in dict.fromkeys(point.line for point in best):
            own = [point for point in best if point.line == line]
            axes.plot([p.x for p in own], [p.y for p in own], color="#999999", linewidth=0.8, zorder=1)
        for point in points:
            if point.is_named:
                _name_point(axes, point)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.margins(x=0.3, y=0.1)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        return save_figure(drawn, stem)


def _name_point(axes: Axes, point: Point) -> None:
    """Write to the upper left of a point of the frontier, where nothing lies; below another one."""
    side, offset = ("right", (-5, 4)) if point.on_frontier else ("left", (5, -9))
    place = (point.x, point.y)
    axes.annotate(point.name, place, textcoords="offset points", xytext=offset, ha=side, fontsize=7)


def _scatter(axes: Axes, points: Sequence[Point], number: int, *, label: str) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
    for on_frontier, face in ((False, "none"), (True, colour)):
        chosen = [point for point in points if point.on_frontier is on_frontier]
        axes.scatter(
            [p.x for p in chosen], [p.y for p in chosen], s=26, marker=marker, facecolors=face,
            edgecolors=colour, linewidths=1.0, zorder=2,
        )  # fmt: skip
    axes.scatter([], [], marker=marker, facecolors=colour, edgecolors=colour, s=26, label=label)


@dataclass(frozen=True, slots=True)
class CostSeries:
    """What one kind of setting gives at each chunk budget: costs by name, and quality and fairness."""

    name: str
    costs: Mapping[str, Floats]
    harmonic_mean: Floats
    psi: Floats


def cost_panels(series: Sequence[CostSeries], stem: Path, *, costs: Sequence[str], measure: str) -> Paths:
    """Draw harmonic mean and PSI against each cost, a line a kind of setting over the chunk budgets."""
    with figure(width=2.4 * len(costs) + 1.2, height=5.0) as drawn:
        grid = drawn.subplots(2, len(costs), sharey="row", sharex="col", squeeze=False)
        for column, cost in enumerate(costs):
            for row, figures in enumerate(("harmonic_mean", "psi")):
                axes = grid[row, column]
                for number, one in enumerate(series):
                    axes.plot(
                        one.costs[cost], getattr(one, figures), color=COLOURS[number % len(COLOURS)],
                        marker=_MARKERS[number % len(_MARKERS)], markersize=4, linewidth=1.0, label=one.name,
                    )  # fmt: skip
            grid[1, column].set_xlabel(cost)
        grid[0, 0].set_ylabel(f"harmonic mean of {measure}")
        grid[1, 0].set_ylabel("PSI")
        handles, names = grid[0, 0].get_legend_handles_labels()
        drawn.legend(handles, names, loc="outside lower center", ncols=min(4, len(series)), fontsize=8)
        return save_figure(drawn, stem)
