"""Hooks that carry out a plan of arms on the layers of any model, so that no class needs code of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.encoders.arms import ArmPlan
from pipeline.encoders.forward_pass import Pass


class ArmHooks:
    """Carries a plan out: reshapes what enters each layer, and trims the last feed-forward network."""

    def __init__(self, blocks: Sequence[nn.Module], feed_forward: tuple[nn.Module, nn.Module] | None) -> None:
        """Attach to a model; without a running pass the hooks do nothing.

        Args:
            blocks: the model's layers, in order.
            feed_forward: of the last layer, the module whose input and the one whose output are one row a
                token; None leaves the feed-forward network alone.
        """
        self._plan: ArmPlan | None = None
        self._pass: Pass | None = None
        for number, block in enumerate(blocks):
            block.register_forward_pre_hook(self._entering(number), with_kwargs=True)
        if feed_forward is not None:
            first, last = feed_forward
            first.register_forward_pre_hook(self._keep_pooled_rows)
            last.register_forward_hook(self._restore_rows)

    def run(self, plan: ArmPlan, current: Pass) -> None:
        """Use `plan` for the forward passes until `stop`."""
        self._plan, self._pass = plan, current

    def stop(self) -> None:
        """Do nothing from here on."""
        self._plan = self._pass = None

    def _entering(self, layer: int) -> Any:
        def hook(
            _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
            if self._plan is None or self._pass is None:
                return None
            return self._prepare(layer, self._plan, self._pass, args, dict(kwargs))

        return hook

    def _prepare(
        self, layer: int, plan: ArmPlan, current: Pass, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        hidden = args[0] if args else kwargs["hidden_states"]
        size, length = current.real.shape
        blocks = len(plan.layers[layer].branches)
        copies = len(plan.layers[layer].copies)
        if plan.unfold == layer:
            hidden = _unfold(hidden, current.pooled, length)
        if (source := plan.sources[layer]) is not None:
            hidden = hidden.unflatten(0, (-1, size))[list(source)].flatten(0, 1)
        if copies and hidden.shape[1] == length:
            rows = hidden[torch.arange(size, device=hidden.device), current.pooled]
            hidden = torch.cat([hidden, rows[:, None].expand(-1, copies, -1)], dim=1)
        rest = tuple(_repeat_batch(value, size, blocks) for value in args[1:])
        kwargs = {name: _repeat_batch(value, size, blocks) for name, value in kwargs.items()}
        if copies and "position_embeddings" in kwargs:
            kwargs["position_embeddings"] = _place_copies(
                kwargs["position_embeddings"], current.pooled, copies
            )
        if args:
            return (hidden, *rest), kwargs
        return (), {**kwargs, "hidden_states": hidden}

    def _trims(self, layer_input: Tensor) -> bool:
        plan, current = self._plan, self._pass
        return (
            plan is not None and current is not None and plan.layers[-1].pooled_only and layer_input.ndim == 3
        )

    def _keep_pooled_rows(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not self._trims(args[0]):
            return None
        rows = self._needed_rows(args[0])
        return (args[0].gather(1, rows[..., None].expand(-1, -1, args[0].shape[2])), *args[1:])

    def _restore_rows(self, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if not self._trims(output):
            return None
        rows = self._needed_rows(output)
        length = self._length_with_copies()
        whole = output.new_zeros(output.shape[0], length, output.shape[2])
        return whole.scatter(1, rows[..., None].expand(-1, -1, output.shape[2]), output)

    def _length_with_copies(self) -> int:
        plan, current = self._running()
        return current.real.shape[1] + len(plan.layers[-1].copies)

    def _needed_rows(self, tensor: Tensor) -> Tensor:
        """(batch, r): the pooled row and its copies."""
        plan, current = self._running()
        pooled = current.pooled.repeat(len(plan.layers[-1].branches))[:, None]
        length = current.real.shape[1]
        copies = torch.arange(length, length + len(plan.layers[-1].copies), device=tensor.device)
        return torch.cat([pooled, copies.expand(pooled.shape[0], -1)], dim=1)

    def _running(self) -> tuple[ArmPlan, Pass]:
        if self._plan is None or self._pass is None:
            raise RuntimeError("no pass is running")
        return self._plan, self._pass


def _unfold(hidden: Tensor, pooled: Tensor, length: int) -> Tensor:
    """Make each copy the pooled row of its own block: (blocks * batch, length, width)."""
    base, copies = hidden[:, :length], hidden[:, length:]
    blocks = [base]
    texts = torch.arange(base.shape[0], device=hidden.device)
    for number in range(copies.shape[1]):
        block = base.clone()
        block[texts, pooled] = copies[:, number]
        blocks.append(block)
    return torch.cat(blocks)


def _repeat_batch(value: Any, size: int, blocks: int) -> Any:
    """Repeat what has one entry a text for each block; a leading 1 broadcasts by itself."""
    if isinstance(value, Tensor) and value.ndim > 1 and value.shape[0] == size > 1 and blocks > 1:
        return value.repeat(blocks, *([1] * (value.ndim - 1)))
    if isinstance(value, tuple):
        return tuple(_repeat_batch(part, size, blocks) for part in value)
    return value


def _place_copies(embeddings: tuple[Tensor, ...], pooled: Tensor, copies: int) -> tuple[Tensor, ...]:
    """Give the copies the rotary position of the pooled row; parts are (1 or batch, length, width)."""
    placed = []
    for part in embeddings:
        whole = part.expand(pooled.shape[0], -1, -1)
        row = whole.gather(1, pooled[:, None, None].expand(-1, copies, whole.shape[2]))
        placed.append(torch.cat([whole, row], dim=1))
    return tuple(placed)
