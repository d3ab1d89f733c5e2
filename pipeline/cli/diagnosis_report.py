"""What people see of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.artifacts import DiagnosisFiles
from pipeline.cli.report import console
from pipeline.diagnostics import reading
from pipeline.diagnostics.reading import interval, number
from pipeline.diagnostics.results import Counts, Diagnosis


def counts_in_words(counts: Counts) -> Iterator[str]:
    """How many documents there are, and what was left out."""
    yield reading.counted(counts)
    for reason, count in counts.left_out.items():
        yield f"left out: {count:,} {reason}"


def print_counts(counts: Counts) -> None:
    """Print them on standard output."""
    out = console()
    for line in counts_in_words(counts):
        out.print(line)


def print_diagnosis(diagnosis: Diagnosis, run: Path) -> None:
    """Print similarity by place, attention by layer, the reading, and where everything lies."""
    out = console()
    _print_profiles(out, diagnosis)
    _print_attention(out, diagnosis)
    for sentence in reading.sentences(diagnosis):
        out.print(sentence)
    out.print()
    out.print(reading.PROXY, style="dim")
    out.print(_cost(diagnosis))
    out.print(f"\nreport: {DiagnosisFiles(run).page}")


def _print_profiles(out: Console, diagnosis: Diagnosis) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("measure", "languages", "arm"):
        table.add_column(heading)
    places = diagnosis.profiles[0].places
    for place in places:
        table.add_column(f"place {place.position}", justify="right")
    table.add_column(f"{places[-1].position} against 1", justify="right")
    for each in diagnosis.profiles:
        means = [f"{number(place.mean)} {interval(place.low, place.high)}" for place in each.places]
        last = diagnosis.fit(each.measure, each.arm, each.pair).at(places[-1].position)
        change = f"{number(last.estimate)} {interval(last.low, last.high)}"
        table.add_row(each.measure, each.pair, each.arm, *means, change)
    out.print(table)
    out.print()


def _print_attention(out: Console, diagnosis: Diagnosis) -> None:
    if not diagnosis.attention:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("attention")
    for heading in ("layer", "first token", "baskets", "last token", "front-loading"):
        table.add_column(heading, justify="right")
    for each in diagnosis.attention:
        for layer, groups in enumerate(each.front_loading_by_layer):
            table.add_row(
                each.arm if layer == 0 else "",
                str(layer + 1),
                number(each.first[layer]),
                "  ".join(number(mass) for mass in each.baskets[layer]),
                number(each.last[layer]),
                number(sum(groups) / len(groups)),
            )
    out.print(table)
    out.print()


def _cost(diagnosis: Diagnosis) -> str:
    cost = diagnosis.cost
    parts = []
    if cost.per_thousand is not None:
        parts.append(f"{cost.per_thousand:,.0f} s for 1,000 documents with {len(diagnosis.arms)} arms")
    if cost.per_thousand_watched is not None:
        parts.append(f"{cost.per_thousand_watched:,.0f} s where attention is summed up too")
    return "encoder: " + ", ".join(parts)
