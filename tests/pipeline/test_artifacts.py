"""Files appear complete or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.artifacts import (
    RunLayout,
    atomic_path,
    file_digest,
    fingerprint,
    link_or_copy,
    read_json,
    run_lock,
    scratch_layout,
    write_json,
)
from pipeline.errors import DataError


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "table"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_takes_its_name_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "table"
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    layout.all_vectors.mkdir()
    leftover = layout.all_vectors / ".tmp-1234-shard.parquet"
    leftover.write_text("half")
    (tmp_path / ".tmp-plan" / "corpus").mkdir(parents=True)
    kept = layout.all_vectors / "shard.parquet"
    kept.write_text("whole")
    with run_lock(layout):
        assert not leftover.exists()
        assert not (tmp_path / ".tmp-plan").exists()
        assert kept.exists()


def test_work_that_failed_before_it_wrote_leaves_no_directory(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path / "typing-error")
    with pytest.raises(RuntimeError), run_lock(layout):
        layout.documents.parent.mkdir()
        raise RuntimeError
    assert not layout.root.exists()


@pytest.mark.parametrize("was_there", [True, False])
def test_work_that_failed_later_keeps_what_it_wrote(tmp_path: Path, was_there: bool) -> None:
    layout = RunLayout(tmp_path / "run")
    if was_there:
        layout.root.mkdir()
    with pytest.raises(RuntimeError), run_lock(layout):
        if not was_there:
            write_json(layout.config, {})
        raise RuntimeError
    assert layout.root.is_dir()
    assert layout.config.exists() is not was_there


def test_a_scratch_layout_leaves_nothing(tmp_path: Path) -> None:
    with scratch_layout(RunLayout(tmp_path)) as scratch:
        write_json(scratch.documents_manifest, {})
        assert scratch.root.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_json_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": 1}


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff", b"\x80\x04K*."])
def test_a_foreign_manifest_is_an_error_not_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="delete it to build it again"):
        read_json(path)


def test_a_missing_manifest_is_none(tmp_path: Path) -> None:
    assert read_json(tmp_path / "none.json") is None


def test_fingerprints_ignore_the_order_of_keys_and_nothing_else() -> None:
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint({"a": None}) != fingerprint({})


def test_replacing_a_file_leaves_its_links_alone(tmp_path: Path) -> None:
    source, link = tmp_path / "chunks", tmp_path / "build"
    write_json(source, {"n": 1})
    link_or_copy(source, link)
    write_json(source, {"n": 2})
    assert json.loads(link.read_text()) == {"n": 1}
    assert file_digest(source) != file_digest(link)
