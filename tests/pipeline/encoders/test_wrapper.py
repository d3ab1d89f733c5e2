"""The one-line wrapper for users of sentence-transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from pipeline.encoders import Calibration, Encoder, calibrate
from pipeline.errors import DataError, UsageError
from tests.pipeline.encoders import tiny_models
from tests.pipeline.tiny import wordpiece

TEXTS = ["the cat sat", "a dog on the mat " * 9, "answer " * 20]
CALIBRATION = Calibration(basket_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = {
        "prompts": {"query": "river ", "document": "blue ", "other": "late "},
        "default_prompt_name": "other",
    }
    return tiny_models.bert_folder(tmp_path_factory.mktemp("model"), pooling="cls", config=config)


@pytest.fixture(scope="module")
def encoder(folder):
    return Encoder.load(str(folder), {"plain": None, "calibrated": CALIBRATION}, device="cpu")


@pytest.fixture(scope="module")
def model(folder):
    return calibrate(SentenceTransformer(str(folder), device="cpu"), CALIBRATION)


def test_documents_are_calibrated_and_queries_plain(model, encoder):
    documents = model.encode_document(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(documents, encoder.encode_documents(TEXTS)["calibrated"], atol=1e-5)
    queries = model.encode_query(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(queries, encoder.encode_queries(TEXTS)["plain"], atol=1e-5)


def test_queries_are_calibrated_on_request(folder, encoder):
    model = calibrate(SentenceTransformer(str(folder), device="cpu"), CALIBRATION, calibrate_queries=True)
    expected = encoder.encode_queries(TEXTS, calibrate=True)["calibrated"]
    np.testing.assert_allclose(model.encode_query(TEXTS, normalize_embeddings=True), expected, atol=1e-5)


def test_strength_0_is_sentence_transformers_own_encode(folder):
    theirs = SentenceTransformer(str(folder), device="cpu")
    expected = theirs.encode(TEXTS)
    model = calibrate(theirs, Calibration(strength=0.0, basket_size=6))
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-4)
    np.testing.assert_allclose(theirs.encode(TEXTS), expected, atol=1e-4)


def test_the_wrapped_model_itself_stays_plain(model, folder):
    untouched = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(model.model.encode(TEXTS), untouched.encode(TEXTS), atol=1e-4)


def test_prompts(model, encoder):
    expected = encoder.encode(["late the cat sat"], {"x": CALIBRATION})["x"][0]
    for options in ({}, {"prompt_name": "other"}, {"prompt": "late "}):
        np.testing.assert_allclose(
            model.encode("the cat sat", normalize_embeddings=True, **options), expected, atol=1e-5
        )
    with pytest.raises(UsageError, match="no prompt 'othr'; the model has query, document, other"):
        model.encode("the cat", prompt_name="othr")


def test_shapes_types_and_batch_sizes(model):
    assert model.encode("the cat").shape == (32,)
    assert model.encode([]).shape == (0, 32)
    tensor = model.encode(TEXTS, convert_to_tensor=True, batch_size=1)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_allclose(tensor, model.encode(TEXTS), atol=1e-4)


def test_long_texts_are_refused_or_cut_on_request(model):
    with pytest.raises(DataError, match="tokens"):
        model.encode("cat " * 200)
    assert model.encode("cat " * 200, truncate=True).shape == (32,)


def test_an_architecture_that_cannot_be_calibrated_is_refused(tmp_path):
    model = tiny_models.with_vocabulary("MPNet", wordpiece(), pad_token_id=1, bos_token_id=2)
    folder = tiny_models.save_folder(tmp_path, model, pooling="cls")
    with pytest.raises(DataError, match="mpnet"):
        calibrate(SentenceTransformer(str(folder), device="cpu"), CALIBRATION)
