"""What people see of an evaluation: tables by position group, and what keeps them from being believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.cli.inspection_report import size
from pipeline.cli.report import console, shown
from pipeline.config import Config
from pipeline.evaluation.evaluate import Evaluation
from pipeline.evaluation.results import Comparison, EvaluationResult, SystemResult
from pipeline.evaluation.statistics import ArmComparison, Difference, Estimate, GroupSummary


def evaluation_as_json(run: str, evaluation: Evaluation) -> dict[str, Any]:
    """The result and what it took, for machines."""
    return {
        "run": run,
        "this_time": {
            "vectors_made": dict(evaluation.made),
            "tokens": evaluation.tokens,
            "embed_seconds": round(evaluation.embed_seconds, 3),
            "score_seconds": round(evaluation.score_seconds, 3),
            "earlier": str(evaluation.earlier) if evaluation.earlier is not None else None,
        },
        **evaluation.result.as_json(),
    }


def print_evaluation(config: Config, evaluation: Evaluation) -> None:
    """Print everything that a reader needs to believe the figures, or not to."""
    out, result = console(), evaluation.result
    for name, text in _facts(config, evaluation):
        out.print(f"{name:<8}{shown(text)}")
    _print_groups(out, result, f"nDCG@{result.k}", lambda system: system.main)
    _print_comparisons(out, result.comparisons, lambda comparison: comparison.difference)
    if result.systems[0].untruncated is not None:
        out.print("\nonly questions whose gold document was embedded whole", style="bold")
        _print_groups(out, result, f"nDCG@{result.k}", lambda system: system.untruncated, overall=False)
        _print_comparisons(out, result.comparisons, lambda comparison: comparison.untruncated)
    _print_lengths(out, result)
    out.print(_footer(result), style="dim")
    for warning in result.warnings:
        out.print(f"note: {shown(warning)}", style="yellow")
    out.print(f"\nrun directory: {config.run}")
    print_earlier(out, evaluation.earlier)


def print_earlier(out: Console, earlier: Path | None) -> None:
    """Say where results went that lay in the run directory and are of other settings."""
    if earlier is not None:
        out.print(f"earlier results, of other settings: {shown(earlier.as_posix())}", soft_wrap=True)


def _footer(result: EvaluationResult) -> str:
    """How to read intervals and p-values."""
    parts = ["95 % intervals"]
    if result.comparisons:
        parts.append("p of differences adjusted over groups by Holm")
    if result.comparisons and len(result.data.group_names) > 1:
        # See `compare_arms`: its ends allow for a PSI that is all chance, which the test need not.
        parts.append("the interval of a PSI difference is wide on purpose and may hold 0 though p is small")
    return f"({'; '.join(parts)})"


def _facts(config: Config, evaluation: Evaluation) -> list[tuple[str, str]]:
    data, cost = evaluation.result.data, evaluation.result.cost
    indexes = f"{data.n_indexes} indexes" if data.n_indexes > 1 else "one index"
    pairing = "the same questions in every group" if data.is_paired else "other questions in each group"
    facts = [
        (
            "data",
            f"{data.name} ({data.layout}, {data.protocol}), {data.n_documents:,} documents in {indexes}",
        ),
        ("", f"{data.n_queries:,} questions in {data.n_clusters:,} independent clusters, {pairing}"),
        ("model", f"{config.model.name}; {_cutting(config, evaluation.result)}"),
        (
            "index",
            f"{cost.n_vectors:,} vectors an arm, {cost.vectors_per_document:.1f} a document, "
            f"{size(cost.index_bytes)}",
        ),
        ("time", _times(evaluation)),
    ]
    if data.left_out:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in data.left_out.items())
        facts.append(("left out", f" {counts}"))
    return facts


def _cutting(config: Config, result: EvaluationResult) -> str:
    settings = config.evaluate
    if settings.chunk_tokens is not None:
        return f"documents by their best chunk of at most {settings.chunk_tokens:,} tokens"
    if settings.long_documents == "chunk":
        return f"documents by their best chunk of at most {result.documents['longest_chunk']:,} tokens"
    if result.documents["cut"]:
        return f"whole documents, {result.documents['cut']:,} of them cut at the model's limit"
    return "whole documents, none of them cut"


def _times(evaluation: Evaluation) -> str:
    made = sum(evaluation.made.values())
    embedding = f"{made:,} vectors made in {evaluation.embed_seconds:.1f} s" if made else "nothing to embed"
    return f"{embedding}; search, measures and statistics {evaluation.score_seconds:.1f} s"


def _print_groups(
    out: Console,
    result: EvaluationResult,
    title: str,
    of: Callable[[SystemResult], GroupSummary | None],
    *,
    overall: bool = True,
) -> None:
    """Print groups as rows and systems as columns."""
    summaries = [(system, summary) for system in result.systems if (summary := of(system)) is not None]
    table = _table(title, ["questions", *(system.name for system, _ in summaries)])
    first = summaries[0][1]
    for number, name in enumerate(first.names):
        cells = [_estimate(summary.means[number]) for _, summary in summaries]
        table.add_row(name, f"{first.counts[number]:,}", *cells)
    if len(first.names) > 1:
        table.add_row("harmonic mean", "", *(_estimate(summary.harmonic_mean) for _, summary in summaries))
        table.add_row("PSI", "", *(_estimate(summary.psi) for _, summary in summaries), style="bold")
        table.add_row("  by chance", "", *(_chance(summary) for _, summary in summaries))
        table.add_row("  p", "", *(_p_value(summary.psi_test.p_value) for _, summary in summaries))
    if overall:
        for measure in list(result.systems[0].overall)[1:]:
            table.add_row(measure, "", *(_decimal(system.overall[measure]) for system, _ in summaries))
    out.print()
    out.print(table)


def _print_comparisons(
    out: Console,
    comparisons: Sequence[Comparison],
    of: Callable[[Comparison], ArmComparison | None],
) -> None:
    found = [
        (comparison, difference) for comparison in comparisons if (difference := of(comparison)) is not None
    ]
    if not found:
        return
    table = _table(f"less {found[0][0].reference}", [comparison.system for comparison, _ in found])
    names = found[0][1].names
    for number, name in enumerate(names):
        table.add_row(name, *(_difference(difference.groups[number]) for _, difference in found))
    if len(names) > 1:
        table.add_row("harmonic mean", *(_difference(difference.harmonic_mean) for _, difference in found))
        table.add_row("PSI", *(_difference(difference.psi) for _, difference in found), style="bold")
    out.print()
    out.print(table)


def _print_lengths(out: Console, result: EvaluationResult) -> None:
    """Print PSI by length of the gold document, where there is more than one length class."""
    classes = [length.name for length in result.systems[0].by_length]
    if len(classes) < 2 or not result.systems[0].main.names[1:]:
        return
    table = _table("tokens of the gold document", ["questions", *(system.name for system in result.systems)])
    for number, name in enumerate(classes):
        summaries = [system.by_length[number].summary for system in result.systems]
        means = (_estimate(summary.harmonic_mean) for summary in summaries)
        table.add_row(f"{name}, harmonic mean", f"{sum(summaries[0].counts):,}", *means)
        table.add_row("  PSI", "", *(_estimate(summary.psi) for summary in summaries))
        table.add_row("  by chance", "", *(_chance(summary) for summary in summaries))
    out.print()
    out.print(table)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _estimate(estimate: Estimate) -> str:
    return f"{_decimal(estimate.value)} {_decimal(estimate.low)}-{_decimal(estimate.high)}"


def _difference(difference: Difference) -> str:
    value = f"{_signed(difference.value)} {_signed(difference.low)} to {_signed(difference.high)}"
    return f"{value}, p {_p_value(difference.p_holm)}"


def _chance(summary: GroupSummary) -> str:
    return f"{_decimal(summary.psi_test.chance)} <{_decimal(summary.psi_test.chance_high)}"


def _decimal(value: float) -> str:
    """Three places, without the zero before the point."""
    text = f"{value:.3f}"
    return text.removeprefix("0") if value < 1 else text


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{_decimal(abs(value))}"


def _p_value(value: float) -> str:
    return "<.0001" if value < 0.0001 else f"{value:.4f}".removeprefix("0")
