"""Labelled data: adapters by layout, one checked form."""

from pipeline.evaluation.datasets.opening import load_evaluation_set, open_source
from pipeline.evaluation.datasets.records import Corpus, EvaluationQuery, EvaluationSet

__all__ = ["Corpus", "EvaluationQuery", "EvaluationSet", "load_evaluation_set", "open_source"]
