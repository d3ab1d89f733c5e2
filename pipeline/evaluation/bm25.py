"""BM25, the row that cannot see position: what it finds harder at some position, the data set makes harder.

Words are runs of letters, digits and their marks, lower-cased after Unicode's NFKC. Scripts that are written
without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese), and Korean, are cut into pairs of
characters.
Lucene's variant of BM25 with k1 = 1.5 and b = 0.75, no stemming, no stop words.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.datasets.records import Corpus, EvaluationSet
from pipeline.evaluation.search import Scorer
from pipeline.scripts import UNSPACED

K1 = 1.5
B = 0.75
_IN_PAIRS = UNSPACED + "\uac00-\ud7a3"  # Korean too: its words carry their particles


def words(text: str) -> list[str]:
    """Cut a text into what BM25 counts."""
    found: list[str] = []
    for run in _runs().finditer(unicodedata.normalize("NFKC", text).lower()):
        token = run.group()
        found += _pairs(token) if run.lastgroup == "pairs" else [token]
    return found


def bm25_scorer(data: EvaluationSet) -> Scorer:
    """Index the documents of a set; a document without any word of the query is not retrieved."""
    indexes = _indexes(data)
    queries = [words(query.text) for query in data.queries]

    def score(query_rows: Sequence[int], corpus: Corpus) -> NDArray[np.float64]:
        index = indexes[corpus.name]
        scores = np.stack([index.scores(queries[row]) for row in query_rows])
        return np.where(scores > 0, scores, -np.inf)

    return score


class _Index:
    """One BM25 index; column i is the i-th document by id."""

    def __init__(self, documents: Sequence[Sequence[int]], vocabulary: Mapping[str, int]) -> None:
        import bm25s

        self._vocabulary = vocabulary
        self._n_documents = len(documents)
        self._used = {number for document in documents for number in document}
        self._index = bm25s.BM25(k1=K1, b=B, method="lucene")
        self._index.index(
            bm25s.tokenization.Tokenized(ids=documents, vocab=dict(vocabulary)), show_progress=False
        )

    def scores(self, query: Sequence[str]) -> NDArray[np.float64]:
        """(n_documents,): the scores for a query."""
        known = [self._vocabulary[word] for word in query if word in self._vocabulary]
        numbers = [number for number in known if number in self._used]
        if not numbers:
            return np.zeros(self._n_documents)
        return np.asarray(self._index.get_scores_from_ids(numbers), dtype=np.float64)


def _indexes(data: EvaluationSet) -> dict[str, _Index]:
    vocabulary: dict[str, int] = {}
    corpora = {corpus.name: corpus.doc_ids for corpus in data.corpora}
    home = {doc_id: name for name, doc_ids in corpora.items() for doc_id in doc_ids}
    numbers: dict[str, dict[str, list[int]]] = {name: {} for name in corpora}
    for document in data.documents():
        counted = [vocabulary.setdefault(word, len(vocabulary)) for word in words(document.text)]
        numbers[home[document.doc_id]][document.doc_id] = counted
    return {
        name: _Index([numbers[name][doc_id] for doc_id in doc_ids], vocabulary)
        for name, doc_ids in corpora.items()
    }


@cache
def _runs() -> re.Pattern[str]:
    # `\w` leaves out combining marks, without which Hindi or Thai words fall apart.
    marks = "".join(chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) in ("Mn", "Mc"))
    return re.compile(rf"(?P<pairs>[{_IN_PAIRS}]+)|(?P<word>(?:(?![{_IN_PAIRS}])[\w{marks}])+)")


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(max(1, len(run) - 1))]
