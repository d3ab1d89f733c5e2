"""Where the pooled rows look, summed up: by layer and basket, as one number, and its link to similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.diagnostics.measuring import Measurements, WatchedAttention
from pipeline.encoders.calibration import BasketGeometry

_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class AttentionProfile:
    """The attention of one arm, averaged over documents.

    Attributes:
        first, last: (layers,), mass of the first and of the last token, averaged over heads.
        baskets: (layers, baskets), mass of the content baskets without these two tokens; averaged over the
            documents that have the basket.
        front_loading: the one number: of the mass between first and last token the share in its first third
            less the share in its last third, in the last layer (its output is what is pooled), averaged over
            heads. 0 is even, 1 all in front, -1 all at the end.
        front_loading_by_layer: (layers, head groups).
    """

    arm: str
    first: tuple[float, ...]
    last: tuple[float, ...]
    baskets: tuple[tuple[float, ...], ...]
    front_loading: float
    front_loading_by_layer: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class AttentionLink:
    """How front-loading of the last layer goes with the front bias of sigma (first place less last).

    Attributes:
        correlation: Pearson's r; None where one of the two does not vary.
        low, high: 95 % interval, segment sets resampled.
    """

    arm: str
    correlation: float | None
    low: float | None
    high: float | None
    n_documents: int


def summarise_attention(
    arms: Sequence[str], attention: WatchedAttention, geometry: BasketGeometry
) -> tuple[AttentionProfile, ...]:
    """Average over documents; the first and the last token are taken out of the baskets that hold them."""
    content = _without_ends(attention, geometry)
    return tuple(
        AttentionProfile(
            arm,
            first=_numbers(attention.first[number].mean(axis=(0, 2))),
            last=_numbers(attention.last[number].mean(axis=(0, 2))),
            baskets=tuple(_numbers(layer) for layer in np.nanmean(content[number], axis=(0, 2))),
            front_loading=float(attention.front_loading[number][:, -1].mean()),
            front_loading_by_layer=tuple(
                _numbers(layer) for layer in attention.front_loading[number].mean(axis=0)
            ),
        )
        for number, arm in enumerate(arms)
    )


def _without_ends(attention: WatchedAttention, geometry: BasketGeometry) -> NDArray[np.float32]:
    """Take the first and the last token out of the first and the last basket, unless they are isolated."""
    content = attention.baskets.copy()
    if not geometry.isolate_first:
        content[..., 0] -= attention.first
    if not geometry.isolate_last:
        last = np.isfinite(content).sum(axis=-1, keepdims=True) - 1
        own = np.take_along_axis(content, last, axis=-1) - attention.last[..., None]
        np.put_along_axis(content, last, own, axis=-1)
    return content


def link_to_similarity(
    measured: Measurements, sets: Sequence[str], *, seed: int
) -> tuple[AttentionLink, ...]:
    """Correlate front-loading with the front bias of sigma, over the documents whose attention is known."""
    attention = measured.attention
    if attention is None:
        return ()
    own_sets = np.array(sets)[attention.documents]
    links = []
    for number, arm in enumerate(measured.arms):
        sigma = measured.sigma[number][attention.documents]
        bias = sigma[:, 0] - sigma[:, -1]
        loading = attention.front_loading[number][:, -1].mean(axis=1)
        r = _pearson(loading, bias)
        low, high = _resampled(loading, bias, own_sets, seed) if r is not None else (None, None)
        links.append(AttentionLink(arm, r, low, high, len(bias)))
    return tuple(links)


def _pearson(left: NDArray[np.floating], right: NDArray[np.floating]) -> float | None:
    if len(left) < 3 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return None
    return float(np.corrcoef(left, right)[0, 1])


def _resampled(
    left: NDArray[np.floating], right: NDArray[np.floating], sets: NDArray[np.str_], seed: int
) -> tuple[float | None, float | None]:
    """The middle 95 % of correlations over resampled segment sets."""
    members = [np.flatnonzero(sets == name) for name in np.unique(sets)]
    random = np.random.default_rng(seed)
    drawn = random.integers(len(members), size=(_RESAMPLES, len(members)))
    rows = (np.concatenate([members[number] for number in draw]) for draw in drawn)
    found = [r for row in rows if (r := _pearson(left[row], right[row])) is not None]
    if not found:
        return None, None
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def _numbers(values: NDArray[np.floating]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
