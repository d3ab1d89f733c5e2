"""Planted results: comparisons put together by hand, so that every total can be counted in the head."""

from __future__ import annotations

from typing import Any

from indexes import MovementStatus, RankedDocument, Ranking, compare_rankings, jaccard, kendall_tau
from indexes import rank_biased_overlap as rbo
from pipeline.ab import ABResult, DocumentResult, Evidence, Hit
from pipeline.ab.comparing import QueryAnswer
from pipeline.ab.queries import Gold, Query
from pipeline.ab.verdict import Explanation, Verdict

CHUNK = 100
TEXTS = {name: f"{name} begins. " + "Words of no use. " * 5 + f"{name} ends." for name in "abcdefgh"}


def ranking(doc_ids: str) -> Ranking:
    """One letter a document, the first with score 0.99, each next one 0.01 less."""
    documents = (
        RankedDocument(doc_id, rank, round(1 - rank / 100, 2), rank) for rank, doc_id in enumerate(doc_ids, 1)
    )
    return Ranking(tuple(documents), exhausted=True)


def planted_result(
    reference: str,
    other: str,
    *,
    k: int = 3,
    positions: dict[str, float] | None = None,
    verdicts: dict[str, Verdict] | None = None,
    **changes: Any,
) -> ABResult:
    """The comparison of two rankings, with evidence and verdicts where they are given."""
    movements = compare_rankings(ranking(reference), ranking(other), k)
    values: dict[str, Any] = {
        "query": "Where does it end?",
        "n_tokens": 6,
        "truncated": False,
        "build_id": "build-1",
        "reference_arm": "plain",
        "other_arm": "calibrated",
        "k": k,
        "depth": 5,
        "n_documents": len(TEXTS),
        "documents": tuple(
            _document(move, (positions or {}).get(move.doc_id), (verdicts or {}).get(move.doc_id))
            for move in movements
        ),
        "jaccard": jaccard(tuple(reference), tuple(other), k),
        "rbo": rbo(tuple(reference)[:k], tuple(other)[:k]),
        "kendall_tau": kendall_tau(tuple(reference)[:k], tuple(other)[:k]),
        "seconds": {"encode": 0.01, "search": 0.002},
    }
    return ABResult(**{**values, **changes})


def planted_answer(
    query_id: str,
    reference: str,
    other: str,
    *,
    gold: str = "",
    gold_position: float | None = None,
    **values: Any,
) -> QueryAnswer:
    """The answer to a query, with gold documents by letter."""
    result = planted_result(reference, other, **values)
    rankings = {
        arm: tuple((document.doc_id, document.score) for document in ranking(doc_ids))
        for arm, doc_ids in (("plain", reference), ("calibrated", other))
    }
    query = Query(query_id, result.query, tuple(Gold(letter) for letter in gold), f"q.tsv:{query_id}")
    return QueryAnswer(query, (result,), rankings, gold_position)


def _document(movement: Any, position: float | None, verdict: Verdict | None) -> DocumentResult:
    text = TEXTS[movement.doc_id]
    return DocumentResult(
        doc_id=movement.doc_id,
        title=f"Title of {movement.doc_id}",
        doc_chars=len(text),
        status=MovementStatus(movement.status),
        reference=_hit(movement.reference, text),
        other=_hit(movement.other, text),
        evidence=_evidence(text, position) if position is not None else None,
        explanation=Explanation(verdict, f"Reason: {verdict}.", 0.5, 0.6, 4, 1) if verdict else None,
    )


def _hit(ranked: RankedDocument | None, text: str) -> Hit | None:
    return Hit(ranked.rank, ranked.score, 0, 1, 0, len(text)) if ranked else None


def _evidence(text: str, position: float) -> Evidence:
    """Ten characters whose middle stands about there."""
    start = min(int(position * len(text)), len(text) - 10)
    return Evidence(start, start + 10, text[start : start + 10], 0.7, position, position, 0.05)
