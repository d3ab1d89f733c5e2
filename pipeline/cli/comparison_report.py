"""A comparison over a query file on the terminal, and as a summary for machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.ab.comparing import QueryAnswer
from pipeline.ab.comparison_files import ComparisonFolder
from pipeline.ab.moves import Move, Third, change
from pipeline.ab.totals import Totals, most_changed, query_row
from pipeline.ab.verdict import Verdict
from pipeline.cli.comparison_sources import Source
from pipeline.cli.report import console, shown

_QUERIES_SHOWN = 10
_QUERY_WIDTH = 56


def summary(
    source: Source, queries: Path, answers: Sequence[QueryAnswer], totals: Sequence[Totals]
) -> dict[str, Any]:
    """Everything but the single documents, which are in the rows."""
    return {
        "compared": source.name,
        "queries_file": str(queries),
        "notes": list(source.notes),
        "comparisons": [figures.as_json() for figures in totals],
        "queries": [
            query_row(answer, arm) for arm in range(len(totals)) for answer in most_changed(answers, arm)
        ],
    }


def print_comparison(
    source: Source,
    answers: Sequence[QueryAnswer],
    totals: Sequence[Totals],
    folder: ComparisonFolder,
    *,
    has_report: bool,
) -> None:
    """Print the totals of each comparison, its most-changed queries, and where the rest lies."""
    out = console()
    out.print(Text(source.name, style="dim"))
    for note in source.notes:
        out.print(f"note: {shown(note)}", style="yellow")
    for arm, figures in enumerate(totals):
        _print_totals(out, figures)
        _print_most_changed(out, answers, arm)
    out.print(f"\nresults: {folder.root}")
    if has_report:
        out.print(f"look at: {folder.report}")


def _print_totals(out: Console, totals: Totals) -> None:
    title = f"\n{totals.reference_arm} against {totals.other_arm}"
    out.print(Text(shown(title), style="bold"))
    out.print(
        f"{totals.n_queries:,} queries, {totals.n_changed:,} changed in the top {totals.k}; mean RBO "
        f"{totals.rbo:.3f}, Jaccard {totals.jaccard:.3f}"
        + ("" if totals.kendall_tau is None else f", Kendall tau {totals.kendall_tau:.3f}")
    )
    out.print()
    out.print(_moves_table(totals))
    if totals.has_evidence:
        net = ", ".join(f"{third} {totals.net(third):+d}" for third in Third)
        out.print(f"net effect (surfaced less left) by place of the evidence in its chunk: {net}")
    if totals.gold:
        out.print()
        out.print(_gold_table(totals))
    if totals.latency:
        times = ", ".join(
            f"{totals.step_words(step)} {1000 * latency.p50:.0f} ms ({1000 * latency.p95:.0f})"
            for step, latency in totals.latency.items()
        )
        out.print(f"\ntime for one query, median (95th percentile): {times}")


def _moves_table(totals: Totals) -> Table:
    verdicts = list(Verdict) if totals.has_verdicts else []
    thirds = list(Third) if totals.has_evidence else []
    table = _table("documents that", "all", *verdicts, *thirds, "no evidence")
    for move in Move:
        cells = [totals.count(move)]
        cells += [totals.count(move, verdict=verdict) for verdict in verdicts]
        cells += [totals.count(move, third=third) for third in thirds]
        table.add_row(str(move), *(str(cell) for cell in (*cells, totals.unplaced(move))))
    return table


def _gold_table(totals: Totals) -> Table:
    table = _table("gold answer", "queries", *(f"MRR {shown(arm)}" for arm in totals.gold))
    for arm in totals.gold:
        table.add_column(f"top {totals.k} {shown(arm)}", justify="right")
    first = totals.gold[totals.reference_arm]
    for name, figures in first.items():
        groups = [of_arm[name] for of_arm in totals.gold.values()]
        found = [f"{group.mrr:.3f}" for group in groups] + [str(group.in_top) for group in groups]
        table.add_row(name, str(figures.n_queries), *found)
    return table


def _print_most_changed(out: Console, answers: Sequence[QueryAnswer], arm: int) -> None:
    changed = [answer for answer in most_changed(answers, arm) if change(answer.comparisons[arm])]
    if not changed:
        return
    out.print("\nmost-changed queries")
    table = _table("change", "surfaced", "late answer", "left", "early answer")
    table.columns[0].justify = "right"
    table.add_column("id", overflow="fold", max_width=20)
    table.add_column("query", overflow="ellipsis", no_wrap=True, max_width=_QUERY_WIDTH)
    for answer in changed[:_QUERIES_SHOWN]:
        row = query_row(answer, arm)
        counts = (row["surfaced"], row["surfaced_by_late_answers"], row["left"], row["lost_early_answers"])
        name, text = shown(answer.query.query_id), shown(" ".join(answer.query.text.split()))
        cells = ("\u2013" if count is None else str(count) for count in counts)
        table.add_row(f"{row['change']:.2f}", *cells, name, text)
    out.print(table)
    if len(changed) > _QUERIES_SHOWN:
        out.print(f"… {len(changed) - _QUERIES_SHOWN:,} more queries changed", style="dim")


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in numbers:
        table.add_column(str(name), justify="right")
    return table
