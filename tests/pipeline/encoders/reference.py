"""The calibration as its formula says, in float64 with loops: what the fast code is compared with.

Written from design.md and golden/README.md alone. It shares nothing with `pipeline.encoders` and serves
one arm in one pass, as an attention implementation of its own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

NAME = "formula_reference"


@dataclass
class Formula:
    """One arm: `layers` are numbers, the other fields those of the formula."""

    pooling: str
    layers: frozenset[int] = frozenset()
    strength: float = 0.0
    basket_size: int = 128
    isolate_first: bool = False
    isolate_last: bool = False
    first_mass: Any = "equal"
    last_mass: Any = "equal"


@dataclass
class _Running:
    formula: Formula
    real: Tensor
    calls: int = 0


_running: list[_Running] = []


def calibrated_row(plain: Tensor, allowed: list[int], text: list[int], formula: Formula) -> Tensor:
    """`a_hat` of one row.

    plain: (heads, keys) attention weights; allowed: the keys that the row may see; text: all real keys.
    """
    content = list(text)
    isolated: list[tuple[int, Any]] = []
    if formula.isolate_first:
        isolated.append((content.pop(0), formula.first_mass))
    if formula.isolate_last:
        isolated.append((content.pop(-1), formula.last_mass))
    size = formula.basket_size
    baskets = [content[start : start + size] for start in range(0, len(content), size)]
    baskets = [[key for key in basket if key in allowed] for basket in baskets]
    baskets = [basket for basket in baskets if basket]
    isolated = [(key, mass) for key, mass in isolated if key in allowed]
    if sum(len(basket) for basket in baskets) < size:
        return plain
    n = len(baskets) + len(isolated)
    a_cal = torch.zeros_like(plain)
    for key, mass in isolated:
        a_cal[:, key] = 1.0 / n if mass == "equal" else plain[:, key] if mass == "original" else mass
    rest = (1.0 - a_cal.sum(dim=1, keepdim=True)).clamp_min(0.0)
    for basket in baskets:
        a_cal[:, basket] = plain[:, basket] / plain[:, basket].sum(dim=1, keepdim=True) * rest / len(baskets)
    a_cal = a_cal / a_cal.sum(dim=1, keepdim=True)
    return (1.0 - formula.strength) * plain + formula.strength * a_cal


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    running = _running[-1]
    layer, running.calls = running.calls, running.calls + 1
    causal = kwargs.get("is_causal")
    causal = getattr(module, "is_causal", False) if causal is None else causal
    groups = query.shape[1] // key.shape[1]
    out = torch.zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3], dtype=torch.float64)
    for text in range(query.shape[0]):
        keys = key[text].double().repeat_interleave(groups, 0)
        values = value[text].double().repeat_interleave(groups, 0)
        scores = query[text].double() @ keys.transpose(1, 2) * kwargs["scaling"]
        if kwargs.get("position_bias") is not None:
            bias = kwargs["position_bias"]
            scores = scores + bias[min(text, len(bias) - 1)].double()
        may_see = running.real[text].expand(query.shape[2], -1).clone()
        if mask is not None:
            may_see &= mask[min(text, len(mask) - 1), 0]
        elif causal:
            may_see &= torch.ones_like(may_see).tril()
        real = running.real[text].nonzero()[:, 0].tolist()
        pooled = {"cls": real[:1], "lasttoken": real[-1:], "mean": real}[running.formula.pooling]
        weights = torch.softmax(scores.masked_fill(~may_see, -torch.inf), dim=-1)
        weights[:, ~may_see.any(dim=1)] = 0.0
        for row in pooled if layer in running.formula.layers and running.formula.strength else []:
            allowed = may_see[row].nonzero()[:, 0].tolist()
            weights[:, row] = calibrated_row(weights[:, row], allowed, real, running.formula)
        out[text] = torch.einsum("hqk,hkd->qhd", weights, values)
    return out.to(query.dtype), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def twin(model: PreTrainedModel) -> PreTrainedModel:
    """The same weights in float64, attending by the formula."""
    other = copy.deepcopy(model).double().eval()
    other.set_attn_implementation(NAME)
    return other


def embed(model: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, formula: Formula) -> Tensor:
    """(batch, width): a separate pass for one arm, with a model from `twin`."""
    real = attention_mask.bool()
    running = _Running(formula, real)
    _running.append(running)
    try:
        with torch.no_grad():
            hidden = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    finally:
        _running.pop()
    rows = []
    for text in range(len(hidden)):
        tokens = real[text].nonzero()[:, 0].tolist()
        wanted = {"cls": tokens[:1], "lasttoken": tokens[-1:], "mean": tokens}[formula.pooling]
        rows.append(sum(hidden[text, token].double() for token in wanted) / len(wanted))
    return torch.stack(rows)
