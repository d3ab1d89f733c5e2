"""What people see: the summary of a run and the A/B report. Only this module formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from indexes import MovementStatus
from pipeline.ab import ABResult, DocumentResult, Hit
from pipeline.housekeeping import BuildSummary
from pipeline.plan import ReembedPlan
from pipeline.stages import Stage, StageResult

_PIPE_WIDTH = 120
_SNIPPET = 110
_SKIPS_SHOWN = 10
LATE = 2 / 3
EARLY = 1 / 3

_CONTROL = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}

_STYLES = {
    MovementStatus.ENTERED: "bold green",
    MovementStatus.LEFT: "red",
    MovementStatus.MOVED: "yellow",
    MovementStatus.TIED: "dim",
    MovementStatus.SAME: "",
}


def print_json(value: Mapping[str, Any]) -> None:
    """Print strict JSON on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2))


def shown(text: str) -> str:
    """Make a user's text safe to print: a control character in an id could drive the terminal."""
    return text.translate(_CONTROL)


def console() -> Console:
    """Standard output: as wide as the terminal, or fixed where it is no terminal.

    Ids and texts are the user's: `[/x]` in one is no markup, `:smile:` no emoji.
    """
    out = Console(highlight=False, markup=False, emoji=False)
    return out if out.is_terminal else Console(highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)


# -- runs ----------------------------------------------------------------------------------------------


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
        out.print('next: lastpage query "your question"')


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


# -- builds --------------------------------------------------------------------------------------------


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


def size(n_bytes: int) -> str:
    """Say a number of bytes as people do."""
    for unit in ("bytes", "kB", "MB"):
        if abs(n_bytes) < 1000:
            return f"{n_bytes:,.0f} {unit}"
        n_bytes //= 1000
    return f"{n_bytes:,.0f} GB"


# -- A/B -----------------------------------------------------------------------------------------------


def print_report(result: ABResult, run: Path, hint: str = "") -> None:
    """The A/B report: one row a document, the summary, and how to read it."""
    out = console()
    out.print(Text.assemble(("query  ", "dim"), (shown(result.query), "bold")))
    out.print(Text(f"run    {run}, build {result.build_id}{hint}", style="dim"))
    if result.truncated:
        out.print(
            f"note: the query has {result.n_tokens} tokens, more than the model takes: its end was cut",
            style="yellow",
        )
    out.print()
    out.print(_ranking_table(result))
    out.print()
    for line in _summary(result):
        out.print(line, markup=False)


def _ranking_table(result: ABResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(result.other_arm, justify="right")
    table.add_column(result.reference_arm, justify="right")
    table.add_column("movement")
    table.add_column("document", overflow="fold", max_width=28)
    table.add_column("best chunk", no_wrap=True)
    table.add_column("answer at", no_wrap=True)
    table.add_column("what seems to answer", ratio=1)
    for document in result.documents:
        table.add_row(
            _rank(document.other, result.depth),
            _rank(document.reference, result.depth),
            Text(_movement(document), style=_STYLES[document.status]),
            shown(document.doc_id),
            _chunk(document),
            _answer_place(document),
            Text(_snippet(document), style="dim"),
        )
    return table


def _rank(hit: Hit | None, depth: int) -> str:
    return str(hit.rank) if hit is not None else f">{depth}"


def _movement(document: DocumentResult) -> str:
    change = document.rank_change
    arrow = "" if not change else f" {'▲' if change > 0 else '▼'}{abs(change)}"
    if document.status is MovementStatus.SAME:
        return "="
    if document.status is MovementStatus.MOVED:
        return arrow.strip()
    return f"{document.status}{arrow}"


def _chunk(document: DocumentResult) -> str:
    hit = _shown_hit(document)
    if hit.n_chunks == 1:
        return "the only one"
    start, end = 100 * hit.start / document.doc_chars, 100 * hit.end / document.doc_chars
    return f"{hit.ordinal + 1} of {hit.n_chunks} ({start:.0f}-{end:.0f} %)"


def _shown_hit(document: DocumentResult) -> Hit:
    hits = [hit for hit in (document.other, document.reference) if hit is not None]
    return min(hits, key=lambda hit: hit.rank)


def _answer_place(document: DocumentResult) -> str:
    return f"{100 * document.evidence.position_in_chunk:.0f} % of chunk" if document.evidence else ""


def _snippet(document: DocumentResult) -> str:
    text = shown(" ".join(document.evidence.text.split())) if document.evidence else ""
    return text if len(text) <= _SNIPPET else text[: _SNIPPET - 1] + "…"


def _summary(result: ABResult) -> list[str]:
    other, reference = result.other_arm, result.reference_arm
    lines = []
    if len([document for document in result.documents if document.other]) < result.k > result.n_documents:
        lines.append(f"only {result.n_documents} documents in the index: fewer than k = {result.k}")
    headings = {
        MovementStatus.ENTERED: f"surfaced by {other}",
        MovementStatus.LEFT: f"left the top {result.k}",
    }
    lines += [
        f"{heading}: {shown(document.doc_id)}{_place_sentence(document)}"
        for status, heading in headings.items()
        for document in result.with_status(status)
    ]
    if not lines:
        lines.append(f"the same documents are in the top {result.k} of both arms")
    lines.append(
        f"top {result.k} of {other} against {reference}: Jaccard {result.jaccard:.2f}, RBO {result.rbo:.2f}; "
        + ", ".join(f"{step} {1000 * seconds:.0f} ms" for step, seconds in result.seconds.items())
    )
    lines.append(
        '"answer at" estimates where in the best chunk the answer stands (nearest window of one or two '
        "sentences); it does not yet prove that position is why a document moved"
    )
    return lines


def _place_sentence(document: DocumentResult) -> str:
    if document.evidence is None:
        return ""
    position = document.evidence.position_in_chunk
    where = "late" if position > LATE else "early" if position < EARLY else "in the middle"
    return f", answer at {100 * position:.0f} % of the chunk ({where})"
