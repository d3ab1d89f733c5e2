"""The seam: one attention function for `transformers`, which calibrates the rows that a pass asks for.

It is registered in `AttentionInterface` **and** `AttentionMaskInterface` under one name; a name missing
from the second makes transformers drop the padding mask without a word. Outside a pass it is SDPA.

Plain rows go through SDPA untouched; `pooled_rows` and `all_rows` compute the calibrated ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from pipeline.encoders.all_rows import calibrate_all_rows
from pipeline.encoders.attention_call import AttentionCall
from pipeline.encoders.calibration import Pooling
from pipeline.encoders.forward_pass import AttentionFacts, CopiedRows, LayerPlan, Pass, active_pass
from pipeline.encoders.pooled_rows import attend_pooled

# Not "sdpa…", "flash…" or "flex…": transformers treats such names specially.
ATTENTION_NAME = "calibrated_baskets"


def attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as `transformers` asks; return (batch, rows, heads, width) and no weights."""
    current = active_pass()
    if current is not None:
        biased = kwargs.get("position_bias") is not None
        current.seen[module] = AttentionFacts(_is_causal(module, kwargs), biased)
    layer = None if current is None else current.layer_of.get(module)
    if current is None or layer is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    plan = current.plans[layer]
    call = _call_without_copies(module, (query, key, value), attention_mask, kwargs, len(plan.copies))
    if plan.pooled_only:
        out = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
    else:
        out, _ = sdpa_attention_forward(module, call.query, call.key, call.value, attention_mask, **kwargs)
        out = pad(out, (0, 0, 0, 0, 0, len(plan.copies)))
    _calibrate_branches(out, call, plan, current, layer)
    if plan.copies:
        _attend_copies(out, call, _copied_rows((query, key, value), plan), plan, current, layer)
    if current.watch is not None:
        current.watch(layer, call, _copied_rows((query, key, value), plan) if plan.copies else None)
    return out, None


def _copied_rows(whole: CopiedRows, plan: LayerPlan) -> CopiedRows:
    query, key, value = (tensor[:, :, -len(plan.copies) :] for tensor in whole)
    return query, key, value


def _call_without_copies(
    module: nn.Module,
    whole: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    kwargs: Mapping[str, Any],
    copies: int,
) -> AttentionCall:
    n_keys = whole[1].shape[2] - copies
    query, key, value = (tensor[:, :, :n_keys] for tensor in whole)
    return AttentionCall(
        query=query,
        key=key,
        value=value,
        mask=mask,
        bias=kwargs.get("position_bias"),
        scaling=kwargs["scaling"],
        causal=_is_causal(module, kwargs),
        local=kwargs.get("sliding_window") is not None,
    )


def _is_causal(module: nn.Module, kwargs: Mapping[str, Any]) -> bool:
    asked = kwargs.get("is_causal")
    return bool(getattr(module, "is_causal", False) if asked is None else asked)


def _calibrate_branches(out: Tensor, call: AttentionCall, plan: LayerPlan, current: Pass, layer: int) -> None:
    """Overwrite the pooled rows of the calibrated blocks of `out`, (batch, rows, heads, width)."""
    size = current.real.shape[0]
    for number, calibration in enumerate(plan.branches):
        if calibration is None and not plan.pooled_only:
            continue
        rows = slice(number * size, (number + 1) * size)
        block = call.block(rows)
        if calibration is not None:
            current.calibrated_calls[layer] = current.calibrated_calls.get(layer, 0) + 1
        if current.pooling is Pooling.MEAN and calibration is not None:
            calibrate_all_rows(out[rows], block, calibration, current)
        else:
            pooled = current.pooled
            index = torch.arange(size, device=pooled.device)
            query = block.query[index, :, pooled][:, :, None]
            out[index + rows.start, pooled] = attend_pooled(query, block, (calibration,), current)[:, 0]


def _attend_copies(
    out: Tensor,
    call: AttentionCall,
    copied: CopiedRows,
    plan: LayerPlan,
    current: Pass,
    layer: int,
) -> None:
    """Fill the copies' rows of `out`: each stands where the pooled row stands and sees itself there."""
    query, key, value = copied
    out[:, -len(plan.copies) :] = attend_pooled(query, call, plan.copies, current, own=(key, value))
    calibrated = sum(calibration is not None for calibration in plan.copies)
    current.calibrated_calls[layer] = current.calibrated_calls.get(layer, 0) + calibrated


AttentionInterface.register(ATTENTION_NAME, attention_function)
AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)
