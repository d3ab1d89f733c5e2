"""The arguments of one call of the attention function, and what rows of it see."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


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
        logits = per_key_head(rows_query.float(), self.key.float().mT) * self.scaling
        if self.bias is not None:
            bias = self.bias.expand(logits.shape[0], -1, -1, -1)
            index = rows[:, None, :, None].expand(*logits.shape[:3], bias.shape[-1])
            logits = logits + bias.gather(2, index).float()
        return logits


def per_key_head(left: Tensor, right: Tensor) -> Tensor:
    """Multiply (batch, heads, r, x) by (batch, key heads, x, y), each key head serving its query heads."""
    batch, heads, r, _ = left.shape
    groups = heads // right.shape[1]
    product = left.reshape(batch, right.shape[1], groups * r, -1) @ right
    return product.reshape(batch, heads, r, -1)


def repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    """Give every query head the key head that serves it: (batch, key heads, …) to (batch, heads, …)."""
    return tensor.repeat_interleave(heads // tensor.shape[1], dim=1)
