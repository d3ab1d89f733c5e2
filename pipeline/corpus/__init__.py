"""Corpora: documents from wherever they lie, one stream of records."""

from pipeline.corpus.corpus import BAD_RECORDS, Corpus
from pipeline.corpus.opening import open_corpus

__all__ = ["BAD_RECORDS", "Corpus", "open_corpus"]
