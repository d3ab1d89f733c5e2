from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from indexes import (
    Build,
    BuildLayout,
    BuildStore,
    IndexSpec,
    InvalidIndexError,
    InvalidQueryError,
    NoBuildError,
    Rows,
    VectorIndex,
    open_build,
    write_rows,
)

Publish = Callable[..., Build]

PUBLISH_IN_A_PROCESS = """
import os, signal, sys
from pathlib import Path
import numpy as np
from indexes import BuildLayout, BuildStore, IndexSpec, Rows, VectorIndex, write_rows

root, moment = Path(sys.argv[1]), sys.argv[2]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def write(folder):
    layout = BuildLayout(folder)
    write_rows(layout.rows, Rows.from_ids(["k#0"], ["k"]))
    for arm in ("plain", "calibrated"):
        if (moment, arm) == ("between the arms", "calibrated"):
            die()
        VectorIndex.build(np.ones((1, 4), np.float32), dim=4, spec=IndexSpec()).save(layout.arm_index(arm))

def dying_at(call, is_moment):
    return lambda source, target, *rest: die() if is_moment(Path(target)) else call(source, target, *rest)

if moment == "at the manifest":
    os.replace = dying_at(os.replace, lambda target: target.name == "manifest.json")
if moment == "at the folder":
    os.rename = dying_at(os.rename, lambda target: target.parent.name == "builds")
if moment == "at the pointer":
    os.replace = dying_at(os.replace, lambda target: target.name == "current")
for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 1):
    BuildStore(root).publish(write, arms=["plain", "calibrated"], n_rows=1, dim=4, manifest={})
"""


def publish_in_a_process(root: Path, moment: str = "never", times: int = 1) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PUBLISH_IN_A_PROCESS, str(root), moment, str(times)])


def staging_folders(root: Path) -> list[Path]:
    return list((root / "builds").glob(".*"))


def test_a_published_build_is_current(store: BuildStore, publish: Publish, tmp_path: Path) -> None:
    first, second = publish(seed=1), publish(seed=2)
    assert store.current() == second
    assert store.current_id() == second.build_id
    assert store.build_ids() == (first.build_id, second.build_id)
    assert store.get(first.build_id) == first
    assert staging_folders(tmp_path / "run") == []
    assert BuildStore(tmp_path / "run").current() == second


def test_without_a_build_the_message_says_what_to_do(store: BuildStore) -> None:
    with pytest.raises(NoBuildError, match="no build yet; build the index first"):
        store.current()
    with pytest.raises(NoBuildError, match="no build 'x'; there are: none"):
        store.get("x")
    with pytest.raises(NoBuildError, match="no build to roll back to"):
        store.rollback("x")
    assert (store.current_id(), store.build_ids(), store.prune(1)) == (None, (), ())


def test_a_full_disk_leaves_the_previous_build(store: BuildStore, publish: Publish, tmp_path: Path) -> None:
    """Case A19 d."""
    before = publish()

    def write(folder: Path) -> None:
        (folder / "plain.faiss").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        store.publish(write, arms=["plain"], n_rows=1, dim=4, manifest={})
    assert store.current() == before
    assert store.build_ids() == (before.build_id,)
    assert staging_folders(tmp_path / "run") == []


@pytest.mark.parametrize("moment", ["between the arms", "at the manifest", "at the folder", "at the pointer"])
def test_a_killed_publish_leaves_the_previous_build(
    moment: str, store: BuildStore, publish: Publish, tmp_path: Path
) -> None:
    """Case A19 e; the next publish removes what the killed one left."""
    before = publish(seed=1)
    assert publish_in_a_process(tmp_path / "run", moment).wait(timeout=60) == -signal.SIGKILL
    assert store.current() == before
    assert open_build(store.current()).rows.n_rows == 6
    after = publish(seed=2)
    assert store.current() == after
    assert staging_folders(tmp_path / "run") == []


def test_the_killed_publish_of_these_tests_works_when_it_is_not_killed(
    store: BuildStore, tmp_path: Path
) -> None:
    assert publish_in_a_process(tmp_path / "run").wait(timeout=60) == 0
    assert open_build(store.current()).rows.doc_id(0) == "k"


def test_publishing_removes_dead_staging_folders_only(
    store: BuildStore, publish: Publish, tmp_path: Path
) -> None:
    builds = tmp_path / "run" / "builds"

    def write(folder: Path) -> None:
        abandoned = builds / ".staging-abandoned"
        abandoned.mkdir()
        publish()
        assert folder.is_dir()
        assert not abandoned.exists()
        raise RuntimeError("done")

    with pytest.raises(RuntimeError, match="done"):
        store.publish(write, arms=[], n_rows=0, dim=4, manifest={})


def test_the_pointer_always_names_a_complete_build(store: BuildStore, tmp_path: Path) -> None:
    """Two processes publish while this one opens whatever is current."""
    publishers = [publish_in_a_process(tmp_path / "run", times=10) for _ in range(2)]
    n_opened = 0
    while any(publisher.poll() is None for publisher in publishers):
        if store.build_ids():
            try:
                opened = open_build(store.current())
            except NoBuildError:
                continue
            assert opened.rows.n_rows == 1
            n_opened += 1
    assert [publisher.returncode for publisher in publishers] == [0, 0]
    assert len(store.build_ids()) == 20
    assert n_opened > 0
    assert store.current().build_id in store.build_ids()


def test_what_would_be_refused_on_opening_is_not_published(store: BuildStore, publish: Publish) -> None:
    before = publish()

    def write(folder: Path) -> None:
        write_rows(BuildLayout(folder).rows, Rows.from_ids(["a#0"], ["a"]))
        vectors = np.ones((2, 4), np.float32)
        VectorIndex.build(vectors, dim=4, spec=IndexSpec()).save(BuildLayout(folder).arm_index("plain"))

    with pytest.raises(InvalidIndexError, match="expected rows: 1, got 2"):
        store.publish(write, arms=["plain"], n_rows=1, dim=4, manifest={})
    with pytest.raises(InvalidIndexError, match=r"rows\.parquet: expected rows: 2, got 1"):
        store.publish(write, arms=["plain"], n_rows=2, dim=4, manifest={})
    with pytest.raises(InvalidIndexError, match=r"calibrated\.faiss is not recorded"):
        store.publish(write, arms=["calibrated"], n_rows=1, dim=4, manifest={})
    assert store.current() == before


def test_a_manifest_that_is_not_json_is_refused_before_anything_is_written(store: BuildStore) -> None:
    def write(folder: Path) -> None:
        raise AssertionError(f"{folder} was written to")

    with pytest.raises(ValueError, match="not JSON compliant"):
        store.publish(write, arms=[], n_rows=0, dim=4, manifest={"score": float("nan")})


def test_rollback_and_forward_again(store: BuildStore, publish: Publish) -> None:
    first, second = publish(seed=1), publish(seed=2)
    assert store.rollback(first.build_id) == first == store.current()
    assert store.rollback(second.build_id) == second == store.current()


def test_rollback_to_a_damaged_build_is_refused(store: BuildStore, publish: Publish) -> None:
    first, second = publish(seed=1), publish(seed=2)
    first.layout.manifest.unlink()
    with pytest.raises(InvalidIndexError, match="the manifest is missing"):
        store.rollback(first.build_id)
    with pytest.raises(NoBuildError, match=f"no build '../x'; there are: {first.build_id}"):
        store.rollback("../x")
    assert store.current() == second


def test_prune_keeps_the_newest_and_the_current(store: BuildStore, publish: Publish, tmp_path: Path) -> None:
    builds = [publish(seed=seed) for seed in range(4)]
    store.rollback(builds[0].build_id)
    assert store.prune(1) == (builds[1].build_id, builds[2].build_id)
    assert store.build_ids() == (builds[0].build_id, builds[3].build_id)
    assert store.current() == builds[0]
    assert staging_folders(tmp_path / "run") == []
    assert store.prune(10) == ()
    with pytest.raises(InvalidQueryError, match="keep must be"):
        store.prune(0)


@pytest.mark.parametrize("content", [b"", b"../../etc", b"20261130-083000", b"\xff\x00"])
def test_a_damaged_pointer_is_refused_and_can_be_mended(
    content: bytes, store: BuildStore, publish: Publish, tmp_path: Path
) -> None:
    build = publish()
    (tmp_path / "run" / "current").write_bytes(content)
    with pytest.raises(InvalidIndexError, match="expected a build id"):
        store.current()
    assert store.rollback(build.build_id) == store.current()


def test_a_pointer_to_a_removed_build_names_the_others(store: BuildStore, publish: Publish) -> None:
    first, second = publish(seed=1), publish(seed=2)
    second.path.rename(second.path.with_name("elsewhere"))
    with pytest.raises(InvalidIndexError, match=f"{second.build_id}, which is not there; .*{first.build_id}"):
        store.current()


def test_a_failed_pointer_leaves_the_previous_build(
    store: BuildStore, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = publish(seed=1)
    replace = os.replace

    def failing(source: object, target: object) -> None:
        if Path(str(target)).name == "current":
            raise OSError(errno.EIO, "stopped")
        replace(source, target)  # type: ignore[type-var]

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="stopped"):
            publish(seed=2)
    assert store.current() == before
