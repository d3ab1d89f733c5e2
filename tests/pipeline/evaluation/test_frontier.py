"""Who is beaten by nobody."""

from __future__ import annotations

import numpy as np

from pipeline.evaluation.frontier import pareto


def test_the_frontier_by_hand() -> None:
    # quality (higher is better), unfairness and vectors (lower is better)
    values = np.array(
        [
            [0.80, 0.10, 1.0],  # beaten by the next: the same quality and vectors, fairer
            [0.80, 0.05, 1.0],
            [0.90, 0.05, 4.0],  # better, but dearer
            [0.85, 0.06, 4.0],  # beaten by the one before
            [0.70, 0.01, 1.0],  # fairest
        ]
    )

    assert pareto(values, higher_is_better=(True, False, False)).tolist() == [False, True, True, False, True]


def test_equal_settings_do_not_beat_each_other() -> None:
    assert pareto(np.array([[1.0, 2.0], [1.0, 2.0]]), higher_is_better=(True, False)).tolist() == [True, True]


def test_what_leads_in_one_figure_is_never_beaten() -> None:
    values = np.random.default_rng(4).random((60, 3))
    frontier = pareto(values, higher_is_better=(True, True, True))

    assert frontier[values.argmax(axis=0)].all()
    assert not frontier.all()
