"""The control: does calibration leave meaning, and short texts, alone?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.ab.windows import sentence_spans
from pipeline.diagnostics.measuring import DocumentEncoder, Measurements, TextVectors, cosine

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How near an arm stays to the plain one.

    Attributes:
        documents, documents_lowest: mean and lowest cosine between the two vectors of a document.
        segments, segments_lowest: the same for the segments by themselves.
        n_segments, n_segments_short: segments, and how many of them are shorter than one basket.
        n_short: texts (sentences and segments) shorter than one basket.
        short_difference: the largest difference in any number of their vectors; 0 is identical.
        n_queries: first and last sentences of segments, embedded plainly as queries.
        reciprocal_rank, first_rank: over the segments alone: mean reciprocal rank of the sentence's own
            segment, and how often it is first.
    """

    arm: str
    documents: float
    documents_lowest: float
    segments: float
    segments_lowest: float
    n_segments: int
    n_segments_short: int
    n_short: int
    short_difference: float
    n_queries: int
    reciprocal_rank: float
    first_rank: float


def sentences_of(texts: Sequence[str]) -> list[tuple[str, int]]:
    """The first and the last sentence of each text, with the text's number; once, where they are one."""
    found: list[tuple[str, int]] = []
    for number, text in enumerate(texts):
        spans = sentence_spans(text)
        for start, end in dict.fromkeys(spans[:1] + spans[-1:]):
            found.append((text[start:end], number))
    return found


def control_fidelity(
    encoder: DocumentEncoder, measured: Measurements, segments: TextVectors, sentences: TextVectors
) -> tuple[Fidelity, ...]:
    """Compare each arm with the plain one on documents, segments and short texts.

    Args:
        encoder: to embed the queries, and to count tokens.
        measured: the documents.
        segments: of the documents, alone.
        sentences: those of `sentences_of`, embedded as documents.
    """
    texts = sorted(segments.row, key=segments.row.__getitem__)
    queries = sentences_of(texts)
    own = np.array([number for _, number in queries])
    asked = next(iter(encoder.encode_queries([sentence for sentence, _ in queries]).values()))
    short_segments, short_sentences = (_short(encoder, part) for part in (segments, sentences))
    results = []
    for number, arm in enumerate(measured.arms):
        near = cosine(segments.vectors[number], segments.vectors[0])
        ranks = _ranks(asked, segments.vectors[number], own)
        results.append(
            Fidelity(
                arm=arm,
                documents=float(measured.fidelity[number].mean()),
                documents_lowest=float(measured.fidelity[number].min()),
                segments=float(near.mean()),
                segments_lowest=float(near.min()),
                n_segments=len(texts),
                n_segments_short=len(short_segments),
                n_short=len(short_segments) + len(short_sentences),
                short_difference=max(
                    _difference(segments, short_segments, number),
                    _difference(sentences, short_sentences, number),
                ),
                n_queries=len(queries),
                reciprocal_rank=float((1.0 / ranks).mean()),
                first_rank=float((ranks == 1).mean()),
            )
        )
    return tuple(results)


def _short(encoder: DocumentEncoder, texts: TextVectors) -> list[int]:
    return [row for text, row in texts.row.items() if encoder.count_tokens(text) < encoder.fewest_tokens]


def _difference(texts: TextVectors, rows: Sequence[int], arm: int) -> float:
    if not rows:
        return 0.0
    return float(np.abs(texts.vectors[arm][rows] - texts.vectors[0][rows]).max())


def _ranks(queries: Vectors, segments: Vectors, own: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rank of each query's own segment by inner product; of equal scores the earlier row is first."""
    scores = queries @ segments.T
    right = scores[np.arange(len(own)), own][:, None]
    earlier = np.arange(scores.shape[1]) < own[:, None]
    ranks: NDArray[np.intp] = 1 + ((scores > right) | ((scores == right) & earlier)).sum(axis=1)
    return ranks
