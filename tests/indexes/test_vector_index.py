from __future__ import annotations

import os
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import faiss
import numpy as np
import pytest

from indexes import (
    ImpossibleIndexError,
    IndexSpec,
    InvalidIndexError,
    InvalidQueryError,
    InvalidVectorsError,
    VectorIndex,
    check_factory,
)

Make = Callable[..., np.ndarray]
FACTORIES = ["Flat", "SQ8", "SQfp16", "PQ4x4", "IVF4,Flat", "IVF4,SQ8", "IVF4,PQ4x4", "HNSW8", "HNSW8,SQ8"]


def build(vectors: np.ndarray, factory: str = "Flat", **settings: int) -> VectorIndex:
    return VectorIndex.build(vectors, dim=vectors.shape[1], spec=IndexSpec(factory, **settings))


def test_hits_are_the_best_rows_with_their_inner_products(scored: Make, query: np.ndarray) -> None:
    hits = build(scored(0.25, 0.75, -0.5, 0.5)).search(query, 3)
    assert hits.rows.tolist() == [1, 3, 0]
    assert hits.scores.tolist() == [0.75, 0.5, 0.25]


@pytest.mark.parametrize("factory", FACTORIES)
def test_every_kind_uses_the_inner_product(factory: str, query: np.ndarray) -> None:
    """A long vector wins by inner product and loses by distance."""
    vectors = np.tile(np.array([1, 0.1, 0.1, 0.1], np.float32), (40, 1))
    vectors[7] *= 10
    index = build(vectors, factory, **({"nprobe": 4} if factory.startswith("IVF") else {}))
    assert index.metric == "inner_product"
    assert index.search(query, 1).rows.tolist() == [7]


@pytest.mark.parametrize("factory", FACTORIES)
def test_identical_vectors_have_identical_scores(factory: str, unit_vectors: Make) -> None:
    vectors = unit_vectors(200, dim=16)
    copies = [0, 3, 50, 51, 199]
    vectors[copies] = vectors[0]
    settings = {"nprobe": 4} if factory.startswith("IVF") else {}
    hits = build(vectors, factory, **settings).search(vectors[0], 200)
    scores = hits.scores[np.isin(hits.rows, copies)]
    assert len(scores) == 5
    assert len(set(scores.tolist())) == 1
    assert [row for row in hits.rows.tolist() if row in copies] == copies


def test_scores_do_not_depend_on_the_kind_of_exact_storage(unit_vectors: Make) -> None:
    vectors = unit_vectors(300, dim=48)
    expected = (vectors.astype(np.float64) * vectors[5]).sum(axis=1).astype(np.float32)
    for spec in (IndexSpec(), IndexSpec("IVF4,Flat", nprobe=4), IndexSpec("HNSW8")):
        hits = VectorIndex.build(vectors, dim=48, spec=spec).search(vectors[5], 20)
        np.testing.assert_array_equal(hits.scores, expected[hits.rows])


@pytest.mark.parametrize("factory", FACTORIES)
def test_known_rows_score_as_a_search_says(factory: str, unit_vectors: Make) -> None:
    index = build(unit_vectors(300), factory)
    query = unit_vectors(1, seed=7)[0]
    hits = index.search(query, 20)
    np.testing.assert_array_equal(index.scores(hits.rows, query), hits.scores)
    np.testing.assert_array_equal(index.scores(hits.rows[::-1], query), hits.scores[::-1])
    assert index.scores(hits.rows[:0], query).shape == (0,)


def test_known_rows_are_scored_exactly(scored: Make, query: np.ndarray) -> None:
    index = build(scored(0.25, 0.75, -0.5))
    assert index.scores(np.array([2, 0, 2]), query).tolist() == [-0.5, 0.25, -0.5]


@pytest.mark.parametrize("row", [-1, 3])
def test_rows_outside_the_index_are_refused(row: int, scored: Make, query: np.ndarray) -> None:
    with pytest.raises(InvalidQueryError, match=f"no row {row}: the index holds 3 rows"):
        build(scored(0.25, 0.75, -0.5)).scores(np.array([0, row]), query)


def test_more_hits_than_rows_gives_only_real_ones(scored: Make, query: np.ndarray) -> None:
    index = build(scored(0.1, 0.2))
    assert index.search(query, 10).rows.tolist() == [1, 0]
    assert index.search(query, 10**9).rows.tolist() == [1, 0]


def test_few_visited_lists_give_fewer_real_hits(unit_vectors: Make) -> None:
    vectors = unit_vectors(2000, dim=16)
    hits = build(vectors, "IVF64,Flat", nprobe=1).search(vectors[0], 100)
    assert 0 < len(hits) < 100
    assert hits.rows.min() >= 0
    assert len(set(hits.rows.tolist())) == len(hits)
    assert np.abs(hits.scores).max() < 1.001


@pytest.mark.parametrize("factory", ["auto", *FACTORIES, "IVF256,Flat", "PQ4"])
def test_an_empty_index_answers_with_no_hits(factory: str, query: np.ndarray, tmp_path: Path) -> None:
    build(np.empty((0, 4), np.float32), factory).save(tmp_path / "empty.faiss")
    index = VectorIndex.load(tmp_path / "empty.faiss")
    assert (index.n_rows, index.dim) == (0, 4)
    assert len(index.search(query, 5)) == 0
    assert len(VectorIndex.build([], dim=4, spec=IndexSpec(factory)).search(query, 5)) == 0


@pytest.mark.parametrize("factory", ["IVF256,Flat", "PQ4"])
@pytest.mark.parametrize("n_rows", [1, 10])
def test_too_few_vectors_to_train_are_refused(factory: str, n_rows: int, unit_vectors: Make) -> None:
    with pytest.raises(ImpossibleIndexError, match=f"256 .* there are {n_rows};"):
        build(unit_vectors(n_rows), factory)


@pytest.mark.parametrize("factory", ["auto", "IVF256,Flat", "PQ4"])
def test_three_hundred_vectors_are_enough(factory: str, unit_vectors: Make) -> None:
    vectors = unit_vectors(300)
    index = build(vectors, factory)
    assert index.n_rows == 300
    assert index.search(vectors[17], 1).scores[0] > 0.9


@pytest.mark.parametrize("depth", [0, -1, True, "5", 2.0])
def test_bad_depths_are_refused(depth: object, scored: Make, query: np.ndarray) -> None:
    with pytest.raises(InvalidQueryError, match="depth must be a whole number of at least 1, got"):
        build(scored(0.1)).search(query, depth)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_query_that_is_not_finite_is_refused(value: float, scored: Make, query: np.ndarray) -> None:
    query[2] = value
    with pytest.raises(InvalidQueryError, match="not finite"):
        build(scored(0.1)).search(query, 1)


def test_a_query_of_another_dimension_is_refused_with_both(scored: Make) -> None:
    with pytest.raises(InvalidQueryError, match=r"shape \(4,\), got float32 of \(6,\)"):
        build(scored(0.1)).search(np.ones(6, np.float32), 1)
    with pytest.raises(InvalidQueryError, match="zero"):
        build(scored(0.1)).search(np.zeros(4, np.float32), 1)


@pytest.mark.parametrize("factory", ["Flat", "IVF2,Flat"])
def test_bad_rows_are_refused_by_number(factory: str, unit_vectors: Make) -> None:
    first, second = unit_vectors(5), unit_vectors(5, seed=1)
    spec = IndexSpec(factory)
    second[3] = 0
    with pytest.raises(InvalidVectorsError, match="row 8 is a zero vector"):
        VectorIndex.build([first, second], dim=4, spec=spec)
    second[1, 2] = np.nan
    with pytest.raises(InvalidVectorsError, match="row 6 is not finite"):
        VectorIndex.build([first, second], dim=4, spec=spec)


def test_blocks_of_another_shape_or_type_are_refused(unit_vectors: Make) -> None:
    for block in (unit_vectors(5, dim=6), unit_vectors(5)[0], np.ones((5, 4), np.int64)):
        with pytest.raises(
            InvalidVectorsError, match=r"from row 3 on: expected floats of shape \(n, 4\), got"
        ):
            VectorIndex.build([unit_vectors(3), block], dim=4, spec=IndexSpec())


def test_the_vectors_given_are_not_changed(unit_vectors: Make) -> None:
    vectors = unit_vectors(50) * 3
    vectors.flags.writeable = False
    before = vectors.copy()
    for factory in FACTORIES:
        build(vectors, factory)
    np.testing.assert_array_equal(vectors, before)


@pytest.mark.parametrize("factory", FACTORIES)
def test_blocks_and_generators_give_the_same_index_as_one_array(factory: str, unit_vectors: Make) -> None:
    vectors = unit_vectors(200, dim=16)
    blocks = [vectors[:70], vectors[70:70], vectors[70:]]

    def stream() -> Iterator[np.ndarray]:
        yield from blocks

    whole = build(vectors, factory).search(vectors[3], 10)
    for given in (blocks, stream()):
        hits = VectorIndex.build(given, dim=16, spec=IndexSpec(factory)).search(vectors[3], 10)
        assert hits.rows.tolist() == whole.rows.tolist()
        assert hits.scores.tolist() == whole.scores.tolist()


def test_an_untrained_kind_holds_one_block_at_a_time(unit_vectors: Make) -> None:
    given: list[weakref.ref[np.ndarray]] = []

    def stream() -> Iterator[np.ndarray]:
        for seed in range(10):
            block = unit_vectors(4, seed=seed)
            given.append(weakref.ref(block))
            yield block
            del block
            assert sum(reference() is not None for reference in given) <= 1

    assert VectorIndex.build(stream(), dim=4, spec=IndexSpec()).n_rows == 40


def test_training_sees_a_bounded_sample_of_all_blocks(
    monkeypatch: pytest.MonkeyPatch, unit_vectors: Make
) -> None:
    monkeypatch.setattr("indexes.vector_index._TRAINING_ROWS_PER_CENTROID", 1)
    seen: list[np.ndarray] = []
    train = faiss.IndexIVFFlat.train
    monkeypatch.setattr(faiss.IndexIVFFlat, "train", lambda self, x: (seen.append(x.copy()), train(self, x)))
    vectors = unit_vectors(1000)
    vectors[:, 0] = np.arange(1, 1001)
    VectorIndex.build([vectors[:500], vectors[500:]], dim=4, spec=IndexSpec("IVF4,Flat"))
    (sample,) = seen
    assert sample.shape == (256, 4)
    assert len(np.unique(sample[:, 0])) == 256
    assert 90 < (sample[:, 0] > 500).sum() < 166


def test_graph_search_reaches_as_deep_as_it_is_asked(unit_vectors: Make) -> None:
    vectors = unit_vectors(1000, dim=16)
    vectors[100:400] = vectors[100]
    exact = build(vectors)
    graph = build(vectors, "HNSW16", ef_search=1)
    wanted = set(exact.search(vectors[7], 100).rows.tolist())
    found = set(graph.search(vectors[7], 100).rows.tolist())
    assert len(found) == 100
    assert len(wanted & found) >= 80  # about 20 if the candidate list were shorter than the depth


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_saved_index_answers_as_before(factory: str, unit_vectors: Make, tmp_path: Path) -> None:
    vectors = unit_vectors(200, dim=16)
    index = build(vectors, factory, **({"nprobe": 3} if factory.startswith("IVF") else {}))
    path = tmp_path / "ä b.faiss"
    index.save(path)
    loaded = VectorIndex.load(path)
    assert (loaded.n_rows, loaded.dim) == (200, 16)
    assert loaded.search(vectors[3], 20).rows.tolist() == index.search(vectors[3], 20).rows.tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["ä b.faiss"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("n_rows", [2, 50_000])
def test_a_full_disk_fails_loudly_and_leaves_the_old_file(
    n_rows: int, scored: Make, unit_vectors: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.faiss"
    build(scored(0.5)).save(path)
    old = path.read_bytes()
    opened = Path.open
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda self, mode="r": opened(Path("/dev/full"), mode))
        with pytest.raises(OSError, match="No space left"):
            build(unit_vectors(n_rows)).save(path)
    assert path.read_bytes() == old


def test_a_failed_rename_leaves_the_old_file_and_no_other(
    scored: Make, query: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.faiss"
    build(scored(0.5)).save(path)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("stopped")))
    with pytest.raises(OSError, match="stopped"):
        build(scored(0.1, 0.2)).save(path)
    assert VectorIndex.load(path).n_rows == 1
    assert [file.name for file in tmp_path.iterdir()] == ["a.faiss"]


@pytest.mark.parametrize("n_bytes", [0, 3, 20, 100])
def test_a_truncated_file_is_refused_by_path(n_bytes: int, unit_vectors: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.faiss"
    build(unit_vectors(50)).save(path)
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(InvalidIndexError, match=r"a\.faiss: not a readable FAISS index"):
        VectorIndex.load(path)


def test_a_missing_file_is_refused_by_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidIndexError, match=r"a\.faiss: the index file is missing"):
        VectorIndex.load(tmp_path / "a.faiss")


class Bomb:
    """Writes a marker file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.marker), "w")


def test_a_pickle_under_the_name_of_an_index_is_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    payload = pickle.dumps(Bomb(marker))
    (tmp_path / "a.faiss").write_bytes(payload)
    with pytest.raises(InvalidIndexError, match="not a readable FAISS index"):
        VectorIndex.load(tmp_path / "a.faiss")
    assert not marker.exists()
    pickle.loads(payload).close()  # the payload works
    assert marker.exists()


def test_foreign_faiss_files_are_refused(unit_vectors: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.faiss"
    faiss.write_index(faiss.IndexFlatL2(4), str(path))
    with pytest.raises(InvalidIndexError, match=r"metric 0 \(inner product\), got 1"):
        VectorIndex.load(path)
    foreign = faiss.index_factory(4, "IDMap,Flat", faiss.METRIC_INNER_PRODUCT)
    foreign.add_with_ids(np.ones((1, 4), np.float32), np.array([7]))
    faiss.write_index(foreign, str(path))
    with pytest.raises(InvalidIndexError, match="holds a IndexIDMap: its vectors cannot be read back"):
        VectorIndex.load(path)


def test_global_thread_count_is_left_alone(unit_vectors: Make) -> None:
    before = faiss.omp_get_max_threads()
    vectors = unit_vectors(100)
    build(vectors, "HNSW8").search(vectors[0], 5)
    assert faiss.omp_get_max_threads() == before


@pytest.mark.parametrize(
    "factory", ["PCA7,Flat", "OPQ4_8,IVF4,PQ4x4", "L2norm,Flat", "Flat,RFlat", "HNSW8,Flat"]
)
def test_other_factories_of_faiss_find_a_vector_by_itself(factory: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = VectorIndex.build(vectors, dim=8, spec=IndexSpec(factory, nprobe=4 if "IVF" in factory else None))
    found = [int(index.search(vectors[row], 1).rows[0]) == row for row in range(50)]
    assert sum(found) >= 25


@pytest.mark.parametrize("factory", ["Flut", "IVF64", "HNSW32,PQ4", "PQ3"])
def test_what_faiss_cannot_build_is_refused_before_any_vector(factory: str) -> None:
    with pytest.raises(ImpossibleIndexError, match=factory):
        check_factory(IndexSpec(factory), dim=8)
