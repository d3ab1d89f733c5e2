"""What people see: the A/B report, and what all reports print with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from indexes import MovementStatus
from pipeline.ab import ABResult, DocumentResult, Hit

_PIPE_WIDTH = 120
_SNIPPET = 110
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


def size(n_bytes: int) -> str:
    """Say a number of bytes as people do."""
    for unit in ("bytes", "kB", "MB"):
        if abs(n_bytes) < 1000:
            return f"{n_bytes:,.0f} {unit}"
        n_bytes //= 1000
    return f"{n_bytes:,.0f} GB"


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
