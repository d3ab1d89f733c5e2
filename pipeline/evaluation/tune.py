"""Propose a setting for a corpus without labels, from pseudo-queries, and say how sure that is.

The settings are measured on queries drawn from known places of the corpus itself
(`pipeline.evaluation.pseudo_queries` says what these can show and what not). So that no noise is picked, a
setting is chosen on one half of the passages and its effect is estimated on the other; it is proposed only if
the interval there supports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.artifacts import RunLayout
from pipeline.config import Config
from pipeline.errors import UsageError
from pipeline.evaluation.datasets.records import EvaluationSet
from pipeline.evaluation.grid import Grid, Setting
from pipeline.evaluation.pseudo_corpus import Survey
from pipeline.evaluation.pseudo_queries import pseudo_set
from pipeline.evaluation.scoring import design_of
from pipeline.evaluation.statistics import (
    ArmComparison,
    Design,
    GroupSummary,
    compare_arms,
    harmonic_mean,
    position_sensitivity,
    summarise,
)
from pipeline.evaluation.sweep import Scored, SweepResult, check_masses, score_settings, sweep_rows
from pipeline.reporting import Reporter

# Queries should be hard enough that plain leaves room for better and for worse, and no harder.
QUERY_WORDS = (8, 6, 5, 4, 3)
EASY = 0.85
# Where PSI is surely lower, a harmonic mean that is surely not lower by this much counts as no loss.
TOLERATED_LOSS = 0.02
_SELECTION_ROUNDS = 1_000
_Mask = NDArray[np.bool_]


class Advice(StrEnum):
    """What to do, in one word for machines."""

    CALIBRATE = "calibrate"
    CUT = "cut smaller"
    BOTH = "cut smaller and calibrate"
    LEAVE = "leave as it is"


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
class Proposal:
    """The answer to one question, such as which setting is best within the limits.

    Attributes:
        question: what was asked.
        advice: what to do.
        setting: the setting that won the selection, proposed unless the advice is to leave things.
        summary: its table by position on the held-out half.
        reference: that of plain with the largest chunks.
        gain: expected effect against that, on the held-out half.
        why: the rule that decided, in words.
    """

    question: str
    advice: Advice
    setting: Setting
    summary: GroupSummary
    reference: GroupSummary
    gain: ArmComparison | None
    why: str

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return {
            "question": self.question,
            "advice": str(self.advice),
            "setting": self.setting.name,
            "calibration": self.setting.calibration.model_dump(mode="json"),
            "chunk_tokens": self.setting.chunk_tokens,
            "why": self.why,
            "expected": asdict(self.summary),
            "now": asdict(self.reference),
            "gain": asdict(self.gain) if self.gain is not None else None,
        }


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


def propose(
    question: str,
    candidates: Sequence[Scored],
    reference: Scored,
    design: Design,
    chosen_on: _Mask,
    *,
    rounds: int,
    seed: int,
) -> Proposal:
    """Choose a setting on some queries and decide about it on the others.

    Args:
        question: what is asked.
        candidates: settings to choose from.
        reference: what is done now: plain with the largest chunks.
        design: of all queries.
        chosen_on: (n_queries,), the queries to choose on; the others decide.
        rounds: of bootstrap and permutation.
        seed: of these.
    """
    best = _choose(candidates, design.select(chosen_on), chosen_on, seed)
    held_out = design.select(~chosen_on)
    summary, now = (
        summarise(one.values[~chosen_on], held_out, rounds=rounds, seed=seed) for one in (best, reference)
    )
    if best.setting == reference.setting:
        why = "no setting did better on the half of the passages that is chosen on"
        return Proposal(question, Advice.LEAVE, best.setting, summary, now, None, why)
    gain = compare_arms(
        best.values[~chosen_on], reference.values[~chosen_on], held_out, rounds=rounds, seed=seed
    )
    is_worth_it, why = _verdict(gain)
    advice = _advice(best.setting, reference.setting) if is_worth_it else Advice.LEAVE
    return Proposal(question, advice, best.setting, summary, now, gain, why)


def _choose(candidates: Sequence[Scored], design: Design, queries: _Mask, seed: int) -> Scored:
    """Of the settings within one standard error of the best harmonic mean, take the one with least PSI."""
    means = [design.means(one.values[queries]) for one in candidates]
    best = max(range(len(candidates)), key=lambda i: (float(harmonic_mean(means[i])), -i))
    within = [
        i
        for i, one in enumerate(candidates)
        if i == best or _is_within_one_error(one, candidates[best], design, queries, seed)
    ]
    chosen = min(
        within, key=lambda i: (float(position_sensitivity(means[i])), candidates[i].cost.n_vectors, i)
    )
    return candidates[chosen]


def _is_within_one_error(one: Scored, best: Scored, design: Design, queries: _Mask, seed: int) -> bool:
    from pipeline.evaluation.bootstrap import difference_intervals

    *_, overall, _ = difference_intervals(
        one.values[queries], best.values[queries], design, rounds=_SELECTION_ROUNDS, seed=seed, level=0.6827
    )
    return overall.high >= 0.0


def _verdict(gain: ArmComparison) -> tuple[bool, str]:
    overall, psi = gain.harmonic_mean, gain.psi
    if overall.low > 0:
        return True, "the harmonic mean is surely higher on the half that was held out"
    if psi.high < 0 and overall.low > -TOLERATED_LOSS:
        return True, f"PSI is surely lower, and the harmonic mean surely not lower by {TOLERATED_LOSS}"
    if psi.high < 0:
        loss = f"the harmonic mean may be lower by more than {TOLERATED_LOSS}"
        return False, f"PSI is surely lower, but {loss}; more --passages would tell"
    return False, "the half that was held out does not confirm a gain"


def _advice(setting: Setting, reference: Setting) -> Advice:
    if setting.chunk_tokens == reference.chunk_tokens:
        return Advice.CALIBRATE
    return Advice.CUT if setting.is_plain else Advice.BOTH


def _half(design: Design, seed: int) -> _Mask:
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
