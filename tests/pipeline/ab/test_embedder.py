"""What is remembered between queries, and that several threads may ask at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pipeline.ab.embedder import _ENTRY_BYTES, QueryEmbedder, VectorCache
from pipeline.encoders import Calibration, Encoder
from tests.conftest import save_tiny_model
from tests.pipeline.ab.planted_build import PlaceEncoder, planted_build


def vector(value: float) -> np.ndarray:
    return np.full(4, value, np.float32)


def test_the_vectors_used_last_are_kept() -> None:
    cache = VectorCache(2 * (vector(0).nbytes + _ENTRY_BYTES))
    cache.put(b"a", vector(1))
    cache.put(b"b", vector(2))
    assert cache.get(b"a") is not None
    cache.put(b"c", vector(3))
    assert cache.get(b"b") is None
    assert [float(found[0]) for key in (b"a", b"c") if (found := cache.get(key)) is not None] == [1.0, 3.0]
    assert cache.n_bytes == 2 * (16 + _ENTRY_BYTES)


def test_a_vector_put_twice_counts_once() -> None:
    cache = VectorCache(10_000)
    cache.put(b"a", vector(1))
    cache.put(b"a", vector(2))
    found = cache.get(b"a")
    assert found is not None
    assert found.tolist() == [2.0] * 4
    assert cache.n_bytes == 16 + _ENTRY_BYTES


def test_a_cached_row_does_not_keep_its_batch() -> None:
    cache = VectorCache(10_000)
    cache.put(b"a", np.ones((1000, 4), np.float32)[3])
    found = cache.get(b"a")
    assert found is not None
    assert found.base is None


def test_texts_are_known_by_content_and_calibration() -> None:
    encoder = PlaceEncoder()
    embedder = QueryEmbedder(encoder, VectorCache(10_000))  # type: ignore[arg-type]
    texts = ["River. Sun.", "Sun. River.", "River. Sun."]
    plain = embedder.documents(texts, None)
    assert plain[:, 0].tolist() == [1.0, 0.5, 1.0]
    assert encoder.calls == [["River. Sun.", "Sun. River."]]
    flat = embedder.documents(texts, Calibration(strength=1.0))
    assert flat[:, 0].tolist() == [0.5, 0.5, 0.5]
    assert embedder.documents(texts[:1], None).tolist() == plain[:1].tolist()
    assert len(encoder.calls) == 2
    assert embedder.documents([], None).shape == (0, encoder.dimension)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(str(save_tiny_model(tmp_path_factory.mktemp("tiny"))), {"plain": None}, max_length=64)


def test_a_window_too_long_by_itself_is_cut_and_a_turned_chunk_is_recognised(real: Encoder) -> None:
    embedder = QueryEmbedder(real, VectorCache(10_000))
    fitting, long = " ".join(["cat"] * 62), " ".join(["cat"] * 63)
    assert embedder.fit([fitting, long]) == [True, False]
    first, second = embedder.windows([fitting, long])
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_threads_that_ask_at_once_get_what_they_would_get_alone(real: Encoder) -> None:
    texts = [f"the {word} sat on the mat" for word in ("cat", "dog", "river", "answer")] * 4
    alone = {text: real.encode([text], {"plain": None})["plain"][0] for text in texts}
    calibration = {"full": Calibration(strength=1.0, basket_size=2)}
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(
            lambda job: (
                real.encode([job[1]], calibration) if job[0] % 2 else real.encode([job[1]], {"plain": None})
            ),
            enumerate(texts),
        )
        for number, (text, vectors) in enumerate(zip(texts, found, strict=True)):
            if number % 2 == 0:
                np.testing.assert_array_equal(vectors["plain"][0], alone[text])


def test_searchers_are_asked_by_several_threads(tmp_path: Path) -> None:
    from pipeline.ab import ABSearcher

    documents = {f"doc-{n}": "Sun. " * n + "River wind. Fog." for n in range(12)}
    build = planted_build(tmp_path / "run", documents)
    searcher = ABSearcher.from_parts(build, PlaceEncoder())  # type: ignore[arg-type]
    queries = ["river", "wind", "river wind", "fog"] * 5
    alone = [searcher.search(query, k=3).documents for query in queries[:4]]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda query: searcher.search(query, k=3).documents, queries))
    assert found == alone * 5
