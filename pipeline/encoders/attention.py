"""The seam: one attention function for `transformers`, which calibrates the rows that a pass asks for.

It is registered in `AttentionInterface` **and** `AttentionMaskInterface` under one name; a name missing
from the second makes transformers drop the padding mask without a word. Outside a pass it is SDPA.

Plain rows go through SDPA untouched. Of the calibrated rows, the single pooled row of CLS and last-token
pooling is computed from its own logits in linear memory; mean pooling calibrates every row, basket by
basket, again through SDPA. No keys-by-keys matrix is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from pipeline.encoders.calibration import (
    BasketGeometry,
    BasketLayout,
    Calibration,
    Pooling,
    Shares,
    calibrated_attention,
    divide_mass,
    masked_softmax,
)

# Not "sdpa…", "flash…" or "flex…": transformers treats such names specially.
ATTENTION_NAME = "calibrated_baskets"

# How many elements of repeated queries mean pooling may hold at once, in multiples of one query tensor.
_QUERY_COPIES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """What one layer computes for the arms of a pass.

    Attributes:
        branches: the calibration of each block of the batch (None is plain), in stacking order.
        copies: the calibrations of copies of the pooled row that are appended to each sequence.
        pooled_only: whether nobody reads the other rows of this layer's output.
    """

    branches: tuple[Calibration | None, ...] = (None,)
    copies: tuple[Calibration | None, ...] = ()
    pooled_only: bool = False


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """What was seen of an attention module when it was called."""

    causal: bool
    biased: bool


@dataclass(slots=True)
class Pass:
    """One forward pass: the batch, where its pooled rows stand, and what each layer has to do."""

    pooling: Pooling
    real: Tensor
    layer_of: dict[nn.Module, int]
    plans: Sequence[LayerPlan]
    calibrated_calls: dict[int, int] = field(default_factory=dict)
    seen: dict[nn.Module, AttentionFacts] = field(default_factory=dict)
    _layouts: dict[BasketGeometry, BasketLayout] = field(default_factory=dict)

    @property
    def pooled(self) -> Tensor:
        """(batch,), index of the pooled row of each text."""
        positions = torch.arange(self.real.shape[1], device=self.real.device)
        if self.pooling is Pooling.CLS:
            return self.real.to(torch.int64).argmax(dim=1)
        return (self.real * positions).argmax(dim=1)

    def layout(self, geometry: BasketGeometry) -> BasketLayout:
        """The baskets of this batch, laid once for all layers."""
        if geometry not in self._layouts:
            self._layouts[geometry] = BasketLayout(geometry, self.real)
        return self._layouts[geometry]


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The arguments of one call of the attention function, for one block of the batch.

    Shapes: query (batch, heads, rows, width); key and value (batch, key heads, keys, width); mask
    (batch, 1, keys, keys) bool or None; bias (1 or batch, heads, keys, keys) or None.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    bias: Tensor | None
    scaling: float
    causal: bool
    local: bool

    def block(self, rows: slice) -> AttentionCall:
        """Take a block of the batch."""
        mask = self.mask[rows] if self.mask is not None and self.mask.shape[0] > 1 else self.mask
        return replace(self, query=self.query[rows], key=self.key[rows], value=self.value[rows], mask=mask)

    def visible(self, rows: Tensor, real: Tensor) -> Tensor:
        """Tell which keys some rows may see.

        Args:
            rows: (batch, r), row indices.
            real: (batch, keys) bool.

        Returns:
            (batch, 1, r, keys) bool.
        """
        batch, n_keys = real.shape
        visible = real[:, None, :].expand(batch, rows.shape[1], n_keys)
        if self.mask is not None:
            mask = self.mask[:, 0].expand(batch, -1, -1)
            visible = visible & mask.gather(1, rows[..., None].expand(-1, -1, n_keys))
        elif self.causal:
            visible = visible & (torch.arange(n_keys, device=rows.device) <= rows[..., None])
        return visible[:, None]

    def logits(self, rows_query: Tensor, rows: Tensor) -> Tensor:
        """Scaled logits of some rows over all keys.

        Args:
            rows_query: (batch, heads, r, width), their queries.
            rows: (batch, r), where they stand.

        Returns:
            (batch, heads, r, keys), float32.
        """
        logits = _per_key_head(rows_query.float(), self.key.float().mT) * self.scaling
        if self.bias is not None:
            bias = self.bias.expand(logits.shape[0], -1, -1, -1)
            index = rows[:, None, :, None].expand(*logits.shape[:3], bias.shape[-1])
            logits = logits + bias.gather(2, index).float()
        return logits


def _per_key_head(left: Tensor, right: Tensor) -> Tensor:
    """Multiply (batch, heads, r, x) by (batch, key heads, x, y), each key head serving its query heads."""
    batch, heads, r, _ = left.shape
    groups = heads // right.shape[1]
    product = left.reshape(batch, right.shape[1], groups * r, -1) @ right
    return product.reshape(batch, heads, r, -1)


_ACTIVE: ContextVar[Pass | None] = ContextVar("active_pass", default=None)


@contextmanager
def active(current: Pass | None) -> Iterator[None]:
    """Run the forward passes inside the block as `current`."""
    token = _ACTIVE.set(current)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def active_pass() -> Pass | None:
    """The pass that is being run, if any."""
    return _ACTIVE.get()


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
    n_keys = key.shape[2] - len(plan.copies)
    call = AttentionCall(
        query=query[:, :, :n_keys],
        key=key[:, :, :n_keys],
        value=value[:, :, :n_keys],
        mask=attention_mask,
        bias=kwargs.get("position_bias"),
        scaling=kwargs["scaling"],
        causal=_is_causal(module, kwargs),
        local=kwargs.get("sliding_window") is not None,
    )
    if plan.pooled_only:
        out = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
    else:
        out, _ = sdpa_attention_forward(module, call.query, call.key, call.value, attention_mask, **kwargs)
        out = pad(out, (0, 0, 0, 0, 0, len(plan.copies)))
    _calibrate_branches(out, call, plan, current, layer)
    if plan.copies:
        _attend_copies(out, call, (query, key, value), plan, current, layer)
    return out, None


def _is_causal(module: nn.Module, kwargs: dict[str, Any]) -> bool:
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
            _calibrate_all_rows(out[rows], block, calibration, current)
        else:
            pooled = current.pooled
            index = torch.arange(size, device=pooled.device)
            query = block.query[index, :, pooled][:, :, None]
            out[index + rows.start, pooled] = _attend_pooled(query, block, (calibration,), current)[:, 0]


def _attend_pooled(
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
        own_key = _repeat_heads(own[0], query.shape[1]).float()
        self_logit = (query.float() * own_key).sum(dim=-1, keepdim=True) * call.scaling
        logits = logits.scatter(-1, at_position, self_logit)
    visible = call.visible(position, current.real)
    weights = _weights(logits, visible, calibrations, current)
    out = _per_key_head(weights, call.value.float())
    if own is not None and at_position is not None:
        there = call.value.gather(2, rows[:, None, :, None].expand(-1, call.value.shape[1], -1, call.value.shape[3]))
        difference = _repeat_heads(own[1] - there, query.shape[1]).float()
        out = out + weights.gather(-1, at_position) * difference
    return out.transpose(1, 2).to(query.dtype)


def _repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    return tensor.repeat_interleave(heads // tensor.shape[1], dim=1)


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
        weights[:, :, rows] = calibrated_attention(logits[:, :, rows], seen, current.layout(geometry), strengths)
    return weights


def _strength(calibration: Calibration | None) -> float:
    return calibration.strength if calibration is not None else 0.0


def _attend_copies(
    out: Tensor,
    call: AttentionCall,
    whole: tuple[Tensor, Tensor, Tensor],
    plan: LayerPlan,
    current: Pass,
    layer: int,
) -> None:
    """Fill the copies' rows of `out`: each stands where the pooled row stands and sees itself there."""
    query, key, value = (tensor[:, :, -len(plan.copies) :] for tensor in whole)
    out[:, -len(plan.copies) :] = _attend_pooled(query, call, plan.copies, current, own=(key, value))
    calibrated = sum(calibration is not None for calibration in plan.copies)
    current.calibrated_calls[layer] = current.calibrated_calls.get(layer, 0) + calibrated


def _calibrate_all_rows(out: Tensor, call: AttentionCall, calibration: Calibration, current: Pass) -> None:
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
    batch, heads, n_rows, width = call.query.shape
    total = torch.zeros(batch, heads, n_rows, call.value.shape[3], device=call.query.device)
    n_baskets = torch.zeros(batch, 1, 1, dtype=torch.int64, device=real.device)
    n_content = torch.zeros_like(n_baskets)
    size = layout.geometry.basket_size
    for start in range(0, layout.n_baskets, _QUERY_COPIES_AT_ONCE):
        slots = slice(start * size, min(start + _QUERY_COPIES_AT_ONCE, layout.n_baskets) * size)
        visible = _slots_visible(call, layout, real, slots)
        grouped = visible.unflatten(-1, (-1, size))
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
        # A row without any visible slot would be 0/0 in some kernels; it is given all slots and weighs nothing.
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
    by_basket = bias.gather(-1, index).unflatten(-1, (g, -1)).permute(0, 3, 1, 2, 4).flatten(0, 1)
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
    return _repeat_heads(call.value.gather(2, index), call.query.shape[1]).float()


AttentionInterface.register(ATTENTION_NAME, attention_function)
AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)
