"""The queries of a comparison as HTML, those that changed most first, each with both its rankings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.ab.comparing import QueryAnswer
from pipeline.ab.moves import Move, change, count_moves
from pipeline.ab.results import ABResult
from pipeline.ab.totals import Totals, most_changed
from pipeline.ab.verdict import Verdict
from pipeline.html.ab_view import ab_view
from pipeline.html.page import Section, render_template


@dataclass(frozen=True, slots=True)
class _QueryRow:
    """A query in the list; `view` is None where its rankings are not shown."""

    anchor: str
    query_id: str
    text: str
    change: float
    badges: list[tuple[str, str]]
    gold: str
    view: Markup | None


def queries_section(
    answers: Sequence[QueryAnswer],
    totals: Totals,
    number: int,
    text_of: Callable[[str], str],
    n_details: int,
) -> Section:
    """List the queries of one comparison, `number` of several; the first `n_details` with both rankings."""
    ordered = most_changed(answers, number)
    rows = [
        _query_row(answer, number, f"a{number}q{place}", text_of if place < n_details else None)
        for place, answer in enumerate(ordered)
    ]
    lead = "Most-changed queries first. Open one to see both rankings; the arrow keys walk through the list."
    if len(rows) > n_details:
        lead += (
            f" Rankings are shown for the {n_details} most-changed of {len(rows):,} queries; all are in "
            "rows.parquet and rows.csv."
        )
    body = render_template("queries.html.j2", rows=rows, anchor=f"list{number}")
    one_of_several = len(answers[0].comparisons) > 1
    title = f"Queries: {totals.other_arm}" if one_of_several else "Queries"
    return Section(title, f"queries{number}", body, lead=lead)


def _query_row(
    answer: QueryAnswer, number: int, anchor: str, text_of: Callable[[str], str] | None
) -> _QueryRow:
    result, query = answer.comparisons[number], answer.query
    gold = {gold.doc_id for gold in query.gold}
    return _QueryRow(
        anchor=anchor,
        query_id=query.query_id,
        text=query.text,
        change=change(result),
        badges=_badges(result),
        gold=_gold_words(answer, result) if gold else "",
        view=ab_view(result, text_of=text_of, anchor=anchor, gold=gold) if text_of else None,
    )


def _badges(result: ABResult) -> list[tuple[str, str]]:
    moves = [move for document in result.documents if (move := Move.of(document)) is not None]
    counts = [
        ("up", moves.count(Move.SURFACED), "surfaced"),
        ("late", count_moves(result, Move.SURFACED, Verdict.LATE_ANSWER), "late answer"),
        ("down", moves.count(Move.LEFT), "left"),
        ("early", count_moves(result, Move.LEFT, Verdict.EARLY_ANSWER), "early answer"),
    ]
    return [(tone, f"{n} {what}{_plural(n, what)}") for tone, n, what in counts if n]


def _plural(n: int, what: str) -> str:
    return "s" if n > 1 and what.endswith("answer") else ""


def _gold_words(answer: QueryAnswer, result: ABResult) -> str:
    ranks = [answer.gold_rank(arm) for arm in (result.reference_arm, result.other_arm)]
    first, second = (str(rank) if rank else f">{result.depth}" for rank in ranks)
    return f"gold at {first}" if first == second else f"gold {first} → {second}"
