"""A whole diagnosis of an encoder whose every number can be computed by hand."""

from __future__ import annotations

import json
from math import hypot, sqrt
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.config import ArmSettings, Config, CorpusSettings
from pipeline.diagnostics.planning import plan_documents
from pipeline.diagnostics.reading import sentences
from pipeline.diagnostics.results import EVERY_PAIR, Diagnosis
from pipeline.diagnostics.run import Diagnoser
from pipeline.diagnostics.settings import DiagnosisSettings
from tests.conftest import write_jsonl
from tests.pipeline.diagnostics.planted import PlantedEncoder, Silent, words

WEIGHTS = {"plain": [4, 2, 1], "calibrated": [2, 2, 1]}
KEPT = {"plain": [1.0, 0.8, 0.6], "calibrated": [1.0, 1.0, 0.8]}
SIGMA = {arm: np.array(own) / sqrt(sum(weight**2 for weight in own)) for arm, own in WEIGHTS.items()}
TAU = {arm: np.array([1.0, *(keep / hypot(keep, 1 - keep) for keep in own[1:])]) for arm, own in KEPT.items()}


def write_corpus(folder: Path, name: str = "corpus.jsonl", n: int = 4, shift: int = 0) -> Path:
    """Documents of three paragraphs, which share no word."""
    records = [
        {
            "id": f"d{number}",
            "text": "\n\n".join(words((shift + 12 * number + 4 * place) % 60, 4) for place in range(3)),
        }
        for number in range(n)
    ]
    return write_jsonl(folder / name, records)


def prepared(folder: Path, encoder: PlantedEncoder, source: Path, **asked) -> Diagnoser:
    arms = {name: ArmSettings(strength=0.0 if name == "plain" else 0.5) for name in encoder.weights}
    config = Config(
        run=str(folder / "run"),
        corpus=CorpusSettings(source=str(source)),
        arms=arms,
    )
    settings = DiagnosisSettings(**{"min_tokens": 2, "attention_documents": 10, **asked})
    plan = plan_documents(encoder, config.corpus, settings)
    return Diagnoser(config, settings, encoder, "planted", plan)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def diagnosis(folder: Path) -> Diagnosis:
    return prepared(folder, PlantedEncoder(WEIGHTS, KEPT), write_corpus(folder)).run(Silent())


def test_similarities_and_coefficients_come_out_as_computed_by_hand(diagnosis):
    assert diagnosis.counts.documents == 4 * 6
    for measure, expected in (("sigma", SIGMA), ("tau", TAU)):
        for arm in WEIGHTS:
            profile = diagnosis.profile(measure, arm, "")
            np.testing.assert_allclose([place.mean for place in profile.places], expected[arm], atol=1e-6)
            terms = diagnosis.fit(measure, arm, "").coefficients
            found = [term.estimate for term in terms]
            np.testing.assert_allclose(
                found, [expected[arm][0], *(expected[arm][1:] - expected[arm][0])], atol=1e-6
            )
        change = expected["calibrated"] - expected["plain"]
        paired = diagnosis.fit(measure, "calibrated", "", minus="plain")
        assert paired.at(3).estimate == pytest.approx(change[2] - change[0], abs=1e-6)


def test_fidelity_is_the_cosine_of_the_two_means(diagnosis):
    plain, calibrated = diagnosis.fidelity
    expected = np.dot(*WEIGHTS.values()) / np.prod([np.linalg.norm(own) for own in WEIGHTS.values()])
    assert calibrated.documents == pytest.approx(expected, abs=1e-6)
    assert calibrated.documents_lowest == pytest.approx(expected, abs=1e-6)
    assert (plain.documents, calibrated.segments) == (pytest.approx(1.0), pytest.approx(1.0))
    # A segment is one sentence, and finds itself: segments share no word.
    assert (calibrated.n_queries, calibrated.first_rank, calibrated.reciprocal_rank) == (12, 1.0, 1.0)
    assert calibrated.n_short == 0  # all have 6 tokens, the planted basket 3


def test_attention_is_summed_up_by_layer_and_as_one_number(diagnosis):
    for profile in diagnosis.attention:
        weights = np.array(WEIGHTS[profile.arm]) / sum(WEIGHTS[profile.arm])
        assert profile.front_loading == pytest.approx(weights[0] - weights[2], abs=1e-6)
        np.testing.assert_allclose(profile.baskets, [0.9 * weights] * 2, atol=1e-6)
        np.testing.assert_allclose([profile.first, profile.last], [[0.06] * 2, [0.04] * 2], atol=1e-6)
    # Neither varies over documents: there is nothing to correlate.
    assert [link.correlation for link in diagnosis.links] == [None, None]


def test_every_row_is_written(folder, diagnosis):
    rows = pq.read_table(folder / "run" / "similarities.parquet").to_pylist()
    assert len(rows) == 24 * 2 * 3
    for row in rows:
        assert row["sigma"] == pytest.approx(SIGMA[row["arm"]][row["position"] - 1], abs=1e-6)
        assert row["tau"] == pytest.approx(TAU[row["arm"]][row["position"] - 1], abs=1e-6)
    stands = [(row["set_id"], row["segment_id"], row["position"]) for row in rows if row["arm"] == "plain"]
    assert set(map(stands.count, stands)) == {2}
    attention = pq.read_table(folder / "run" / "attention.parquet").to_pylist()
    assert len(attention) == 10 * 2 * 2
    assert attention[0]["baskets"] == pytest.approx([0.9 * 4 / 7, 0.9 * 2 / 7, 0.9 / 7])


def test_the_reading_says_what_the_last_place_loses(diagnosis):
    first = sentences(diagnosis)[0]
    loss, less = (SIGMA[arm][0] - SIGMA[arm][2] for arm in ("plain", "calibrated"))
    assert first.startswith("In the document's vector, the 3rd segment against the 1st (sigma): plain: loses")
    assert f"loses .{loss * 1000:.0f}" in first
    assert f"calibrated: loses .{less * 1000:.0f}" in first
    assert "Caution: only 4 segment sets" in sentences(diagnosis)[-1]


def test_mixed_languages_are_told_apart(tmp_path):
    """The planted encoder knows no language: position costs the same in every pair, language nothing."""
    write_corpus(tmp_path, "corpus.en.jsonl")
    write_corpus(tmp_path, "corpus.de.jsonl", shift=2)
    diagnosis = prepared(
        tmp_path, PlantedEncoder(WEIGHTS, KEPT), tmp_path, languages=("en", "de"), mixed=True
    ).run(Silent())
    assert diagnosis.counts.pairs == ("en", "de", "de in en", "en in de")
    assert diagnosis.counts.documents == 4 * 6 * 4
    terms = {term.term: term.estimate for term in diagnosis.fit("sigma", "plain", "en").coefficients}
    assert terms["position 3"] == pytest.approx(SIGMA["plain"][2] - SIGMA["plain"][0], abs=1e-6)
    joint = {term.term: term.estimate for term in diagnosis.fit("sigma", "plain", EVERY_PAIR).coefficients}
    assert list(joint) == [
        "intercept", "position 2", "position 3", "de", "position 2 x de", "position 3 x de"
    ]  # fmt: skip
    told = [
        sentence for sentence in sentences(diagnosis) if "3rd segment against the 1st (sigma)" in sentence
    ]
    assert [sentence.split(",")[0] for sentence in told] == [
        "In the document's vector (en)",
        "In the document's vector (de)",
    ]
    assert any(each.startswith("Language against en at the 1st place") for each in sentences(diagnosis))


def test_a_killed_run_goes_on_and_ends_in_the_same_files(tmp_path, monkeypatch):
    """Blocks of 4 documents; the encoder dies at its fifth call."""
    monkeypatch.setattr("pipeline.diagnostics.measuring._DOCUMENTS_AT_ONCE", 4)
    monkeypatch.setattr("pipeline.diagnostics.measuring._WATCHED_AT_ONCE", 4)
    source = write_corpus(tmp_path)

    class Dying(PlantedEncoder):
        def observe(self, *arguments, **options):
            if len(self.calls) == 5:
                raise KeyboardInterrupt
            return super().observe(*arguments, **options)

    with pytest.raises(KeyboardInterrupt):
        prepared(tmp_path, Dying(WEIGHTS, KEPT), source).run(Silent())
    assert not (tmp_path / "run" / "diagnosis.json").exists()
    rest = PlantedEncoder(WEIGHTS, KEPT)
    prepared(tmp_path, rest, source).run(Silent())
    whole = PlantedEncoder(WEIGHTS, KEPT)
    prepared(tmp_path / "other", whole, source).run(Silent())
    assert len(whole.calls) == 1 + 3 + 4  # segments (here also the sentences), 10 watched and 14 others
    assert len(rest.calls) == len(whole.calls) - 5
    for name in ("similarities.parquet", "attention.parquet", "profile.svg", "attention.png"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "other" / "run" / name).read_bytes()
    again = PlantedEncoder(WEIGHTS, KEPT)
    prepared(tmp_path, again, source).run(Silent())
    assert again.calls == []


def test_a_damaged_cache_file_is_named_and_made_again(tmp_path):
    source = write_corpus(tmp_path)
    prepared(tmp_path, PlantedEncoder(WEIGHTS, KEPT), source).run(Silent())
    victim = min((tmp_path / "run" / "cache").iterdir())
    victim.write_bytes(victim.read_bytes()[:100])
    encoder, reporter = PlantedEncoder(WEIGHTS, KEPT), Silent()
    prepared(tmp_path, encoder, source).run(reporter)
    assert reporter.said == [f"{victim}: damaged; made again"]
    assert len(encoder.calls) == 1


def test_other_texts_or_another_model_are_measured_anew(tmp_path):
    source = write_corpus(tmp_path)
    prepared(tmp_path, PlantedEncoder(WEIGHTS, KEPT), source).run(Silent())
    write_corpus(tmp_path, shift=1)
    encoder = PlantedEncoder(WEIGHTS, KEPT)
    prepared(tmp_path, encoder, source).run(Silent())
    assert encoder.calls


def test_json_is_strict_and_complete(folder, diagnosis):
    value = json.loads((folder / "run" / "diagnosis.json").read_text())
    assert value["counts"]["documents"] == 24
    fit = value["fits"][0]
    assert [fit["measure"], fit["arm"], fit["minus"]] == ["sigma", "plain", None]
    assert [term["term"] for term in fit["fit"]["coefficients"]] == ["intercept", "position 2", "position 3"]
    assert fit["fit"]["caution"].startswith("only 4 segment sets")
    assert value["cost"]["per_thousand"] > 0
