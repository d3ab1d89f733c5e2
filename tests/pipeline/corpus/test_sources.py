"""Where a corpus can lie: built in, saved datasets, hub names, remote file systems, or nowhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from pipeline.errors import DataError, UsageError
from tests.pipeline.corpus.reading import corpus, read, texts

LINES = '{"id":"1","text":"the cat"}\n{"id":"2","text":"a dog"}\n'
TWO = {"1": "the cat", "2": "a dog"}


def test_the_builtin_corpus_is_the_python_documentation() -> None:
    documents, _ = read("python-docs")

    assert len(documents) > 50
    assert next(d.title for d in documents if d.doc_id == "assert") == 'The "assert" statement'


def test_a_path_named_like_the_builtin_corpus_needs_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python-docs").mkdir()
    (tmp_path / "python-docs" / "a.txt").write_text("the cat")
    monkeypatch.chdir(tmp_path)

    assert texts("./python-docs") == {"a.txt": "the cat"}
    assert len(texts("python-docs")) > 50


def test_several_sources_are_one_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    (tmp_path / "b.txt").write_text("hello")
    sources = [str(tmp_path / "b.txt"), str(tmp_path / "a.jsonl")]

    assert texts(sources) == {"b.txt": "hello"} | TWO
    assert corpus(sources).describe() == f"1 text file from {sources[0]}; 1 jsonl file from {sources[1]}"


@pytest.mark.parametrize("source", ["nowhere", "nowhere/at/all.jsonl", "no*where", "memory://nowhere"])
def test_a_missing_source_is_named_with_what_to_do(source: str) -> None:
    with pytest.raises(DataError, match=r"nowhere|no\*where") as caught:
        list(corpus(source).read())
    assert "check" in str(caught.value)


def test_an_unknown_file_system_is_named() -> None:
    with pytest.raises(DataError, match=r"nosuch://x.*cannot be read"):
        corpus("nosuch://x")


def test_no_source_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match=r"corpus.source is empty"):
        corpus([])


# Remote file systems


@pytest.fixture
def remote() -> Iterator[str]:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe({"/corpus/a.jsonl": LINES.encode(), "/texts/sub/a.txt": b"hello", "/texts/.h.txt": b"no"})
    yield "memory://"
    filesystem.rm("/corpus", recursive=True)
    filesystem.rm("/texts", recursive=True)


@pytest.mark.parametrize("path", ["corpus/a.jsonl", "corpus", "corpus/*.jsonl", "c*/a.jsonl"])
def test_remote_lines_are_read(path: str, remote: str) -> None:
    assert texts(remote + path) == TWO


def test_remote_folders_are_read(remote: str) -> None:
    assert texts(remote + "texts") == {"sub/a.txt": "hello"}


# Datasets


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    from datasets import Dataset, DatasetDict

    train = Dataset.from_dict({"id": [1, 2], "text": ["the cat", "a dog"], "more": [None, 3]})
    DatasetDict({"train": train, "test": train.select([1])}).save_to_disk(tmp_path / "both")
    train.save_to_disk(tmp_path / "one")
    return tmp_path


@pytest.mark.parametrize("form", ["auto", "dataset"])
def test_saved_datasets_are_read(form: str, saved: Path) -> None:
    assert texts(saved / "one", format=form) == TWO
    assert texts(saved / "both", format=form) == TWO
    assert texts(saved / "both", format=form, split="test") == {"2": "a dog"}


def test_a_missing_split_or_column_of_a_dataset_is_an_error(saved: Path) -> None:
    with pytest.raises(DataError, match=r"no split 'dev'; set corpus.split to one of train, test"):
        corpus(saved / "both", split="dev")
    with pytest.raises(DataError, match=r"expected a column 'words', found id, text, more"):
        corpus(saved / "one", text_field="words")


def test_the_fingerprint_of_a_dataset_is_its_own(saved: Path) -> None:
    before = corpus(saved / "one").fingerprint()
    (saved / "one").rename(saved / "moved")

    assert corpus(saved / "moved").fingerprint() == before
    assert corpus(saved / "both", split="test").fingerprint() != corpus(saved / "both").fingerprint()


def test_a_dataset_by_name_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "train.jsonl").write_text(LINES)
    monkeypatch.chdir(tmp_path)

    assert texts("tiny", format="dataset") == TWO
    with pytest.raises(DataError, match=r"tiny: the dataset cannot be read .*corpus.split"):
        corpus("tiny", format="dataset", split="dev")


@pytest.mark.usefixtures("offline")
def test_a_dataset_out_of_reach_says_so() -> None:
    with pytest.raises(DataError, match=r"nobody/nothing: .*out of reach and the dataset is not cached"):
        corpus("nobody/nothing", format="dataset")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["nobody/nothing", "mteb/some-corpus_v1.1", "0x/d"])
def test_a_name_that_is_no_path_is_looked_for_on_the_hub(name: str) -> None:
    with pytest.raises(DataError, match=rf"{name}: no such file or folder, so .* hub; .*out of reach"):
        corpus(name)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "name",
    [
        "nobody",
        "a/b/c",
        "nobody/nothing.jsonl",
        "nobody/nothing.JSONL.gz",
        "./nothing",
        "../nothing",
        "here/nothing",
        "/nobody/nothing",
        "nobody/",
        "nobody/*",
    ],
)
def test_what_can_only_be_a_path_is_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DataError, match=r"no such file or folder; check corpus.source"):
        corpus(name)


def test_a_path_that_looks_like_a_name_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "owner" / "name" / "a.jsonl").write_text(LINES)
    monkeypatch.chdir(tmp_path)

    assert texts("owner/name") == TWO


# Fingerprints


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    for name in ("one", "two", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text(LINES if name != "other" else LINES.upper())
    one, two, other = (corpus(tmp_path / name / "a.jsonl") for name in ("one", "two", "other"))

    assert one.fingerprint() == two.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    "change",
    [{"text_field": "text"}, {"encoding": "latin-1"}, {"bad_records": "skip"}, {"metadata_fields": ["x"]}],
)
def test_settings_that_matter_change_the_fingerprint(change: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)

    assert corpus(tmp_path / "a.jsonl", **change).fingerprint() != corpus(tmp_path / "a.jsonl").fingerprint()


def test_opening_a_corpus_imports_no_heavy_library() -> None:
    heavy = "{'pyarrow', 'datasets', 'bs4', 'torch', 'pandas', 'tokenizers'}"
    code = f"import sys, pipeline.corpus; print(*({heavy} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split() == []
