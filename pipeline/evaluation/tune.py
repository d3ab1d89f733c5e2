"""Propose a setting for a corpus without labels, from pseudo-queries, and say how sure that is.

The settings are measured on queries drawn from known places of the corpus itself
(`pipeline.evaluation.pseudo_queries` says what these can show and what not). So that no noise is picked, a
setting is chosen on one half of the passages and its effect is estimated on the other; it is proposed only if
the interval there supports it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.artifacts import RunLayout
from pipeline.config import Config
from pipeline.errors import UsageError
from pipeline.evaluation.datasets.records import EvaluationSet
from pipeline.evaluation.grid import Grid
from pipeline.evaluation.proposing import Mask, Proposal, propose
from pipeline.evaluation.pseudo_corpus import Survey
from pipeline.evaluation.pseudo_queries import pseudo_set
from pipeline.evaluation.scoring import design_of
from pipeline.evaluation.statistics import Design
from pipeline.evaluation.sweep import SweepResult, check_masses, score_settings, sweep_rows
from pipeline.reporting import Reporter

# Queries should be hard enough that plain leaves room for better and for worse, and no harder.
QUERY_WORDS = (8, 6, 5, 4, 3)
EASY = 0.85


@dataclass(frozen=True, slots=True)
class Limits:
    """What the user can pay for; None is no limit.

    Attributes:
        max_vectors: per document of the corpus, on average.
        max_bytes: of an exact index of the whole corpus.
    """

    max_vectors: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TuneResult:
    """What tuning found.

    Attributes:
        survey: of the corpus and the sample.
        n_words: of a pseudo-query.
        limits: what a proposal may cost.
        sweep: all settings on the whole sample.
        proposals: one a question.
    """

    survey: Survey
    n_words: int
    limits: Limits
    sweep: SweepResult
    proposals: tuple[Proposal, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return {
            "corpus": self.survey.as_json(),
            "query_words": self.n_words,
            "limits": asdict(self.limits),
            "proposals": [proposal.as_json() for proposal in self.proposals],
            "sweep": self.sweep.as_json(),
        }


def tune(
    survey: Survey,
    config: Config,
    grid: Grid,
    layout: RunLayout,
    reporter: Reporter,
    *,
    limits: Limits,
    timing: bool = False,
) -> TuneResult:
    """Measure the grid on pseudo-queries and propose a setting; hold the run's lock for it.

    Args:
        survey: the corpus, its size at each chunk budget, and the sampled passages.
        config: the model and how it is measured; its own arms are not used.
        grid: what to combine; its first chunk budget is what proposals are compared with.
        layout: the run directory, where vectors are kept.
        reporter: shows progress.
        limits: what the proposal may cost.
        timing: measure embedding time and query latency as well.

    Raises:
        DataError: the corpus gives too few passages, or the model cannot be used.
        UsageError: no chunk budget lies within the limits.
    """
    affordable = [budget for budget in grid.chunk_tokens if _is_affordable(survey, budget, limits)]
    if not affordable:
        raise UsageError(_too_dear(survey, grid, limits))
    check_masses(grid, config, reporter)
    data, n_words = _hard_enough(survey, config, grid, layout, reporter)
    scored = score_settings(data, config, grid, layout, reporter)
    design = design_of(data.queries, data.group_names)
    chosen_on = _half(design, config.evaluate.seed)
    questions = {"calibration alone, chunks as they are": [grid.chunk_tokens[0]]}
    if len(grid.chunk_tokens) > 1:
        questions["calibration and chunk size, within the limits"] = affordable
    proposals = tuple(
        propose(
            question,
            [one for one in scored if one.setting.chunk_tokens in budgets],
            scored[0],
            design,
            chosen_on,
            rounds=config.evaluate.rounds,
            seed=config.evaluate.seed,
        )
        for question, budgets in questions.items()
    )
    sweep = sweep_rows(scored, data, config, reporter, timing=timing)
    return TuneResult(survey, n_words, limits, sweep, proposals)


def _half(design: Design, seed: int) -> Mask:
    """A random half of the clusters, as a mask of their queries."""
    order = np.random.default_rng(seed).permutation(design.n_clusters)
    chosen = np.zeros(design.n_clusters, dtype=bool)
    chosen[order[: design.n_clusters // 2]] = True
    return np.asarray(chosen[design.clusters])


def _hard_enough(
    survey: Survey, config: Config, grid: Grid, layout: RunLayout, reporter: Reporter
) -> tuple[EvaluationSet, int]:
    """The first set, from easy to hard, in which plain misses enough; calibration has no say in it."""
    only_plain = Grid(strengths=(0.0,), chunk_tokens=grid.chunk_tokens[:1])
    for n_words in QUERY_WORDS:
        data = pseudo_set(survey.passages, name=survey.source, n_words=n_words)
        (plain,) = score_settings(data, config, only_plain, layout, reporter)
        if plain.values.mean() <= EASY:
            break
    return data, n_words


def _is_affordable(survey: Survey, budget: int | None, limits: Limits) -> bool:
    size = survey.sizes[budget]
    return (limits.max_vectors is None or size.vectors_per_document <= limits.max_vectors) and (
        limits.max_bytes is None or size.index_bytes <= limits.max_bytes
    )


def _too_dear(survey: Survey, grid: Grid, limits: Limits) -> str:
    size = min((survey.sizes[budget] for budget in grid.chunk_tokens), key=lambda size: size.n_vectors)
    asked = " and ".join(
        text
        for limit, text in (
            (limits.max_vectors, f"{limits.max_vectors} vectors a document"),
            (limits.max_bytes, f"{limits.max_bytes} bytes"),
        )
        if limit is not None
    )
    return (
        f"at most {asked} were asked for, but the largest chunks already make "
        f"{size.vectors_per_document:.2f} vectors a document and {size.index_bytes:,} bytes; raise the limit"
    )
