"""Attention of the pooled row alone (CLS, last token), and of its copies, in linear memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.encoders.attention_call import AttentionCall, per_key_head, repeat_heads
from pipeline.encoders.baskets import calibrated_attention, masked_softmax
from pipeline.encoders.calibration import BasketGeometry, Calibration
from pipeline.encoders.forward_pass import Pass


def attend_pooled(
    query: Tensor,
    call: AttentionCall,
    calibrations: Sequence[Calibration | None],
    current: Pass,
    own: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Attend from r rows that all stand at the pooled position, each with its own calibration.

    Args:
        query: (batch, heads, r, width).
        call: the keys, values and mask of the block.
        calibrations: one a row; None is plain.
        current: the running pass.
        own: keys and values of the rows themselves, (batch, key heads, r, width): a row sees its own in
            place of the one at the pooled position.

    Returns:
        (batch, r, heads, width) in the dtype of `query`.
    """
    position = current.pooled[:, None]
    rows = position.expand(-1, query.shape[2])
    logits = call.logits(query, rows)
    at_position = rows[:, None, :, None].expand(*logits.shape[:3], 1) if own is not None else None
    if own is not None and at_position is not None:
        own_key = repeat_heads(own[0], query.shape[1]).float()
        self_logit = (query.float() * own_key).sum(dim=-1, keepdim=True) * call.scaling
        logits = logits.scatter(-1, at_position, self_logit)
    visible = call.visible(position, current.real)
    weights = _weights(logits, visible, calibrations, current)
    out = per_key_head(weights, call.value.float())
    if own is not None and at_position is not None:
        there = call.value.gather(
            2, rows[:, None, :, None].expand(-1, call.value.shape[1], -1, call.value.shape[3])
        )
        difference = repeat_heads(own[1] - there, query.shape[1]).float()
        out = out + weights.gather(-1, at_position) * difference
    return out.transpose(1, 2).to(query.dtype)


def _weights(
    logits: Tensor, visible: Tensor, calibrations: Sequence[Calibration | None], current: Pass
) -> Tensor:
    """Attention weights of r rows, those of one geometry computed together."""
    weights = torch.empty_like(logits)
    by_geometry: dict[BasketGeometry | None, list[int]] = {}
    for row, calibration in enumerate(calibrations):
        geometry = calibration.geometry(current.pooling) if calibration is not None else None
        by_geometry.setdefault(geometry, []).append(row)
    for geometry, rows in by_geometry.items():
        if geometry is None:
            weights[:, :, rows] = masked_softmax(logits[:, :, rows], visible)
            continue
        strengths = torch.tensor([_strength(calibrations[row]) for row in rows], device=logits.device)
        seen = visible.expand(-1, -1, len(rows), -1)
        weights[:, :, rows] = calibrated_attention(
            logits[:, :, rows], seen, current.layout(geometry), strengths
        )
    return weights


def _strength(calibration: Calibration | None) -> float:
    return calibration.strength if calibration is not None else 0.0
