"""Where the pooled rows look: their attention mass a basket, by layer and head, plain and calibrated.

It is watched in the same forward pass that embeds, and computed by the same functions. CLS and last-token
pooling need one row; mean pooling averages over every row, a block of rows at a time. Either way memory grows
linearly with the length: no keys-by-keys matrix is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.encoders.arms import ArmPlan, Place, places
from pipeline.encoders.attention_call import AttentionCall
from pipeline.encoders.calibration import BasketGeometry, Calibration, Pooling
from pipeline.encoders.forward_pass import CopiedRows, Pass
from pipeline.encoders.pooled_rows import attention_weights, pooled_weights

# How many weights (batch x heads x rows x keys) of a block of rows are held at once.
_WEIGHTS_AT_ONCE = 2**20


@dataclass(frozen=True, slots=True)
class AttentionMasses:
    """The attention of the pooled rows of a batch, summed up; heads that share a key head are averaged.

    Attributes:
        first, last: (arms, batch, layers, head groups), the mass of the first and of the last real token,
            whether they are isolated or not.
        baskets: (arms, batch, layers, head groups, baskets), the mass of each content basket (isolated tokens
            are in none); NaN where a text has no such basket.
        front_loading: (arms, batch, layers, head groups), of the mass between first and last token the share
            in its first third less the share in its last third: 0 is even, 1 all in front.
    """

    first: Tensor
    last: Tensor
    baskets: Tensor
    front_loading: Tensor


class AttentionRows:
    """Watches a pass and sums up, layer by layer, where its pooled rows look."""

    def __init__(self, plan: ArmPlan, current: Pass, geometry: BasketGeometry, skip_pooling: int) -> None:
        """Prepare to watch.

        Args:
            plan: of the pass.
            current: the pass; its batch has no left padding.
            geometry: the baskets to sum up in, for all arms alike.
            skip_pooling: leading tokens that mean pooling leaves out.
        """
        self._places = places(plan)
        self._plan = plan
        self._pass = current
        self._skip = skip_pooling
        self._layout = current.layout(geometry)
        self._thirds = _thirds(current.real)
        self._by_layer: dict[int, AttentionMasses] = {}

    def __call__(self, layer: int, call: AttentionCall, copied: CopiedRows | None) -> None:
        """Take note of one layer."""
        size = self._pass.real.shape[0]
        step = self._plan.layers[layer]
        weights: dict[Place, Tensor] = {
            (number, None): self._of_block(call.block(slice(number * size, (number + 1) * size)), calibration)
            for number, calibration in enumerate(step.branches)
        }
        if copied is not None:
            query, key, _ = copied
            of_copies = pooled_weights(query, call, step.copies, self._pass, key)
            weights.update(((0, copy), of_copies[:, :, copy]) for copy in range(len(step.copies)))
        by_arm = torch.stack([weights[place] for place in self._places[layer]])
        self._by_layer[layer] = self._summed_up(
            torch.unflatten(by_arm, 2, (call.key.shape[1], -1)).mean(dim=3)
        )

    def masses(self) -> AttentionMasses:
        """What was seen, all layers together."""
        layers = [self._by_layer[layer] for layer in sorted(self._by_layer)]
        return AttentionMasses(
            first=torch.stack([layer.first for layer in layers], dim=2),
            last=torch.stack([layer.last for layer in layers], dim=2),
            baskets=torch.stack([layer.baskets for layer in layers], dim=2),
            front_loading=torch.stack([layer.front_loading for layer in layers], dim=2),
        )

    def _of_block(self, call: AttentionCall, calibration: Calibration | None) -> Tensor:
        """Attention of the pooled row, or the mean over all pooled rows: (batch, heads, keys)."""
        if self._pass.pooling is Pooling.MEAN:
            return self._mean_over_rows(call, calibration)
        pooled = self._pass.pooled
        index = torch.arange(len(pooled), device=pooled.device)
        query = call.query[index, :, pooled][:, :, None]
        return pooled_weights(query, call, (calibration,), self._pass)[:, :, 0]

    def _mean_over_rows(self, call: AttentionCall, calibration: Calibration | None) -> Tensor:
        real = self._pass.real
        batch, heads, n_keys, _ = call.query.shape
        counted = real & (torch.arange(n_keys, device=real.device) >= self._skip)
        total = torch.zeros(batch, heads, n_keys, device=real.device)
        for rows in _row_blocks(n_keys, per_row=batch * heads * n_keys, device=real.device):
            index = rows.expand(batch, -1)
            logits = call.logits(call.query[:, :, rows], index)
            weights = attention_weights(
                logits, call.visible(index, real), (calibration,) * len(rows), self._pass
            )
            total += torch.einsum("bhrk,br->bhk", weights, counted[:, rows].float())
        return total / counted.sum(dim=1).clamp_min(1)[:, None, None]

    def _summed_up(self, weights: Tensor) -> AttentionMasses:
        """Sum (arms, batch, groups, keys) up over tokens, baskets and thirds."""
        layout = self._layout
        over_keys = weights.transpose(0, 1).flatten(1, 2)[:, :, None]  # (batch, arms * groups, 1, keys)
        filled = torch.unflatten(layout.filled, -1, (layout.n_baskets, -1))
        sums = (layout.grid(over_keys)[:, :, 0] * filled[:, None]).sum(dim=-1)
        sums = sums.masked_fill(~filled.any(dim=-1)[:, None], torch.nan)
        thirds = torch.einsum("xbgk,tbk->txbg", weights, self._thirds)
        content = thirds.sum(dim=0).clamp_min(torch.finfo(thirds.dtype).tiny)
        arms = weights.shape[0]
        return AttentionMasses(
            first=_by_arm(layout.mass_at(over_keys, layout.first)[..., 0], arms),
            last=_by_arm(layout.mass_at(over_keys, layout.last)[..., 0], arms),
            baskets=_by_arm(sums, arms),
            front_loading=(thirds[0] - thirds[2]) / content,
        )


def _by_arm(value: Tensor, arms: int) -> Tensor:
    """(batch, arms * groups, …) to (arms, batch, groups, …)."""
    return torch.unflatten(value, 1, (arms, -1)).transpose(0, 1)


def _row_blocks(n_rows: int, *, per_row: int, device: torch.device) -> Iterator[Tensor]:
    step = max(1, _WEIGHTS_AT_ONCE // per_row)
    for start in range(0, n_rows, step):
        yield torch.arange(start, min(start + step, n_rows), device=device)


def _thirds(real: Tensor) -> Tensor:
    """(3, batch, keys): by how much each key between first and last token counts for each third of them.

    A token on the border of two thirds counts for both in parts, so that even attention is even over thirds.
    """
    lengths = real.sum(dim=1, keepdim=True)
    between = (lengths - 2).clamp_min(1)
    start = torch.arange(real.shape[1], device=real.device) - 1.0
    inside = (start >= 0) & (start < lengths - 2)
    left, right = start / between, (start + 1) / between
    edges = torch.arange(4, device=real.device)[:, None, None] / 3
    overlap = torch.minimum(right, edges[1:]) - torch.maximum(left, edges[:-1])
    return overlap.clamp_min(0.0) * between * inside
