"""One A/B result as HTML: both rankings side by side, and each document with its evidence and verdict.

The report and the service's page show the same view. It needs the style and script of `pipeline.html.page`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.ab.results import ABResult, DocumentResult, Hit
from pipeline.html.document_view import DocumentView, ViewSettings, rank_words
from pipeline.html.page import render_template

# In pixels, as in page.css: lines are drawn from the middle of one row to the middle of another.
_ROW = 40
_WIDTH = 64
_TIP = 8

_LEGEND = (
    (
        "surfaced, left",
        "The document is in the top k of one arm and not of the other. A document that only a tie of scores "
        "puts there counts as neither.",
    ),
    (
        "evidence",
        "The part of the chunk that seems to answer the query: the window of one or two sentences that is "
        "nearest to it, marked in the text. Where the query file says where the answer stands, it is that "
        "(gold).",
    ),
    (
        "late answer",
        "The document surfaced or rose, its evidence does not stand at the beginning of its chunk, and with "
        "the evidence put first it would have moved up in the reference arm too: position is why.",
    ),
    (
        "early answer",
        "The mirror image: the document left or fell, its evidence stands early, and with the evidence put "
        "last it would have moved down in the reference arm too.",
    ),
    ("not position", "Moving the evidence changes next to nothing: the document moved for another reason."),
    ("uncertain", "The test allows neither conclusion."),
    ("Jaccard", "The share of the documents in either top k that are in both: 1 is the same set."),
    (
        "RBO",
        "Rank-biased overlap: how alike two rankings are, the first ranks counting most; 1 is the same "
        "ranking.",
    ),
    ("Kendall tau", "How alike the two orders are: 1 is the same, -1 the reverse."),
    (
        "encode, search, explain",
        "Time of each step. Queries embedded together share the time of their batch equally.",
    ),
)


def ab_view(
    result: ABResult,
    *,
    text_of: Callable[[str], str],
    anchor: str = "ab",
    gold: Collection[str] = (),
    link: Callable[[str], str] | None = None,
) -> Markup:
    """Show one comparison; the arguments are those of `ViewSettings`."""
    settings = ViewSettings(result, text_of, anchor, gold, link)
    documents = [
        DocumentView.of(document, number, settings) for number, document in enumerate(result.documents)
    ]
    reference = _column(documents, result, lambda document: document.reference)
    other = _column(documents, result, lambda document: document.other)
    return render_template(
        "ab.html.j2",
        result=result,
        documents=documents,
        reference=reference,
        other=other,
        lines=_lines(reference, other),
        width=_WIDTH,
        height=_ROW * max(len(documents), 1),
        measures=_measures(result),
        remarks=_remarks(result),
    )


def legend(terms: Sequence[tuple[str, str]] = ()) -> Markup:
    """Explain the terms of the view, after some of one's own."""
    return render_template("legend.html.j2", terms=(*terms, *_LEGEND))


@dataclass(frozen=True, slots=True)
class _Row:
    """A document in one arm's ranking; `is_below` the top k, as the first one (`is_border`) or not."""

    document: DocumentView
    rank: str
    is_below: bool
    is_border: bool


def _column(
    documents: Sequence[DocumentView], result: ABResult, hit_of: Callable[[DocumentResult], Hit | None]
) -> list[_Row]:
    """One arm's ranking of all documents of the view: its top k, then those that only the other one has."""
    hits = [hit_of(document) for document in result.documents]
    ranks = [hit.rank if hit is not None else None for hit in hits]
    # A document below the depth stands after all others.
    places = [rank if rank is not None else result.depth + 1 for rank in ranks]
    order = sorted(range(len(documents)), key=lambda number: (places[number], number))
    n_top = sum(place <= result.k for place in places)
    return [
        _Row(documents[number], rank_words(ranks[number], result.depth), row >= n_top, row == n_top)
        for row, number in enumerate(order)
    ]


@dataclass(frozen=True, slots=True)
class _Line:
    """A curve between the two rows of a document, with a tip, as SVG paths."""

    document: DocumentView
    curve: str
    tip: str


def _lines(reference: Sequence[_Row], other: Sequence[_Row]) -> list[_Line]:
    """The curves; those of documents that moved come last, on top."""
    ends = {row.document.number: place for place, row in enumerate(other)}
    lines = [_line(row.document, place, ends[row.document.number]) for place, row in enumerate(reference)]
    return sorted(lines, key=lambda line: line.document.tone != "same")


def _line(document: DocumentView, first: int, last: int) -> _Line:
    start, end = (_ROW * place + _ROW // 2 for place in (first, last))
    bend, reach = _WIDTH // 2, _WIDTH - _TIP
    curve = f"M4 {start}C{bend} {start} {bend} {end} {reach} {end}"
    return _Line(document, curve, f"M{_WIDTH - 2} {end}l-{_TIP} -4v8z")


def _measures(result: ABResult) -> list[tuple[str, str]]:
    tau = "undefined" if result.kendall_tau is None else f"{result.kendall_tau:.2f}"
    overlap = [("Jaccard", f"{result.jaccard:.2f}"), ("RBO", f"{result.rbo:.2f}"), ("Kendall tau", tau)]
    return overlap + [(step, f"{1000 * seconds:.0f} ms") for step, seconds in result.seconds.items()]


def _remarks(result: ABResult) -> list[str]:
    remarks = []
    if result.truncated:
        remarks.append(
            f"The query has {result.n_tokens} tokens, more than the model takes: its end was not read."
        )
    if result.n_documents < result.k:
        remarks.append(f"The index holds {result.n_documents} documents, fewer than k = {result.k}.")
    return remarks
