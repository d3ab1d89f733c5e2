"""A run from corpus to indexes: what is redone when something changes, and what is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from indexes import BuildStore, NoBuildError, open_build
from pipeline.artifacts import BuildFiles, RunLayout, run_lock
from pipeline.config import ArmSettings, load_config
from pipeline.errors import DataError, UsageError
from pipeline.plan import ChunkChanges
from pipeline.stages import Run, Stage, StageResult
from tests.conftest import REPOSITORY, save_tiny_model, write_jsonl

SENTENCES = ["the cat sat on the mat.", "a dog is late.", "the river is blue.", "hello world.", "alpha beta."]


def document(number: int, n_sentences: int = 9) -> dict[str, Any]:
    text = " ".join(SENTENCES[(number + place) % len(SENTENCES)] for place in range(n_sentences))
    return {"id": f"d{number}", "text": f"{text} answer {number}."}


class Project:
    """A corpus file and a tiny model; each call runs the stages anew, as a new process would."""

    def __init__(self, folder: Path, n_documents: int = 12) -> None:
        self.folder = folder
        self.model = save_tiny_model(folder / "model")
        self.corpus = folder / "docs.jsonl"
        self.write([document(number) for number in range(n_documents)])
        self.settings: dict[str, Any] = {
            "run": str(folder / "run"),
            "corpus.source": str(self.corpus),
            "model.name": str(self.model),
            "model.max_length": 64,
            "chunk.max_tokens": 16,
            "arms.plain.strength": 0.0,
            "arms.calibrated.basket_size": 4,
            "embed.shard_size": 8,
        }

    @property
    def layout(self) -> RunLayout:
        return RunLayout(Path(self.settings["run"]))

    def write(self, records: list[dict[str, Any]]) -> None:
        write_jsonl(self.corpus, records)

    def run(self, last: Stage = Stage.INDEX, **changes: Any) -> dict[Stage, StageResult]:
        overrides = {**self.settings, **{key.replace("__", "."): value for key, value in changes.items()}}
        return {result.stage: result for result in Run(load_config(None, overrides)).upto(last)}

    def made(self, **changes: Any) -> dict[str, int]:
        made: dict[str, int] = self.run(Stage.EMBED, **changes)[Stage.EMBED].figures["vectors_made"]
        return made

    def files(self) -> dict[Path, int]:
        """The files of the run, with their times."""
        found = (path for path in self.layout.root.rglob("*") if path.is_file())
        return {path: path.stat().st_mtime_ns for path in found}

    def index_vectors(self) -> dict[str, np.ndarray]:
        """Chunk text -> vector of each arm, out of the FAISS files."""
        opened = open_build(BuildStore(self.layout.root).current())
        texts = pq.read_table(opened.build.path / "chunks.parquet", columns=["text"]).column(0).to_pylist()
        found = {}
        for arm, index in opened.arms.items():
            assert index.n_rows == opened.rows.n_rows == len(texts)
            found[arm] = np.stack([index._index.reconstruct(row) for row in range(len(texts))])
        return {**found, "texts": np.array(texts)}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_second_run_does_nothing(project: Project) -> None:
    first = project.run()
    assert all(result.changed for result in first.values())
    second = project.run()
    assert not any(result.changed for result in second.values())
    assert second[Stage.INDEX].figures["build"] == first[Stage.INDEX].figures["build"]


def test_rows_chunks_and_vectors_belong_together(project: Project) -> None:
    """Row i of the chunk table is row i of every arm: a chunk's own text finds its row."""
    from pipeline.encoders import Encoder, load_model

    project.run()
    held = project.index_vectors()
    encoder = Encoder(load_model(project.model, max_length=64), {"plain": None})
    expected = encoder.encode_documents([str(text) for text in held["texts"]])["plain"]
    np.testing.assert_allclose(held["plain"], expected, atol=1e-5)
    assert np.abs(held["plain"] - held["calibrated"]).max() > 1e-3


AFFECTS_BOTH = {
    "model__max_length": 48,
    "model__document_prompt": "the ",
    "model__truncate_dim": 16,
    "model__dtype": "bfloat16",
}
AFFECTS_CALIBRATED = {
    "arms__calibrated__strength": 0.7,
    "arms__calibrated__layers": 2,
    "arms__calibrated__basket_size": 5,
    "arms__calibrated__isolate_first": True,
}
AFFECTS_NONE = {
    "embed__tokens_per_batch": 64,
    "embed__shard_size": 3,
    "query__k": 3,
    "index__factory": "HNSW8",
}


@pytest.mark.parametrize("change", AFFECTS_BOTH.items(), ids=str)
def test_what_decides_all_vectors_remakes_all(project: Project, change: tuple[str, Any]) -> None:
    """Case A16."""
    n_texts = project.made()["plain"]
    made = project.made(**dict([change]))
    assert made["plain"] == made["calibrated"] >= n_texts


@pytest.mark.parametrize("change", AFFECTS_CALIBRATED.items(), ids=str)
def test_what_decides_the_calibrated_vectors_remakes_only_those(
    project: Project, change: tuple[str, Any]
) -> None:
    n_texts = project.made()["calibrated"]
    assert project.made(**dict([change])) == {"plain": 0, "calibrated": n_texts}


@pytest.mark.parametrize("change", AFFECTS_NONE.items(), ids=str)
def test_what_decides_no_vector_remakes_none(project: Project, change: tuple[str, Any]) -> None:
    project.made()
    assert project.made(**dict([change])) == {"plain": 0, "calibrated": 0}


def test_moved_files_are_the_same_files(project: Project) -> None:
    project.made()
    moved = project.model.rename(project.folder / "elsewhere")
    assert project.made(model__name=str(moved)) == {"plain": 0, "calibrated": 0}


def test_other_weights_under_the_same_name_are_another_model(project: Project) -> None:
    n_texts = project.made()["plain"]
    save_tiny_model(project.model, seed=8)
    assert project.made() == {"plain": n_texts, "calibrated": n_texts}


def test_going_back_to_an_earlier_setting_costs_nothing(project: Project) -> None:
    project.made()
    project.made(arms__calibrated__strength=0.7)
    assert project.made() == {"plain": 0, "calibrated": 0}


def test_edits_leave_no_old_text_behind(project: Project) -> None:
    """Case A15: a document gets shorter, one goes, one comes."""
    records = [document(number, n_sentences=3) for number in range(5)]
    records[1]["text"] = document(1, n_sentences=30)["text"] + " gamma gamma gamma."
    project.write(records)
    project.run()
    records[1]["text"] = SENTENCES[0]
    records[3:4] = [{"id": "new", "text": "hello beta hello beta."}]
    project.write(records)
    made = project.run()[Stage.EMBED].figures["vectors_made"]
    assert made == {"plain": 2, "calibrated": 2}
    texts = project.index_vectors()["texts"]
    assert not any("gamma" in text or "answer 3" in text for text in texts)
    assert len(texts) == len(pq.read_table(project.layout.chunks))


def test_the_plan_counts_chunks_and_names_the_arms(project: Project) -> None:
    project.write([{"id": str(number), "text": f"the cat {number} sat"} for number in range(5)])
    run = Run(load_config(None, project.settings))
    run.upto(Stage.INDEX)
    assert run.plan is not None
    assert run.plan.changes == ChunkChanges(added=5, changed=0, removed=0, unchanged=0)
    project.write([{"id": str(number), "text": f"the cat {max(number, 2)} sat"} for number in range(1, 7)])
    # 0 is gone, 1 reads as 2 does, 2 to 4 are the same, 5 and 6 are new.
    plan = Run(load_config(None, project.settings)).dry_run()
    assert plan.changes == ChunkChanges(added=2, changed=1, removed=1, unchanged=3)
    assert plan.missing == {("plain", "calibrated"): 2}
    other_strength = {**project.settings, "arms.calibrated.strength": 0.9}
    plan = Run(load_config(None, other_strength)).dry_run()
    assert plan.missing == {("plain", "calibrated"): 2, ("calibrated",): 3}


def test_a_dry_run_leaves_the_run_as_it_is(project: Project) -> None:
    project.run()
    before = project.files()
    project.write([document(number, n_sentences=2) for number in range(3)])
    changed = load_config(None, {**project.settings, "chunk.max_tokens": 8})
    assert Run(changed).dry_run().changes
    assert {
        path: path.stat().st_mtime_ns for path in project.layout.root.rglob("*") if path.is_file()
    } == before


def test_changed_metadata_alone_embeds_nothing(project: Project) -> None:
    project.run()
    project.write([{**document(number), "title": f"title {number}"} for number in range(12)])
    results = project.run()
    assert results[Stage.EMBED].figures["vectors_made"] == {"plain": 0, "calibrated": 0}
    assert results[Stage.INDEX].changed


def test_a_further_metadata_field_reaches_the_build(project: Project) -> None:
    project.write([{**document(number), "lang": "en", "year": number} for number in range(12)])
    project.run(corpus__metadata_fields=["lang"])
    results = project.run(corpus__metadata_fields=["lang", "year"])
    assert results[Stage.EMBED].figures["vectors_made"] == {"plain": 0, "calibrated": 0}
    assert results[Stage.INDEX].changed
    build = BuildStore(project.layout.root).current()
    stored = pq.read_table(BuildFiles(build.path).documents).to_pylist()
    assert "year" in json.dumps(stored[3], default=str)


def test_one_arm_alone_is_said_to_have_nothing_to_compare(project: Project) -> None:
    alone = Run(
        load_config(None, project.settings).model_copy(
            update={"arms": {"strong": ArmSettings(basket_size=4)}}
        )
    )
    for _ in range(2):
        assert "one arm only (strong)" in alone.upto(Stage.INDEX)[-1].notes[0]


def test_a_changed_title_remakes_the_chunks_that_it_stands_before(project: Project) -> None:
    records = [{**document(number), "title": f"title {number}"} for number in range(12)]
    project.write(records)
    project.run(chunk__context="title")
    records[3]["title"] = "the cat"
    project.write(records)
    made = project.run(chunk__context="title")[Stage.EMBED].figures["vectors_made"]
    chunks = pq.read_table(project.layout.chunks, columns=["doc_id", "text"]).to_pylist()
    n_changed = len({row["text"] for row in chunks if row["doc_id"] == "d3"})
    assert made == {"plain": n_changed, "calibrated": n_changed}
    assert project.run(chunk__context="title")[Stage.CHUNK].changed is False


def test_what_is_embedded_is_the_chunk_in_its_context(project: Project) -> None:
    from pipeline.encoders import Encoder, load_model

    project.write([{**document(number), "title": f"the river {number}"} for number in range(3)])
    project.run(chunk__context="title")
    chunks = pq.read_table(project.layout.chunks).to_pylist()
    encoder = Encoder(load_model(project.model, max_length=64), {"plain": None})
    texts = [f"{row['context']}\n\n{row['text']}" for row in chunks]
    expected = encoder.encode_documents(texts)["plain"]
    np.testing.assert_allclose(project.index_vectors()["plain"], expected, atol=1e-5)
    assert {row["context"] for row in chunks} == {"the river 0", "the river 1", "the river 2"}


def test_cut_contexts_are_reported_whenever_they_are_used(project: Project) -> None:
    project.write([{**document(number), "title": "the cat sat on the mat " * 9} for number in range(2)])
    for changed in (True, False):
        result = project.run(Stage.CHUNK, chunk__context="title")[Stage.CHUNK]
        assert result.changed is changed
        n_chunks = result.figures["chunks"]
        assert result.figures["contexts_cut"] == n_chunks
        assert f"the context of {n_chunks} of {n_chunks} chunks was cut" in result.notes[0]
    assert project.run(Stage.CHUNK)[Stage.CHUNK].notes == ()


def _kill_while_embedding(project: Project) -> None:
    """Start the command, wait for its first shard, and kill it the hard way."""
    arguments = [
        argument
        for key, value in project.settings.items()
        for argument in ("--set", f"{key}={json.dumps(value)}")
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "index", "--quiet", *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if list((project.layout.root / "vectors").glob("*/[!.]*.parquet")):
            break
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_killed_in_the_middle_the_result_is_that_of_an_uninterrupted_run(tmp_path: Path) -> None:
    """Case A14, with a real kill -9."""
    project = Project(tmp_path / "killed", n_documents=300)
    project.settings["embed.shard_size"] = 4
    _kill_while_embedding(project)
    results = project.run()
    calm = Project(tmp_path / "calm", n_documents=300)
    calm.run()
    resumed, expected = project.index_vectors(), calm.index_vectors()
    assert resumed["texts"].tolist() == expected["texts"].tolist()
    for arm in ("plain", "calibrated"):
        np.testing.assert_allclose(resumed[arm], expected[arm], atol=1e-5)
    assert not list(project.layout.root.glob("**/.tmp-*"))
    made = results[Stage.EMBED].figures["vectors_made"]
    reused = results[Stage.EMBED].figures["vectors_reused"]
    assert all(made[arm] + reused[arm] == len(set(expected["texts"])) for arm in made)
    assert reused["plain"] > 0


def test_one_process_writes_to_a_run_at_a_time(project: Project) -> None:
    with run_lock(project.layout), pytest.raises(DataError, match="another lastpage process is writing"):
        project.run()


def test_a_broken_vector_is_never_written(project: Project) -> None:
    """Case A13: one word of the vocabulary has become not-a-number."""
    from transformers import BertModel

    model = BertModel.from_pretrained(project.model)
    model.embeddings.word_embeddings.weight.data[19] = float("nan")  # "gamma"
    model.save_pretrained(project.model)
    project.write(
        [
            {"id": "d1", "text": "the cat sat"},
            {"id": "d2", "text": "the gamma cat"},
            {"id": "d3", "text": "a dog"},
        ]
    )
    with pytest.raises(DataError, match="chunk 'd2#0'"):
        project.run()
    assert not list(project.layout.root.glob("vectors/*/*"))
    with pytest.raises(NoBuildError):
        BuildStore(project.layout.root).current()


def test_an_index_that_cannot_be_trained_is_refused_before_embedding(project: Project) -> None:
    """Case A17: both numbers, and nothing was embedded."""
    from indexes import ImpossibleIndexError

    with pytest.raises(ImpossibleIndexError, match="IVF256"):
        project.run(index__factory="IVF256,Flat")
    assert not list(project.layout.root.glob("vectors/*/*"))


@pytest.mark.parametrize("factory", ["auto", "HNSW8", "IVF2,Flat"])
def test_other_kinds_of_index_serve_the_same_rows(project: Project, factory: str) -> None:
    assert project.run(index__factory=factory)[Stage.INDEX].figures["rows"] == len(
        pq.read_table(project.layout.chunks)
    )


def test_a_failed_index_leaves_the_previous_build_serving(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case A19: the disk is full in the middle of the second index."""
    from indexes import VectorIndex

    before = project.run()[Stage.INDEX].figures["build"]
    saved: list[Path] = []
    save: Callable[[VectorIndex, Path], None] = VectorIndex.save

    def full_disk(index: VectorIndex, path: Path) -> None:
        if saved:
            raise OSError(28, "No space left on device")
        saved.append(path)
        save(index, path)

    monkeypatch.setattr(VectorIndex, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        project.run(arms__calibrated__strength=0.9)
    monkeypatch.undo()
    assert BuildStore(project.layout.root).current().build_id == before
    assert project.run(arms__calibrated__strength=0.9)[Stage.INDEX].changed


@pytest.mark.parametrize("name", ["calibrated.faiss", "rows.parquet", "chunks.parquet"])
def test_a_damaged_build_is_built_again(project: Project, name: str) -> None:
    first = project.run()[Stage.INDEX].figures["build"]
    (BuildStore(project.layout.root).current().path / name).unlink()
    results = project.run()
    assert results[Stage.INDEX].changed
    assert results[Stage.INDEX].figures["build"] != first
    assert results[Stage.EMBED].figures["vectors_made"] == {"plain": 0, "calibrated": 0}


def test_chunks_over_the_limit_of_the_model_are_refused(project: Project) -> None:
    """Case A11: nothing is truncated to fit."""
    with pytest.raises(UsageError, match=r"200.*62|62.*200"):
        project.run(chunk__max_tokens=200)
    assert not project.layout.chunks.exists()


def test_late_text_is_never_lost(project: Project) -> None:
    """Case A11: two documents that differ only at their end never get equal vectors."""
    project.write(
        [
            {"id": str(number), "text": "the cat " * 60 + f"answer is {word}"}
            for number, word in enumerate(["river", "blue"])
        ]
    )
    project.run(chunk__max_tokens=62)
    held = project.index_vectors()
    last = [row for row, text in enumerate(held["texts"]) if "answer" in text]
    assert len(last) == 2
    for arm in ("plain", "calibrated"):
        assert np.abs(held[arm][last[0]] - held[arm][last[1]]).max() > 1e-3
