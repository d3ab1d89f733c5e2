"""From the rows of a sweep to its files: results, table and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.artifacts import SweepFiles, atomic_path, write_json
from pipeline.evaluation.earlier import as_read, read_earlier, set_aside
from pipeline.evaluation.grid import PLAIN
from pipeline.evaluation.plots import (
    CostSeries,
    HeatPanel,
    Point,
    cost_panels,
    frontier_scatter,
    heat_map,
    position_curves,
)
from pipeline.evaluation.statistics import Floats
from pipeline.evaluation.sweep import Row, SweepResult

_CURVES = 5
# Sorts before every budget in tokens: the largest chunks come first.
_NO_BUDGET = 10**9
_FIGURES = _CURVES_FIGURE, _FRONTIER, _HEAT_MAP, _COSTS = "position-curves", "frontier", "heat-map", "costs"
_VECTORS, _BYTES = "vectors a document", "index, MB"
_EMBED, _QUERY = "embedding time, times plain", "query latency, ms"


@dataclass(frozen=True, slots=True)
class Written:
    """What writing a sweep did.

    Attributes:
        figures: paths of the figures.
        earlier: where earlier results of other settings now lie; None if there were none.
    """

    figures: list[Path]
    earlier: Path | None


def write_sweep(
    result: SweepResult, files: SweepFiles, *, tuning: Mapping[str, Any] | None = None
) -> Written:
    """Write results, table and figures; set earlier ones aside if they are of other settings.

    Args:
        result: the sweep.
        files: of the run directory, whose lock is held.
        tuning: the tuning that the sweep is part of, as JSON.
    """
    is_other = _is_other(result, files, tuning)
    earlier = set_aside(files.root, _all_files(files)) if is_other else None
    _forget_earlier(files)
    write_json(files.results, result.as_json())
    with atomic_path(files.table) as temporary:
        pq.write_table(pa.Table.from_pylist(result.as_json()["rows"]), temporary)
    if result.timings:
        write_json(files.timings, {name: asdict(timing) for name, timing in result.timings.items()})
    figures = draw_sweep(result, files)
    if tuning is not None:
        write_json(files.proposals, tuning)
    return Written(figures, earlier)


def _is_other(result: SweepResult, files: SweepFiles, tuning: Mapping[str, Any] | None) -> bool:
    """Whether what lies there holds anything that this sweep does not make again."""
    if _made_from(read_earlier(files.results)) != _made_from(as_read(result.as_json())):
        return True
    if files.timings.exists() and not result.timings:
        return True
    asked, asked_now = (
        [held.get(key) for key in ("limits", "corpus")]
        for held in (read_earlier(files.proposals), as_read(tuning or {}))
    )
    return files.proposals.exists() and asked != asked_now


def _made_from(sweep: Mapping[str, Any]) -> tuple[Any, list[str]]:
    return sweep.get("provenance"), sorted(row["setting"] for row in sweep.get("rows", []))


def _all_files(files: SweepFiles) -> list[Path]:
    plots = files.figure(_FRONTIER).parent
    return [plots, files.timings, files.proposals, files.table, files.results]


def _forget_earlier(files: SweepFiles) -> None:
    """Remove what is made again, and what a sweep that was killed left: it may be of another grid."""
    files.timings.unlink(missing_ok=True)
    for stem in map(files.figure, _FIGURES):
        for path in stem.parent.glob(f"{stem.name}.*"):
            path.unlink()


def draw_sweep(result: SweepResult, files: SweepFiles) -> list[Path]:
    """Draw the figures that the grid allows: a heat map needs calibrated settings, costs several budgets."""
    quality = f"harmonic mean of {result.measure} over positions"
    curves = {row.setting.name: row.summary for row in _worth_a_curve(result)}
    points = sorted(
        (_point(row) for row in result.rows), key=lambda point: (point.family != PLAIN, point.family)
    )
    paths = [
        *position_curves(curves, files.figure(_CURVES_FIGURE), measure=result.measure),
        *frontier_scatter(points, files.figure(_FRONTIER), x_label="PSI (lower is fairer)", y_label=quality),
    ]
    if len(_baskets(result)) * len(_strengths(result)) > 1:
        panels = _heat_panels(result)
        rows = [f"{basket}" for basket in _baskets(result)]
        columns = [f"{strength:g}" for strength in _strengths(result)]
        stem = files.figure(_HEAT_MAP)
        n_across = len({str(row.setting.calibration.layers) for row in _calibrated(result)})
        paths += heat_map(panels, stem, rows=rows, columns=columns, n_across=n_across, label="harmonic mean")
    if len(_budgets(result)) > 1:
        costs = [_VECTORS, _BYTES, *([_EMBED, _QUERY] if result.timings else [])]
        series = [_cost_series(result, arm) for arm in _arms_to_follow(result)]
        paths += cost_panels(series, files.figure(_COSTS), costs=costs, measure=result.measure)
    return paths


def _worth_a_curve(result: SweepResult) -> list[Row]:
    """Plain, and the best settings of the frontier."""
    reference = result.row(result.reference)
    others = [
        row for row in result.rows if row.on_frontier and row is not reference and not row.same_as_plain
    ]
    return [reference, *others[:_CURVES]]


def _point(row: Row) -> Point:
    layers = PLAIN if row.setting.is_plain else f"layers {row.setting.calibration.layers}"
    return Point(
        name=row.setting.name,
        family=layers,
        line=str(row.setting.chunk_tokens),
        x=row.summary.psi.value,
        y=row.summary.harmonic_mean.value,
        on_frontier=row.on_frontier,
        is_named=(row.on_frontier and not row.same_as_plain) or row.setting.is_plain,
    )


def _budget_suffix(budget: int | None) -> str:
    return "" if budget is None else f", {budget} tokens"


def _heat_panels(result: SweepResult) -> list[HeatPanel]:
    """One panel for each choice of chunk budget, mass and layers."""
    panels: dict[tuple[int | None, str, str], Floats] = {}
    baskets, strengths = _baskets(result), _strengths(result)
    for row in _calibrated(result):
        arm = row.setting.calibration
        key = (row.setting.chunk_tokens, str(arm.first_mass), str(arm.layers))
        values = panels.setdefault(key, np.full((len(baskets), len(strengths)), np.nan))
        place = baskets.index(arm.basket_size), strengths.index(arm.strength)
        values[place] = row.summary.harmonic_mean.value
    order = sorted(panels, key=lambda key: (-(key[0] or _NO_BUDGET), key[1], key[2]))
    several_masses = len({mass for _, mass, _ in panels}) > 1
    return [
        HeatPanel(
            f"layers {layers}{f', mass {mass}' if several_masses else ''}{_budget_suffix(budget)}",
            panels[budget, mass, layers],
            _plain(result, budget).summary.harmonic_mean.value,
        )
        for budget, mass, layers in order
    ]


def _cost_series(result: SweepResult, arm: str) -> CostSeries:
    rows = sorted((row for row in result.rows if row.setting.arm == arm), key=lambda row: row.cost.n_vectors)
    figures: dict[str, Callable[[Row], float]] = {
        _VECTORS: lambda row: row.cost.vectors_per_document,
        _BYTES: lambda row: row.cost.index_bytes / 1e6,
        _EMBED: lambda row: row.timing.embed_ratio if row.timing else np.nan,
        _QUERY: lambda row: row.timing.query_ms if row.timing else np.nan,
    }
    costs = {name: np.array([figure(row) for row in rows]) for name, figure in figures.items()}
    quality = np.array([row.summary.harmonic_mean.value for row in rows])
    return CostSeries(arm, costs, quality, np.array([row.summary.psi.value for row in rows]))


def _arms_to_follow(result: SweepResult) -> list[str]:
    """Plain, and of each choice of layers the arm with the best harmonic mean over all budgets."""
    best: dict[str, str] = {}
    for row in _calibrated(result):
        best.setdefault(str(row.setting.calibration.layers), row.setting.arm)
    return [PLAIN, *(best[layers] for layers in sorted(best))]


def _calibrated(result: SweepResult) -> list[Row]:
    return [row for row in result.rows if not row.setting.is_plain]


def _plain(result: SweepResult, budget: int | None) -> Row:
    return next(row for row in result.rows if row.setting.is_plain and row.setting.chunk_tokens == budget)


def _baskets(result: SweepResult) -> list[int]:
    return sorted({row.setting.calibration.basket_size for row in _calibrated(result)})


def _strengths(result: SweepResult) -> list[float]:
    return sorted({row.setting.calibration.strength for row in _calibrated(result)})


def _budgets(result: SweepResult) -> set[int | None]:
    return {row.setting.chunk_tokens for row in result.rows}
