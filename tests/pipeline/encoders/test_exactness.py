"""What must not change a vector does not, and what must, does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.encoders.attention import ATTENTION_NAME
from pipeline.encoders.calibrated_model import CalibratedModel
from pipeline.encoders.calibration import Calibration, Pooling
from tests.pipeline.encoders import tiny_models

ARMS = [None, Calibration(basket_size=6), Calibration(basket_size=5, strength=1.0, layers="all")]
MODELS = [
    ("BERT", "cls"),
    ("BERT", "mean"),
    ("ModernBERT", "mean"),
    ("Qwen3", "lasttoken"),
    ("Mistral, sliding", "lasttoken"),
]


def calibrated(name: str, pooling: str) -> CalibratedModel:
    model = tiny_models.build(tiny_models.named(name))
    model.set_attn_implementation(ATTENTION_NAME)
    return CalibratedModel(model, Pooling(pooling))


def padded(texts: list[Tensor], side: str = "right") -> tuple[Tensor, Tensor]:
    longest = max(map(len, texts))
    ids = torch.zeros(len(texts), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        place = slice(0, len(text)) if side == "right" else slice(longest - len(text), longest)
        ids[row, place], mask[row, place] = text, 1
    return ids, mask


def some_texts(*lengths: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(5, tiny_models.VOCABULARY, (length,), generator=generator) for length in lengths]


@pytest.mark.parametrize(("name", "pooling"), MODELS)
def test_a_text_in_a_batch_equals_the_text_alone(name, pooling):
    model = calibrated(name, pooling)
    texts = some_texts(40, 7, 23, 1, 31)
    together = model.embed(*padded(texts), ARMS)
    for row, text in enumerate(texts):
        alone = model.embed(*padded([text]), ARMS)
        for left, right in zip(together, alone, strict=True):
            np.testing.assert_allclose(normalize(left)[row], normalize(right)[0], atol=1e-5)


@pytest.mark.parametrize(("name", "pooling"), MODELS)
def test_the_order_of_a_batch_changes_nothing(name, pooling):
    model = calibrated(name, pooling)
    texts = some_texts(40, 7, 23, 12)
    forwards = model.embed(*padded(texts), ARMS)
    backwards = model.embed(*padded(texts[::-1]), ARMS)
    for left, right in zip(forwards, backwards, strict=True):
        np.testing.assert_allclose(normalize(left), normalize(right).flip(0), atol=1e-5)


@pytest.mark.parametrize(("name", "pooling"), MODELS)
def test_strength_0_is_plain_and_other_strengths_are_not(name, pooling):
    model = calibrated(name, pooling)
    batch = padded(some_texts(40, 33))
    plain, nothing, little = model.embed(
        *batch, [None, Calibration(strength=0.0), Calibration(strength=0.1, basket_size=6)]
    )
    assert torch.equal(plain, nothing)
    assert not torch.allclose(plain, little, atol=1e-4)


@pytest.mark.parametrize(("name", "pooling"), MODELS)
def test_the_plain_arm_equals_the_model_with_sdpa(name, pooling):
    ids, mask = padded(some_texts(40, 7))
    ours = calibrated(name, pooling).embed(ids, mask, ARMS)[0]
    untouched = tiny_models.build(tiny_models.named(name))
    untouched.set_attn_implementation("sdpa")
    with torch.inference_mode():
        hidden = untouched(input_ids=ids, attention_mask=mask).last_hidden_state
    rows = {"cls": lambda h, n: h[0], "lasttoken": lambda h, n: h[n - 1], "mean": lambda h, n: h[:n].mean(0)}[
        pooling
    ]
    expected = torch.stack([rows(hidden[0], 40), rows(hidden[1], 7)])
    np.testing.assert_allclose(normalize(ours), normalize(expected), atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_texts_that_fill_no_basket_are_embedded_plainly(pooling):
    plain, *calibrated_arms = calibrated("BERT", pooling).embed(*padded(some_texts(5, 4, 40)), ARMS[:2])
    for vectors in calibrated_arms:
        np.testing.assert_allclose(vectors[:2], plain[:2], atol=1e-5)
        assert (vectors[2] - plain[2]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("last", [0, 0, 0, 1]),
        (0.5, [0, 0, 1, 1]),
        (3, [0, 1, 1, 1]),
        ([0, 2], [1, 0, 1, 0]),
        ("all", [1, 1, 1, 1]),
    ],
)
@pytest.mark.parametrize(("name", "pooling"), MODELS)
def test_exactly_the_configured_layers_are_calibrated(name, pooling, layers, expected, monkeypatch):
    """What each layer's attention returns to the model differs from SDPA's in calibrated layers only."""
    from pipeline.encoders import attention

    model = calibrated(name, pooling)
    changed = []
    genuine = attention.attention_function

    def spy(module, query, key, value, mask, **kwargs):
        out, _ = genuine(module, query, key, value, mask, **kwargs)
        sdpa, _ = attention.sdpa_attention_forward(module, query, key, value, mask, **kwargs)
        changed.append(int(not torch.allclose(out[0, pooled], sdpa[0, pooled], atol=1e-5)))
        return out, None

    pooled = 0 if pooling == "cls" else 39
    monkeypatch.setitem(attention.AttentionInterface._global_mapping, ATTENTION_NAME, spy)
    model.embed(*padded(some_texts(40)), [Calibration(basket_size=6, layers=layers, strength=1.0)])
    assert changed == expected


@pytest.mark.parametrize("name", [architecture.name for architecture in tiny_models.ARCHITECTURES])
@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_without_any_key_make_no_nan(name, side):
    for pooling in tiny_models.named(name).poolings:
        for vectors in calibrated(name, pooling).embed(*padded(some_texts(60, 2, 1), side), ARMS):
            assert vectors.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_half_precision_stays_finite_where_a_baskets_plain_attention_underflows(pooling, dtype):
    model = one_sharp_layer().to(dtype)
    ids, mask = padded(some_texts(8192))
    shares = naive_basket_shares(model, ids)
    assert not shares.isfinite().all()
    ours = CalibratedModel(model, Pooling(pooling))
    _, vectors = ours.embed(ids, mask, [None, Calibration(layers="all")])
    assert vectors.isfinite().all()
    in_full_precision = CalibratedModel(model.float(), Pooling(pooling)).embed(
        ids, mask, [Calibration(layers="all")]
    )[0]
    cosine = torch.cosine_similarity(vectors.float(), in_full_precision)
    assert cosine.item() > 0.99


def one_sharp_layer():
    """A layer with so sharp an attention that nearly all of it is below the least number of a half."""
    import transformers

    values = {**tiny_models._BERT, "num_hidden_layers": 1, "max_position_embeddings": 8192}
    model = tiny_models.randomise(transformers.BertModel(transformers.BertConfig(**values)))
    model.set_attn_implementation(ATTENTION_NAME)
    with torch.no_grad():
        model.encoder.layer[0].attention.self.query.weight.mul_(60.0)
    return model


def naive_basket_shares(model, ids: Tensor) -> Tensor:
    """a[k] / sum(a in the basket of k) of the first row, as the formula is written, in half precision."""
    attention = model.encoder.layer[0].attention.self
    with torch.inference_mode():
        hidden = model.embeddings(input_ids=ids)[0]
        query, key = attention.query(hidden[:1]), attention.key(hidden)
        width = attention.attention_head_size
        logits = (query[:, :width] @ key[:, :width].T) * attention.scaling
        content = torch.softmax(logits, dim=-1)[0, 1 : 1 + 8064].unflatten(0, (-1, 128))
    return content / content.sum(dim=-1, keepdim=True)
