"""Model folders in old and new formats, and equality with sentence-transformers itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, processors

from pipeline.encoders import Calibration, Encoder, Pooling, load_model
from pipeline.encoders.model_files import find_model, model_fingerprint
from pipeline.errors import DataError, UsageError
from tests.pipeline.encoders import tiny_models
from tests.pipeline.encoders.test_golden import needs_minilm
from tests.pipeline.tiny import wordpiece

ARMS = {"plain": None, "calibrated": Calibration(basket_size=6)}
TEXTS = ["the cat sat", "a dog on the mat " * 9, "answer " * 20, "river blue"]


def ends_with(token: str, tokenizer: Tokenizer | None = None) -> Tokenizer:
    """A tokenizer that only appends a token, as Qwen3-Embedding's does."""
    tokenizer = tokenizer or wordpiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {token}", special_tokens=[(token, tokenizer.token_to_id(token))]
    )
    return tokenizer


def assert_equals_sentence_transformers(folder, *, normalized=True, **options):
    """Plain documents, queries, and texts without a role, against the library that users have."""
    theirs = SentenceTransformer(str(folder), device="cpu", **options)
    loaded = load_model(folder, device="cpu", **options)
    encoder = Encoder(loaded, ARMS)
    ours = encoder.encode_documents(TEXTS)["plain"]
    np.testing.assert_allclose(
        ours, theirs.encode_document(TEXTS, normalize_embeddings=normalized), atol=1e-5
    )
    queries = encoder.encode_queries(TEXTS)["plain"]
    np.testing.assert_allclose(
        queries, theirs.encode_query(TEXTS, normalize_embeddings=normalized), atol=1e-5
    )
    bare = Encoder(replace(loaded, document_prompt=""), {"plain": None}).encode_documents(TEXTS)["plain"]
    np.testing.assert_allclose(
        bare, theirs.encode(TEXTS, prompt="", normalize_embeddings=normalized), atol=1e-5
    )
    return encoder


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("pooling", list(Pooling))
def test_pooling_of_old_and_new_folders(tmp_path, pooling, legacy):
    folder = tiny_models.bert_folder(tmp_path, pooling=pooling.value, legacy=legacy)
    assert load_model(folder, device="cpu").pooling is pooling
    assert_equals_sentence_transformers(folder)


def test_a_folder_without_modules_is_pooled_by_mean(tmp_path):
    tiny_models.bert_folder(tmp_path)
    (tmp_path / "modules.json").unlink()
    assert assert_equals_sentence_transformers(tmp_path).pooling is Pooling.MEAN


def test_an_old_pooling_without_any_mode_is_mean(tmp_path):
    folder = tiny_models.bert_folder(tmp_path, pooling={"word_embedding_dimension": 32}, legacy=True)
    assert load_model(folder, device="cpu").pooling is Pooling.MEAN


def test_dense_and_normalize(tmp_path):
    dense = tiny_models.dense(32, 24)
    folder = tiny_models.bert_folder(tmp_path, after={"Dense": dense, "Normalize": None}, legacy=True)
    assert assert_equals_sentence_transformers(folder).dimension == 24


def test_two_dense_layers_as_embeddinggemma_has(tmp_path):
    wide, back = (
        tiny_models.dense(32, 64, bias=False, tanh=False),
        tiny_models.dense(64, 32, bias=False, tanh=False),
    )
    tokenizer = wordpiece()
    model = tiny_models.with_vocabulary(
        "Gemma3Text",
        tokenizer,
        num_key_value_heads=1,
        head_dim=16,
        sliding_window=20,
        use_bidirectional_attention=True,
        model_class="Gemma3TextModel",
    )
    prompts = {"query": "answer is river ", "document": "late early "}
    folder = tiny_models.save_folder(
        tmp_path, model, after={"Dense": wide, "Dense ": back, "Normalize": None}, config={"prompts": prompts}
    )
    assert_equals_sentence_transformers(folder)


def test_truncated_vectors_are_brought_to_unit_length_again(tmp_path):
    folder = tiny_models.bert_folder(tmp_path, after={"Normalize": None}, config={"truncate_dim": 8})
    assert assert_equals_sentence_transformers(folder).dimension == 8
    assert assert_equals_sentence_transformers(folder, truncate_dim=5).dimension == 5
    with pytest.raises(UsageError, match=r"truncate_dim = 33.* has 32 dimensions"):
        load_model(folder, device="cpu", truncate_dim=33)


def test_a_dot_product_model_keeps_its_lengths(tmp_path):
    folder = tiny_models.bert_folder(tmp_path, pooling="cls", config={"similarity_fn_name": "dot"})
    encoder = assert_equals_sentence_transformers(folder, normalized=False)
    assert np.linalg.norm(encoder.encode_documents(TEXTS)["plain"], axis=1).max() > 1.5


@pytest.mark.parametrize("pooling", ["mean", "lasttoken"])
def test_a_pooling_without_the_prompt(tmp_path, pooling):
    folder = tiny_models.bert_folder(
        tmp_path,
        pooling=tiny_models.pooling_config(pooling, 32, legacy=True, include_prompt=False),
        config={"prompts": {"query": "river is ", "document": "late early "}},
    )
    assert_equals_sentence_transformers(folder)


def test_the_first_of_several_document_prompts(tmp_path):
    """sentence-transformers 6.2 means to, but its own empty `document` entry comes first."""
    folder = tiny_models.bert_folder(tmp_path, config={"prompts": {"passage": "late ", "corpus": "early "}})
    encoder = Encoder.load(str(folder), ARMS, device="cpu")
    theirs = SentenceTransformer(str(folder), device="cpu").encode(
        TEXTS, prompt_name="passage", normalize_embeddings=True
    )
    assert encoder.document_prompt == "late "
    np.testing.assert_allclose(encoder.encode_documents(TEXTS)["plain"], theirs, atol=1e-5)


def test_the_limit_of_an_old_folder_and_beyond(tmp_path):
    folder = tiny_models.bert_folder(tmp_path, legacy=True)
    tiny_models.write(folder / "sentence_bert_config.json", {"max_seq_length": 50, "do_lower_case": False})
    assert load_model(folder, device="cpu").max_length == 50
    assert load_model(folder, device="cpu", max_length=96).max_length == 96
    with pytest.raises(UsageError, match=r"max_length = 97: .* has 96 positions"):
        load_model(folder, device="cpu", max_length=97)


def test_positions_of_a_roberta_begin_after_the_padding(tmp_path):
    model = tiny_models.with_vocabulary("XLMRoberta", wordpiece(), pad_token_id=1)
    folder = tiny_models.save_folder(tmp_path, model, pooling="cls", max_length=10**6)
    loaded = load_model(folder, device="cpu")
    assert loaded.max_length == 96 - 2
    Encoder(loaded, ARMS).encode_documents(["cat " * 92])


def test_bge_m3(tmp_path):
    """XLM-R with CLS, Normalize and `<s> … </s>`; its folder is in the old format."""
    model = tiny_models.with_vocabulary("XLMRoberta", wordpiece(), pad_token_id=0)
    folder = tiny_models.save_folder(tmp_path, model, pooling="cls", legacy=True, after={"Normalize": None})
    assert assert_equals_sentence_transformers(folder).pooling is Pooling.CLS


def test_qwen3_embedding(tmp_path):
    """Left padding, an appended end token, an instruction for queries only, last-token pooling."""
    tokenizer = ends_with("[SEP]")
    model = tiny_models.with_vocabulary(
        "Qwen3", tokenizer, num_key_value_heads=2, num_attention_heads=4, head_dim=16
    )
    config = {
        "prompts": {"query": "answer the river\nlate:", "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    folder = tiny_models.save_folder(
        tmp_path,
        model,
        tokenizer=tokenizer,
        pooling="lasttoken",
        legacy=True,
        after={"Normalize": None},
        config=config,
        padding_side="left",
    )
    encoder = assert_equals_sentence_transformers(folder)
    assert encoder.tokenizer.encode("the cat").tokens == ["the", "cat", "[SEP]"]
    assert encoder.query_prompt == "answer the river\nlate:"


def test_a_t5_encoder(tmp_path):
    import transformers

    tokenizer = ends_with("[SEP]")
    config = transformers.T5Config(
        vocab_size=tokenizer.get_vocab_size(),
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=4,
        num_heads=2,
        pad_token_id=0,
    )
    model = tiny_models.randomise(transformers.T5EncoderModel(config))
    folder = tiny_models.save_folder(
        tmp_path, model, tokenizer=tokenizer, after={"Dense": tiny_models.dense(32, 32), "Normalize": None}
    )
    assert_equals_sentence_transformers(folder)


@needs_minilm
def test_minilm():
    assert_equals_sentence_transformers(find_model("all-MiniLM-L6-v2"))


def test_what_is_no_model(tmp_path):
    with pytest.raises(DataError, match=r"neither config.json nor modules.json"):
        find_model(str(tmp_path))
    with pytest.raises(UsageError, match="no such folder"):
        find_model("./nowhere")


def test_the_fingerprint_follows_content_and_not_place(tmp_path):
    one, two = (tiny_models.bert_folder(tmp_path / name) for name in ("one", "two"))
    assert model_fingerprint(one) == model_fingerprint(two)
    (two / "1_Pooling" / "config.json").write_text("{}")
    assert model_fingerprint(one) != model_fingerprint(two)
