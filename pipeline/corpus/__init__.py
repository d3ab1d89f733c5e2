"""Corpora: documents from wherever they lie, one stream of records."""

from pipeline.corpus.corpus import Corpus
from pipeline.corpus.opening import open_corpus

__all__ = ["Corpus", "open_corpus"]
