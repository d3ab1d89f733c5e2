"""A/B queries: the arms' rankings, what moved between them, where the answers stand, and if that is why."""

from pipeline.ab.embedder import EncodedQuery, VectorCache
from pipeline.ab.evidence import Evidence, find_evidence
from pipeline.ab.gold import GoldSpan
from pipeline.ab.lookup import StoredDocument
from pipeline.ab.results import ABResult, ArmResult, ArmsResult, DocumentResult, Hit, RankedHit
from pipeline.ab.search import ABSearcher
from pipeline.ab.verdict import Explanation, Verdict

__all__ = [
    "ABResult",
    "ABSearcher",
    "ArmResult",
    "ArmsResult",
    "DocumentResult",
    "EncodedQuery",
    "Evidence",
    "Explanation",
    "GoldSpan",
    "Hit",
    "RankedHit",
    "StoredDocument",
    "VectorCache",
    "Verdict",
    "find_evidence",
]
