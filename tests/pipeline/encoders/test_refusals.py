"""What cannot be calibrated is refused by name and with the reason, before anything is embedded."""

from __future__ import annotations

import pytest
import torch

from pipeline.encoders import Calibration, Encoder, load_model
from pipeline.encoders import attention as attention_module
from pipeline.encoders.attention import ATTENTION_NAME
from pipeline.encoders.calibrated_model import CalibratedModel
from pipeline.encoders.calibration import Pooling
from pipeline.errors import DataError, UsageError
from tests.pipeline.encoders import tiny_models
from tests.pipeline.tiny import wordpiece


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        ("MPNet", {"pad_token_id": 1, "bos_token_id": 2}, "never calls the attention interface"),
        (
            "DebertaV2",
            {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
            "never calls the attention interface",
        ),
        (
            "Gemma2",
            {"head_dim": 16, "num_key_value_heads": 2, "bos_token_id": 2, "eos_token_id": 3},
            "attn_logit_softcapping",
        ),
        ("Albert", {"embedding_size": 16}, "share"),
    ],
)
def test_architectures_that_cannot_be_calibrated(tmp_path, kind, values, reason):
    model = tiny_models.with_vocabulary(kind, wordpiece(), **values)
    folder = tiny_models.save_folder(tmp_path, model, pooling="cls")
    with pytest.raises(DataError, match=reason) as refusal:
        Encoder.load(str(folder), device="cpu")
    assert model.config.model_type in str(refusal.value)


def test_a_model_whose_attention_never_comes_by():
    model = tiny_models.build(tiny_models.named("BERT"))
    model.set_attn_implementation("sdpa")
    with pytest.raises(DataError, match="never calls the attention interface"):
        CalibratedModel(model, Pooling.CLS)


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("mode", ["max", "weightedmean", "mean_sqrt_len_tokens"])
def test_poolings_that_cannot_be_calibrated(tmp_path, mode, legacy):
    folder = tiny_models.bert_folder(tmp_path, pooling=mode, legacy=legacy)
    with pytest.raises(DataError, match=mode):
        load_model(folder, device="cpu")


def test_concatenated_poolings(tmp_path):
    pooling = {"embedding_dimension": 32, "pooling_mode": ["cls", "mean"], "include_prompt": True}
    with pytest.raises(DataError, match=r"cls.*mean"):
        load_model(tiny_models.bert_folder(tmp_path, pooling=pooling), device="cpu")


def test_cls_pooling_without_the_prompt(tmp_path):
    pooling = tiny_models.pooling_config("cls", 32, legacy=True, include_prompt=False)
    with pytest.raises(DataError, match="without the prompt"):
        load_model(tiny_models.bert_folder(tmp_path, pooling=pooling), device="cpu")


def test_a_calibration_that_does_nothing(monkeypatch):
    model = tiny_models.build(tiny_models.named("BERT"))
    model.set_attn_implementation(ATTENTION_NAME)
    ours = CalibratedModel(model, Pooling.CLS)
    monkeypatch.setattr(attention_module, "_calibrate_branches", lambda *_: None)
    with pytest.raises(DataError, match="layer 2 calibrated 0 times, expected 1"):
        ours.prove([Calibration()])


def test_a_calibration_that_misses_a_layer(monkeypatch):
    model = tiny_models.build(tiny_models.named("BERT"))
    model.set_attn_implementation(ATTENTION_NAME)
    ours = CalibratedModel(model, Pooling.MEAN)
    genuine = attention_module._calibrate_branches

    def not_in_layer_3(out, call, plan, current, layer):
        return genuine(out, call, plan, current, layer) if layer != 3 else None

    monkeypatch.setattr(attention_module, "_calibrate_branches", not_in_layer_3)
    with pytest.raises(DataError, match="layer 3 calibrated 0 times, expected 1"):
        ours.prove([Calibration()])


def test_layers_that_the_model_does_not_have(tmp_path):
    folder = tiny_models.bert_folder(tmp_path)
    with pytest.raises(UsageError, match=r"no layer 4; they run from 0 to 3"):
        Encoder.load(str(folder), {"late": Calibration(basket_size=8, layers=[4])}, device="cpu")


def test_a_basket_that_no_text_fills(tmp_path):
    folder = tiny_models.bert_folder(tmp_path)
    with pytest.raises(UsageError, match="basket_size = 128, but a text has at most 94 tokens"):
        Encoder.load(str(folder), device="cpu")


def test_an_unknown_device(tmp_path):
    with pytest.raises((UsageError, DataError), match="device"):
        load_model(tiny_models.bert_folder(tmp_path), device="abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_where_there_is_none(tmp_path):
    with pytest.raises(UsageError, match="cuda"):
        load_model(tiny_models.bert_folder(tmp_path), device="cuda")


def test_a_device_chosen_automatically_is_there(tmp_path):
    loaded = load_model(tiny_models.bert_folder(tmp_path))
    assert loaded.transformer.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
