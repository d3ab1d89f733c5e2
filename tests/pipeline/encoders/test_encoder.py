"""The public encoder: roles, prompts, limits, budgets, and what comes out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.encoders import Calibration, Encoder, load_model
from pipeline.encoders.batching import token_batches
from pipeline.errors import DataError, NonFiniteVectorsError, UsageError
from tests.pipeline.encoders import tiny_models
from tests.pipeline.tiny import wordpiece

ARMS = {"plain": None, "half": Calibration(basket_size=6), "full": Calibration(basket_size=6, strength=1.0)}
FIRST_LAYER = Calibration(layers=[0])
TEXTS = ["the cat sat", "a dog on the mat " * 9, "answer " * 20, "river blue", "late early alpha " * 12]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = {"prompts": {"query": "river ", "document": "blue "}, "similarity_fn_name": "cosine"}
    return tiny_models.bert_folder(tmp_path_factory.mktemp("bert"), pooling="cls", config=config)


@pytest.fixture(scope="module")
def encoder(folder):
    return Encoder.load(str(folder), ARMS, device="cpu")


def test_vectors_by_arm_in_the_order_of_the_texts(encoder):
    vectors = encoder.encode_documents(TEXTS)
    assert list(vectors) == ["plain", "half", "full"]
    for of_arm in vectors.values():
        assert of_arm.shape == (5, 32) == (len(TEXTS), encoder.dimension)
        assert of_arm.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(of_arm, axis=1), 1.0, atol=1e-6)
    for row, text in enumerate(TEXTS):
        np.testing.assert_allclose(
            encoder.encode_documents([text])["full"][0], vectors["full"][row], atol=1e-5
        )


def test_no_texts(encoder):
    assert encoder.encode_documents([])["half"].shape == (0, 32)


def test_some_arms_equal_all_arms(encoder):
    everything = encoder.encode_documents(TEXTS)
    some = encoder.encode_documents(TEXTS, ["full"])
    assert list(some) == ["full"]
    np.testing.assert_allclose(some["full"], everything["full"], atol=1e-5)
    with pytest.raises(UsageError, match="no arm 'fall'; there are plain, half, full"):
        encoder.encode_documents(TEXTS, ["fall"])


def test_queries_are_plain_in_every_arm_unless_asked(encoder):
    plain = encoder.encode_queries(TEXTS)
    assert plain["half"] is plain["plain"]
    calibrated = encoder.encode_queries(TEXTS, calibrate=True)
    np.testing.assert_allclose(calibrated["plain"], plain["plain"], atol=1e-5)
    assert np.abs(calibrated["half"][1] - plain["plain"][1]).max() > 1e-3


def test_each_role_has_its_prompt(encoder, folder):
    without = Encoder.load(str(folder), ARMS, device="cpu", query_prompt="", document_prompt="")
    assert (encoder.query_prompt, encoder.document_prompt) == ("river ", "blue ")
    expected = without.encode_documents(["blue the cat sat", "river the cat sat"])["plain"]
    np.testing.assert_allclose(encoder.encode_documents(["the cat sat"])["plain"][0], expected[0], atol=1e-5)
    np.testing.assert_allclose(encoder.encode_queries(["the cat sat"])["plain"][0], expected[1], atol=1e-5)
    np.testing.assert_allclose(encoder.encode_windows(["the cat sat"])[0], expected[0], atol=1e-5)
    assert encoder.count_query_tokens("the cat") == 5


def test_a_text_over_the_limit_is_refused_and_never_cut(encoder):
    fits = "cat " * (encoder.max_length - 3)
    encoder.encode_documents([fits])
    with pytest.raises(DataError, match=r"text 1 has 97 tokens .* takes 96"):
        encoder.encode_documents(["cat", fits + "cat"])


def test_a_long_query_is_cut_only_when_asked(encoder):
    long = "cat " * 200
    with pytest.raises(DataError, match="203 tokens"):
        encoder.encode_queries([long])
    cut = encoder.encode_queries([long], truncate=True)["plain"]
    np.testing.assert_allclose(cut, encoder.encode_queries(["cat " * (96 - 3)])["plain"], atol=1e-5)


def test_progress_counts_each_text_and_token_once(encoder):
    seen = []
    encoder.encode_documents(TEXTS, progress=lambda texts, tokens: seen.append((texts, tokens)))
    tokens = sum(len(encoder.tokenizer.encode("blue " + text).ids) for text in TEXTS)
    assert [sum(column) for column in zip(*seen, strict=True)] == [len(TEXTS), tokens]


def test_broken_weights_name_the_rows(folder):
    loaded = load_model(folder, device="cpu")
    encoder = Encoder(loaded, ARMS)
    cat = loaded.tokenizer.token_to_id("cat")
    with torch.no_grad():
        loaded.transformer.embeddings.word_embeddings.weight[cat] = torch.nan
    with pytest.raises(NonFiniteVectorsError) as broken:
        encoder.encode_documents(["a dog", "the cat", "river", "cat cat"])
    assert (broken.value.arm, broken.value.rows) == ("plain", [1, 3])


def test_broken_weights_are_found_at_the_start(folder):
    loaded = load_model(folder, device="cpu")
    with torch.no_grad():
        loaded.transformer.embeddings.LayerNorm.weight.fill_(torch.nan)
    with pytest.raises(DataError):
        Encoder(loaded, ARMS)


def test_a_batch_holds_no_more_tokens_than_the_budget(folder):
    budget = 400
    encoder = Encoder.load(str(folder), ARMS, device="cpu", tokens_per_batch=budget)
    blocks = encoder._model.blocks_at_once(list(encoder.arms.values()))
    shapes = []
    encoder._model.model.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    encoder.encode_documents([*["cat"] * 200, "cat " * 90])
    assert all(texts == 1 or texts * length * blocks <= budget for texts, length in shapes)
    assert sum(texts for texts, _ in shapes) == 201
    assert len(shapes) < 12


def test_one_text_of_8192_tokens_does_not_pad_the_short_ones():
    lengths = [100] * 50 + [8192] + [12] * 500
    batches = list(token_batches(lengths, 8192))
    assert max(len(batch) * max(lengths[index] for index in batch) for batch in batches) <= 8192
    assert batches[0] == [50]
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))


def test_a_text_of_8192_tokens_among_short_ones_is_embedded_within_the_budget(tmp_path):
    model = tiny_models.with_vocabulary(
        "Bert", wordpiece(), max_position_embeddings=8192, num_hidden_layers=2
    )
    folder = tiny_models.save_folder(tmp_path, model, pooling="cls", max_length=8192)
    encoder = Encoder.load(str(folder), {"plain": None, "calibrated": FIRST_LAYER}, device="cpu")
    areas = []
    for layer in encoder._model.model.encoder.layer:
        layer.register_forward_pre_hook(lambda _, args: areas.append(args[0].shape[:2].numel()))
    texts = ["cat dog", "river " * 8190, *["late early"] * 30]
    vectors = encoder.encode_documents(texts)
    assert max(areas) == 8192
    ample = Encoder.load(
        str(folder), {"plain": None, "calibrated": FIRST_LAYER}, device="cpu", tokens_per_batch=10**6
    )
    for row, text in enumerate(texts[:3]):  # each alone: padded to 8,192 tokens, all would take 11 GB
        for name, alone in ample.encode_documents([text]).items():
            np.testing.assert_allclose(vectors[name][row], alone[0], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_half_precision_gives_float32_vectors_near_the_exact_ones(folder, tmp_path, dtype, pooling):
    dense = tiny_models.dense(32, 24)
    both = tiny_models.bert_folder(tmp_path, pooling=pooling, after={"Dense": dense, "Normalize": None})
    exact = Encoder.load(str(both), ARMS, device="cpu").encode_documents(TEXTS)
    encoder = Encoder.load(str(both), ARMS, device="cpu", dtype=dtype)
    assert encoder._model.model.dtype == getattr(torch, dtype)
    for name, vectors in encoder.encode_documents(TEXTS).items():
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
        assert (vectors * exact[name]).sum(axis=1).min() > 0.995


def test_outside_an_encoder_the_model_is_untouched(folder):
    """Hooks and the attention function do nothing when somebody else runs the model."""
    loaded = load_model(folder, device="cpu")
    ids = torch.tensor([loaded.tokenizer.encode(TEXTS[1]).ids])
    with torch.inference_mode():
        before = loaded.transformer(input_ids=ids).last_hidden_state
        Encoder(loaded, ARMS).encode_documents(TEXTS)
        after = loaded.transformer(input_ids=ids).last_hidden_state
    assert torch.equal(before, after)
