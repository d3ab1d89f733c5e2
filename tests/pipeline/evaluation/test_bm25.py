"""BM25 cannot see position, and counts words of every script."""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pytest

from pipeline.evaluation.bm25 import K1, B, bm25_scorer, words
from pipeline.evaluation.search import rank_all
from tests.pipeline.evaluation.making import document, load, posir, qrel, query, rotated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat, 2nd!", ["the", "cat", "2nd"]),
        ("naïve Ångström", ["naïve", "ångström"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("北京大学 in 2008", ["北京", "京大", "大学", "in", "2008"]),
        ("猫", ["猫"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("벨기에의", ["벨기", "기에", "에의"]),
        ("ﬁne", ["fine"]),
        ("¿?", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    import unicodedata

    assert words(text) == [unicodedata.normalize("NFKC", word) for word in expected]


def test_scores_are_lucenes_formula(tmp_path: Path) -> None:
    corpus = [
        document("d1", "cat cat dog"),
        document("d2", "dog dog"),
        document("d3", "river blue hello mat"),
    ]
    folder = posir(tmp_path, corpus, [query("q1", "cat dog cow", [0, 3], 11)], [qrel("q1", "d1")])
    data = load(folder)
    scores = bm25_scorer(data)([0], data.corpora[0])[0]

    def weight(count: int, length: int, n_holding: int) -> float:
        idf = log(1 + (3 - n_holding + 0.5) / (n_holding + 0.5))
        return idf * count / (count + K1 * (1 - B + B * length / 3))

    expected = [weight(2, 3, 1) + weight(1, 3, 2), weight(2, 2, 2), -np.inf]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_scores_are_the_same_at_every_position(tmp_path: Path) -> None:
    data = load(rotated(tmp_path / "set", n_articles=3))
    ranked = rank_all(data, bm25_scorer(data), depth=3).by_query
    for asked in data.queries:
        first = f"{asked.question_id}-s0"
        np.testing.assert_array_equal(ranked[asked.query_id].scores, ranked[first].scores)
        assert [doc_id[:2] for doc_id in ranked[asked.query_id].doc_ids] == [
            doc_id[:2] for doc_id in ranked[first].doc_ids
        ]


def test_what_shares_no_word_is_not_retrieved(tmp_path: Path) -> None:
    corpus = [document("d1", "the cat"), document("d2", "a dog")]
    queries = [query("q1", "cat", [0, 3], 7), query("q2", "xyz", [0, 1], 7)]
    data = load(posir(tmp_path, corpus, queries, [qrel("q1", "d1"), qrel("q2", "d1")]))
    ranked = rank_all(data, bm25_scorer(data)).by_query
    assert ranked["q1"].doc_ids == ("d1",)
    assert ranked["q2"].doc_ids == ()
