"""Vectors whose answers can be computed in the head: against QUERY, a vector's score is its first number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from indexes import Build, BuildLayout, BuildStore, IndexSpec, Rows, VectorIndex, write_rows

DIM = 4


@pytest.fixture
def query() -> np.ndarray:
    return np.array([1, 0, 0, 0], np.float32)


@pytest.fixture
def scored() -> Callable[..., np.ndarray]:
    """Make vectors that score as given against `query`."""

    def make(*scores: float) -> np.ndarray:
        vectors = np.zeros((len(scores), DIM), np.float32)
        vectors[:, 0] = scores
        vectors[:, 1] = 1
        return vectors

    return make


@pytest.fixture
def unit_vectors() -> Callable[..., np.ndarray]:
    """Make random vectors of length 1."""

    def make(n_rows: int, dim: int = DIM, seed: int = 0) -> np.ndarray:
        vectors = np.random.default_rng(seed).standard_normal((n_rows, dim))
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    return make


@pytest.fixture
def store(tmp_path: Path) -> BuildStore:
    return BuildStore(tmp_path / "run")


@pytest.fixture
def publish(store: BuildStore, unit_vectors: Callable[..., np.ndarray]) -> Callable[..., Build]:
    """Publish a build of two arms; builds of another seed have other vectors and other documents."""

    def make(seed: int = 0, n_rows: int = 6) -> Build:
        def write(folder: Path) -> None:
            layout = BuildLayout(folder)
            ids = [f"s{seed}-{i}" for i in range(n_rows)]
            write_rows(layout.rows, Rows.from_ids([f"{i}#0" for i in ids], ids))
            for arm, arm_seed in (("plain", seed), ("calibrated", seed + 100)):
                vectors = unit_vectors(n_rows, seed=arm_seed)
                VectorIndex.build(vectors, dim=DIM, spec=IndexSpec()).save(layout.arm_index(arm))
            (folder / "texts.txt").write_text(f"texts of seed {seed}")

        return store.publish(
            write,
            arms=["plain", "calibrated"],
            n_rows=n_rows,
            dim=DIM,
            manifest={"seed": seed, "name": "日本"},
        )

    return make
