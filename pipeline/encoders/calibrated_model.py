"""A transformer with arms: its layers found, its calibration proved, all arms in one forward pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from pipeline.encoders.arms import Arm, ArmHooks, ArmPlan, plan_arms
from pipeline.encoders.attention import AttentionFacts, Pass, active
from pipeline.encoders.calibration import Calibration, Pooling
from pipeline.errors import DataError

# The first number in a module's path is its layer: T5 has "encoder.block.3.layer.0.SelfAttention".
_LAYER_PATH = re.compile(r"^(.*?(?:^|\.)(?:layers?|block|h)\.\d+)\.")

_REFUSED = {
    "mpnet": "its attention is fixed code that adds its own position bias and never calls the attention interface",
    "deberta-v2": "its disentangled attention never calls the attention interface",
    "deberta": "its disentangled attention never calls the attention interface",
    "gemma2": "it caps attention logits (attn_logit_softcapping), which SDPA and the basket formula do not model",
}

_PROBE_LENGTHS = (40, 27)
_PROBE_BASKET = 8


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
        self.model = model.eval()
        self.pooling = pooling
        facts = self._observe()
        self._layer_of = {module: number for number, module in enumerate(facts)}
        self.n_layers = len(facts)
        self.causal = all(fact.causal for fact in facts.values())
        self._may_copy = not any(fact.biased for fact in facts.values())
        blocks = [self._block_of(module) for module in facts]
        feed_forward = _feed_forward_of(blocks[-1]) if pooling is not Pooling.MEAN else None
        self._skip_rows = feed_forward is not None
        self._hooks = ArmHooks(blocks, feed_forward)
        self._plans: dict[tuple[Arm, ...], ArmPlan] = {}

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

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

    def _run(
        self, input_ids: Tensor, attention_mask: Tensor, plan: ArmPlan, current: Pass, skip_pooling: int = 0
    ) -> list[Tensor]:
        self._hooks.run(plan, current)
        try:
            with active(current), torch.inference_mode():
                hidden = self._forward(input_ids, attention_mask)
        finally:
            self._hooks.stop()
        size = input_ids.shape[0]
        blocks = hidden.unflatten(0, (-1, size))
        return [self._pool(blocks[block], copy, current, skip_pooling) for block, copy in plan.outputs]

    def _forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask if self._needs_mask(attention_mask) else None
        output: Tensor = self.model(input_ids=input_ids, attention_mask=mask, **self._no_cache()).last_hidden_state
        return output

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

    def _plan(self, arms: Sequence[Arm]) -> ArmPlan:
        key = tuple(replace(arm, layers=tuple(sorted(arm.calibrated_layers(self.n_layers)))) if arm else None for arm in arms)
        if key not in self._plans:
            self._plans[key] = self._make_plan(key)
        return self._plans[key]

    def _make_plan(self, arms: Sequence[Arm]) -> ArmPlan:
        return plan_arms(
            arms,
            n_layers=self.n_layers,
            pooling=self.pooling,
            causal=self.causal,
            may_copy=self._may_copy,
            skip_rows=self._skip_rows,
        )

    # -- finding and proving -------------------------------------------------------------------------

    def _observe(self) -> dict[nn.Module, AttentionFacts]:
        """Run a dummy forward and note, in order, which modules attend through the interface."""
        input_ids, attention_mask = self._probe_batch()
        current = Pass(self.pooling, attention_mask.bool(), {}, ())
        with active(current), torch.inference_mode():
            self.model(input_ids=input_ids, attention_mask=attention_mask)
        expected = getattr(self.model.config, "num_hidden_layers", None)
        if not current.seen:
            raise DataError(f"{_name(self.model)} cannot be calibrated: its attention never calls the attention interface")
        if expected is not None and len(current.seen) != expected:
            raise DataError(
                f"{_name(self.model)} cannot be calibrated: {expected} layers, but {len(current.seen)} attention "
                "modules (layers that share their weights are not supported)"
            )
        return current.seen

    def _probe_batch(self) -> tuple[Tensor, Tensor]:
        """Two random texts of different length, padded on the right."""
        longest = min(_PROBE_LENGTHS[0], _positions(self.model))
        lengths = (longest, max(longest * _PROBE_LENGTHS[1] // _PROBE_LENGTHS[0], 1))
        config = self.model.config.get_text_config()
        special = _special_tokens(config)
        ordinary = [token for token in range(min(config.vocab_size, 1000)) if token not in special]
        generator = torch.Generator().manual_seed(0)
        chosen = torch.randint(len(ordinary), (2, longest), generator=generator)
        input_ids = torch.tensor(ordinary)[chosen]
        attention_mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
        input_ids = input_ids.masked_fill(attention_mask == 0, getattr(config, "pad_token_id", None) or 0)
        return input_ids.to(self.device), attention_mask.to(self.device)

    def _block_of(self, attention: nn.Module) -> nn.Module:
        name = next(name for name, module in self.model.named_modules() if module is attention)
        match = _LAYER_PATH.match(name)
        if match is None:
            raise DataError(f"{_name(self.model)} cannot be calibrated: no layer number in the module path {name!r}")
        return self.model.get_submodule(match.group(1))

    def prove(self, arms: Sequence[Arm]) -> None:
        """Check on a dummy batch that exactly the configured layers are calibrated, and rightly combined.

        A calibration that silently does nothing makes all arms equal and looks healthy; so: each layer is
        calibrated as often as the plan says, each arm equals its own separate pass, plain arms equal the
        model without any of this, and calibrated arms differ from it.

        Raises:
            DataError: one of these does not hold.
        """
        small = [replace(arm, basket_size=_PROBE_BASKET) if arm is not None else None for arm in arms]
        input_ids, attention_mask = self._probe_batch()
        plan = self._make_plan(small)
        current = Pass(self.pooling, attention_mask.bool(), self._layer_of, plan.layers)
        together = self._run(input_ids, attention_mask, plan, current)
        self._check_counts(plan, current)
        plain = self._without_seam(input_ids, attention_mask)
        for arm, vectors in zip(small, together, strict=True):
            alone = self.embed(input_ids, attention_mask, [arm])[0]
            is_plain = arm is None or arm.strength == 0.0
            if not self._close(vectors, alone) or (is_plain and not self._close(vectors, plain)):
                raise DataError(f"{_name(self.model)} cannot be calibrated: one pass and separate passes disagree")
            if not is_plain and torch.equal(vectors, plain):
                raise DataError(f"{_name(self.model)} cannot be calibrated: {arm} changes nothing")

    def _check_counts(self, plan: ArmPlan, current: Pass) -> None:
        for layer, step in enumerate(plan.layers):
            expected = sum(calibration is not None for calibration in (*step.branches, *step.copies))
            got = current.calibrated_calls.get(layer, 0)
            if got != expected:
                raise DataError(
                    f"{_name(self.model)} cannot be calibrated: layer {layer} calibrated {got} times, expected {expected}"
                )

    def _without_seam(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        current = Pass(self.pooling, attention_mask.bool(), {}, ())
        with torch.inference_mode():
            return self._pool(self._forward(input_ids, attention_mask), None, current, 0)

    def _close(self, left: Tensor, right: Tensor) -> bool:
        tolerance = 1e-3 if self.model.dtype == torch.float32 else 0.1
        return bool((left - right).abs().max() <= tolerance * right.abs().max())


def refuse_by_name(model: PreTrainedModel) -> None:
    """Refuse architectures that are known not to work, with the reason.

    Raises:
        DataError: the model is one of them.
    """
    kind = model.config.model_type
    if kind in _REFUSED:
        raise DataError(f"{_name(model)} cannot be calibrated: {_REFUSED[kind]}")
    if not type(model)._can_set_attn_implementation():
        raise DataError(f"{_name(model)} cannot be calibrated: it does not support the attention interface of transformers")


def _name(model: PreTrainedModel) -> str:
    return f"the architecture {model.config.model_type!r} ({type(model).__name__})"


def _special_tokens(config: PreTrainedConfig) -> set[int]:
    """Tokens that mean something to the model; a config names none, one or (at the end of a text) several."""
    special: set[int] = set()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(config, name, None)
        special.update(value if isinstance(value, list) else [] if value is None else [value])
    return special


def _positions(model: PreTrainedModel) -> int:
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or _PROBE_LENGTHS[0])


def _feed_forward_of(block: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """Find where one row a token enters and leaves the feed-forward network of a layer, if it is known."""
    children = dict(block.named_children())
    for name in ("mlp", "ffn"):
        if name in children:
            return children[name], children[name]
    if "intermediate" in children and hasattr(children.get("output"), "dense"):
        return children["intermediate"], block.get_submodule("output.dense")
    return None


def as_arm(calibration: Calibration | None) -> Arm:
    """Strength 0 is the plain model."""
    return None if calibration is None or calibration.strength == 0.0 else calibration
