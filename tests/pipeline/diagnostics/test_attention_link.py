"""Attention summed up over documents of different length, and its link to similarity."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.diagnostics.attention_profile import link_to_similarity, summarise_attention
from pipeline.diagnostics.measuring import Cost, Measurements, WatchedAttention
from pipeline.encoders.calibration import Calibration, Pooling


def watched(loading: np.ndarray, baskets: np.ndarray | None = None) -> WatchedAttention:
    n = len(loading)
    if baskets is None:
        baskets = np.full((n, 2), 0.5)
    shape = (1, n, 1, 1)
    return WatchedAttention(
        documents=np.arange(n) * 2,
        first=np.full(shape, 0.1),
        last=np.full(shape, 0.05),
        baskets=baskets.reshape(1, n, 1, 1, -1),
        front_loading=loading.reshape(shape),
    )


def measured(attention: WatchedAttention, bias: np.ndarray) -> Measurements:
    """Every second document is watched; the others would spoil the correlation."""
    sigma = np.zeros((1, 2 * len(bias), 3))
    sigma[0, ::2, 0] = bias
    sigma[0, 1::2, 0] = 100.0
    return Measurements(("plain",), sigma, sigma, sigma[:, :, 0], attention, Cost(0, 0.0, 0, 0.0))


def test_ends_are_taken_out_of_the_baskets_that_hold_them_and_short_documents_have_fewer():
    baskets = np.array([[0.6, 0.3, 0.1], [0.7, 0.3, np.nan]])
    attention = watched(np.zeros(2), baskets)
    mean = Calibration().geometry(Pooling.MEAN)
    profile = summarise_attention(["plain"], attention, mean)[0]
    assert profile.baskets == (pytest.approx([0.55, 0.275, 0.05]),)
    both = Calibration().geometry(Pooling.LAST)
    profile = summarise_attention(["plain"], attention, both)[0]
    assert profile.baskets == (pytest.approx([0.65, 0.3, 0.1]),)
    assert (profile.first, profile.last) == (pytest.approx((0.1,)), pytest.approx((0.05,)))


def test_the_one_number_is_that_of_the_last_layer():
    loading = np.array([[[0.9, 0.7], [0.2, 0.4]], [[0.9, 0.7], [0.0, 0.2]]])  # (documents, layers, groups)
    shape = (1, *loading.shape)
    attention = WatchedAttention(
        np.arange(2), np.zeros(shape), np.zeros(shape), np.zeros((*shape, 2)), loading[None]
    )
    profile = summarise_attention(["plain"], attention, Calibration().geometry(Pooling.CLS))[0]
    assert profile.front_loading == pytest.approx(0.2)
    assert profile.front_loading_by_layer == (pytest.approx((0.9, 0.7)), pytest.approx((0.1, 0.3)))


def test_the_link_is_pearsons_r_over_the_watched_documents():
    loading = np.array([0.1, 0.4, 0.2, 0.3, 0.0, 0.5])
    bias = np.array([0.2, 0.3, 0.2, 0.4, 0.1, 0.4])
    sets = ["a", "a", "a", "a", "b", "b", "b", "b", "c", "c", "c", "c"]
    link = link_to_similarity(measured(watched(loading), bias), sets, seed=3)[0]
    assert link.correlation == pytest.approx(np.corrcoef(loading, bias)[0, 1])
    assert link.low <= link.correlation <= link.high <= 1.0
    assert link.n_documents == 6
    assert link_to_similarity(measured(watched(loading), bias), sets, seed=3)[0] == link


def test_what_does_not_vary_correlates_with_nothing():
    link = link_to_similarity(measured(watched(np.full(4, 0.3)), np.arange(4.0)), list("aabbccdd"), seed=0)[0]
    assert (link.correlation, link.low, link.high) == (None, None, None)
