"""The sentences of a chunk, and the words that they share with a query."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sentencex import get_sentence_boundaries

from pipeline.scripts import UNSPACED

# sentencex knows the abbreviations of many languages; for texts of unknown language its English rules also
# end sentences at the full stops of other scripts.
_LANGUAGE = "en"
_TEXTS_REMEMBERED = 4096

# Words by their first letters: "rotated" meets "rotation" in any language that inflects at the end.
_STEM = 5
# Scripts without spaces are taken two characters at a time.
_UNSPACED = re.compile(f"[{UNSPACED}]+")
_WORD = re.compile(r"\w+")

Span = tuple[int, int]
Terms = frozenset[str]


@lru_cache(_TEXTS_REMEMBERED)
def sentence_spans(text: str) -> tuple[Span, ...]:
    """Cut a text into sentences; return their spans without the white space around them."""
    spans = []
    for boundary in get_sentence_boundaries(_LANGUAGE, text):
        start, end = boundary["start_index"], boundary["end_index"]
        sentence = text[start:end]
        start += len(sentence) - len(sentence.lstrip())
        end -= len(sentence) - len(sentence.rstrip())
        if start < end:
            spans.append((start, end))
    return tuple(spans)


def covering_sentences(sentences: Sequence[Span], span: Span) -> Span:
    """The sentences that a span touches, as one span; the span itself where it touches none."""
    touched = [sentence for sentence in sentences if sentence[0] < span[1] and span[0] < sentence[1]]
    return (touched[0][0], touched[-1][1]) if touched else span


@lru_cache(8 * _TEXTS_REMEMBERED)
def terms(text: str) -> Terms:
    """The words of a text as they are compared: lower case, by their first letters."""
    folded = text.casefold()
    found = {word[:_STEM] for word in _WORD.findall(_UNSPACED.sub(" ", folded))}
    for run in _UNSPACED.findall(folded):
        found.update(run[i : i + 2] for i in range(max(1, len(run) - 1)))
    return frozenset(found)


def coverage(query: Terms, windows: Sequence[Terms], weighted_by: Sequence[Terms]) -> NDArray[np.float64]:
    """The share of the query's words that each window holds, rare words counting more: (n_windows,), 0 to 1.

    A word's weight is BM25's inverse document frequency, with the chunk's own sentences as the documents:
    what every sentence says does not tell them apart.
    """
    counts = Counter(term for sentence in weighted_by for term in sentence & query)
    n = len(weighted_by)
    weights = {term: math.log(1 + (n - counts[term] + 0.5) / (counts[term] + 0.5)) for term in sorted(query)}
    total = math.fsum(weights.values()) or 1.0
    return np.array(
        [math.fsum(weights[term] for term in sorted(window & query)) / total for window in windows]
    )
