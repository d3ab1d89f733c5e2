"""Exact search in every index of a data set, documents by their best chunk, ties by doc_id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.datasets.records import Corpus, EvaluationQuery, EvaluationSet
from pipeline.evaluation.metrics import rank_columns
from pipeline.evaluation.vectors import RowMap, Vectors

Floats = NDArray[np.float64]
# (query rows of the set, corpus) -> (len(query rows), len(corpus.doc_ids)), -inf where nothing is retrieved.
Scorer = Callable[[Sequence[int], Corpus], Floats]

DEPTH = 100
_NUMBERS_AT_ONCE = 8_000_000
# Sums of equal vectors differ in their last bits by where they stand in a matrix; equal must stay equal.
_DECIMALS = 7


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best documents for one query, best first: ids and scores."""

    doc_ids: tuple[str, ...]
    scores: Floats


@dataclass(frozen=True, slots=True)
class Rankings:
    """One system's rankings, by query id."""

    by_query: Mapping[str, Ranking]

    def run(self, k: int) -> dict[str, dict[str, float]]:
        """The first k of each query as a run."""
        return {
            query_id: dict(zip(ranking.doc_ids[:k], ranking.scores[:k].tolist(), strict=True))
            for query_id, ranking in self.by_query.items()
        }

    def lists(self) -> Iterator[tuple[str, Iterable[tuple[str, float]]]]:
        """Each query's documents and scores, best first."""
        for query_id, ranking in self.by_query.items():
            yield query_id, zip(ranking.doc_ids, ranking.scores.tolist(), strict=True)


def rank_all(data: EvaluationSet, scorer: Scorer, *, depth: int = DEPTH) -> Rankings:
    """Rank the documents of each query's own index.

    Args:
        data: the set.
        scorer: scores some queries against all documents of an index.
        depth: documents that are kept of each ranking.
    """
    by_corpus: dict[str, list[int]] = {corpus.name: [] for corpus in data.corpora}
    for row, query in enumerate(data.queries):
        by_corpus[query.corpus].append(row)
    found: dict[str, Ranking] = {}
    for corpus in data.corpora:
        rows = by_corpus[corpus.name]
        step = max(1, _NUMBERS_AT_ONCE // len(corpus.doc_ids))
        for first in range(0, len(rows), step):
            block = rows[first : first + step]
            found.update(_ranked([data.queries[row] for row in block], corpus, scorer(block, corpus), depth))
    return Rankings({query.query_id: found[query.query_id] for query in data.queries})


def dense_scorer(data: EvaluationSet, rows: RowMap, documents: Vectors, queries: Vectors) -> Scorer:
    """Score by inner product, a document by its best row.

    Args:
        data: the set.
        rows: which rows belong to which document.
        documents: (n_rows, dimension).
        queries: (n_queries, dimension), in the order of the set.
    """
    place = {doc_id: number for number, doc_id in enumerate(rows.doc_ids)}
    prepared = {corpus.name: _rows_of(corpus, rows, place) for corpus in data.corpora}

    @lru_cache(maxsize=1)
    def matrix(name: str) -> Floats:
        return documents[prepared[name][1]].astype(np.float64).T

    def score(query_rows: Sequence[int], corpus: Corpus) -> Floats:
        columns, chosen, starts = prepared[corpus.name]
        scores = np.full((len(query_rows), len(corpus.doc_ids)), -np.inf)
        if len(chosen):
            asked = queries[list(query_rows)].astype(np.float64)
            every = np.round(asked @ matrix(corpus.name), _DECIMALS)
            scores[:, columns] = np.maximum.reduceat(every, starts, axis=1)
        return scores

    return score


def _rows_of(
    corpus: Corpus, rows: RowMap, place: Mapping[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The columns that have vectors, all their rows, and where each document's begin among these."""
    columns = np.array([n for n, doc_id in enumerate(corpus.doc_ids) if doc_id in place], dtype=np.int64)
    numbers = [place[corpus.doc_ids[column]] for column in columns]
    spans = [np.arange(rows.starts[number], rows.starts[number + 1]) for number in numbers]
    lengths = np.array([len(span) for span in spans], dtype=np.int64)
    chosen = np.concatenate(spans) if spans else np.empty(0, dtype=np.int64)
    return columns, chosen, np.cumsum(lengths) - lengths


def _ranked(
    queries: Sequence[EvaluationQuery], corpus: Corpus, scores: Floats, depth: int
) -> Iterator[tuple[str, Ranking]]:
    ranked = rank_columns(scores, k=min(depth, scores.shape[1]))
    for query, columns, own in zip(queries, ranked, scores, strict=True):
        columns = columns[np.isfinite(own[columns])]
        yield query.query_id, Ranking(tuple(corpus.doc_ids[column] for column in columns), own[columns])
