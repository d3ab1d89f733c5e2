"""Where in a chunk the answer stands: the window of one or two sentences that is nearest to the query.

This is an estimate by the plain encoder itself, without any label: windows are embedded on their own, so
that their place in the chunk cannot decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from sentencex import get_sentence_boundaries

Vectors = NDArray[np.float32]

# sentencex knows the abbreviations of many languages; for texts of unknown language its English rules also
# end sentences at the full stops of other scripts.
_LANGUAGE = "en"

# Pairs are looked at only around so many of a passage's best sentences: a third of the cost, and a pair
# without a good sentence is no good pair.
_SENTENCES_JOINED = 2

Span = tuple[int, int]


class EvidenceSource(StrEnum):
    """Who says where the answer stands."""

    ESTIMATE = "estimate"
    GOLD = "gold"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The part of a chunk that answers the query best.

    Attributes:
        start, end: character offsets in the document.
        text: the part itself.
        score: similarity to the query, as ranked.
        position_in_chunk, position_in_document: where its middle stands, 0 is the beginning, 1 the end.
        confidence: by how much it beats the best window elsewhere in the chunk; None where there is none.
        source: an estimate, or a gold span from the query file.
    """

    start: int
    end: int
    text: str
    score: float
    position_in_chunk: float
    position_in_document: float
    confidence: float | None = None
    source: EvidenceSource = EvidenceSource.ESTIMATE


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk as evidence is sought in it: its text, its start in the document, the document's length."""

    text: str
    start: int
    doc_chars: int


def sentence_spans(text: str) -> list[Span]:
    """Cut a text into sentences; return their spans without the white space around them."""
    spans = []
    for boundary in get_sentence_boundaries(_LANGUAGE, text):
        start, end = boundary["start_index"], boundary["end_index"]
        sentence = text[start:end]
        start += len(sentence) - len(sentence.lstrip())
        end -= len(sentence) - len(sentence.rstrip())
        if start < end:
            spans.append((start, end))
    return spans


def find_evidence(
    query: Vectors, passages: Sequence[Passage], embed: Callable[[Sequence[str]], Vectors]
) -> list[Evidence | None]:
    """Find the best window of each passage, in two batches: all sentences, then pairs around the best ones.

    Args:
        query: (dimension,).
        passages: chunks.
        embed: texts to vectors (n, dimension), plainly.

    Returns:
        One evidence a passage; None where a passage has no sentence.
    """
    scorer = _WindowScorer(query, embed)
    sentences = [sentence_spans(passage.text) for passage in passages]
    by_sentence = scorer.score(passages, sentences)
    pairs = [_pairs_around_best(own, scores) for own, scores in zip(sentences, by_sentence, strict=True)]
    by_pair = scorer.score(passages, pairs)
    return [
        _best(passage, [*own, *joined], np.concatenate([alone, together]))
        for passage, own, joined, alone, together in zip(
            passages, sentences, pairs, by_sentence, by_pair, strict=True
        )
    ]


def _pairs_around_best(sentences: Sequence[Span], scores: Vectors) -> list[Span]:
    """The windows of two neighbouring sentences that hold one of the best sentences."""
    best = set(np.argsort(-scores, kind="stable")[:_SENTENCES_JOINED].tolist())
    return [
        (sentences[first][0], sentences[first + 1][1])
        for first in range(len(sentences) - 1)
        if first in best or first + 1 in best
    ]


class _WindowScorer:
    """Compares windows of passages with a query; each distinct text is embedded once."""

    def __init__(self, query: Vectors, embed: Callable[[Sequence[str]], Vectors]) -> None:
        self._query = query
        self._embed = embed

    def score(self, passages: Sequence[Passage], spans: Sequence[Sequence[Span]]) -> list[Vectors]:
        """One array of scores a passage, in the order of its spans."""
        texts = [
            [passage.text[start:end] for start, end in own]
            for passage, own in zip(passages, spans, strict=True)
        ]
        distinct = list(dict.fromkeys(text for own in texts for text in own))
        scores = self._embed(distinct) @ self._query if distinct else np.empty(0, np.float32)
        by_text = dict(zip(distinct, scores.tolist(), strict=True))
        return [np.array([by_text[text] for text in own], np.float32) for own in texts]


def _best(passage: Passage, spans: Sequence[Span], scores: Vectors) -> Evidence | None:
    if not spans:
        return None
    # Of equal windows the shortest: a sentence that adds nothing is no part of the answer.
    best = min(range(len(spans)), key=lambda i: (-round(float(scores[i]), 6), spans[i][1] - spans[i][0]))
    start, end = spans[best]
    middle = (start + end) / 2
    return Evidence(
        start=passage.start + start,
        end=passage.start + end,
        text=passage.text[start:end],
        score=float(scores[best]),
        position_in_chunk=middle / len(passage.text),
        position_in_document=(passage.start + middle) / passage.doc_chars,
    )
