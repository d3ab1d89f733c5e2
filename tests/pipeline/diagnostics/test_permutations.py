"""Every order equally often, or a balanced part of them."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from math import factorial

import pytest

from pipeline.diagnostics.permutations import LanguagePair, documents_of, language_pairs, orders_of_sets
from pipeline.diagnostics.segments import Segment, SegmentSet


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_every_order_occurs_equally_often(n):
    dealt = list(orders_of_sets(4, n, factorial(n), seed=1))
    counts = Counter(order for orders in dealt for order in orders)
    assert counts == dict.fromkeys(permutations(range(n)), 4)


@pytest.mark.parametrize(("n", "limit"), [(3, 3), (3, 5), (4, 23), (5, 24), (6, 24), (6, 700)])
def test_a_part_is_balanced_within_each_set_and_over_all_sets(n, limit):
    dealt = list(orders_of_sets(7, n, limit, seed=1))
    for orders in dealt:
        assert len(orders) == len(set(orders)) == limit // n * n
        for place in range(n):
            assert set(Counter(order[place] for order in orders).values()) == {limit // n}
    counts = Counter(order for orders in dealt for order in orders)
    often = [counts[order] for order in permutations(range(n))]
    assert max(often) - min(often) <= 1


def test_the_seed_decides_which_part():
    first, again, other = (list(orders_of_sets(3, 5, 20, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def segment_set() -> SegmentSet:
    texts = {"en": ("one", "two", "three"), "de": ("eins", "zwei", "drei")}
    return SegmentSet(
        "s",
        tuple(
            {language: Segment(f"s#{place}", language, own[place], 1) for language, own in texts.items()}
            for place in range(3)
        ),
    )


def test_mixed_documents_have_one_segment_in_another_language():
    pairs = language_pairs(["en", "de"], mixed=True)
    assert [pair.label for pair in pairs] == ["en", "de", "de in en", "en in de"]
    documents = documents_of(segment_set(), [(2, 0, 1)], pairs, mixed_at=1)
    assert [document.text for document in documents] == [
        "three\n\none\n\ntwo",
        "drei\n\neins\n\nzwei",
        "drei\n\none\n\ntwo",
        "three\n\neins\n\nzwei",
    ]
    last = documents_of(segment_set(), [(0, 1, 2)], [LanguagePair("de", "en")], mixed_at=3)[0]
    assert last.text == "one\n\ntwo\n\ndrei"
    assert [segment.language for segment in last.segments] == ["en", "en", "de"]


def test_parts_are_the_segments_in_the_text():
    for document in documents_of(
        segment_set(), list(permutations(range(3))), language_pairs(["en", "de"], mixed=True), mixed_at=2
    ):
        cut = [document.text[start:end] for start, end in document.parts]
        assert cut == [segment.text for segment in document.segments]


def test_documents_have_ids_of_their_own():
    documents = documents_of(
        segment_set(), list(permutations(range(3))), language_pairs(["en", "de"], mixed=True), mixed_at=1
    )
    assert len({document.doc_id for document in documents}) == len(documents) == 24
