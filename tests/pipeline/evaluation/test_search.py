"""Exact search: best chunk of a document, own index of a query, ties by id."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.evaluation.search import dense_scorer, rank_all
from pipeline.evaluation.vectors import RowMap
from tests.pipeline.evaluation.making import document, load, posir, qrel, query


def _data(tmp_path: Path):  # type: ignore[no-untyped-def]
    corpus = [
        document("b", "1", shift=0),
        document("a", "2", shift=0),
        document("c", "3", shift=0),
        document("d", "4", shift=1),
    ]
    queries = [query("q1", "x", [0, 1], 1), query("q2", "y", [0, 1], 1)]
    return load(posir(tmp_path, corpus, queries, [qrel("q1", "b"), qrel("q2", "d")]))


def test_documents_stand_by_their_best_row_in_their_own_index(tmp_path: Path) -> None:
    data = _data(tmp_path)
    rows = RowMap(("b", "a", "c", "d"), np.array([0, 2, 3, 5, 6]))
    documents = np.array([[0, 1], [1, 0], [0.5, 0], [0.2, 0], [0.1, 0], [1, 1]], dtype=np.float32)
    queries = np.array([[1, 0], [1, 0]], dtype=np.float32)
    ranked = rank_all(data, dense_scorer(data, rows, documents, queries), depth=10).by_query
    assert ranked["q1"].doc_ids == ("b", "a", "c")
    np.testing.assert_allclose(ranked["q1"].scores, [1, 0.5, 0.2], atol=1e-6)
    assert ranked["q2"].doc_ids == ("d",)


def test_ties_stand_by_id_and_survive_the_depth(tmp_path: Path) -> None:
    data = _data(tmp_path)
    rows = RowMap(("b", "a", "c", "d"), np.array([0, 1, 2, 3, 4]))
    rng = np.random.default_rng(5)
    same = rng.normal(size=64).astype(np.float32)
    documents = np.stack([same, same, same, same])
    queries = rng.normal(size=(2, 64)).astype(np.float32)
    scorer = dense_scorer(data, rows, documents, queries)
    assert rank_all(data, scorer, depth=10).by_query["q1"].doc_ids == ("a", "b", "c")
    assert rank_all(data, scorer, depth=2).by_query["q1"].doc_ids == ("a", "b")


def test_a_document_without_rows_is_not_retrieved(tmp_path: Path) -> None:
    data = _data(tmp_path)
    rows = RowMap(("b", "c"), np.array([0, 1, 2]))
    documents, queries = np.eye(2, dtype=np.float32), np.ones((2, 2), dtype=np.float32)
    ranked = rank_all(data, dense_scorer(data, rows, documents, queries)).by_query
    assert ranked["q1"].doc_ids == ("b", "c")
    assert ranked["q2"].doc_ids == ()
