"""Sets of segments: n paragraphs of like length that fit into one document together."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from pipeline.diagnostics.settings import DiagnosisSettings
from pipeline.diagnostics.sources import LeftOut, Paragraph
from pipeline.errors import DataError

SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment in one language; `n_tokens` are its own, without special tokens."""

    segment_id: str
    language: str
    text: str
    n_tokens: int


@dataclass(frozen=True, slots=True)
class SegmentSet:
    """n segments, each in every language, whose orders are compared; no segment is in two sets."""

    set_id: str
    segments: tuple[Mapping[str, Segment], ...]


@dataclass(frozen=True, slots=True)
class TokenRoom:
    """What the model takes.

    Attributes:
        max_length: tokens of a document with everything.
        fixed: of these, special tokens and prompt.
        separator: tokens that a blank line between two segments may cost.
    """

    max_length: int
    fixed: int
    separator: int

    @classmethod
    def of(cls, count_tokens: Callable[[str], int], max_length: int) -> TokenRoom:
        """Measure it with the model's own tokenizer."""
        fixed = count_tokens("")
        joined, alone = count_tokens(f"Aa{SEPARATOR}Aa"), count_tokens("Aa")
        return cls(max_length, fixed, max(0, (joined - fixed) - 2 * (alone - fixed)))

    def holds(self, lengths: Sequence[int]) -> bool:
        """Tell whether segments of these lengths fit into one document."""
        return self.fixed + sum(lengths) + self.separator * (len(lengths) - 1) <= self.max_length


def make_sets(
    paragraphs: Iterable[Paragraph],
    settings: DiagnosisSettings,
    *,
    count_tokens: Callable[[str], int],
    room: TokenRoom,
    left_out: Counter[LeftOut],
) -> list[SegmentSet]:
    """Group paragraphs of like length, longest first, and draw from the sets if there are too many.

    Args:
        paragraphs: in any order.
        settings: bounds, ratio and limit.
        count_tokens: of a document, with special tokens and prompt.
        room: what the model takes.
        left_out: counts what is left out, by reason.

    Raises:
        DataError: fewer than two sets come out; no interval could be told from them.
    """
    rows = list(_within_bounds(paragraphs, settings, count_tokens, room, left_out))
    if settings.within == "document":
        pools = [list(group) for _, group in groupby(rows, key=lambda row: row[0])]
    else:
        pools = [rows]
    sets = [each for pool in pools for each in _sets_of(pool, settings, room, left_out)]
    if len(sets) > settings.max_sets:
        left_out[LeftOut.NOT_DRAWN] += len(sets) - settings.max_sets
        drawn = sorted(random.Random(settings.seed).sample(range(len(sets)), settings.max_sets))  # noqa: S311
        sets = [sets[number] for number in drawn]
    check_enough(len(sets), settings, left_out)
    return sets


def check_enough(n_sets: int, settings: DiagnosisSettings, left_out: Counter[LeftOut]) -> None:
    """Refuse fewer than two sets, and say what stood in the way."""
    if n_sets >= 2:
        return
    reasons = "; ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    raise DataError(
        f"{n_sets} sets of {settings.n} segments came out of the corpus, at least 2 are needed "
        f"(left out: {reasons or 'nothing'}); lower --min-tokens or --segments, raise --ratio "
        "or the model's max_length, or take segments from anywhere with --within corpus"
    )


# The document and the segment in each language.
_Row = tuple[str, Mapping[str, Segment]]


def _within_bounds(
    paragraphs: Iterable[Paragraph],
    settings: DiagnosisSettings,
    count_tokens: Callable[[str], int],
    room: TokenRoom,
    left_out: Counter[LeftOut],
) -> Iterator[_Row]:
    most = settings.max_tokens or room.max_length
    for paragraph in paragraphs:
        segments = {
            language: Segment(paragraph.paragraph_id, language, text, count_tokens(text) - room.fixed)
            for language, text in paragraph.texts.items()
        }
        lengths = [segment.n_tokens for segment in segments.values()]
        if min(lengths) < settings.min_tokens:
            left_out[LeftOut.TOO_SHORT] += 1
        elif max(lengths) > most:
            left_out[LeftOut.TOO_LONG] += 1
        else:
            yield paragraph.doc_id, segments


def _sets_of(
    rows: Sequence[_Row], settings: DiagnosisSettings, room: TokenRoom, left_out: Counter[LeftOut]
) -> Iterator[SegmentSet]:
    """Take n neighbours by length wherever they fit; each paragraph once, the longest first."""
    segments = sorted((row[1] for row in rows), key=_by_length)
    start = 0
    while start + settings.n <= len(segments):
        chosen = segments[start : start + settings.n]
        if _fits(chosen, settings, room):
            ids = sorted(_any(segment).segment_id for segment in chosen)
            yield SegmentSet("+".join(ids), tuple(sorted(chosen, key=lambda each: _any(each).segment_id)))
            start += settings.n
        else:
            left_out[LeftOut.LEFT_OVER] += 1
            start += 1
    left_out[LeftOut.LEFT_OVER] += len(segments) - start


def _by_length(segment: Mapping[str, Segment]) -> tuple[int, str]:
    return -max(each.n_tokens for each in segment.values()), _any(segment).segment_id


def _any(segment: Mapping[str, Segment]) -> Segment:
    return next(iter(segment.values()))


def _fits(chosen: Sequence[Mapping[str, Segment]], settings: DiagnosisSettings, room: TokenRoom) -> bool:
    """Whatever the languages of a document: it fits, and its segments are of like length."""
    by_language = [[segment[language].n_tokens for segment in chosen] for language in chosen[0]]
    longest = [max(lengths) for lengths in zip(*by_language, strict=True)]
    # Mixed documents put any language beside any other, so all lengths are compared together.
    compared = [list(chain.from_iterable(by_language))] if settings.mixed else by_language
    return room.holds(longest) and all(max(own) <= settings.ratio * min(own) for own in compared)
