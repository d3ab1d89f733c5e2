"""Attention calibration: spread the attention of a pooled row evenly over baskets of tokens.

For one query row with plain attention `a` over the keys that it may see, partition the keys into baskets:
content tokens in contiguous runs of `basket_size`, each isolated special token a basket of its own, `n`
baskets in all. Then, with strength `s`,

    a_cal[k] = a[k] / sum(a[j] for j in basket of k) / n
    a_hat    = (1 - s) * a + s * a_cal

`a[k] / sum(basket)` is the softmax within the basket, so calibrated attention is a uniform mixture of
basket-local softmaxes. It is computed from the logits in that form: dividing by a basket's sum underflows
in half precision, a local softmax cannot.

Isolated tokens may instead keep their `original` mass or a fixed share; the content baskets then divide
the rest equally (nothing, where the isolated tokens claim more than 1; the row is then divided by its sum).
A row that sees fewer content tokens than one basket keeps its plain attention.

Everything here is plain tensor arithmetic in float32; shapes are written `(batch, heads, rows, keys)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.encoders.calibration import BasketGeometry, Mass


class BasketLayout:
    """The baskets of one batch.

    Attributes:
        order: (batch, n_baskets * basket_size), key index of each basket slot; unfilled slots repeat a key.
        filled: (batch, n_baskets * basket_size), whether the slot holds a content token.
        first, last: (batch,), key index of the first / last real token.
    """

    def __init__(self, geometry: BasketGeometry, real: Tensor) -> None:
        """Lay the baskets over a batch.

        Args:
            geometry: sizes and isolation.
            real: (batch, keys) bool, which keys are real tokens (a contiguous run in each text).
        """
        self.geometry = geometry
        n_keys = real.shape[1]
        lengths = real.sum(dim=1)
        self.first = real.to(torch.int64).argmax(dim=1)
        self.last = self.first + lengths - 1
        start = self.first + int(geometry.isolate_first)
        n_content = (lengths - int(geometry.isolate_first) - int(geometry.isolate_last)).clamp_min(0)
        longest = max(n_keys - int(geometry.isolate_first) - int(geometry.isolate_last), 1)
        self.n_baskets = -(-longest // geometry.basket_size)
        slots = torch.arange(self.n_baskets * geometry.basket_size, device=real.device)
        self.filled = slots < n_content[:, None]
        self.order = (start[:, None] + slots).clamp_max(n_keys - 1)

    def grid(self, over_keys: Tensor) -> Tensor:
        """Arrange values over keys, (batch, heads, rows, keys), as (batch, heads, rows, baskets, slots)."""
        batch, heads, rows, _ = over_keys.shape
        index = self.order[:, None, None, :].expand(batch, heads, rows, -1)
        return torch.unflatten(over_keys.gather(-1, index), -1, (self.n_baskets, -1))

    def slots_visible(self, visible: Tensor) -> Tensor:
        """Restrict visibility, (batch, 1, rows, keys), to content: (batch, 1, rows, baskets, slots)."""
        filled = torch.unflatten(self.filled, -1, (self.n_baskets, -1))
        return self.grid(visible) & filled[:, None, None]

    def mass_at(self, over_keys: Tensor, token: Tensor) -> Tensor:
        """Read values over keys, (batch, heads, rows, keys), at one key a text: (batch, heads, rows)."""
        return over_keys.gather(-1, self._key_index(over_keys, token)).squeeze(-1)

    def add_at(self, weights: Tensor, token: Tensor, mass: Tensor) -> None:
        """Add `mass`, (batch, heads, rows), to `weights`, (batch, heads, rows, keys), at one key a text."""
        weights.scatter_add_(-1, self._key_index(weights, token), mass[..., None])

    @staticmethod
    def _key_index(over_keys: Tensor, token: Tensor) -> Tensor:
        return token[:, None, None, None].expand(*over_keys.shape[:3], 1)


@dataclass(frozen=True, slots=True)
class Shares:
    """How the mass of a row is divided; each (batch, heads or 1, rows).

    Attributes:
        content: the mass of each content basket that the row sees.
        first, last: the mass of the isolated tokens (0 where they are not isolated or not seen).
        calibrated: 1 where the row sees a basket's worth of content, else 0: it keeps its plain attention.
    """

    content: Tensor
    first: Tensor
    last: Tensor
    calibrated: Tensor


def divide_mass(
    geometry: BasketGeometry,
    *,
    n_baskets: Tensor,
    n_content: Tensor,
    first: tuple[Tensor, Tensor] | None,
    last: tuple[Tensor, Tensor] | None,
) -> Shares:
    """Divide a row's attention between its baskets.

    Args:
        geometry: which masses are asked for.
        n_baskets: (batch, 1, rows), content baskets that the row sees.
        n_content: (batch, 1, rows), content tokens that the row sees.
        first: for an isolated first token whether the row sees it, and its plain attention, each
            (batch, heads or 1, rows); None where it is not isolated.
        last: the same for the last token.
    """
    zero = torch.zeros_like(n_baskets, dtype=torch.float32)
    seen = [pair[0].float() for pair in (first, last) if pair is not None]
    share = 1.0 / (n_baskets + sum(seen, zero)).clamp_min(1.0)
    first_mass = _isolated_mass(geometry.first_mass, share, first)
    last_mass = _isolated_mass(geometry.last_mass, share, last)
    rest = (1.0 - first_mass - last_mass).clamp_min(0.0)
    # Isolated tokens may claim more than the whole row, or be all that the row has; either way it sums to 1.
    total = torch.where(n_baskets > 0, first_mass + last_mass + rest, first_mass + last_mass)
    total = torch.where(total > 0, total, torch.ones_like(total))
    return Shares(
        content=rest / n_baskets.clamp_min(1) / total,
        first=first_mass / total,
        last=last_mass / total,
        calibrated=(n_content >= geometry.basket_size).float(),
    )


def _isolated_mass(mass: Mass, share: Tensor, token: tuple[Tensor, Tensor] | None) -> Tensor:
    if token is None:
        return torch.zeros_like(share)
    seen, plain = token
    if mass == "equal":
        return share * seen
    if mass == "original":
        return plain * seen
    return float(mass) * seen.float()


def masked_softmax(logits: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the last dimension; exactly 0 where nothing is visible, never NaN."""
    masked = logits.masked_fill(~visible, -torch.inf)
    peak = masked.amax(dim=-1, keepdim=True)
    weights = torch.exp(masked - torch.where(peak.isfinite(), peak, 0.0))
    return weights / weights.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


def calibrated_attention(logits: Tensor, visible: Tensor, layout: BasketLayout, strengths: Tensor) -> Tensor:
    """Compute `a_hat` for a few rows.

    Args:
        logits: (batch, heads, rows, keys), scaled attention logits, float32.
        visible: (batch, 1, rows, keys) bool, the keys that each row may see.
        layout: the baskets of the batch.
        strengths: (rows,), one strength a row.

    Returns:
        (batch, heads, rows, keys), attention weights that sum to 1 over the visible keys.
    """
    plain = masked_softmax(logits, visible)
    in_basket = layout.slots_visible(visible)
    local = masked_softmax(layout.grid(logits), in_basket)
    geometry = layout.geometry
    shares = divide_mass(
        geometry,
        n_baskets=in_basket.any(dim=-1).sum(dim=-1),
        n_content=in_basket.sum(dim=(-1, -2)),
        first=_token(layout, visible, plain, layout.first) if geometry.isolate_first else None,
        last=_token(layout, visible, plain, layout.last) if geometry.isolate_last else None,
    )
    calibrated = torch.zeros_like(plain)
    index = layout.order[:, None, None, :].expand(*plain.shape[:3], -1)
    calibrated.scatter_add_(-1, index, (local * shares.content[..., None, None]).flatten(-2))
    layout.add_at(calibrated, layout.first, shares.first.expand(plain.shape[:3]))
    layout.add_at(calibrated, layout.last, shares.last.expand(plain.shape[:3]))
    strength = (strengths * shares.calibrated)[..., None]
    return (1.0 - strength) * plain + strength * calibrated


def _token(layout: BasketLayout, visible: Tensor, plain: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    return layout.mass_at(visible, token), layout.mass_at(plain, token)
