"""Measures against values computed by hand and by trec_eval itself."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
import pytrec_eval

from pipeline.errors import DataError
from pipeline.evaluation.metrics import best_documents, rank_columns, score_run


def test_values_by_hand() -> None:
    run = {"q1": {"a": 3.0, "b": 2.0, "c": 1.0}, "q2": {"c": 9.0, "a": 8.0}}
    qrels = {"q1": {"b": 1}, "q2": {"a": 2, "b": 1, "c": 0}}

    scores = score_run(run, qrels, query_ids=["q2", "q1"], k=10)

    ideal = 2 + 1 / log2(3)
    assert scores.query_ids == ("q2", "q1")
    assert scores.ndcg == pytest.approx([2 / log2(3) / ideal, 1 / log2(3)])
    assert scores.recall == pytest.approx([0.5, 1.0])
    assert scores.mrr == pytest.approx([0.5, 0.5])
    assert list(scores.by_name) == ["nDCG@10", "recall@10", "MRR@10"]


def test_agrees_with_trec_eval_on_random_runs_without_ties() -> None:
    rng = np.random.default_rng(3)
    run = {f"q{i}": {f"d{j}": float(rng.random()) for j in range(40)} for i in range(30)}
    qrels = {q: {f"d{j}": int(rng.integers(4)) for j in rng.permutation(40)[:6]} | {"d0": 1} for q in run}

    own = score_run(run, qrels, query_ids=list(run), k=7)

    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.7", "recall.7"}).evaluate(run)
    assert own.ndcg == pytest.approx([theirs[q]["ndcg_cut_7"] for q in run])
    assert own.recall == pytest.approx([theirs[q]["recall_7"] for q in run])


def test_reciprocal_rank_ends_at_k() -> None:
    run = {"q": {"a": 3.0, "b": 2.0, "gold": 1.0}}

    assert score_run(run, {"q": {"gold": 1}}, query_ids=["q"], k=2).mrr == pytest.approx([0.0])
    assert score_run(run, {"q": {"gold": 1}}, query_ids=["q"], k=3).mrr == pytest.approx([1 / 3])


def test_ties_stand_by_ascending_id_whatever_the_order_of_the_run() -> None:
    for run in ({"q": {"b": 1.0, "a": 1.0}}, {"q": {"a": 1.0, "b": 1.0}}):
        assert best_documents(run["q"], k=2) == ["a", "b"]
        assert score_run(run, {"q": {"a": 1}}, query_ids=["q"]).ndcg == pytest.approx([1.0])
        assert score_run(run, {"q": {"b": 1}}, query_ids=["q"]).ndcg == pytest.approx([1 / log2(3)])


def test_queries_without_a_result_score_nothing_and_are_named() -> None:
    scores = score_run(
        {"q1": {"a": 1.0}, "q2": {}},
        {query_id: {"a": 1} for query_id in ("q1", "q2", "q3")},
        query_ids=["q1", "q2", "q3"],
    )

    assert scores.ndcg.tolist() == [1.0, 0.0, 0.0]
    assert scores.missing == ("q2", "q3")


def test_queries_without_a_relevant_document_are_refused() -> None:
    with pytest.raises(DataError, match=r"1 of 2 queries have no relevant document \(q2\)"):
        score_run({}, {"q1": {"a": 1}, "q2": {"a": 0}}, query_ids=["q1", "q2"])


@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_ranked_columns_are_the_documents_in_order(k: int) -> None:
    scores = np.random.default_rng(5).integers(4, size=(50, 9)).astype(np.float32)
    doc_ids = [f"d{j}" for j in range(9)]

    ranked = rank_columns(scores, k=k)

    for row, columns in zip(scores, ranked, strict=True):
        assert [doc_ids[c] for c in columns] == best_documents(
            dict(zip(doc_ids, row.tolist(), strict=True)), k=k
        )
