"""A transformer with arms: its layers found, its calibration proved, all arms in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pipeline.encoders.architecture import (
    blocks_of,
    cannot_be_calibrated,
    feed_forward_of,
    probe_batch,
    refuse_by_name,
)
from pipeline.encoders.arms import Arm, ArmPlan, plan_arms
from pipeline.encoders.attention_rows import AttentionMasses, AttentionRows
from pipeline.encoders.calibration import BasketGeometry, Calibration, Pooling
from pipeline.encoders.forward_pass import AttentionFacts, Pass, active
from pipeline.encoders.hooks import ArmHooks

_PROBE_BASKET = 8


@dataclass(frozen=True, slots=True)
class Observed:
    """What a pass made of a batch, one entry an arm.

    Attributes:
        pooled: (batch, width) each, what `embed` returns.
        rows: (batch, length, width) each, the contextual tokens of the last layer.
        attention: where the pooled rows looked, if it was asked for.
    """

    pooled: list[Tensor]
    rows: list[Tensor]
    attention: AttentionMasses | None


class CalibratedModel:
    """A `transformers` encoder or decoder whose pooled rows can be calibrated.

    The model must have been loaded with `attn_implementation=ATTENTION_NAME`. Without arms, and outside
    `embed`, it behaves as with SDPA.
    """

    def __init__(self, model: PreTrainedModel, pooling: Pooling) -> None:
        """Find the layers, attach, and prove on a dummy forward that calibration arrives.

        Raises:
            DataError: the architecture cannot be calibrated; the message says why.
        """
        refuse_by_name(model)
        self.model = model
        self.model.train(mode=False)
        self.pooling = pooling
        facts = self._observe()
        blocks = blocks_of(model, list(facts))
        self._layer_of = {module: number for number, module in enumerate(facts)}
        self.n_layers = len(facts)
        self.causal = all(fact.causal for fact in facts.values())
        self._may_copy = not any(fact.biased for fact in facts.values())
        feed_forward = feed_forward_of(blocks[-1]) if pooling is not Pooling.MEAN else None
        self._skip_rows = feed_forward is not None
        self._hooks = ArmHooks(blocks, feed_forward)
        self._plans: dict[tuple[tuple[Arm, ...], bool], ArmPlan] = {}

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    def blocks_at_once(self, arms: Sequence[Arm]) -> int:
        """How many copies of the batch the widest layer holds: memory grows with it."""
        return max(len(layer.branches) for layer in self._plan(arms).layers)

    def embed(
        self, input_ids: Tensor, attention_mask: Tensor, arms: Sequence[Arm], *, skip_pooling: int = 0
    ) -> list[Tensor]:
        """Embed a batch with every arm in one forward pass.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for real tokens; padding on either side.
            arms: a calibration each; None is plain.
            skip_pooling: leading tokens (a prompt) that mean pooling leaves out.

        Returns:
            One (batch, width) tensor an arm, pooled, before any further module of the model.
        """
        plan = self._plan(arms)
        current = Pass(self.pooling, attention_mask.bool(), self._layer_of, plan.layers)
        return self._run(input_ids, attention_mask, plan, current, skip_pooling)

    def observe(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        arms: Sequence[Arm],
        *,
        skip_pooling: int = 0,
        attention: BasketGeometry | None = None,
    ) -> Observed:
        """Embed as `embed` does, still in one forward pass, and keep what the pooled vectors are made of.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for real tokens.
            arms: a calibration each; None is plain.
            skip_pooling: leading tokens (a prompt) that mean pooling leaves out.
            attention: the baskets in which the attention of the pooled rows is summed up; None leaves it.
        """
        plan = self._plan(arms, every_row=True)
        current = Pass(self.pooling, attention_mask.bool(), self._layer_of, plan.layers)
        rows = AttentionRows(plan, current, attention, skip_pooling) if attention is not None else None
        current.watch = rows
        blocks = self._blocks(input_ids, attention_mask, plan, current)
        return Observed(
            [self._pool(blocks[block], copy, current, skip_pooling) for block, copy in plan.outputs],
            [_contextual(blocks[block], copy, current) for block, copy in plan.outputs],
            rows.masses() if rows is not None else None,
        )

    def _run(
        self, input_ids: Tensor, attention_mask: Tensor, plan: ArmPlan, current: Pass, skip_pooling: int = 0
    ) -> list[Tensor]:
        blocks = self._blocks(input_ids, attention_mask, plan, current)
        return [self._pool(blocks[block], copy, current, skip_pooling) for block, copy in plan.outputs]

    def _blocks(self, input_ids: Tensor, attention_mask: Tensor, plan: ArmPlan, current: Pass) -> Tensor:
        """Run the model: (blocks, batch, length with copies, width)."""
        self._hooks.run(plan, current)
        try:
            with active(current), torch.inference_mode():
                hidden = self._forward(input_ids, attention_mask)
        finally:
            self._hooks.stop()
        return torch.unflatten(hidden, 0, (-1, input_ids.shape[0]))

    def _forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask if self._needs_mask(attention_mask) else None
        output = self.model(input_ids=input_ids, attention_mask=mask, **self._no_cache())
        hidden: Tensor = output.last_hidden_state
        return hidden

    def _needs_mask(self, attention_mask: Tensor) -> bool:
        """Causal rows never see padding on their right: without a mask SDPA takes its causal kernel."""
        padded_left = bool((attention_mask[:, 0] == 0).any())
        return padded_left or not self.causal

    def _no_cache(self) -> dict[str, bool]:
        return {"use_cache": False} if self.causal else {}

    def _pool(self, hidden: Tensor, copy: int | None, current: Pass, skip_pooling: int) -> Tensor:
        """(batch, length, width) to (batch, width)."""
        length = current.real.shape[1]
        if copy is not None:
            return hidden[:, length + copy]
        if self.pooling is not Pooling.MEAN:
            return hidden[torch.arange(len(hidden), device=hidden.device), current.pooled]
        first = current.real.to(torch.int64).argmax(dim=1, keepdim=True)
        positions = torch.arange(length, device=hidden.device)
        counted = (current.real & (positions >= first + skip_pooling))[..., None]
        total = (hidden[:, :length] * counted).sum(dim=1, dtype=torch.float32)
        return (total / counted.sum(dim=1).clamp_min(1)).to(hidden.dtype)

    def _plan(self, arms: Sequence[Arm], *, every_row: bool = False) -> ArmPlan:
        resolved = tuple(
            replace(arm, layers=tuple(sorted(arm.calibrated_layers(self.n_layers)))) if arm else None
            for arm in arms
        )
        key = (resolved, every_row)
        if key not in self._plans:
            self._plans[key] = self._make_plan(resolved, every_row=every_row)
        return self._plans[key]

    def _make_plan(self, arms: Sequence[Arm], *, every_row: bool = False) -> ArmPlan:
        return plan_arms(
            arms,
            n_layers=self.n_layers,
            pooling=self.pooling,
            causal=self.causal,
            may_copy=self._may_copy,
            skip_rows=self._skip_rows and not every_row,
        )

    def _observe(self) -> dict[nn.Module, AttentionFacts]:
        """Run a dummy forward and note, in order, which modules attend through the interface.

        Raises:
            DataError: the model does not run at all, say in this precision on this device.
        """
        input_ids, attention_mask = probe_batch(self.model)
        current = Pass(self.pooling, attention_mask.bool(), {}, ())
        try:
            with active(current), torch.inference_mode():
                self.model(input_ids=input_ids, attention_mask=attention_mask)
        except (RuntimeError, NotImplementedError) as error:
            raise cannot_be_calibrated(
                self.model, f"it does not run in {self.model.dtype} on {self.model.device} ({error})"
            ) from error
        return current.seen

    def prove(self, arms: Sequence[Arm]) -> None:
        """Check on a dummy batch that exactly the configured layers are calibrated, and rightly combined.

        A calibration that silently does nothing makes all arms equal and looks healthy; so: each layer is
        calibrated as often as the plan says, each arm equals its own separate pass, plain arms equal the
        model without any of this, and calibrated arms differ from it.

        Raises:
            DataError: one of these does not hold.
        """
        small = [replace(arm, basket_size=_PROBE_BASKET) if arm is not None else None for arm in arms]
        input_ids, attention_mask = probe_batch(self.model)
        plan = self._make_plan(small)
        current = Pass(self.pooling, attention_mask.bool(), self._layer_of, plan.layers)
        together = self._run(input_ids, attention_mask, plan, current)
        self._check_counts(plan, current)
        plain = self._without_seam(input_ids, attention_mask)
        for arm, vectors in zip(small, together, strict=True):
            alone = self.embed(input_ids, attention_mask, [arm])[0]
            self._check_vectors(arm, vectors, alone, plain)

    def _check_vectors(self, arm: Arm, vectors: Tensor, alone: Tensor, plain: Tensor) -> None:
        if not vectors.isfinite().all():
            raise cannot_be_calibrated(
                self.model,
                f"its vectors are not finite in {self.model.dtype}; check its weights or the precision",
            )
        is_plain = as_arm(arm) is None
        if not self._close(vectors, alone) or (is_plain and not self._close(vectors, plain)):
            raise cannot_be_calibrated(self.model, "one pass for all arms and separate passes disagree")
        if not is_plain and torch.equal(vectors, plain):
            raise cannot_be_calibrated(self.model, f"{arm} changes nothing")

    def _check_counts(self, plan: ArmPlan, current: Pass) -> None:
        for layer, step in enumerate(plan.layers):
            expected = sum(calibration is not None for calibration in (*step.branches, *step.copies))
            got = current.calibrated_calls.get(layer, 0)
            if got != expected:
                raise cannot_be_calibrated(
                    self.model, f"layer {layer} calibrated {got} times, expected {expected}"
                )

    def _without_seam(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        current = Pass(self.pooling, attention_mask.bool(), {}, ())
        with torch.inference_mode():
            return self._pool(self._forward(input_ids, attention_mask), None, current, 0)

    def _close(self, left: Tensor, right: Tensor) -> bool:
        tolerance = 1e-3 if self.model.dtype == torch.float32 else 0.1
        return bool((left - right).abs().max() <= tolerance * right.abs().max())


def _contextual(block: Tensor, copy: int | None, current: Pass) -> Tensor:
    """The tokens of one arm: where a copy stands for the pooled row, it takes that row's place."""
    length = current.real.shape[1]
    rows = block[:, :length]
    if copy is None:
        return rows
    rows = rows.clone()
    rows[torch.arange(len(rows), device=rows.device), current.pooled] = block[:, length + copy]
    return rows


def as_arm(calibration: Calibration | None) -> Arm:
    """Strength 0 is the plain model."""
    return None if calibration is None or calibration.strength == 0.0 else calibration
