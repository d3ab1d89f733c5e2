"""What people see of runs and builds: the closing summary, what was skipped, what was built."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.cli.report import console, shown, size
from pipeline.cli.runs import is_default_run
from pipeline.housekeeping import BuildSummary
from pipeline.plan import ReembedPlan
from pipeline.stages import Stage, StageResult

_SKIPS_SHOWN = 10


def run_as_json(run: Path, results: Sequence[StageResult], plan: ReembedPlan | None = None) -> dict[str, Any]:
    """The summary of a run for machines."""
    stages = [
        {
            "stage": str(result.stage),
            "changed": result.changed,
            "seconds": round(result.seconds, 3),
            **result.figures,
            "notes": list(result.notes),
        }
        for result in results
    ]
    return {
        "run": str(run),
        "changed": any(result.changed for result in results),
        "plan": plan.as_json() if plan is not None else None,
        "stages": stages,
    }


def print_run(run: Path, results: Sequence[StageResult]) -> None:
    """The closing summary of a run: what each stage holds, what it did, and how long it took."""
    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("stage", "holds", "this time"):
        table.add_column(heading)
    table.add_column("seconds", justify="right")
    for result in results:
        table.add_row(str(result.stage), _holds(result), _this_time(result), f"{result.seconds:.1f}")
    out.print(table)
    for result in results:
        for note in result.notes:
            out.print(f"note: {note}")
        figures = result.figures
        print_skips(out, str(result.stage), figures.get("skipped", {}), figures.get("skipped_records", []))
    if any(result.changed for result in results):
        out.print(f"\nrun directory: {run}")
    else:
        out.print(f"\nnothing to do: {run} is up to date")
    if results[-1].stage is Stage.INDEX:
        named = "" if is_default_run(run) else f"--run {shlex.quote(str(run))} "
        out.print(f'next: lastpage query {named}"your question"')


def _holds(result: StageResult) -> str:
    figures = result.figures
    match result.stage:
        case Stage.CORPUS:
            sizes = f"{figures['documents']:,} documents, {figures['characters']:,} characters"
            return f"{sizes} ({figures['source']})"
        case Stage.CHUNK:
            sizes = f"{figures['chunks']:,} chunks, {figures['tokens']:,} tokens"
            return f"{sizes}, at most {figures['longest_chunk']} in one"
        case Stage.EMBED:
            totals = {
                arm: made + figures["vectors_reused"][arm] for arm, made in figures["vectors_made"].items()
            }
            return ", ".join(f"{total:,} vectors {arm}" for arm, total in totals.items())
        case Stage.INDEX:
            return f"build {figures['build']}"


def _this_time(result: StageResult) -> str:
    if not result.changed:
        return "unchanged"
    if result.stage is not Stage.EMBED:
        return "made"
    made = result.figures["vectors_made"]
    rate = result.figures["tokens"] / max(result.seconds, 1e-9)
    return ", ".join(f"{count:,} {arm}" for arm, count in made.items()) + f" ({rate:,.0f} tokens/s)"


def print_skips(
    out: Console, stage: str, skipped: Mapping[str, int], records: Sequence[Mapping[str, str]]
) -> None:
    """What was left out at a stage: counts by reason, and the first records by name."""
    if not skipped:
        return
    counts = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
    out.print(f"skipped at {stage}: {counts}", style="yellow")
    for record in records[:_SKIPS_SHOWN]:
        name = record["doc_id"] or record["place"]
        detail = f": {record['detail']}" if record["detail"] else ""
        out.print(shown(f"  {name} ({record['place']}): {record['reason']}{detail}"))
    total = sum(skipped.values())
    if total > _SKIPS_SHOWN:
        out.print(f"  … {total - _SKIPS_SHOWN:,} more; all with --json")


def print_builds(run: Path, builds: Sequence[BuildSummary], hint: str) -> None:
    """One row a build, oldest first."""
    out = console()
    out.print(Text(f"run {run}{hint}", style="dim"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "build", "documents", "chunks", "arms (strength)", "model", "size"):
        table.add_column(heading)
    for build in builds:
        arms = ", ".join(f"{name} ({strength:g})" for name, strength in build.arms.items())
        counts = (f"{build.n_documents:,}", f"{build.n_rows:,}")
        current = "*" if build.current else ""
        table.add_row(current, build.build_id, *counts, arms, build.model, size(build.n_bytes))
    out.print(table)
