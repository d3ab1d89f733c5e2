from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes import (
    IndexSpec,
    InvalidIndexError,
    InvalidQueryError,
    RankedDocument,
    Rows,
    VectorIndex,
    rank_documents,
)

Make = Callable[..., np.ndarray]


def rows_of(*doc_ids: str) -> Rows:
    return Rows.from_ids([f"{doc_id}#{i}" for i, doc_id in enumerate(doc_ids)], doc_ids)


def flat(vectors: np.ndarray) -> VectorIndex:
    return VectorIndex.build(vectors, dim=vectors.shape[1], spec=IndexSpec())


def test_a_document_is_ranked_by_its_best_chunk(scored: Make, query: np.ndarray) -> None:
    ranking = rank_documents(flat(scored(0.25, 0.5, 1.0, 0.75)), rows_of("a", "b", "a", "c"), query, 2)
    assert ranking.documents == (RankedDocument("a", 1, 1.0, 2), RankedDocument("c", 2, 0.75, 3))
    assert not ranking.exhausted


def test_ties_go_to_the_lowest_row_and_the_first_id(scored: Make, query: np.ndarray) -> None:
    ranking = rank_documents(flat(scored(0.5, 0.5, 0.5, 0.5)), rows_of("c", "b", "a", "b"), query, 3)
    assert [(document.doc_id, document.row) for document in ranking] == [("a", 2), ("b", 1), ("c", 0)]


def test_a_document_with_many_good_chunks_does_not_hide_the_others(scored: Make, query: np.ndarray) -> None:
    vectors = np.concatenate([scored(*[0.9] * 1000), scored(0.2, 0.1)])
    ranking = rank_documents(flat(vectors), rows_of(*["a"] * 1000, "b", "c"), query, 2)
    assert ranking.doc_ids == ("a", "b")


def test_ties_beyond_the_first_depth_are_seen(scored: Make, query: np.ndarray) -> None:
    names = [f"d{i:04}" for i in reversed(range(1000))]
    ranking = rank_documents(flat(scored(*[0.5] * 1000)), rows_of(*names), query, 2)
    assert ranking.doc_ids == ("d0000", "d0001")


def test_fewer_documents_give_a_shorter_ranking_that_says_so(scored: Make, query: np.ndarray) -> None:
    index, rows = flat(scored(0.3, 0.2, 0.1)), rows_of("a", "a", "b")
    ranking = rank_documents(index, rows, query, 5)
    assert (ranking.doc_ids, ranking.exhausted) == (("a", "b"), True)
    assert rank_documents(index, rows, query, 2).exhausted
    assert not rank_documents(index, rows, query, 1).exhausted
    assert rank_documents(index, rows, query, 10**9).doc_ids == ("a", "b")


def test_an_empty_index_ranks_nothing(query: np.ndarray) -> None:
    ranking = rank_documents(flat(np.empty((0, 4), np.float32)), rows_of(), query, 5)
    assert (len(ranking), ranking.exhausted) == (0, True)


def test_an_index_that_visits_few_lists_says_that_it_is_exhausted(unit_vectors: Make) -> None:
    vectors = unit_vectors(2000, dim=16)
    index = VectorIndex.build(vectors, dim=16, spec=IndexSpec("IVF64,Flat", nprobe=1))
    ranking = rank_documents(index, rows_of(*[f"d{i}" for i in range(2000)]), vectors[0], 500)
    assert 0 < len(ranking) < 500
    assert ranking.exhausted
    assert ranking.documents[0].doc_id == "d0"


def test_every_chunk_finds_its_own_document_first(unit_vectors: Make) -> None:
    vectors = unit_vectors(60, dim=16)
    rows = rows_of(*[f"d{i // 3}" for i in range(60)])
    index = flat(vectors)
    for row in range(60):
        assert rank_documents(index, rows, vectors[row], 1).documents[0].row == row


def test_cutting_a_ranking(scored: Make, query: np.ndarray) -> None:
    ranking = rank_documents(flat(scored(0.3, 0.2, 0.1)), rows_of("a", "b", "c"), query, 3)
    assert (ranking.top(2).doc_ids, ranking.top(2).exhausted) == (("a", "b"), False)
    assert ranking.top(3) == ranking


def test_bad_k_and_a_map_of_another_length_are_refused(scored: Make, query: np.ndarray) -> None:
    index = flat(scored(0.1))
    with pytest.raises(InvalidQueryError, match="k must be a whole number of at least 1, got 0"):
        rank_documents(index, rows_of("a"), query, 0)
    with pytest.raises(InvalidIndexError, match="holds 1 rows but the row map 2"):
        rank_documents(index, rows_of("a", "b"), query, 1)


@settings(max_examples=60, deadline=None)
@given(
    chunks=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([0.1, 0.3, 0.5, 0.9])), max_size=40
    ),
    factory=st.sampled_from(["Flat", "IVF1,Flat"]),
)
def test_top_3_is_the_start_of_top_5_and_equals_sorting_everything(
    chunks: list[tuple[str, float]], factory: str
) -> None:
    vectors = np.array([[score, 1] for _, score in chunks], np.float32).reshape(-1, 2)
    index = VectorIndex.build(vectors, dim=2, spec=IndexSpec(factory))
    rows = rows_of(*[doc_id for doc_id, _ in chunks])
    query = np.array([1, 0], np.float32)
    best = {doc_id: max(score for other, score in chunks if other == doc_id) for doc_id, _ in chunks}
    expected = sorted(best, key=lambda doc_id: (-best[doc_id], doc_id))
    top_5 = rank_documents(index, rows, query, 5)
    assert list(top_5.doc_ids) == expected[:5]
    assert rank_documents(index, rows, query, 3) == top_5.top(3)
