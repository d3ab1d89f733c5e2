"""A grid of calibrations and chunk budgets measured on one labelled set, everything shared that can be.

Settings with the same chunk budget and the same calibrated layers go through the model together, so that the
layers below are run once; strengths of causal models cost one more row each. Vectors are kept by content in
the run directory: a killed sweep goes on where it stopped, and a larger grid embeds only what is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.artifacts import RunLayout
from pipeline.config import Config
from pipeline.embedding import ShardStore
from pipeline.encoders import Calibration
from pipeline.errors import UsageError
from pipeline.evaluation.costs import Timing, embed_ratios, query_milliseconds
from pipeline.evaluation.datasets.records import EvaluationSet
from pipeline.evaluation.evaluate import provenance, score_arm
from pipeline.evaluation.frontier import pareto
from pipeline.evaluation.grid import PLAIN, Grid, Setting, only_plain, passes
from pipeline.evaluation.results import Cost
from pipeline.evaluation.scoring import design_of, set_warnings
from pipeline.evaluation.statistics import (
    ArmComparison,
    Design,
    Floats,
    GroupSummary,
    compare_arms,
    summarise,
)
from pipeline.evaluation.vectors import embed_set, have_same_vectors
from pipeline.reporting import Reporter
from pipeline.run_model import RunModel


@dataclass(frozen=True, slots=True)
class Scored:
    """One setting, measured.

    Attributes:
        values: (n_queries,), nDCG@k of each query in the order of the set.
        cost: vectors that the setting's chunk budget makes.
        n_cut: documents whose end is not embedded.
        same_as_plain: it is calibrated, but makes the vectors of plain with the same chunk budget.
    """

    setting: Setting
    values: Floats
    cost: Cost
    n_cut: int
    same_as_plain: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One setting of a sweep.

    Attributes:
        summary: its table by position.
        gain: against plain with the largest chunk budget; None for that itself.
        on_frontier: no other setting is at least as good in harmonic mean, PSI and number of vectors, and
            better in one of them.
        timing: what it takes; None where nothing was timed.
        same_as_plain: it is calibrated, but makes the vectors of plain with the same chunk budget.
    """

    setting: Setting
    cost: Cost
    n_cut: int
    summary: GroupSummary
    gain: ArmComparison | None
    on_frontier: bool
    timing: Timing | None
    same_as_plain: bool

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines: one flat row."""
        arm, summary = self.setting.calibration, self.summary
        return {
            "setting": self.setting.name,
            "strength": arm.strength,
            "basket_size": None if self.setting.is_plain else arm.basket_size,
            "layers": None if self.setting.is_plain else str(arm.layers),
            "mass": None if self.setting.is_plain else str(arm.first_mass),
            "chunk_tokens": self.setting.chunk_tokens,
            **{f"mean_{name}": m.value for name, m in zip(summary.names, summary.means, strict=True)},
            "harmonic_mean": summary.harmonic_mean.value,
            "harmonic_mean_low": summary.harmonic_mean.low,
            "harmonic_mean_high": summary.harmonic_mean.high,
            "psi": summary.psi.value,
            "psi_low": summary.psi.low,
            "psi_high": summary.psi.high,
            "psi_chance": summary.psi_test.chance,
            "psi_p_value": summary.psi_test.p_value,
            **_gain_as_json(self.gain),
            "on_frontier": self.on_frontier,
            "same_as_plain": self.same_as_plain,
            "documents": self.cost.n_documents,
            "documents_cut": self.n_cut,
            "vectors": self.cost.n_vectors,
            "vectors_per_document": self.cost.vectors_per_document,
            "index_bytes": self.cost.index_bytes,
        }


def _gain_as_json(gain: ArmComparison | None) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for name in ("harmonic_mean", "psi"):
        difference = getattr(gain, name) if gain is not None else None
        for part, field in (("gain", "value"), ("gain_low", "low"), ("gain_high", "high"), ("p", "p_value")):
            figures[f"{name}_{part}"] = getattr(difference, field) if difference is not None else None
    return figures


@dataclass(frozen=True, slots=True)
class SweepResult:
    """All settings of a sweep on one set, by descending harmonic mean.

    Attributes:
        measure: what the means are of, such as `nDCG@10`.
        rows: one a setting.
        reference: the name of the setting that gains are counted from.
        provenance: data and model by content, settings, seed and versions.
        notes: what keeps the figures from being believed.
    """

    data: str
    measure: str
    n_queries: int
    rows: tuple[Row, ...]
    reference: str
    provenance: Mapping[str, Any]
    notes: tuple[str, ...]

    def row(self, name: str) -> Row:
        """The row of a setting by its name."""
        return next(row for row in self.rows if row.setting.name == name)

    @property
    def timings(self) -> dict[str, Timing]:
        """By setting; apart from the rest, because times differ from run to run."""
        return {row.setting.name: row.timing for row in self.rows if row.timing is not None}

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return {
            "data": self.data,
            "measure": self.measure,
            "queries": self.n_queries,
            "reference": self.reference,
            "rows": [row.as_json() for row in self.rows],
            "provenance": self.provenance,
            "notes": list(self.notes),
        }


def run_sweep(
    data: EvaluationSet,
    config: Config,
    grid: Grid,
    layout: RunLayout,
    reporter: Reporter,
    *,
    timing: bool = True,
) -> SweepResult:
    """Measure every setting of a grid on a set; hold the run's lock for it.

    Args:
        data: the labelled set.
        config: the model and how it is measured (`evaluate`); its own arms are not used.
        grid: what to combine.
        layout: the run directory, where vectors are kept.
        reporter: shows progress.
        timing: measure embedding time and query latency as well.

    Raises:
        DataError: the set or the model cannot be used.
        UsageError: a setting does not fit the model.
    """
    check_masses(grid, config, reporter)
    scored = score_settings(data, config, grid, layout, reporter)
    return sweep_rows(scored, data, config, reporter, timing=timing)


def check_masses(grid: Grid, config: Config, reporter: Reporter) -> None:
    """Refuse to vary what the model has not, since the rows would only repeat each other.

    Raises:
        UsageError: masses of isolated special tokens are given, but none is isolated.
    """
    if set(grid.masses) == {"equal"}:
        return
    pooling = RunModel(only_plain(config), reporter).encoder.pooling
    geometry = Calibration().geometry(pooling)
    if not (geometry.isolate_first or geometry.isolate_last):
        raise UsageError(
            f"--mass: {config.model.name} pools by the mean, so that no special token is isolated and a mass "
            "changes nothing; leave --mass out"
        )


def sweep_rows(
    scored: Sequence[Scored], data: EvaluationSet, config: Config, reporter: Reporter, *, timing: bool
) -> SweepResult:
    """Sum up what was measured; gains are counted from the first setting."""
    timings = _timings(scored, data, config, reporter) if timing else {}
    arms = {one.setting.arm: one.setting.calibration for one in scored}
    swept = config.model_copy(update={"arms": arms})
    design = design_of(data.queries, data.group_names)
    rows = _rows(scored, design, timings, config)
    reference = scored[0].setting.name
    measure = f"nDCG@{config.evaluate.k}"
    made_from = provenance(data, swept, RunModel(swept, reporter))
    notes = tuple(set_warnings(data, design))
    return SweepResult(data.name, measure, len(data.queries), tuple(rows), reference, made_from, notes)


def score_settings(
    data: EvaluationSet, config: Config, grid: Grid, layout: RunLayout, reporter: Reporter
) -> list[Scored]:
    """Measure nDCG@k of each query under every setting, in the order of the grid."""
    scored: list[Scored] = []
    for budget in grid.chunk_tokens:
        stores: dict[str, ShardStore] = {}
        for arms in passes(grid.arms()):
            changed = config.evaluate.model_copy(update={"chunk_tokens": budget})
            part = config.model_copy(update={"arms": arms, "evaluate": changed})
            embedded = embed_set(data, part, layout, reporter)
            cost = Cost(embedded.rows.n_rows, data.n_documents, embedded.dimension)
            stores.update(embedded.stores)
            for name, arm in arms.items():
                values = score_arm(data, embedded, name, k=config.evaluate.k).ndcg
                same = name != PLAIN and have_same_vectors(stores[name], stores[PLAIN], embedded.keys)
                scored.append(Scored(Setting(name, arm, budget), values, cost, embedded.counts["cut"], same))
    return scored


def _rows(
    scored: Sequence[Scored], design: Design, timings: Mapping[str, Timing], config: Config
) -> list[Row]:
    rounds, seed = config.evaluate.rounds, config.evaluate.seed
    reference = scored[0]
    summaries = [summarise(one.values, design, rounds=rounds, seed=seed) for one in scored]
    figures = [
        (summary.harmonic_mean.value, summary.psi.value, one.cost.n_vectors)
        for one, summary in zip(scored, summaries, strict=True)
    ]
    best = pareto(np.array(figures), higher_is_better=(True, False, False))
    rows = [
        Row(
            one.setting,
            one.cost,
            one.n_cut,
            summary,
            None
            if one is reference
            else compare_arms(one.values, reference.values, design, rounds=rounds, seed=seed),
            bool(on_frontier),
            timings.get(one.setting.name),
            one.same_as_plain,
        )
        for one, summary, on_frontier in zip(scored, summaries, best, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row.summary.harmonic_mean.value, row.setting.name))


def _timings(
    scored: Sequence[Scored], data: EvaluationSet, config: Config, reporter: Reporter
) -> dict[str, Timing]:
    """Time each kind of setting; baskets and strengths cost the same."""
    sizes = {one.setting.chunk_tokens: one.cost for one in scored}
    ratios = embed_ratios([one.setting for one in scored], data, config, reporter)
    milliseconds = query_milliseconds({budget: (c.n_vectors, c.dimension) for budget, c in sizes.items()})
    return {
        one.setting.name: Timing(ratios[one.setting.name], milliseconds[one.setting.chunk_tokens])
        for one in scored
    }
