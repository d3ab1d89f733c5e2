"""An encoder whose answers can be computed by hand: a document's vector is a weighted mean of its segments.

Every word is a dimension of its own, so that segments of different words are orthogonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from pipeline.encoders.calibration import BasketGeometry, Calibration, Pooling
from pipeline.encoders.contextual import Attention, Observation

DIMENSION = 64


def direction(text: str) -> np.ndarray:
    """The unit vector of a segment: the sum of its words' own directions."""
    vector = np.zeros(DIMENSION)
    for word in text.split():
        vector[int(word.removeprefix("w"))] += 1.0
    return vector / np.linalg.norm(vector)


@dataclass
class PlantedEncoder:
    """In each arm place p weighs weights[arm][p]; inside, a part keeps kept[arm][p] of itself.

    The rest of a part inside the document is the direction of the document's first segment, so that tau is
    known: kept / sqrt(kept^2 + (1 - kept)^2) from the second place on, and 1 at the first.
    """

    weights: dict[str, Sequence[float]]
    kept: dict[str, Sequence[float]] = field(default_factory=dict)
    max_length: int = 100
    fewest_tokens: int = 3
    calls: list[int] = field(default_factory=list)
    noise: np.random.Generator | None = None

    @property
    def attention_baskets(self) -> BasketGeometry:
        return Calibration().geometry(Pooling.LAST)

    @property
    def arms(self) -> dict[str, None]:
        return dict.fromkeys(self.weights)

    def count_tokens(self, text: str) -> int:
        return len(text.split()) + 2

    def observe(self, texts, parts, *, attention=False, progress=None) -> dict[str, Observation]:
        self.calls.append(len(texts))
        if progress is not None:
            progress(1, self.count_tokens(texts[0]))  # the first batch; the rest is told at the end
        return {arm: self._observe(arm, texts, parts, attention) for arm in self.weights}

    def encode_queries(self, texts):
        return {arm: np.stack([direction(text) for text in texts]) for arm in self.weights}

    def _observe(self, arm, texts, parts, attention) -> Observation:
        cut = [
            [direction(text[start:end]) for start, end in own] for text, own in zip(texts, parts, strict=True)
        ]
        vectors = np.stack([np.average(own, axis=0, weights=self.weights[arm][: len(own)]) for own in cut])
        if self.noise is not None and len(cut[0]) > 1:
            vectors += 0.05 * self.noise.normal(size=vectors.shape)
        kept = self.kept.get(arm, [1.0] * 6)
        inside = [
            [keep * part + (1 - keep) * own[0] for part, keep in zip(own, kept, strict=False)] for own in cut
        ]
        return Observation(vectors, np.stack(inside), self._attention(arm, len(texts)) if attention else None)

    def _attention(self, arm: str, n_texts: int) -> Attention:
        weights = np.array(self.weights[arm][:3], dtype=float)
        share = weights / weights.sum()
        whole = np.ones((n_texts, 2, 1))
        baskets = np.tile(share * 0.9, (n_texts, 2, 1, 1))
        return Attention(0.06 * whole, 0.04 * whole, baskets, (share[0] - share[2]) * whole)


class Silent:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.done: dict[str, int] = {}

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    @contextmanager
    def task(self, label, total, unit):
        self.done[label] = 0

        def advance(amount: int) -> None:
            self.done[label] += amount

        yield advance
        assert self.done[label] == total


def words(first: int, count: int) -> str:
    return " ".join(f"w{number}" for number in range(first, first + count))
