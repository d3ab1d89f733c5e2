"""The sets beside the repository, read as they are, against the reference figures in their README."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.evaluation.bm25 import bm25_scorer
from pipeline.evaluation.evaluate import score_rankings
from pipeline.evaluation.scoring import design_of
from pipeline.evaluation.search import rank_all
from tests.conftest import SHARED
from tests.pipeline.evaluation.making import load

DATA = SHARED / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets at {DATA}")


def _bm25_by_group(folder: Path, **settings: object) -> tuple[np.ndarray, bool]:
    data = load(folder, **settings)
    scores = score_rankings(data, rank_all(data, bm25_scorer(data)), k=10)
    design = design_of(data.queries, data.group_names)
    return design.means(scores.ndcg), design.is_paired


def test_bm25_finds_xquad_alike_at_every_position() -> None:
    means, is_paired = _bm25_by_group(DATA / "xquad_posq", language="en")
    assert is_paired
    np.testing.assert_allclose(means, 0.982, atol=0.004)
    assert np.ptp(means) < 1e-12


def test_bm25_finds_natural_covidqa_as_the_reference_does() -> None:
    means, is_paired = _bm25_by_group(DATA / "covidqa_long")
    assert not is_paired
    np.testing.assert_allclose(means, [0.682, 0.712, 0.765, 0.771, 0.689], atol=0.006)


def test_sets_are_as_large_as_their_readme_says() -> None:
    data = load(DATA / "covidqa_phase_w300")
    assert (data.n_documents, len(data.corpora), len(data.queries)) == (5385, 5, 3845)
    siblings = load(DATA / "xquad_posq", language="en", protocol="siblings")
    assert (siblings.n_documents, len(siblings.corpora)) == (240, 1)
    crossed = load(DATA / "xquad_posq", language="de", corpus_language="en")
    assert len(crossed.queries) == 5950
    assert crossed.queries[0].gold_doc.startswith("xquad-en-")


def test_fifths_agree_with_the_sets_own_groups() -> None:
    """Only answers whose middle stands exactly on an edge may differ: ours belong to the part before."""
    own, computed = load(DATA / "covidqa_long"), load(DATA / "covidqa_long", groups="fifths")
    names = dict(zip(own.group_names, computed.group_names, strict=True))
    differing = [a for a, b in zip(own.queries, computed.queries, strict=True) if names[a.group] != b.group]
    assert len(differing) <= 2
    assert all(
        (asked.position or 0) * 5 == pytest.approx(round((asked.position or 0) * 5)) for asked in differing
    )
