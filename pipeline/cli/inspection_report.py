"""What people see of an inspection."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from pipeline.cli.report import console
from pipeline.cli.run_report import print_skips
from pipeline.inspection import Inspection
from pipeline.lengths import Bar, Lengths
from pipeline.plan import duration

_BAR_WIDTH = 40
_UNITS = ("bytes", "KB", "MB", "GB", "TB")


def print_inspection(inspection: Inspection) -> None:
    """Print the figures, the two histograms, what is left out, and what would be refused."""
    out = console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, figures in _figures(inspection):
        table.add_row(name, figures)
    out.print(table)
    out.print()
    _print_histogram(out, "documents by tokens", inspection.documents)
    _print_histogram(out, "chunks by tokens, as embedded", inspection.chunks)
    print_skips(out, "reading and cutting", inspection.skipped, inspection.skipped_records)
    for refusal in inspection.refusals:
        out.print(f"`index` would refuse: {refusal.message}", style="red", markup=False)


def _figures(inspection: Inspection) -> Iterator[tuple[str, str]]:
    documents, chunks = inspection.documents, inspection.chunks
    yield "source", inspection.source
    sizes = f"{inspection.characters:,} characters, {documents.total:,} tokens"
    yield "documents", f"{documents.count:,}, {sizes}, {_spread(documents)}"
    budget = f"of at most {inspection.max_tokens:,} tokens"
    yield "chunks", f"{chunks.count:,} {budget}; as embedded {chunks.total:,} tokens, {_spread(chunks)}"
    if inspection.contexts_cut:
        yield "contexts", f"{inspection.contexts_cut:,} cut at a word, to half of a chunk's tokens"
    texts = f"{inspection.distinct_texts:,} distinct texts, {inspection.tokens_to_embed:,} tokens"
    yield "to embed", f"{texts}, in {len(inspection.arms)} arms ({', '.join(inspection.arms)})"
    yield "time", _time(inspection)
    yield "disk", _disk(inspection)


def _spread(lengths: Lengths) -> str:
    return f"{lengths.shortest:,} to {lengths.longest:,} each, {lengths.mean:,.0f} on average"


def _time(inspection: Inspection) -> str:
    if inspection.seconds is None or inspection.tokens_per_second is None:
        return "not estimated"
    rate = f"{inspection.tokens_per_second:,.0f} tokens/s"
    return f"about {duration(inspection.seconds)} to embed everything (estimated from one batch: {rate})"


def _disk(inspection: Inspection) -> str:
    vectors, indexes = (size(n) for n in (inspection.disk.vectors, inspection.disk.indexes))
    kind = inspection.factory if inspection.disk.is_exact else f"as if Flat; {inspection.factory} differs"
    return f"about {vectors} of vectors and {indexes} of indexes a build ({kind})"


def size(n_bytes: float) -> str:
    """Bytes as people read them."""
    for unit in _UNITS:
        if n_bytes < 1000 or unit == _UNITS[-1]:
            break
        n_bytes /= 1000
    return f"{n_bytes:.0f} {unit}" if n_bytes >= 10 or unit == _UNITS[0] else f"{n_bytes:.1f} {unit}"


def _print_histogram(out: Console, title: str, lengths: Lengths) -> None:
    if not lengths.histogram:
        return
    out.print(title, style="bold")
    most = max(bar.count for bar in lengths.histogram)
    width = max(len(_range(bar)) for bar in lengths.histogram)
    for bar in lengths.histogram:
        blocks = "█" * -(-_BAR_WIDTH * bar.count // most)
        out.print(f"  {_range(bar):>{width}}  {blocks:<{_BAR_WIDTH}}  {bar.count:,}", markup=False)
    out.print()


def _range(bar: Bar) -> str:
    return f"{bar.lowest:,}-{bar.highest:,}"
