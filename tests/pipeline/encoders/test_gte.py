"""gte-multilingual-base as on the hub: remote code in `auto_map`, packed weights, old rotary fields."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import GteConfig, GteModel

from pipeline.encoders import Calibration, Encoder, Pooling, load_model
from pipeline.encoders.gte import translate_config
from pipeline.encoders.model_files import model_fingerprint
from pipeline.errors import DataError
from tests.pipeline.encoders import tiny_models
from tests.pipeline.tiny import wordpiece

WIDTH, HEADS, LAYERS, FACTOR = 32, 2, 3, 8.0
TEXTS = ["the cat sat", "a dog on the mat " * 9, "answer " * 20]

# The fields of the hub's config.json, at a size for tests.
CONFIG: dict[str, Any] = {
    "architectures": ["NewModel", "NewForTokenClassification"],
    "attention_probs_dropout_prob": 0.0,
    "auto_map": {
        "AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig",
        "AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel",
        "AutoModelForTokenClassification": "Alibaba-NLP/new-impl--modeling.NewForTokenClassification",
    },
    "classifier_dropout": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": WIDTH,
    "id2label": {"0": "LABEL_0"},
    "initializer_range": 0.02,
    "intermediate_size": 48,
    "label2id": {"LABEL_0": 0},
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "max_position_embeddings": 96,
    "model_type": "new",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "pack_qkv": True,
    "pad_token_id": 0,
    "position_embedding_type": "rope",
    "rope_scaling": {"factor": FACTOR, "type": "ntk"},
    "rope_theta": 20000,
    "torch_dtype": "float16",
    "transformers_version": "4.39.1",
    "type_vocab_size": 1,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
    "vocab_size": wordpiece().get_vocab_size(),
}


def native_model() -> GteModel:
    """The same model built directly, with the rotary embedding that the facts about it give."""
    shared = (
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "intermediate_size",
        "vocab_size",
        "pad_token_id",
    )
    config = GteConfig(
        **{name: CONFIG[name] for name in shared},
        max_position_embeddings=96,
        rope_parameters={
            "rope_type": "linear",
            "rope_theta": 160000.0,
            "factor": FACTOR ** (2 / (WIDTH // HEADS)),
        },
    )
    return tiny_models.randomise(GteModel(config))


def original_weights(model: GteModel, prefix: str) -> dict[str, torch.Tensor]:
    """Rename and pack as the remote code does: q, k, v in one matrix, then up before gate."""
    state = model.state_dict()
    weights = {f"{prefix}{name}": value for name, value in state.items() if name.startswith("embeddings.")}
    for number in range(LAYERS):
        ours, theirs = f"layers.{number}.", f"{prefix}encoder.layer.{number}."
        for kind in ("weight", "bias"):
            packed = [state[f"{ours}self_attn.{part}_proj.{kind}"] for part in "qkv"]
            weights[f"{theirs}attention.qkv_proj.{kind}"] = torch.cat(packed)
            weights[f"{theirs}attention.o_proj.{kind}"] = state[f"{ours}self_attn.o_proj.{kind}"]
            weights[f"{theirs}attn_ln.{kind}"] = state[f"{ours}post_attention_layernorm.{kind}"]
            weights[f"{theirs}mlp_ln.{kind}"] = state[f"{ours}post_mlp_layernorm.{kind}"]
            weights[f"{theirs}mlp.down_proj.{kind}"] = state[f"{ours}mlp.down_proj.{kind}"]
        up_gate = [state[f"{ours}mlp.{part}_proj.weight"] for part in ("up", "gate")]
        weights[f"{theirs}mlp.up_gate_proj.weight"] = torch.cat(up_gate)
    if prefix:
        weights |= {"classifier.weight": torch.zeros(1, WIDTH), "classifier.bias": torch.zeros(1)}
    return {name: value.contiguous().clone() for name, value in weights.items()}


def write_original(folder: Path, prefix: str = "new.", **changes: Any) -> Path:
    """The whole folder of the hub, without native files."""
    model = native_model()
    tiny_models.save_folder(folder, model, pooling="cls", legacy=True, after={"Normalize": None})
    tiny_models.write(folder / "config.json", {**CONFIG, **changes})
    save_file(original_weights(model, prefix), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize("prefix", ["new.", ""])
def test_the_original_checkpoint_equals_the_native_model(tmp_path, prefix):
    folder = write_original(tmp_path, prefix)
    loaded = load_model(folder, device="cpu")
    assert loaded.pooling is Pooling.CLS
    native = native_model().state_dict()
    state = loaded.transformer.state_dict()
    assert state.keys() == native.keys()
    assert all(torch.equal(state[name], native[name]) for name in native)
    vectors = Encoder(loaded, {"plain": None, "calibrated": Calibration(basket_size=6)}).encode_documents(
        TEXTS
    )
    ids = [loaded.tokenizer.encode(text).ids for text in TEXTS]
    with torch.inference_mode():
        expected = [
            native_model()(input_ids=torch.tensor([text])).last_hidden_state[0, 0].numpy() for text in ids
        ]
    np.testing.assert_allclose(vectors["plain"], [row / np.linalg.norm(row) for row in expected], atol=1e-5)
    assert np.abs(vectors["calibrated"] - vectors["plain"]).max() > 1e-3


def test_the_users_files_stay_and_name_the_model(tmp_path):
    folder = write_original(tmp_path)
    before, fingerprint = contents(folder), model_fingerprint(folder)
    load_model(folder, device="cpu")
    assert contents(folder) == before
    assert model_fingerprint(folder) == fingerprint


def test_the_rotary_frequencies_are_those_of_the_remote_code(tmp_path):
    rotary = load_model(write_original(tmp_path), device="cpu").transformer.rotary_emb
    width = WIDTH // HEADS
    expected = [(20000 * FACTOR) ** (-2 * i / width) / FACTOR ** (2 / width) for i in range(width // 2)]
    np.testing.assert_allclose(rotary.inv_freq, expected, rtol=1e-6)


def test_the_figures_of_gte_multilingual_base_itself():
    hub = {**CONFIG, "hidden_size": 768, "num_attention_heads": 12}
    rope = translate_config(hub, Path("gte"))["rope_parameters"]
    assert rope["rope_theta"] == 160000.0
    assert math.isclose(rope["factor"], 1.0671404006768237)


def test_a_copy_that_took_the_name_gte(tmp_path):
    """snowflake-arctic-embed-m-v2.0: the same architecture and code, renamed."""
    architectures = {
        "architectures": ["GteModel"],
        "auto_map": {"AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel"},
    }
    folder = write_original(tmp_path, "", model_type="gte", **architectures)
    assert type(load_model(folder, device="cpu").transformer) is GteModel


def test_without_scaling(tmp_path):
    folder = write_original(tmp_path, rope_scaling=None)
    rotary = load_model(folder, device="cpu").transformer.rotary_emb
    np.testing.assert_allclose(rotary.inv_freq[1], 20000 ** (-2 / 16), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, r"rope_scaling = .*dynamic"),
        ({"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}, "mixed_b"),
        ({"position_embedding_type": "absolute"}, "position_embedding_type = 'absolute'"),
        ({"logn_attention_scale": True}, "logn_attention_scale = True"),
        ({"layer_norm_type": "rms_norm"}, "layer_norm_type = 'rms_norm'"),
        ({"pack_qkv": False}, "pack_qkv = False"),
        ({"type_vocab_size": 0}, "type_vocab_size = 0"),
        ({"num_hidden_layers": 4}, r"no encoder\.layer\.3\.attention\.qkv_proj"),
    ],
)
def test_what_cannot_be_translated_says_so(tmp_path, changes, reason):
    with pytest.raises(DataError, match=f"cannot be translated to GteModel: .*{reason}"):
        load_model(write_original(tmp_path, **changes), device="cpu")


def test_a_config_that_is_not_json(tmp_path):
    folder = write_original(tmp_path)
    (folder / "config.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        load_model(folder, device="cpu")


def test_the_native_format_is_not_touched(tmp_path):
    folder = tiny_models.save_folder(tmp_path, native_model(), pooling="cls")
    assert "rope_parameters" in json.loads((folder / "config.json").read_text())
    assert type(load_model(folder, device="cpu").transformer) is GteModel
