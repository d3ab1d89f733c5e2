"""A comparison over a query file as a page: the totals with plots, the queries, and what the terms mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.ab.comparing import QueryAnswer
from pipeline.ab.moves import Move, Third, change
from pipeline.ab.results import ABResult
from pipeline.ab.totals import GoldFigures, Totals
from pipeline.ab.verdict import Verdict
from pipeline.html.ab_view import legend
from pipeline.html.charts import Bar, BarGroup, bar_chart, histogram
from pipeline.html.page import Section, render_page, render_template
from pipeline.html.queries_view import queries_section

_BINS = 10

_TERMS = (
    (
        "arm",
        "One way to embed the corpus. The first is the reference; both are searched with the same query.",
    ),
    ("top k", "The first k documents of a ranking; a document stands where its best chunk stands."),
    ("change", "1 - RBO of the two top k's: 0 means the same ranking. Queries are sorted by it."),
    ("early, middle, late", "The third of its chunk in which the middle of the evidence stands."),
    (
        "net effect",
        "Documents surfaced less documents that left the top k. If position was what kept late answers down, "
        "it is positive for late and negative for early evidence.",
    ),
    ("MRR", "Mean reciprocal rank of the gold document: 1 if it is always first."),
)


def comparison_page(
    answers: Sequence[QueryAnswer],
    totals: Sequence[Totals],
    *,
    title: str,
    subtitle: str,
    text_of: Callable[[str], str],
    notes: Sequence[str] = (),
    n_details: int,
    extra: Sequence[Section] = (),
) -> str:
    """Render the report of a comparison.

    Args:
        answers: at least one query's.
        totals: of each other arm, in the order of the answers' comparisons.
        title: of the page.
        subtitle: what was compared, where.
        text_of: the stored text of a document, by its id.
        notes: what a reader should know beforehand.
        n_details: for so many of the most-changed queries both rankings are shown.
        extra: further sections, after the queries.
    """
    sections = [
        section
        for number, figures in enumerate(totals)
        for section in (
            _summary_section(answers, figures, number, notes if number == 0 else ()),
            queries_section(answers, figures, number, text_of, n_details),
        )
    ]
    terms = Markup('<div class="card">{}</div>').format(legend(_TERMS))
    sections += [*extra, Section("Terms", "terms", terms)]
    return render_page(title, sections, subtitle=subtitle, footer="lastpage compare")


def _summary_section(
    answers: Sequence[QueryAnswer], totals: Totals, number: int, notes: Sequence[str]
) -> Section:
    changes = [change(answer.comparisons[number]) for answer in answers]
    body = render_template(
        "comparison.html.j2",
        notes=notes,
        tiles=_tiles(totals),
        net_chart=_net_chart(totals),
        change_chart=bar_chart(
            histogram(changes, bins=_BINS, tone="second"),
            title="Queries by change",
            caption="Queries by change (1 - RBO), each bar up to the value under it; 0 is the same ranking.",
        ),
        moves=_moves(totals),
        verdicts=[str(verdict) for verdict in _verdicts(totals)],
        thirds=[str(third) for third in _thirds(totals)],
        gold_chart=_gold_chart(totals),
        gold_rows=_gold_rows(totals),
        totals=totals,
    )
    title = f"{totals.reference_arm} against {totals.other_arm}"
    return Section(title, f"arm{number}", body, lead=_lead(totals, answers[0].comparisons[number]))


def _lead(totals: Totals, result: ABResult) -> str:
    return (
        f"{totals.n_queries:,} queries over {result.n_documents:,} documents; the top {totals.k} of both "
        f"arms are compared, ranks are looked up down to {result.depth}."
    )


@dataclass(frozen=True, slots=True)
class _Tile:
    value: str
    label: str
    hint: str
    tone: str = ""


def _tiles(totals: Totals) -> list[_Tile]:
    surfaced, left = totals.count(Move.SURFACED), totals.count(Move.LEFT)
    late, early, k = totals.late_answers, totals.early_answers, totals.k
    return [
        _Tile(f"{totals.n_changed:,}", "queries changed", f"of {totals.n_queries:,}; others rank the same"),
        _Tile(f"{surfaced:,}", "documents surfaced", f"only in {totals.other_arm}'s top {k}", "up"),
        _Tile(_figure(late), "surfaced by a late answer", _share(late, surfaced), "up"),
        _Tile(f"{left:,}", "documents left", f"only in {totals.reference_arm}'s top {k}", "down"),
        _Tile(_figure(early), "lost an early answer", _share(early, left), "down"),
        _Tile(f"{totals.rbo:.2f}", "mean RBO", f"mean Jaccard {totals.jaccard:.2f}{_tau(totals)}"),
    ]


def _figure(n: int | None) -> str:
    return "\u2013" if n is None else f"{n:,}"


def _share(n: int | None, of: int) -> str:
    return "not tested" if n is None else f"of {of:,}; position is why"


def _tau(totals: Totals) -> str:
    return "" if totals.kendall_tau is None else f", tau {totals.kendall_tau:.2f}"


def _net_chart(totals: Totals) -> Markup:
    groups = []
    for third in Third:
        surfaced, left = totals.count(Move.SURFACED, third=third), totals.count(Move.LEFT, third=third)
        bars = (
            Bar(surfaced, "up", f"+{surfaced}" if surfaced else ""),
            Bar(-left, "down", f"\u2212{left}" if left else ""),
        )
        net = f"{totals.net(third):+d}".replace("-", "\u2212")
        groups.append(BarGroup(f"{third}: net {net}", bars))
    unplaced = totals.unplaced(Move.SURFACED) + totals.unplaced(Move.LEFT)
    rest = f" {unplaced} more have no evidence." if unplaced else ""
    return bar_chart(
        groups,
        title="Documents surfaced and left by position of the evidence",
        caption=f"Documents surfaced (up) and left (down), by the evidence's third of its chunk.{rest}",
        stacked=True,
    )


def _moves(totals: Totals) -> list[tuple[str, list[int]]]:
    """For each move: all documents, then by verdict and by third, as far as they are known."""
    names = {
        Move.SURFACED: f"surfaced into the top {totals.k}",
        Move.LEFT: f"left the top {totals.k}",
        Move.ROSE: f"rose within the top {totals.k}",
        Move.FELL: f"fell within the top {totals.k}",
    }
    rows = []
    for move, name in names.items():
        counts = [totals.count(move)]
        counts += [totals.count(move, verdict=verdict) for verdict in _verdicts(totals)]
        counts += [totals.count(move, third=third) for third in _thirds(totals)]
        rows.append((name, counts))
    return rows


def _verdicts(totals: Totals) -> list[Verdict]:
    return list(Verdict) if totals.has_verdicts else []


def _thirds(totals: Totals) -> list[Third]:
    return list(Third) if totals.has_evidence else []


def _gold_chart(totals: Totals) -> Markup | None:
    if not totals.gold:
        return None
    first, second = totals.gold[totals.reference_arm], totals.gold[totals.other_arm]
    places = ", by where the answer stands in its chunk" if len(first) > 1 else ""
    groups = [
        BarGroup(
            _gold_name(name, first[name]),
            (
                Bar(first[name].mrr, "first", _short(first[name].mrr)),
                Bar(second[name].mrr, "second", _short(second[name].mrr)),
            ),
        )
        for name in first
    ]
    return bar_chart(
        groups,
        title=f"MRR of the gold documents in {totals.reference_arm} and {totals.other_arm}",
        caption=(
            f"MRR of the gold documents{places}: {totals.reference_arm} (left), {totals.other_arm} (right)."
        ),
    )


def _gold_name(name: str, figures: GoldFigures) -> str:
    return f"{name} ({figures.n_queries})"


def _short(share: float) -> str:
    return f"{share:.2f}".removeprefix("0")


def _gold_rows(totals: Totals) -> list[tuple[str, list[str]]]:
    """One row a group: queries, then MRR and queries found in the top k, each in both arms."""
    if not totals.gold:
        return []
    first, second = totals.gold[totals.reference_arm], totals.gold[totals.other_arm]
    rows = []
    for name, figures in first.items():
        pair = (figures, second[name])
        mrr, found = [f"{one.mrr:.3f}" for one in pair], [str(one.in_top) for one in pair]
        rows.append((name, [str(figures.n_queries), *mrr, *found]))
    return rows
