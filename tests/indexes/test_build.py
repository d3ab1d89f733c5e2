from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes import (
    Build,
    BuildLayout,
    BuildStore,
    IndexSpec,
    InvalidIndexError,
    Rows,
    VectorIndex,
    open_build,
    rank_documents,
    write_rows,
)

Publish = Callable[..., Build]
Make = Callable[..., np.ndarray]


def test_an_open_build_has_its_arms_and_rows(publish: Publish, query: np.ndarray) -> None:
    opened = open_build(publish())
    assert list(opened.arms) == ["plain", "calibrated"]
    assert opened.rows.n_rows == opened.arms["plain"].n_rows == opened.arms["calibrated"].n_rows == 6
    assert len(rank_documents(opened.arms["plain"], opened.rows, query, 3)) == 3


def test_the_manifest_records_every_file_and_the_applications_part(publish: Publish) -> None:
    build = publish(seed=3)
    assert list(build.manifest.files) == ["calibrated.faiss", "plain.faiss", "rows.parquet", "texts.txt"]
    assert build.manifest.files["texts.txt"].size == len("texts of seed 3")
    assert build.manifest.application == {"seed": 3, "name": "日本"}
    assert Build.read(build.path) == build


def test_an_empty_build_opens(store: BuildStore, query: np.ndarray) -> None:
    def write(folder: Path) -> None:
        write_rows(BuildLayout(folder).rows, Rows.from_ids([], []))
        VectorIndex.build([], dim=4, spec=IndexSpec("IVF256,Flat")).save(
            BuildLayout(folder).arm_index("plain")
        )

    opened = open_build(store.publish(write, arms=["plain"], n_rows=0, dim=4, manifest={}))
    assert len(rank_documents(opened.arms["plain"], opened.rows, query, 5)) == 0


@pytest.mark.parametrize("verify", [True, False])
def test_the_row_map_of_another_build_is_refused(publish: Publish, verify: bool) -> None:
    """Case A19 a, at equal sizes, so that only the checksum can tell."""
    first, second = publish(seed=1), publish(seed=2)
    assert first.manifest.files["rows.parquet"].size == second.manifest.files["rows.parquet"].size
    shutil.copy(first.layout.rows, second.layout.rows)
    with pytest.raises(InvalidIndexError, match=r"rows\.parquet: expected SHA-256: .*another build"):
        open_build(second, verify=verify)


@pytest.mark.parametrize("verify", [True, False])
def test_a_missing_arm_is_refused(publish: Publish, verify: bool) -> None:
    """Case A19 b."""
    build = publish()
    build.layout.arm_index("calibrated").unlink()
    with pytest.raises(InvalidIndexError, match=r"calibrated\.faiss is missing"):
        open_build(build, verify=verify)


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_arm_is_refused_with_both_sizes(publish: Publish, verify: bool) -> None:
    """Case A19 c."""
    build = publish()
    size = build.manifest.files["plain.faiss"].size
    os.truncate(build.layout.arm_index("plain"), 20)
    with pytest.raises(InvalidIndexError, match=rf"plain\.faiss: expected bytes: {size}, got 20"):
        open_build(build, verify=verify)


def test_swapped_arms_are_refused(publish: Publish) -> None:
    build = publish()
    plain, calibrated = build.layout.arm_index("plain"), build.layout.arm_index("calibrated")
    plain.rename(build.path / "aside")
    calibrated.rename(plain)
    (build.path / "aside").rename(calibrated)
    with pytest.raises(InvalidIndexError, match="SHA-256"):
        open_build(build)


def test_a_changed_application_file_is_refused(publish: Publish) -> None:
    build = publish()
    (build.path / "texts.txt").write_text("texts of seed 9")
    with pytest.raises(InvalidIndexError, match=r"texts\.txt: expected SHA-256"):
        open_build(build)


def test_a_manifest_of_another_build_is_refused(publish: Publish) -> None:
    first, second = publish(seed=1), publish(seed=2)
    shutil.copy(first.layout.manifest, second.layout.manifest)
    with pytest.raises(InvalidIndexError, match=f"expected build {second.build_id}, got .*{first.build_id}"):
        Build.read(second.path)


def edited(build: Build, **changes: Any) -> Build:
    """Return the build as it reads after an edit of its manifest."""
    value = json.loads(build.layout.manifest.read_text())
    build.layout.manifest.write_text(json.dumps(value | changes))
    return Build.read(build.path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_rows": 7}, "expected rows: 7, got 6"),
        ({"dim": 5}, "expected dimensions: 5, got 4"),
        ({"arms": ["plain", "other"]}, r"other\.faiss is not recorded"),
        ({"arms": ["../plain"]}, "arm name"),
        ({"format_version": 99}, "expected format version 1, got 99"),
        ({"format_version": None}, "expected format version 1, got None"),
        ({"files": {}}, r"rows\.parquet is not recorded"),
        ({"files": {"../../current": {"size": 1, "sha256": ""}}}, "not recorded"),
        ({"files": []}, "not a build manifest"),
        ({"files": {"plain.faiss": {"bytes": 1}}}, "not a build manifest"),
        ({"n_rows": "many"}, "not a build manifest"),
        ({"surplus": 1}, "not a build manifest"),
    ],
)
def test_an_edited_manifest_is_refused(publish: Publish, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidIndexError, match=message):
        open_build(edited(publish(), **changes))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "expected a JSON object, got list"),
        (b'{"format_version": NaN}', "NaN is not JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_damaged_manifest_is_refused(publish: Publish, content: bytes, message: str) -> None:
    build = publish()
    build.layout.manifest.write_bytes(content)
    with pytest.raises(InvalidIndexError, match=message):
        Build.read(build.path)


class Bomb:
    """Writes a marker file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.marker), "w")


def test_nothing_in_a_build_is_ever_unpickled(publish: Publish, tmp_path: Path) -> None:
    """Case A23: strange files beside ours are not looked at, and ours are not run."""
    build = publish()
    marker = tmp_path / "marker"
    payload = pickle.dumps(Bomb(marker))
    for name in ("index.pkl", "meta.pkl", "model.pt"):
        (build.path / name).write_bytes(payload)
    np.save(build.path / "objects.npy", np.array([Bomb(marker)], object), allow_pickle=True)
    assert open_build(build).rows.n_rows == 6
    for path in (build.layout.rows, build.layout.arm_index("plain"), build.layout.manifest):
        original = path.read_bytes()
        path.write_bytes(payload)
        with pytest.raises(InvalidIndexError):
            open_build(Build.read(build.path))
        path.write_bytes(original)
    assert not marker.exists()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../plain", "a/b", "a\\b", "/etc/passwd", "a\n", ".hidden", "ä"]
)
def test_arm_names_that_could_leave_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidIndexError, match="arm name"):
        BuildLayout(tmp_path).arm_index(name)


def test_layout_names(tmp_path: Path) -> None:
    layout = BuildLayout(tmp_path)
    assert layout.arm_index("plain-0.5_a").relative_to(tmp_path) == Path("plain-0.5_a.faiss")
    assert layout.rows.relative_to(tmp_path) == Path("rows.parquet")
    assert layout.manifest.relative_to(tmp_path) == Path("manifest.json")
