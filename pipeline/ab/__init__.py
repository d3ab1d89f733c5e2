"""A/B queries: both arms' rankings, what moved between them, and where the answers stand."""

from pipeline.ab.evidence import Evidence, find_evidence
from pipeline.ab.results import ABResult, DocumentResult, Hit
from pipeline.ab.search import ABSearcher

__all__ = ["ABResult", "ABSearcher", "DocumentResult", "Evidence", "Hit", "find_evidence"]
