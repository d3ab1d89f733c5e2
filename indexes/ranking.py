"""Documents ranked by their best chunk.

A document's score is that of its best chunk (of equal ones, the lowest row). Documents stand by descending
score, equal scores by ascending doc_id, so that the top 3 is always the start of the top 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from indexes.errors import InvalidIndexError
from indexes.row_filter import RowFilter
from indexes.rows import Rows
from indexes.vector_index import FloatArray, Hits, VectorIndex, check_count

TIE_TOLERANCE = 1e-6
_FIRST_DEPTH = 128


def tied(score: float, other: float) -> bool:
    """Whether two scores are equal as far as float32 can tell: within 1e-6, relative for scores above 1."""
    return abs(score - other) <= TIE_TOLERANCE * max(1.0, abs(score), abs(other))


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document in a ranking: `rank` counts from 1, `row` is its best chunk, `score` that chunk's score."""

    doc_id: str
    rank: int
    score: float
    row: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best documents for one query, best first.

    `exhausted` says that the index has no document to give beyond these; a ranking that is shorter than was
    asked for is always exhausted.
    """

    documents: tuple[RankedDocument, ...]
    exhausted: bool

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[RankedDocument]:
        return iter(self.documents)

    @property
    def doc_ids(self) -> tuple[str, ...]:
        """The documents' ids, best first."""
        return tuple(document.doc_id for document in self.documents)

    def top(self, k: int) -> Ranking:
        """Return the ranking cut after rank k."""
        return Ranking(self.documents[:k], self.exhausted and len(self.documents) <= k)


def rank_documents(
    index: VectorIndex, rows: Rows, query: FloatArray, k: int, *, allowed: RowFilter | None = None
) -> Ranking:
    """Return the k best documents for a query of shape (dim,), fewer if the index has no more to give.

    Fetches ever more chunks until k documents are found and every chunk not fetched is clearly below the k-th
    of them, so that no document is missed because of a tie or of another document with many good chunks. With
    a graph index this holds among the chunks that the graph search reaches. With `allowed`, the ranking is
    that of an index which holds the allowed rows alone.

    Raises:
        InvalidQueryError: k below 1, or a query that cannot be searched.
        InvalidIndexError: the row map has another number of rows than the index.
    """
    check_count("k", k)
    if index.n_rows != rows.n_rows:
        raise InvalidIndexError(
            f"the index holds {index.n_rows} rows but the row map {rows.n_rows}; open one build"
        )
    depth = max(_FIRST_DEPTH, 2 * k)
    while True:
        hits = index.search(query, depth, allowed=allowed)
        best = _best_chunks(hits, rows)
        exhausted = len(hits) < depth or depth >= index.n_rows
        if exhausted or _is_settled(hits, best, k):
            return Ranking(_ranked(best, rows, k), exhausted and len(best) <= k)
        depth *= 2


def _best_chunks(hits: Hits, rows: Rows) -> Hits:
    """Keep the first, and so the best, hit of each document, in the order of the hits."""
    _, first = np.unique(rows.document_codes[hits.rows], return_index=True)
    first.sort()
    return Hits(hits.rows[first], hits.scores[first])


def _is_settled(hits: Hits, best: Hits, k: int) -> bool:
    if len(best) < k:
        return False
    last_fetched, last_ranked = float(hits.scores[-1]), float(best.scores[k - 1])
    return last_fetched < last_ranked and not tied(last_fetched, last_ranked)


def _ranked(best: Hits, rows: Rows, k: int) -> tuple[RankedDocument, ...]:
    """Order the documents by score and doc_id; ids are looked up only down to the last tie with the k-th."""
    n_candidates = len(best)
    if n_candidates > k:
        n_candidates = int(np.count_nonzero(best.scores >= best.scores[k - 1]))
    found = best.rows[:n_candidates]
    scores = best.scores[:n_candidates]
    candidates = sorted(zip((-scores).tolist(), rows.doc_ids_of(found), found.tolist(), strict=True))
    return tuple(
        RankedDocument(doc_id, rank, -negated, row)
        for rank, (negated, doc_id, row) in enumerate(candidates[:k], start=1)
    )
