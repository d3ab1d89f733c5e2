"""Headings stay with what they head: no chunk ends with one, unless the text does.

A chunk that is nothing but a heading is short and says what it is about, so that it ranks above the chunk
with the answer. The splitter's borders are therefore moved: a heading at the end of a piece goes to the next
piece; where that is then too long, its end becomes a piece of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

from pipeline.chunking.spans import Span, tidy, trim
from pipeline.markdown import headings

Resplit = Callable[[Span, int], "tuple[Span, list[Span]] | None"]


def headings_joined(text: str, spans: Sequence[Span], split: Resplit) -> list[Span]:
    """Move the borders of `spans` so that headings stand before their text.

    Args:
        text: what the spans are parts of.
        spans: starts and ends strictly increase.
        split: cut a span at one or more borders behind a given place, so that each part fits; returns the
            first part and the others, or None if it cannot be done.

    Returns:
        Spans that hold all that the given ones hold; starts and ends strictly increase.
    """
    found = Headings(text) if len(spans) > 1 else None
    if not found:
        return list(spans)
    waiting, kept = deque(spans), list[Span]()
    while waiting:
        span = waiting.popleft()
        begin = found.start_of_last(span)
        if begin is None or not waiting:
            kept.append(span)
            continue
        following = waiting.popleft()
        floor = max(span.end, following.start)  # they may overlap
        joined = split(Span(min(begin, following.start), following.end), floor)
        if joined is None:
            kept.append(span)
            waiting.appendleft(following)
            continue
        rest, others = joined
        waiting.extendleft(reversed([rest, *others]))
        before = trim(text, Span(span.start, begin))
        if before.start < before.end and not (kept and before.end <= kept[-1].end):
            kept.append(before)
    return tidy(text, kept)


class Headings:
    """The headings of a text, for asking what a piece ends with; false without any."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._headings = list(headings(text))
        self._starts = [heading.start for heading in self._headings]

    def __bool__(self) -> bool:
        return bool(self._headings)

    def start_of_last(self, span: Span) -> int | None:
        """Where the headings begin that a piece ends with; None if it ends with something else."""
        begin, end = None, span.end
        for number in range(bisect_left(self._starts, span.end) - 1, -1, -1):
            heading = self._headings[number]
            if heading.start < span.start or self._text[heading.end : end].strip():
                break
            begin = end = heading.start
        return begin
