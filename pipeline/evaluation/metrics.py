"""Retrieval measures per query, computed by trec_eval; ties are settled here, before it sees them.

trec_eval orders equal scores by descending id, which would make a measure depend on how documents are named.
Here equal scores stand by ascending doc_id, as in `indexes.ranking`, and trec_eval gets strictly decreasing
scores in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import DataError

Floats = NDArray[np.float64]
Run = Mapping[str, Mapping[str, float]]
Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class QueryScores:
    """The measures of each query, row i for `query_ids[i]`.

    Attributes:
        query_ids: in the order that was asked for.
        k: the depth of all three measures.
        ndcg: nDCG@k with graded gains (the gain is the relevance itself), (n_queries,).
        recall: recall@k, (n_queries,).
        mrr: reciprocal rank of the first relevant document, 0 below rank k, (n_queries,).
        missing: ids of the queries that the run has no document for; they score 0.
    """

    query_ids: tuple[str, ...]
    k: int
    ndcg: Floats
    recall: Floats
    mrr: Floats
    missing: tuple[str, ...]

    @property
    def by_name(self) -> dict[str, Floats]:
        """The arrays by the measures' names, such as `nDCG@10`."""
        return {f"nDCG@{self.k}": self.ndcg, f"recall@{self.k}": self.recall, f"MRR@{self.k}": self.mrr}


def score_run(run: Run, qrels: Qrels, *, query_ids: Sequence[str], k: int = 10) -> QueryScores:
    """Score a run per query.

    Args:
        run: for each query the score of each retrieved document, in any order; only the best k matter.
        qrels: for each query the relevance of its judged documents, 0 for irrelevant.
        query_ids: the queries to score; others in `run` or `qrels` are left aside.
        k: the depth of the measures.

    Raises:
        DataError: a query has no relevant document, so that no measure is defined.
    """
    import pytrec_eval

    _check_relevant(qrels, query_ids)
    missing = tuple(query_id for query_id in query_ids if not run.get(query_id))
    judged = {query_id: dict(qrels[query_id]) for query_id in query_ids}
    ranked = {
        query_id: _strictly_decreasing(best_documents(run[query_id], k=k))
        for query_id in query_ids
        if run.get(query_id)
    }
    measures = (f"ndcg_cut.{k}", f"recall.{k}", "recip_rank")
    scored = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(ranked)
    ndcg, recall, mrr = (
        np.array([scored.get(query_id, {}).get(name, 0.0) for query_id in query_ids], dtype=np.float64)
        for name in (f"ndcg_cut_{k}", f"recall_{k}", "recip_rank")
    )
    return QueryScores(tuple(query_ids), k, ndcg, recall, mrr, missing)


def best_documents(scores: Mapping[str, float], *, k: int) -> list[str]:
    """The ids of the k best documents: by descending score, equal scores by ascending doc_id."""
    return sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))[:k]


def rank_columns(scores: NDArray[np.floating], *, k: int) -> NDArray[np.int64]:
    """Rank documents whose columns stand in ascending order of doc_id, so that ties come out by doc_id.

    Args:
        scores: (n_queries, n_documents).
        k: how many to return; fewer if there are not so many documents.

    Returns:
        (n_queries, k) column numbers, best first.
    """
    n_documents = scores.shape[1]
    if k >= n_documents:
        return np.argsort(-scores, axis=1, kind="stable")
    # The k-th best score bounds the candidates; all that tie with it stay in until the ids decide.
    kth = np.partition(scores, n_documents - k, axis=1)[:, n_documents - k]
    ranked = np.empty((len(scores), k), dtype=np.int64)
    for row, (own, least) in enumerate(zip(scores, kth, strict=True)):
        columns = np.flatnonzero(own >= least)
        ranked[row] = columns[np.argsort(-own[columns], kind="stable")[:k]]
    return ranked


def _strictly_decreasing(doc_ids: Sequence[str]) -> dict[str, float]:
    return {doc_id: float(len(doc_ids) - rank) for rank, doc_id in enumerate(doc_ids)}


def _check_relevant(qrels: Qrels, query_ids: Sequence[str]) -> None:
    without = [query_id for query_id in query_ids if not any(r > 0 for r in qrels.get(query_id, {}).values())]
    if without:
        shown = ", ".join(without[:5])
        raise DataError(
            f"{len(without)} of {len(query_ids)} queries have no relevant document ({shown}); "
            "leave them out or complete the qrels"
        )
