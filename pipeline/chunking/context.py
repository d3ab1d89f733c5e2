"""What stands before a chunk when it is embedded: its document's title, and the headings above it.

A part with which the chunk itself begins is left out, so that nothing is embedded twice. A context never
takes more than its share of the budget, and it is known of each whether it was cut for that.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from pipeline.chunking.meter import TokenMeter
from pipeline.chunking.spans import Span
from pipeline.config import ContextKind
from pipeline.markdown import Heading, headings
from pipeline.records import Document, embedded_text

_BETWEEN = " > "
_WORD_BORDER = re.compile(r"\s+")
# What may stand before a heading's own words.
_MARKUP = "#*_ \t"


class Context(NamedTuple):
    """The text before a chunk, and whether it was cut to leave room for the chunk."""

    text: str = ""
    is_cut: bool = False


class Contexts(Protocol):
    """The contexts of the chunks of one text."""

    @property
    def most_tokens(self) -> int:
        """Tokens of the longest of them."""
        ...

    def before(self, span: Span) -> Context:
        """Say what stands before the chunk at `span`."""
        ...


class NoContexts:
    """Chunks are embedded as they are."""

    most_tokens = 0

    def before(self, span: Span) -> Context:  # noqa: ARG002
        """Nothing stands before any chunk."""
        return Context()


class DocumentContexts:
    """The contexts of one document's chunks: its title and perhaps its headings."""

    def __init__(self, document: Document, kind: ContextKind, limiter: ContextLimiter) -> None:
        self._text = document.text
        self._title = " ".join(document.title.split())
        self._paths = list(_paths(document.text)) if kind == "headings" else []
        self._starts = [start for start, _ in self._paths]
        self._limiter = limiter
        self._known: dict[str, Context] = {"": Context()}

    @cached_property
    def most_tokens(self) -> int:
        """Tokens of the longest context that a chunk can have."""
        all_parts = [(self._title, *path) for _, path in [(0, ()), *self._paths]]
        texts = {self._limited(_joined(parts)).text for parts in all_parts}
        return max(self._limiter.count(sorted(texts)))

    def before(self, span: Span) -> Context:
        """Say what stands before the chunk at `span`."""
        chunk = self._text[span.start : span.end]
        above = bisect_right(self._starts, span.start)
        path = self._paths[above - 1][1] if above else ()
        parts = [part for part in (self._title, *path) if not _begins_with(chunk, part)]
        return self._limited(_joined(parts))

    def _limited(self, text: str) -> Context:
        if text not in self._known:
            self._known[text] = self._limiter.limited(text)
        return self._known[text]


class ContextLimiter:
    """Cuts contexts at a word border; `limit` is in tokens, with what parts a context from its chunk."""

    def __init__(self, meter: TokenMeter, limit: int) -> None:
        self._meter = meter
        self._limit = limit

    def count(self, contexts: Sequence[str]) -> list[int]:
        """Count the tokens that each context adds to a chunk."""
        texts = [embedded_text(context, "") for context in contexts]
        return [n_tokens - self._meter.overhead for n_tokens in self._meter.count(texts)]

    def limited(self, text: str) -> Context:
        """Return as many words of `text` as the limit allows."""
        if self._n_tokens(text) <= self._limit:
            return Context(text)
        borders = [border.start() for border in _WORD_BORDER.finditer(text)]
        n_fitting = bisect_right(borders, self._limit, key=lambda border: self._n_tokens(text[:border]))
        kept = text[: borders[n_fitting - 1]] if n_fitting else ""
        return Context(kept.removesuffix(_BETWEEN.rstrip()), is_cut=True)

    def _n_tokens(self, text: str) -> int:
        return self.count([text])[0]


def _paths(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """For each heading of `text` its place, and the headings from the highest down to it."""
    path: list[Heading] = []
    for heading in headings(text):
        path = [above for above in path if above.level < heading.level] + [heading]
        yield heading.start, tuple(" ".join(above.text.split()) for above in path)


def _joined(parts: Sequence[str]) -> str:
    """Join the parts, each once: a title is mostly a heading too."""
    distinct: dict[str, str] = {}
    for part in filter(None, parts):
        distinct.setdefault(part.casefold(), part)
    return _BETWEEN.join(distinct.values())


def _begins_with(chunk: str, part: str) -> bool:
    """Tell whether `chunk` begins with `part`, as whole words, whatever the markup, case and spaces."""
    opening = chunk.lstrip(_MARKUP)[: 2 * len(part) + 16]
    words, wanted = " ".join(opening.split()).casefold(), part.lstrip(_MARKUP).casefold()
    return words.startswith(wanted) and not words[len(wanted) : len(wanted) + 1].isalnum()
