"""What a forward pass carries to the attention of each layer: the batch, its pooled rows and the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pipeline.encoders.attention_call import AttentionCall
from pipeline.encoders.baskets import BasketLayout
from pipeline.encoders.calibration import BasketGeometry, Calibration, Pooling


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


# Queries, keys and values of the copies of the pooled row, each (batch, heads or key heads, copies, width).
CopiedRows = tuple[Tensor, Tensor, Tensor]
# Shown each layer's attention: its number, the call (all blocks of the batch) and the copies, if any.
Watch = Callable[[int, AttentionCall, CopiedRows | None], None]


@dataclass(slots=True)
class Pass:
    """One forward pass: the batch, where its pooled rows stand, and what each layer has to do.

    `watch`, if any, is shown the attention of every layer that has a plan.
    """

    pooling: Pooling
    real: Tensor
    layer_of: dict[nn.Module, int]
    plans: Sequence[LayerPlan]
    calibrated_calls: dict[int, int] = field(default_factory=dict)
    seen: dict[nn.Module, AttentionFacts] = field(default_factory=dict)
    watch: Watch | None = None
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
