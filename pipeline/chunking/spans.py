"""Spans of a text, in characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """The part `text[start:end]` of a text."""

    start: int
    end: int


class Piece(NamedTuple):
    """A span and its length in tokens as it is embedded."""

    start: int
    end: int
    n_tokens: int


def trim(text: str, span: Span) -> Span:
    """Take white space off both ends of `span`."""
    part = text[span.start : span.end]
    start = span.start + len(part) - len(part.lstrip())
    return Span(start, max(start, span.start + len(part.rstrip())))


def tidy(text: str, spans: Iterable[Span]) -> list[Span]:
    """Trim `spans` and drop those that lie within a neighbour: starts and ends then strictly increase."""
    kept: list[Span] = []
    for span in (trim(text, span) for span in spans):
        if span.start == span.end or (kept and span.end <= kept[-1].end):
            continue
        while kept and span.start <= kept[-1].start:
            kept.pop()
        kept.append(span)
    return kept
