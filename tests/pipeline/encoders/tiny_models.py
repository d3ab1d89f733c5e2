"""Tiny random models of every architecture that users have, and folders for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tests.pipeline.tiny import wordpiece

VOCABULARY = 100
POSITIONS = 96

_HEADS = {"num_attention_heads": 2, "num_hidden_layers": 4, "hidden_size": 32}
_BERT = {
    **_HEADS,
    "vocab_size": VOCABULARY,
    "intermediate_size": 48,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
}
_DECODER = {**_BERT, "num_attention_heads": 4, "num_key_value_heads": 2}


@dataclass(frozen=True)
class Architecture:
    """How to build a tiny model of one class, and how users pool it."""

    name: str
    build: Callable[[], PreTrainedModel]
    poolings: tuple[str, ...]
    pads_left: bool = True


def _model(
    kind: str, values: Mapping[str, Any], model_class: str | None = None
) -> Callable[[], PreTrainedModel]:
    def build() -> PreTrainedModel:
        config = getattr(transformers, f"{kind}Config")(**values)
        model: PreTrainedModel = getattr(transformers, model_class or f"{kind}Model")(config)
        return model

    return build


_ENCODER = ("cls", "mean")
_CAUSAL = ("lasttoken", "mean")

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}

ARCHITECTURES = [
    Architecture("BERT", _model("Bert", _BERT), _ENCODER),
    Architecture("RoBERTa", _model("Roberta", _BERT), _ENCODER),
    Architecture("XLM-R", _model("XLMRoberta", _BERT), _ENCODER),
    Architecture("CamemBERT", _model("Camembert", _BERT), _ENCODER),
    Architecture("ELECTRA", _model("Electra", {**_BERT, "embedding_size": 24}), _ENCODER),
    Architecture(
        "DistilBERT",
        _model(
            "DistilBert",
            {
                "vocab_size": VOCABULARY,
                "dim": 32,
                "n_layers": 4,
                "n_heads": 2,
                "hidden_dim": 48,
                "max_position_embeddings": POSITIONS,
            },
        ),
        _ENCODER,
    ),
    Architecture(
        "ModernBERT",
        _model(
            "ModernBert",
            {
                **_BERT,
                "local_attention": 24,
                "global_attn_every_n_layers": 3,
                "cls_token_id": 2,
                "sep_token_id": 3,
                "bos_token_id": 2,
                "eos_token_id": 3,
            },
        ),
        _ENCODER,
    ),
    Architecture("NomicBert", _model("NomicBert", _BERT), _ENCODER),
    Architecture(
        "EuroBert", _model("EuroBert", {**_DECODER, "bos_token_id": 2, "eos_token_id": 3}), _ENCODER
    ),
    Architecture("JinaEmbeddingsV3", _model("JinaEmbeddingsV3", _BERT), _ENCODER),
    Architecture("GTE", _model("Gte", _BERT), _ENCODER),
    Architecture("Qwen2", _model("Qwen2", _DECODER), _CAUSAL),
    Architecture("Qwen3", _model("Qwen3", {**_DECODER, "head_dim": 16}), _CAUSAL),
    Architecture("Mistral, sliding", _model("Mistral", {**_DECODER, "sliding_window": 20}), _CAUSAL),
    Architecture("Llama", _model("Llama", _DECODER), _CAUSAL),
    Architecture("Granite", _model("Granite", {**_DECODER, "attention_multiplier": 0.3}), _CAUSAL),
    Architecture(
        "Gemma3 causal",
        _model(
            "Gemma3Text",
            {**_DECODER, "head_dim": 16, "sliding_window": 20, "sliding_window_pattern": 3},
            "Gemma3TextModel",
        ),
        _CAUSAL,
    ),
    Architecture(
        "Gemma3 bidirectional",
        _model(
            "Gemma3Text",
            {
                **_DECODER,
                "head_dim": 16,
                "sliding_window": 40,
                "sliding_window_pattern": 3,
                "use_bidirectional_attention": True,
            },
            "Gemma3TextModel",
        ),
        ("mean", "lasttoken"),
    ),
    Architecture(
        "T5 encoder",
        _model(
            "T5",
            {
                "vocab_size": VOCABULARY,
                "d_model": 32,
                "d_kv": 16,
                "d_ff": 48,
                "num_layers": 4,
                "num_heads": 2,
                "pad_token_id": 0,
            },
            "T5EncoderModel",
        ),
        ("mean", "cls"),
    ),
]


def randomise(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Draw every weight from N(0, 0.2), around 1 for the gains of norms: default weights hide errors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2)
            if "norm" in name.lower() and name.endswith("weight") and "gemma" not in model.config.model_type:
                weight.add_(1.0)
    return model.eval()


def build(architecture: Architecture, seed: int = 0) -> PreTrainedModel:
    return randomise(architecture.build(), seed)


def named(name: str) -> Architecture:
    return next(architecture for architecture in ARCHITECTURES if architecture.name == name)


def save_folder(
    folder: Path,
    model: PreTrainedModel,
    *,
    tokenizer: Tokenizer | None = None,
    pooling: Mapping[str, Any] | str = "mean",
    legacy: bool = False,
    after: Mapping[str, nn.Module | None] | None = None,
    config: Mapping[str, Any] | None = None,
    max_length: int = POSITIONS,
    padding_side: str = "right",
) -> Path:
    """Write a sentence-transformers folder.

    pooling: a mode, or the whole of 1_Pooling/config.json; legacy: module paths and pooling fields as before
    version 5; after: modules behind the pooling by name (`Normalize` is given as None); config: what stands
    in config_sentence_transformers.json.
    """
    model.save_pretrained(folder)
    save_tokenizer(folder, tokenizer or wordpiece(), max_length, padding_side)
    width = model.config.hidden_size
    names = ["Transformer", "Pooling", *(after or {})]
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{name}" if number else "",
            "type": _module_path(name.strip(), legacy),
        }
        for number, name in enumerate(names)
    ]
    write(folder / "modules.json", modules)
    write(
        folder / "1_Pooling" / "config.json",
        pooling if isinstance(pooling, Mapping) else pooling_config(pooling, width, legacy),
    )
    if legacy:
        write(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    if config is not None:
        write(folder / "config_sentence_transformers.json", config)
    for number, (name, module) in enumerate((after or {}).items(), start=2):
        (folder / f"{number}_{name}").mkdir(exist_ok=True)
        if module is not None:
            module.save(str(folder / f"{number}_{name}"))
    return folder


def save_tokenizer(
    folder: Path, tokenizer: Tokenizer, max_length: int = POSITIONS, padding_side: str = "right"
) -> None:
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=max_length,
        padding_side=padding_side,
    ).save_pretrained(folder)


def pooling_config(mode: str, width: int, legacy: bool, include_prompt: bool = True) -> dict[str, Any]:
    if not legacy:
        return {"embedding_dimension": width, "pooling_mode": mode, "include_prompt": include_prompt}
    fields = {
        "cls": "cls_token",
        "max": "max_tokens",
        "mean": "mean_tokens",
        "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
        "weightedmean": "weightedmean_tokens",
        "lasttoken": "lasttoken",
    }
    chosen = {f"pooling_mode_{field}": name == mode for name, field in fields.items()}
    return {"word_embedding_dimension": width, **chosen, "include_prompt": include_prompt}


def _module_path(name: str, legacy: bool) -> str:
    if legacy:
        return f"sentence_transformers.models.{name}"
    package = {"Pooling": "sentence_transformer"}.get(name, "base")
    return f"sentence_transformers.{package}.modules.{name.lower()}.{name}"


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def with_vocabulary(kind: str, tokenizer: Tokenizer, **values: Any) -> PreTrainedModel:
    """A tiny model of a class for the tokens of `tokenizer`."""
    base = _DECODER if "num_key_value_heads" in values else _BERT
    return randomise(
        _model(
            kind,
            {**base, "vocab_size": tokenizer.get_vocab_size(), **values},
            values.pop("model_class", None),
        )()
    )


def bert_folder(folder: Path, **options: Any) -> Path:
    return save_folder(folder, with_vocabulary("Bert", wordpiece()), **options)


def dense(width_in: int, width_out: int, *, bias: bool = True, tanh: bool = True) -> nn.Module:
    from sentence_transformers.base.modules import Dense

    torch.manual_seed(0)
    return Dense(width_in, width_out, bias=bias, activation_function=nn.Tanh() if tanh else nn.Identity())
