"""One document of an A/B result, in the words and figures that the templates show."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from indexes import MovementStatus
from pipeline.ab.evidence import EvidenceSource
from pipeline.ab.results import ABResult, DocumentResult, Hit
from pipeline.ab.verdict import Verdict

# In characters before and after the evidence, so that a report of many queries or of long chunks stays small:
# a chunk of 512 tokens is shown whole if its document moved.
_SHOWN_AROUND = 3000
_SHOWN_AROUND_UNMOVED = 280
# In percent of the bar: anything narrower could not be seen.
_NARROWEST = 0.6

_TONES = {MovementStatus.ENTERED: "up", MovementStatus.LEFT: "down", MovementStatus.TIED: "same"}
_VERDICT_TONES = {
    Verdict.LATE_ANSWER: "late",
    Verdict.EARLY_ANSWER: "early",
    Verdict.NOT_POSITION: "other",
    Verdict.UNCERTAIN: "unsure",
}


def movement_words(document: DocumentResult) -> str:
    """How a document moved, in a badge's few characters; empty where it did not."""
    change = document.rank_change
    arrow = "" if not change else f"{'▲' if change > 0 else '▼'}{abs(change)}"
    match document.status:
        case MovementStatus.ENTERED:
            return arrow or "▲ new"
        case MovementStatus.LEFT:
            return arrow or "▼ gone"
        case MovementStatus.TIED:
            return "tied"
        case MovementStatus.MOVED | MovementStatus.SAME:
            return arrow


def movement_tone(document: DocumentResult) -> str:
    """The colour class of a movement: up, down or same."""
    change = document.rank_change or 0
    return _TONES.get(document.status, "up" if change > 0 else "down" if change < 0 else "same")


def rank_words(rank: int | None, depth: int) -> str:
    """A rank, or that it lies below the depth that was looked at."""
    return str(rank) if rank is not None else f">{depth}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where chunk and evidence stand on the bar of a document: (start, width) in percent, and in words.

    `other_chunk` is the other arm's best chunk, where it is another one.
    """

    chunk: tuple[float, float]
    other_chunk: tuple[float, float] | None
    evidence: tuple[float, float] | None
    chunk_words: str
    evidence_words: str

    @classmethod
    def of(cls, document: DocumentResult) -> Place:
        """Place the chunk of the arm that ranks the document higher, and the evidence."""
        hit, found, length = document.shown, document.evidence, document.doc_chars
        others = [place for place in (document.reference, document.other) if place]
        apart = next((place for place in others if place.ordinal != hit.ordinal), None)
        return cls(
            chunk=_percent(hit.start, hit.end, length),
            other_chunk=_percent(apart.start, apart.end, length) if apart else None,
            evidence=_percent(found.start, found.end, length) if found else None,
            chunk_words=_chunk_words(hit, length),
            evidence_words=_evidence_words(document),
        )

    @property
    def sentence(self) -> str:
        """The same for those who cannot see the bar."""
        return "; ".join(words for words in (self.chunk_words, self.evidence_words) if words)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The text of a chunk with its evidence apart; characters that are not shown are counted."""

    before: str
    marked: str
    after: str
    n_before: int
    n_after: int

    @classmethod
    def of(cls, document: DocumentResult, text: str) -> Excerpt:
        """Cut the excerpt out of the document's text, more of it if the document moved."""
        hit, found = document.shown, document.evidence
        start, end = (found.start, found.end) if found else (hit.start, hit.start)
        # Gold evidence may stand in another chunk than the one that was found.
        first, last = min(hit.start, start), max(hit.end, end)
        is_inside = (first, last) == (hit.start, hit.end)
        is_long = is_inside and document.status is not MovementStatus.SAME
        around = _SHOWN_AROUND if is_long else _SHOWN_AROUND_UNMOVED
        shown_from, shown_to = max(first, start - around), min(last, end + around)
        return cls(
            before=text[shown_from:start],
            marked=text[start:end],
            after=text[end:shown_to],
            n_before=shown_from - first,
            n_after=last - shown_to,
        )


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """What the documents of one view have in common.

    Attributes:
        result: the comparison.
        text_of: the stored text of a document of `result`, by its id.
        anchor: begins every id of the view, so that several can stand on one page.
        gold: ids of documents to mark as gold.
        link: where a document can be opened, by its id; None: nowhere.
    """

    result: ABResult
    text_of: Callable[[str], str]
    anchor: str
    gold: Collection[str]
    link: Callable[[str], str] | None


@dataclass(frozen=True, slots=True)
class DocumentView:
    """What the templates show of one document; `number` is its place in the result."""

    number: int
    anchor: str
    doc_id: str
    title: str
    title_is_shared: bool
    is_gold: bool
    movement: str
    tone: str
    verdict: str
    verdict_tone: str
    reason: str
    ranks: str
    place: Place
    excerpt: Excerpt
    figures: list[tuple[str, tuple[str, str]]]
    link: str | None

    @classmethod
    def of(cls, document: DocumentResult, number: int, settings: ViewSettings) -> DocumentView:
        """Put a document into words."""
        why, result = document.explanation, settings.result
        titles = [other.title for other in result.documents]
        return cls(
            number=number,
            anchor=f"{settings.anchor}-d{number}",
            doc_id=document.doc_id,
            title=document.title,
            title_is_shared=bool(document.title) and titles.count(document.title) > 1,
            is_gold=document.doc_id in settings.gold,
            movement=movement_words(document),
            tone=movement_tone(document),
            verdict=str(why.verdict) if why else "",
            verdict_tone=_VERDICT_TONES[why.verdict] if why else "",
            reason=why.reason if why else "",
            ranks=_ranks(document, result),
            place=Place.of(document),
            excerpt=Excerpt.of(document, settings.text_of(document.doc_id)),
            figures=_figures(document, result),
            link=settings.link(document.doc_id) if settings.link is not None else None,
        )

    @property
    def name(self) -> str:
        """What people call it: its title, with the id where another document of the view has it too."""
        return f"{self.title} ({self.doc_id})" if self.title_is_shared else self.title or self.doc_id


def _percent(start: int, end: int, length: int) -> tuple[float, float]:
    width = max(100 * (end - start) / length, _NARROWEST)
    return round(min(100 * start / length, 100 - width), 2), round(width, 2)


def _chunk_words(hit: Hit, length: int) -> str:
    if hit.n_chunks == 1:
        return "the document is one chunk"
    first, last = 100 * hit.start / length, 100 * hit.end / length
    return f"chunk {hit.ordinal + 1} of {hit.n_chunks} ({first:.0f}\u2013{last:.0f} % of the document)"


def _evidence_words(document: DocumentResult) -> str:
    found = document.evidence
    if found is None:
        return ""
    is_gold = found.source is EvidenceSource.GOLD
    what = "the answer (gold) stands" if is_gold else "the answer seems to stand"
    margin = (
        "" if found.confidence is None else f"; it is {found.confidence:.3f} ahead of the next best window"
    )
    return (
        f"{what} at {100 * found.position_in_chunk:.0f} % of its chunk, "
        f"{100 * found.position_in_document:.0f} % of the document{margin}"
    )


def _ranks(document: DocumentResult, result: ABResult) -> str:
    places = ((result.reference_arm, document.reference), (result.other_arm, document.other))
    return " → ".join(f"{arm} {rank_words(_rank(hit), result.depth)}" for arm, hit in places)


def _rank(hit: Hit | None) -> int | None:
    return hit.rank if hit is not None else None


def _figures(document: DocumentResult, result: ABResult) -> list[tuple[str, tuple[str, str]]]:
    """Rank and score in both arms, and in the counterfactual test."""
    rows = [
        (result.reference_arm, _cells(document.reference, result.depth)),
        (result.other_arm, _cells(document.other, result.depth)),
    ]
    if (why := document.explanation) is not None and why.counterfactual_score is not None:
        rank = rank_words(why.counterfactual_rank, result.depth)
        rows.append((f"{result.reference_arm}, evidence moved", (rank, f"{why.counterfactual_score:.4f}")))
    return rows


def _cells(hit: Hit | None, depth: int) -> tuple[str, str]:
    return rank_words(_rank(hit), depth), f"{hit.score:.4f}" if hit is not None else "\u2013"
