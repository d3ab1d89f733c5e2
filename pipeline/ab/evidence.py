"""Where in a chunk the answer stands: the sentence, or pair of neighbouring sentences, that answers best.

This is an estimate without any label. Sentences are embedded plainly and on their own, so that their place in
the chunk cannot decide, and compared with the query; the words they share with it join in:

    score(sentence) = similarity + lexical_weight * coverage
    score(pair)     = 0.8 * better similarity + 0.2 * other similarity + lexical_weight * coverage + 0.05

so that a second sentence is shown where it is about as alike, or where the words it adds outweigh that it is
not. Pairs need no embedding of their own. `coverage` is the share of the query's words, rare ones counting
more. Only the sentences that share most words are embedded at all: eight of a chunk find what all of them
find, within half a point.

Chosen on half of the questions of English XQuAD and measured on the other half, and on COVID-QA:
`python -m tests.benchmarks.explain_quality evidence DATA`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipeline.ab.windows import Span, Terms, coverage, sentence_spans, terms

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]

_BETTER_SENTENCE = 0.8
_PAIR_BONUS = 0.05
# Where no window holds so much of the query, as in a chunk of another language, words choose no sentences.
_TELLING_COVERAGE = 0.3
# Scores closer than this are equal: embedding in another batch changes the seventh digit.
_DIGITS = 6


class EvidenceSource(StrEnum):
    """Who says where the answer stands."""

    ESTIMATE = "estimate"
    GOLD = "gold"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The part of a document that answers the query best.

    Attributes:
        start, end: character offsets in the document.
        text: the part itself.
        score: as ranked: similarity to the query, and words shared with it.
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
    """A chunk as evidence is sought in it.

    Attributes:
        text: the chunk.
        start: its offset in the document.
        doc_chars: the document's length.
        gold: offsets in the chunk of the answer, where it is known; it replaces the estimate.
    """

    text: str
    start: int
    doc_chars: int
    gold: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What evidence is compared with: the words, and their vector (dimension,)."""

    text: str
    vector: Vectors


def find_evidence(
    question: Question,
    passages: Sequence[Passage],
    embed: Embed,
    *,
    lexical_weight: float = 0.7,
    n_sentences: int = 8,
) -> list[Evidence | None]:
    """Find the best window of each passage; all sentences of all passages are embedded in one batch.

    Args:
        question: the query.
        passages: chunks.
        embed: texts to vectors (n, dimension), plainly.
        lexical_weight: how much shared words count beside similarity; 0 leaves them out.
        n_sentences: of each passage, those that are embedded; 0 for all.

    Returns:
        One evidence a passage; None where a passage has no sentence.
    """
    asked = terms(question.text)
    most = n_sentences if lexical_weight > 0 else 0
    windows = [_Windows(passage, asked, most) for passage in passages]
    texts = list(dict.fromkeys(text for own in windows for text in own.texts.values()))
    scores = embed(texts) @ question.vector if texts else np.empty(0, np.float32)
    by_text = dict(zip(texts, scores.tolist(), strict=True))
    return [own.best(by_text, lexical_weight) for own in windows]


class _Windows:
    """The windows of a passage: sentences and pairs of them, with the words they share with the question.

    Attributes:
        texts: the sentences to be embedded, by their number.
    """

    def __init__(self, passage: Passage, asked: Terms, n_sentences: int) -> None:
        self._passage = passage
        self._sentences = sentence_spans(passage.text) if passage.gold is None else (passage.gold,)
        words = [terms(passage.text[start:end]) for start, end in self._sentences]
        self._shared = coverage(asked, words, weighted_by=words)
        self._shared_by_pairs = coverage(asked, [a | b for a, b in pairwise(words)], weighted_by=words)
        self.texts = {
            number: passage.text[slice(*self._sentences[number])] for number in self._promising(n_sentences)
        }

    def best(self, similarities: Mapping[str, float], weight: float) -> Evidence | None:
        """The best window, given the similarity of each sentence's text."""
        scored = dict(self._scored(similarities, weight))
        if not scored:
            return None
        # Of equal windows the shortest, and of those the first.
        best = min(scored, key=lambda span: (-scored[span], span[1] - span[0], span))
        elsewhere = [score for span, score in scored.items() if span[1] <= best[0] or best[1] <= span[0]]
        return self._evidence(best, scored[best], scored[best] - max(elsewhere) if elsewhere else None)

    def _promising(self, n_sentences: int) -> Sequence[int]:
        """The sentences that share most words, alone or with a neighbour; all where words say little."""
        n = len(self._sentences)
        if not 0 < n_sentences < n or self._shared_by_pairs.max() < _TELLING_COVERAGE:
            return range(n)
        beside = np.zeros(n)
        beside[:-1] = self._shared_by_pairs
        beside[1:] = np.maximum(beside[1:], self._shared_by_pairs)
        order = np.argsort(-(self._shared + beside / 2), kind="stable")
        return sorted(order[:n_sentences].tolist())

    def _scored(self, similarities: Mapping[str, float], weight: float) -> Iterator[tuple[Span, float]]:
        alike = {number: similarities[text] for number, text in self.texts.items()}
        for number, similarity in alike.items():
            yield self._sentences[number], round(similarity + weight * float(self._shared[number]), _DIGITS)
            if number + 1 in alike:
                worse, better = sorted((similarity, alike[number + 1]))
                together = _BETTER_SENTENCE * better + (1 - _BETTER_SENTENCE) * worse + _PAIR_BONUS
                span = self._sentences[number][0], self._sentences[number + 1][1]
                yield span, round(together + weight * float(self._shared_by_pairs[number]), _DIGITS)

    def _evidence(self, span: Span, score: float, confidence: float | None) -> Evidence:
        passage, (start, end) = self._passage, span
        middle = (start + end) / 2
        return Evidence(
            start=passage.start + start,
            end=passage.start + end,
            text=passage.text[start:end],
            score=score,
            position_in_chunk=middle / len(passage.text),
            position_in_document=(passage.start + middle) / passage.doc_chars,
            confidence=confidence,
            source=EvidenceSource.ESTIMATE if passage.gold is None else EvidenceSource.GOLD,
        )
