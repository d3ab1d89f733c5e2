"""A filtered search answers like an index that holds the allowed rows alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from indexes import IndexSpec, InvalidQueryError, RowFilter, Rows, VectorIndex, rank_documents

Make = Callable[..., np.ndarray]
KINDS = ["Flat", "SQ8", "SQfp16", "PQ8x4", "IVF8,Flat", "IVF8,SQ8", "HNSW16", "PCA8,Flat", "PCA8,IVF8,Flat"]
DIM = 16
N_ROWS = 12_000  # so that a filter of one third is searched by FAISS, not row by row


def index_of(vectors: np.ndarray, factory: str = "Flat") -> VectorIndex:
    settings = {"nprobe": 8} if "IVF" in factory else {}
    return VectorIndex.build(vectors, dim=vectors.shape[1], spec=IndexSpec(factory, **settings))


def every(step: int, n_rows: int) -> RowFilter:
    mask = np.zeros(n_rows, bool)
    mask[::step] = True
    return RowFilter(mask)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    made = np.random.default_rng(3).standard_normal((N_ROWS, DIM))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("factory", KINDS)
@pytest.mark.parametrize("step", [2, 1000])
def test_only_allowed_rows_come_back_and_depth_of_them(factory: str, step: int, vectors: np.ndarray) -> None:
    allowed = every(step, N_ROWS)
    hits = index_of(vectors, factory).search(vectors[17], 10, allowed=allowed)
    assert len(hits) == 10
    assert allowed.mask[hits.rows].all()
    assert (np.diff(hits.scores) <= 0).all()


@pytest.mark.parametrize("factory", ["Flat", "IVF8,Flat"])
@pytest.mark.parametrize("step", [2, 7, 1000])
def test_an_exact_index_stays_exact(factory: str, step: int, vectors: np.ndarray) -> None:
    """The rows and scores of an index of the allowed rows alone, which are known by their place in it."""
    alone = index_of(vectors[::step]).search(vectors[17], 12)
    hits = index_of(vectors, factory).search(vectors[17], 12, allowed=every(step, N_ROWS))
    assert hits.rows.tolist() == (alone.rows * step).tolist()
    np.testing.assert_array_equal(hits.scores, alone.scores)


def test_a_graph_finds_what_few_rows_allow(vectors: np.ndarray) -> None:
    """Half of the rows: the graph is walked; without a longer candidate list recall would fall."""
    allowed = every(2, N_ROWS)
    exact = index_of(vectors).search(vectors[17], 50, allowed=allowed)
    walked = index_of(vectors, "HNSW16").search(vectors[17], 50, allowed=allowed)
    assert len(np.intersect1d(exact.rows, walked.rows)) >= 45


def test_a_kind_that_faiss_cannot_filter_is_scored_row_by_row(vectors: np.ndarray) -> None:
    hits = index_of(vectors, "Flat,RFlat").search(vectors[17], 12, allowed=every(2, N_ROWS))
    expected = index_of(vectors).search(vectors[17], 12, allowed=every(2, N_ROWS))
    assert hits.rows.tolist() == expected.rows.tolist()


@pytest.mark.parametrize("k", [1, 3, 6])
def test_documents_are_ranked_as_if_the_others_were_not_there(
    k: int, scored: Make, query: np.ndarray
) -> None:
    index = index_of(scored(0.9, 0.5, 0.8, 0.5, 0.7, 0.5))
    rows = Rows.from_ids([f"c{i}" for i in range(6)], ["a", "z", "b", "y", "a", "x"])
    documents = {"a": False, "b": True, "x": True, "y": True, "z": True}
    mask = np.array([documents[name.as_py()] for name in rows.doc_ids.dictionary])
    ranking = rank_documents(index, rows, query, k, allowed=RowFilter.of_documents(rows, mask))
    assert ranking.doc_ids == ("b", "x", "y", "z")[:k]  # the tie of three by id
    assert ranking.exhausted == (k >= 4)


def test_ties_at_the_border_are_seen_with_a_filter(query: np.ndarray, scored: Make) -> None:
    """Five thousand tied rows, more than are scored outright: the first ids win, as without a filter."""
    n_rows = 10_000
    index = index_of(scored(*[0.5] * n_rows))
    rows = Rows.from_ids([f"c{i}" for i in range(n_rows)], [f"{i:05}" for i in reversed(range(n_rows))])
    ranking = rank_documents(index, rows, query, 2, allowed=every(2, n_rows))
    assert ranking.doc_ids == ("00001", "00003")


def test_nothing_allowed_gives_nothing(vectors: np.ndarray) -> None:
    index = index_of(vectors)
    rows = Rows.from_ids([str(i) for i in range(N_ROWS)], [str(i) for i in range(N_ROWS)])
    ranking = rank_documents(index, rows, vectors[0], 5, allowed=RowFilter(np.zeros(N_ROWS, bool)))
    assert ranking.doc_ids == ()
    assert ranking.exhausted


def test_a_filter_of_another_length_is_refused(scored: Make, query: np.ndarray) -> None:
    with pytest.raises(InvalidQueryError, match=r"shape \(2,\), got bool of \(3,\)"):
        index_of(scored(0.5, 0.4)).search(query, 1, allowed=RowFilter(np.ones(3, bool)))
