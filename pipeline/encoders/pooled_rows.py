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
    weights = pooled_weights(query, call, calibrations, current, own[0] if own is not None else None)
    out = per_key_head(weights, call.value.float())
    if own is not None:
        rows = current.pooled[:, None].expand(-1, query.shape[2])[:, None, :, None]
        there = call.value.gather(2, rows.expand(-1, call.value.shape[1], -1, call.value.shape[3]))
        difference = repeat_heads(own[1] - there, query.shape[1]).float()
        out = out + weights.gather(-1, rows.expand(*weights.shape[:3], 1)) * difference
    return out.transpose(1, 2).to(query.dtype)


def pooled_weights(
    query: Tensor,
    call: AttentionCall,
    calibrations: Sequence[Calibration | None],
    current: Pass,
    own_key: Tensor | None = None,
) -> Tensor:
    """Compute the attention weights of `attend_pooled`, (batch, heads, r, keys) in float32."""
    position = current.pooled[:, None]
    rows = position.expand(-1, query.shape[2])
    logits = call.logits(query, rows)
    if own_key is not None:
        own = repeat_heads(own_key, query.shape[1]).float()
        self_logit = (query.float() * own).sum(dim=-1, keepdim=True) * call.scaling
        logits = logits.scatter(-1, rows[:, None, :, None].expand(*logits.shape[:3], 1), self_logit)
    return attention_weights(logits, call.visible(position, current.real), calibrations, current)


def attention_weights(
    logits: Tensor, visible: Tensor, calibrations: Sequence[Calibration | None], current: Pass
) -> Tensor:
    """Turn logits into attention weights, row by row calibrated or plain.

    Args:
        logits: (batch, heads, r, keys), scaled, float32.
        visible: (batch, 1, r or 1, keys) bool, the keys that each row may see.
        calibrations: one a row; None is plain. Rows of one geometry are computed together.
        current: the running pass.

    Returns:
        (batch, heads, r, keys), each row summing to 1.
    """
    weights = torch.empty_like(logits)
    by_geometry: dict[BasketGeometry | None, list[int]] = {}
    for row, calibration in enumerate(calibrations):
        geometry = calibration.geometry(current.pooling) if calibration is not None else None
        by_geometry.setdefault(geometry, []).append(row)
    for geometry, rows in by_geometry.items():
        if geometry is None:
            weights[:, :, rows] = masked_softmax(logits[:, :, rows], _of_rows(visible, rows))
            continue
        strengths = torch.tensor([_strength(calibrations[row]) for row in rows], device=logits.device)
        seen = _of_rows(visible, rows).expand(-1, -1, len(rows), -1)
        weights[:, :, rows] = calibrated_attention(
            logits[:, :, rows], seen, current.layout(geometry), strengths
        )
    return weights


def _of_rows(visible: Tensor, rows: list[int]) -> Tensor:
    return visible if visible.shape[2] == 1 else visible[:, :, rows]


def _strength(calibration: Calibration | None) -> float:
    return calibration.strength if calibration is not None else 0.0
