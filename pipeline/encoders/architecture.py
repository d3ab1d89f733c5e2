"""What has to be known of an architecture: can it be calibrated, and where are its layers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from pipeline.errors import DataError

# The first number in a module's path is its layer: T5 has "encoder.block.3.layer.0.SelfAttention".
_LAYER_PATH = re.compile(r"^(.*?(?:^|\.)(?:layers?|block|h)\.\d+)\.")

_NEVER_CALLED = "its attention is fixed code that never calls the attention interface of transformers"
_REFUSED = {
    "mpnet": _NEVER_CALLED,
    "deberta-v2": _NEVER_CALLED,
    "deberta": _NEVER_CALLED,
    "gemma2": "it caps attention logits (attn_logit_softcapping), which neither SDPA nor the formula does",
}

_PROBE_LENGTHS = (40, 27)


def refuse_by_name(model: PreTrainedModel) -> None:
    """Refuse architectures that are known not to work, with the reason.

    Raises:
        DataError: the model is one of them.
    """
    kind = model.config.model_type
    if kind in _REFUSED:
        raise cannot_be_calibrated(model, _REFUSED[kind])
    if not type(model)._can_set_attn_implementation():
        raise cannot_be_calibrated(model, "it does not support the attention interface of transformers")


def cannot_be_calibrated(model: PreTrainedModel, reason: str) -> DataError:
    """Make the error that names the architecture and says why."""
    name = f"{model.config.model_type!r} ({type(model).__name__})"
    return DataError(f"the architecture {name} cannot be calibrated: {reason}")


def blocks_of(model: PreTrainedModel, attentions: Sequence[nn.Module]) -> list[nn.Module]:
    """Find the layer that each attention module belongs to.

    Raises:
        DataError: none came by, they are fewer than the layers, or one belongs to no numbered layer.
    """
    expected = getattr(model.config, "num_hidden_layers", None)
    if not attentions:
        raise cannot_be_calibrated(model, "its attention never calls the attention interface")
    if expected is not None and len(attentions) != expected:
        raise cannot_be_calibrated(
            model,
            f"{expected} layers, but {len(attentions)} attention modules (layers that share their weights "
            "are not supported)",
        )
    names = {module: name for name, module in model.named_modules()}
    return [_block_named(model, names[attention]) for attention in attentions]


def _block_named(model: PreTrainedModel, name: str) -> nn.Module:
    match = _LAYER_PATH.match(name)
    if match is None:
        raise cannot_be_calibrated(model, f"no layer number in the module path {name!r}")
    block: nn.Module = model.get_submodule(match.group(1))
    return block


def feed_forward_of(block: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """Find where one row a token enters and leaves the feed-forward network of a layer, if it is known."""
    children = dict(block.named_children())
    for name in ("mlp", "ffn"):
        if name in children:
            return children[name], children[name]
    if "intermediate" in children and hasattr(children.get("output"), "dense"):
        return children["intermediate"], block.get_submodule("output.dense")
    return None


def probe_batch(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Make two random texts of different length, padded on the right: ids and mask, (2, length)."""
    config = model.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or _PROBE_LENGTHS[0]
    longest = min(_PROBE_LENGTHS[0], positions)
    lengths = (longest, max(longest * _PROBE_LENGTHS[1] // _PROBE_LENGTHS[0], 1))
    special = _special_tokens(config)
    ordinary = [token for token in range(min(config.vocab_size, 1000)) if token not in special]
    chosen = torch.randint(len(ordinary), (2, longest), generator=torch.Generator().manual_seed(0))
    attention_mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    padding = getattr(config, "pad_token_id", None) or 0
    input_ids = torch.tensor(ordinary)[chosen].masked_fill(attention_mask == 0, padding)
    return input_ids.to(model.device), attention_mask.to(model.device)


def _special_tokens(config: PreTrainedConfig) -> set[int]:
    """Tokens that mean something to the model; a config names none, one or (at the end of a text) several."""
    special: set[int] = set()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(config, name, None)
        special.update(value if isinstance(value, list) else [] if value is None else [value])
    return special
