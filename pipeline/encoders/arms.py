"""All arms in one forward pass: what they share is computed once.

Below the first layer at which two arms differ, they are one computation. From there on:

- Causal models with last-token pooling: no token attends to the last one, so each further arm is one more
  row. A copy of the pooled row is appended to the sequence at that layer and sees itself in place of the
  original.
- Bidirectional models with CLS pooling: at the first layer where arms differ only the pooled row differs,
  so copies serve there too; from the next layer on the other tokens read it, and each arm becomes a block
  of the batch.
- Mean pooling: every row differs at once; each arm becomes a block of the batch.

In the last layer of CLS and last-token pooling nobody reads the other rows: they are neither attended nor
sent through the feed-forward network.

`plan_arms` decides this once for a set of arms; hooks on the model's layers carry it out, so that no model
class needs code of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.encoders.calibration import Calibration, Pooling
from pipeline.encoders.forward_pass import LayerPlan

Arm = Calibration | None


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """How a set of arms goes through a model.

    Attributes:
        layers: what each layer computes.
        sources: before each layer, from which block of the layer below each block comes; None if unchanged.
        unfold: the layer before which copies of the pooled row become blocks of the batch, if any.
        outputs: for each arm, the block and the copy (None is the pooled row itself) that hold its result.
    """

    layers: tuple[LayerPlan, ...]
    sources: tuple[tuple[int, ...] | None, ...]
    unfold: int | None
    outputs: tuple[tuple[int, int | None], ...]


def plan_arms(
    arms: Sequence[Arm],
    *,
    n_layers: int,
    pooling: Pooling,
    causal: bool,
    may_copy: bool = True,
    skip_rows: bool = True,
) -> ArmPlan:
    """Plan one pass for several arms.

    Args:
        arms: a calibration for each arm; None, or strength 0, is plain.
        n_layers: layers of the model.
        pooling: of the model.
        causal: whether no token attends to later ones.
        may_copy: whether a row can be appended to a sequence (models whose attention adds a bias by
            position cannot place it).
        skip_rows: whether the last layer may leave out the rows that are not pooled.
    """
    by_arm = [_by_layer(arm, n_layers) for arm in arms]
    pooled_only = skip_rows and pooling is not Pooling.MEAN
    split = _first_difference(by_arm, n_layers)
    if may_copy and pooling is Pooling.LAST and causal:
        plan = _copied_to_the_end(by_arm, split, n_layers)
    else:
        plan = _stacked(by_arm, split, n_layers, copies_first=may_copy and pooling is not Pooling.MEAN)
    if not pooled_only:
        return plan
    last = plan.layers[-1]
    layers = (*plan.layers[:-1], LayerPlan(last.branches, last.copies, pooled_only=True))
    return ArmPlan(layers, plan.sources, plan.unfold, plan.outputs)


Place = tuple[int, int | None]


def places(plan: ArmPlan) -> list[tuple[Place, ...]]:
    """Say for each layer which block and which copy (None is the pooled row itself) computes each arm."""
    found: list[tuple[Place, ...]] = []
    current = plan.outputs
    for layer in reversed(range(len(plan.layers))):
        found.append(current)
        current = tuple(_below(plan, layer, place) for place in current)
    return found[::-1]


def _below(plan: ArmPlan, layer: int, place: Place) -> Place:
    """Where the layer below computed what a place of this layer is made from."""
    block, copy = place
    source = plan.sources[layer]
    origin = block if source is None else source[block]
    if plan.unfold == layer and origin:
        return 0, origin - 1
    copied_before = layer > 0 and plan.layers[layer - 1].copies
    return origin, copy if copied_before else None


def _by_layer(arm: Arm, n_layers: int) -> tuple[Arm, ...]:
    if arm is None or arm.strength == 0.0:
        return (None,) * n_layers
    layers = arm.calibrated_layers(n_layers)
    return tuple(arm if layer in layers else None for layer in range(n_layers))


def _key(by_layer: tuple[Arm, ...], layer: int) -> tuple[Any, ...]:
    """What decides the state of an arm after `layer`: two arms with equal keys are one computation."""
    return tuple(
        None
        if arm is None
        else (
            arm.strength,
            arm.basket_size,
            arm.isolate_first,
            arm.isolate_last,
            arm.first_mass,
            arm.last_mass,
        )
        for arm in by_layer[: layer + 1]
    )


def _first_difference(by_arm: Sequence[tuple[Arm, ...]], n_layers: int) -> int:
    for layer in range(n_layers):
        if len({_key(by_layer, layer) for by_layer in by_arm}) > 1:
            return layer
    return n_layers


def _groups(by_arm: Sequence[tuple[Arm, ...]], layer: int) -> list[list[int]]:
    """Partition the arms by their state after `layer`, in the order of their first members."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, by_layer in enumerate(by_arm):
        groups.setdefault(_key(by_layer, layer), []).append(number)
    return list(groups.values())


def _copied_to_the_end(by_arm: Sequence[tuple[Arm, ...]], split: int, n_layers: int) -> ArmPlan:
    groups = _groups(by_arm, n_layers - 1)
    heads = [by_arm[group[0]] for group in groups]
    layers = tuple(
        LayerPlan(
            branches=(heads[0][layer],),
            copies=tuple(head[layer] for head in heads[1:]) if layer >= split else (),
        )
        for layer in range(n_layers)
    )
    place = {arm: number for number, group in enumerate(groups) for arm in group}
    outputs = tuple((0, place[arm] - 1 if place[arm] else None) for arm in range(len(by_arm)))
    return ArmPlan(layers, (None,) * n_layers, None, outputs)


def _stacked(by_arm: Sequence[tuple[Arm, ...]], split: int, n_layers: int, *, copies_first: bool) -> ArmPlan:
    """Blocks of the batch from `split` on; with `copies_first`, layer `split` itself uses copies."""
    layers: list[LayerPlan] = []
    sources: list[tuple[int, ...] | None] = []
    groups = [list(range(len(by_arm)))]
    copied = copies_first and split < n_layers
    for layer in range(n_layers):
        below, groups = groups, _groups(by_arm, layer)
        if copied and layer == split:
            calibrations = [by_arm[group[0]][layer] for group in groups]
            layers.append(LayerPlan(branches=(calibrations[0],), copies=tuple(calibrations[1:])))
            sources.append(None)
            continue
        origin = tuple(next(n for n, old in enumerate(below) if group[0] in old) for group in groups)
        layers.append(LayerPlan(branches=tuple(by_arm[group[0]][layer] for group in groups)))
        sources.append(None if origin == tuple(range(len(below))) else origin)
    place = {arm: number for number, group in enumerate(groups) for arm in group}
    if copied and split == n_layers - 1:
        outputs = tuple((0, place[arm] - 1 if place[arm] else None) for arm in range(len(by_arm)))
        return ArmPlan(tuple(layers), tuple(sources), None, outputs)
    outputs = tuple((place[arm], None) for arm in range(len(by_arm)))
    return ArmPlan(tuple(layers), tuple(sources), split + 1 if copied else None, outputs)
