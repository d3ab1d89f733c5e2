"""Calibrated attention of every row (mean pooling), basket by basket through SDPA.

Calibrated attention is a uniform mixture of basket-local softmaxes, so attending within each basket, with
the baskets as a batch dimension, and summing is all there is to it; no keys-by-keys matrix is made.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pipeline.encoders.attention_call import AttentionCall, repeat_heads
from pipeline.encoders.baskets import BasketLayout, Shares, divide_mass
from pipeline.encoders.calibration import Calibration
from pipeline.encoders.forward_pass import Pass

# How many elements of repeated queries may be held at once, in multiples of one query tensor.
_QUERY_COPIES_AT_ONCE = 8


def calibrate_all_rows(out: Tensor, call: AttentionCall, calibration: Calibration, current: Pass) -> None:
    """Mix the basket-local attention of every row into `out`, (batch, rows, heads, width), in place."""
    layout = current.layout(calibration.geometry(current.pooling))
    mixture, n_baskets, n_content = _attend_baskets(call, layout, current.real)
    shares = _shares_of_all_rows(call, layout, current.real, n_baskets, n_content)
    calibrated = mixture * shares.content[..., None]
    calibrated += shares.first[..., None] * _value_at(call, layout.first)
    calibrated += shares.last[..., None] * _value_at(call, layout.last)
    strength = (calibration.strength * shares.calibrated)[..., None].transpose(1, 2)
    out.lerp_(calibrated.transpose(1, 2).to(out.dtype), strength.to(out.dtype))


def _attend_baskets(call: AttentionCall, layout: BasketLayout, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Attend within each basket from every row and sum over the baskets.

    Baskets are a batch dimension of SDPA, taken in groups that bound the memory of the repeated queries.

    Returns:
        The sum (batch, heads, rows, width) in float32; the number of baskets and of content tokens that
        each row sees, (batch, 1, rows) or (batch, 1, 1) where all rows see the same keys.
    """
    batch, heads, n_rows, _ = call.query.shape
    total = torch.zeros(batch, heads, n_rows, call.value.shape[3], device=call.query.device)
    n_baskets = torch.zeros(batch, 1, 1, dtype=torch.int64, device=real.device)
    n_content = torch.zeros_like(n_baskets)
    size = layout.geometry.basket_size
    for start in range(0, layout.n_baskets, _QUERY_COPIES_AT_ONCE):
        slots = slice(start * size, min(start + _QUERY_COPIES_AT_ONCE, layout.n_baskets) * size)
        visible = _slots_visible(call, layout, real, slots)
        grouped = torch.unflatten(visible, -1, (-1, size))
        some = grouped.any(dim=-1)
        n_baskets = n_baskets + some.sum(dim=-1)
        n_content = n_content + visible.sum(dim=-1)
        attended = _attend_group(call, layout.order[:, slots], grouped, size)
        total += (attended * some.permute(0, 3, 1, 2)[..., None]).sum(dim=1)
    return total, n_baskets, n_content


def _slots_visible(call: AttentionCall, layout: BasketLayout, real: Tensor, slots: slice) -> Tensor:
    """(batch, 1, rows or 1, slots): which slots hold a content token that the row may see."""
    filled = layout.filled[:, None, None, slots]
    if not call.local and not call.causal:
        return filled
    batch, n_keys = real.shape
    rows = torch.arange(n_keys, device=real.device)
    order = layout.order[:, None, None, slots].expand(-1, -1, n_keys, -1)
    if call.mask is None:
        return filled & (order <= rows[:, None]) if call.causal else filled.expand(-1, -1, n_keys, -1)
    return filled & call.mask.expand(batch, -1, -1, -1).gather(-1, order)


def _attend_group(call: AttentionCall, order: Tensor, visible: Tensor, size: int) -> Tensor:
    """SDPA within a group of baskets.

    Args:
        call: the block.
        order: (batch, g * size), key index of each slot of the g baskets.
        visible: (batch, 1, rows or 1, g, size) bool.
        size: slots in a basket.

    Returns:
        (batch, g, heads, rows, width).
    """
    batch, heads, n_rows, width = call.query.shape
    g = order.shape[1] // size
    query = call.query[:, None].expand(-1, g, -1, -1, -1).reshape(batch * g, heads, n_rows, width)
    key, value = (_baskets_of(tensor, order, g) for tensor in (call.key, call.value))
    mask: Tensor | None = None
    if call.bias is not None or not bool(visible.all()):
        # A row that sees no slot would be 0/0 in some kernels; it is given all slots and weighs nothing.
        allowed = visible | ~visible.any(dim=-1, keepdim=True)
        mask = allowed.permute(0, 3, 1, 2, 4).reshape(batch * g, 1, -1, size).expand(-1, -1, n_rows, -1)
        mask = _with_bias(mask, call, order, g)
    attended = scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=call.scaling, enable_gqa=key.shape[1] != heads
    )
    return attended.reshape(batch, g, heads, n_rows, -1)


def _baskets_of(tensor: Tensor, order: Tensor, g: int) -> Tensor:
    """Bring (batch, key heads, keys, width) into (batch * g, key heads, slots, width), basket by basket."""
    batch, heads, n_keys, width = tensor.shape
    by_key = tensor.transpose(1, 2).reshape(batch * n_keys, heads * width)
    flat = (order + torch.arange(batch, device=order.device)[:, None] * n_keys).flatten()
    return by_key.index_select(0, flat).reshape(batch * g, -1, heads, width).transpose(1, 2)


def _with_bias(mask: Tensor, call: AttentionCall, order: Tensor, g: int) -> Tensor:
    """Add the model's position bias (T5) to a boolean mask of a group of baskets."""
    if call.bias is None:
        return mask
    batch, heads = call.query.shape[:2]
    bias = call.bias.expand(batch, heads, -1, -1)
    index = order[:, None, None, :].expand(-1, heads, bias.shape[2], -1)
    by_basket = torch.unflatten(bias.gather(-1, index), -1, (g, -1)).permute(0, 3, 1, 2, 4).flatten(0, 1)
    return by_basket.masked_fill(~mask, -torch.inf)


def _shares_of_all_rows(
    call: AttentionCall, layout: BasketLayout, real: Tensor, n_baskets: Tensor, n_content: Tensor
) -> Shares:
    geometry = layout.geometry
    tokens: list[tuple[Tensor, Tensor] | None] = [None, None]
    if geometry.isolate_first or geometry.isolate_last:
        plain = _plain_mass(call, layout, real)
        for number, token in enumerate((layout.first, layout.last)):
            if (geometry.isolate_first, geometry.isolate_last)[number]:
                tokens[number] = (_token_visible(call, real, token), plain[number])
    return divide_mass(geometry, n_baskets=n_baskets, n_content=n_content, first=tokens[0], last=tokens[1])


def _token_visible(call: AttentionCall, real: Tensor, token: Tensor) -> Tensor:
    """(batch, 1, rows) bool: which rows may see one key of each text."""
    batch, n_keys = real.shape
    if call.mask is not None:
        mask = call.mask.expand(batch, -1, -1, -1)
        return mask.gather(-1, token[:, None, None, None].expand(-1, 1, n_keys, 1)).squeeze(-1)
    rows = torch.arange(n_keys, device=real.device)
    seen = token[:, None] <= rows if call.causal else torch.ones_like(real)
    return seen[:, None]


def _plain_mass(call: AttentionCall, layout: BasketLayout, real: Tensor) -> tuple[Tensor, Tensor]:
    """Plain attention of every row to the first and to the last real token, each (batch, heads, rows).

    SDPA returns no weights; attending to indicator values returns just the two that are needed.
    """
    indicator = torch.zeros_like(call.value)
    texts = torch.arange(real.shape[0], device=real.device)
    indicator[texts, :, layout.first, 0] = 1.0
    indicator[texts, :, layout.last, 1] = 1.0
    mask = call.mask
    if call.bias is not None:
        mask = call.bias if mask is None else torch.where(mask, call.bias, torch.finfo(call.bias.dtype).min)
    mass = scaled_dot_product_attention(
        call.query,
        call.key,
        indicator,
        attn_mask=mask,
        is_causal=call.causal and mask is None,
        scale=call.scaling,
        enable_gqa=call.key.shape[1] != call.query.shape[1],
    ).float()
    return mass[..., 0], mass[..., 1]


def _value_at(call: AttentionCall, token: Tensor) -> Tensor:
    """(batch, heads, 1, width): the value of one key of each text."""
    index = token[:, None, None, None].expand(-1, call.value.shape[1], 1, call.value.shape[3])
    return repeat_heads(call.value.gather(2, index), call.query.shape[1]).float()
