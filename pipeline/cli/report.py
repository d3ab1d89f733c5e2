"""What people see: the A/B report, and what all reports print with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from indexes import MovementStatus
from pipeline.ab import ABResult, DocumentResult, Hit, Verdict
from pipeline.ab.evidence import EvidenceSource

_PIPE_WIDTH = 120
_SNIPPET = 110
# From this width on there is room for what seems to answer beside each document.
_WIDE = 110
_SEVERAL = 2

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


# -- A/B -----------------------------------------------------------------------------------------------

_VERDICT_STYLES = {
    Verdict.LATE_ANSWER: "bold green",
    Verdict.EARLY_ANSWER: "bold red",
    Verdict.NOT_POSITION: "",
    Verdict.UNCERTAIN: "dim",
}
_HEADINGS = {
    MovementStatus.ENTERED: "surfaced in {other}",
    MovementStatus.LEFT: "left the top {k} in {other}",
}


def print_report(results: Sequence[ABResult], run: Path, hint: str = "") -> None:
    """The A/B report of one query: for each arm a table of documents, and why they entered or left."""
    out = console()
    _print_question(out, results[0], run, hint)
    for result in results:
        out.print()
        if len(results) >= _SEVERAL:
            out.print(Text(f"{result.other_arm} against {result.reference_arm}", style="bold"))
        _print_comparison(out, result)
    out.print()
    out.print(Text(_times(results[0]), style="dim"))
    if any(document.evidence for result in results for document in result.documents):
        out.print(Text(_legend(results), style="dim"))


def _print_question(out: Console, result: ABResult, run: Path, hint: str) -> None:
    out.print(Text.assemble(("query  ", "dim"), (shown(result.query), "bold")))
    out.print(Text(f"run    {run}, build {result.build_id}{hint}", style="dim"))
    if result.truncated:
        out.print(
            f"note: the query has {result.n_tokens} tokens, more than the model takes: its end was cut",
            style="yellow",
        )


def _print_comparison(out: Console, result: ABResult) -> None:
    wide = out.width >= _WIDE
    out.print(_ranking_table(result, wide=wide))
    out.print()
    for status, heading in _HEADINGS.items():
        moved = result.with_status(status)
        if moved:
            out.print(Text(heading.format(k=result.k, other=result.other_arm), style=_STYLES[status]))
        for document in moved:
            _print_moved(out, document, wide=wide)
        if moved:
            out.print()
    for line in _summary(result):
        out.print(line)


def _print_moved(out: Console, document: DocumentResult, *, wide: bool) -> None:
    told = Text(shown(document.doc_id), style="bold")
    if document.explanation is not None:
        verdict = document.explanation.verdict
        told = Text.assemble(told, ": ", (str(verdict), _VERDICT_STYLES[verdict]))
        told.append(f". {document.explanation.reason}")
    out.print(Padding(told, (0, 0, 0, 2)))
    if document.evidence is not None and not wide:
        out.print(Padding(Text(_snippet(document), style="dim"), (0, 0, 0, 4)))


def _ranking_table(result: ABResult, *, wide: bool) -> Table:
    explained = any(document.evidence for document in result.documents)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(result.other_arm, justify="right")
    table.add_column(result.reference_arm, justify="right")
    table.add_column("movement", no_wrap=True)
    table.add_column("document", overflow="fold", ratio=2)
    table.add_column("best chunk", no_wrap=True)
    if explained:
        table.add_column("answer at", no_wrap=True)
        table.add_column("why", no_wrap=True)
    if explained and wide:
        table.add_column("what seems to answer", ratio=5)
    for document in result.documents:
        cells = (
            _rank(document.other, result.depth),
            _rank(document.reference, result.depth),
            Text(_movement(document), style=_STYLES[document.status]),
            shown(document.doc_id),
            _chunk(document),
            _answer_place(document),
            _why(document),
            Text(_snippet(document), style="dim"),
        )
        table.add_row(*cells[: len(table.columns)])
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
    return f"{document.shown.ordinal + 1} of {document.shown.n_chunks}"


def _answer_place(document: DocumentResult) -> str:
    if document.evidence is None:
        return ""
    gold = " gold" if document.evidence.source is EvidenceSource.GOLD else ""
    return f"{100 * document.evidence.position_in_chunk:.0f} %{gold}"


def _why(document: DocumentResult) -> Text:
    if document.explanation is None:
        return Text()
    return Text(str(document.explanation.verdict), style=_VERDICT_STYLES[document.explanation.verdict])


def _snippet(document: DocumentResult) -> str:
    if document.evidence is None:
        return ""
    text = shown(" ".join(document.evidence.text.split()))
    return f"“{text if len(text) <= _SNIPPET else text[: _SNIPPET - 1] + '…'}”"


def _summary(result: ABResult) -> list[str]:
    lines = []
    if len([document for document in result.documents if document.other]) < result.k > result.n_documents:
        lines.append(f"only {result.n_documents} documents in the index: fewer than k = {result.k}")
    if not any(result.with_status(status) for status in _HEADINGS):
        lines.append(f"the same documents are in the top {result.k} of both arms")
    tau = "" if result.kendall_tau is None else f", Kendall tau {result.kendall_tau:.2f}"
    lines.append(
        f"top {result.k} of {result.other_arm} against {result.reference_arm}: "
        f"Jaccard {result.jaccard:.2f}, RBO {result.rbo:.2f}{tau}"
    )
    return lines


def _times(result: ABResult) -> str:
    return ", ".join(f"{step} {1000 * seconds:.0f} ms" for step, seconds in result.seconds.items())


def _legend(results: Sequence[ABResult]) -> str:
    return (
        '"answer at": where in the best chunk the answer seems to stand; "why": whether the document moves '
        f"in {results[0].reference_arm} too, with that chunk turned around: its answer at the other end"
    )
