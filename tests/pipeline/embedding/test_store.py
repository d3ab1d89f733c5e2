"""The vector store: identity, completeness, resuming; and what an embed stage writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import ArmSettings, ModelSettings
from pipeline.embedding import LocalEngine, ShardStore, embedding_identity
from pipeline.errors import DataError, NonFiniteVectorsError
from tests.pipeline.embedding.making import (
    TEXTS,
    FakeEncoder,
    assert_complete,
    embed,
    encoded,
    key,
    open_stores,
    stored,
    vector,
)

IDENTITY = "a" * 64


def local(encoder: FakeEncoder) -> Callable[..., LocalEngine]:
    return lambda folders: LocalEngine(encoder, folders)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_both_arms_come_from_one_call_a_shard(tmp_path: Path) -> None:
    summary = embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "log")))
    assert encoded(tmp_path / "log") == [f"plain,calibrated:{text}" for text in TEXTS]
    assert summary.embedded == {"plain": 20, "calibrated": 20}
    assert summary.tokens == 100
    assert len(list(tmp_path.glob("plain/*.parquet"))) == 5
    assert_complete(tmp_path)


def test_equal_texts_are_embedded_once(tmp_path: Path) -> None:
    embed(tmp_path, ["same", "other", "same"], local(FakeEncoder(tmp_path / "log")))
    assert encoded(tmp_path / "log") == ["plain,calibrated:same", "plain,calibrated:other"]
    rows = stored(tmp_path, ["same", "other", "same"])["plain"]
    np.testing.assert_array_equal(rows[0], rows[2])


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _stray(path: Path) -> None:
    path.with_name(".tmp-0000-" + path.name).write_bytes(path.read_bytes()[:10])


def _foreign(path: Path) -> None:
    pq.write_table(pa.table({"content_key": ["x"], "vector": [[1.0]]}), path)


@pytest.mark.parametrize(
    ("damage", "redone"), [(_cut, 4), (_empty, 4), (Path.unlink, 4), (_foreign, 4), (_stray, 0)]
)
def test_only_damaged_shards_are_redone(tmp_path: Path, damage: Callable[[Path], None], redone: int) -> None:
    """Case A14: a file under its final name is not yet a finished shard."""
    embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "log")))
    damage(sorted((tmp_path / "calibrated").glob("*.parquet"))[2])
    summary = embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "again")))
    assert [line.split(":")[0] for line in encoded(tmp_path / "again")] == ["calibrated"] * redone
    assert summary.embedded == {"plain": 0, "calibrated": redone}
    assert_complete(tmp_path)


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "log")))
    needle = vector(TEXTS[0], "plain").tobytes()
    shards = [p for p in (tmp_path / "plain").glob("*.parquet") if needle in p.read_bytes()]
    content = bytearray(shards[0].read_bytes())
    content[content.index(needle)] ^= 1
    shards[0].write_bytes(content)
    with pytest.raises(DataError, match=f"shard .*{shards[0].name}: damaged"):
        stored(tmp_path, TEXTS)


@pytest.mark.parametrize("done", [4, 8, 16])
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path, done: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "log", at=[TEXTS[done]], do=interrupt)))
    embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "again")))
    assert encoded(tmp_path / "again") == [f"plain,calibrated:{text}" for text in TEXTS[done:]]
    assert_complete(tmp_path)


def test_a_shard_of_another_identity_is_not_used(tmp_path: Path) -> None:
    """Case A21: vectors of another model, put among ours."""
    theirs = ShardStore(tmp_path / "theirs", "b" * 64)
    shard = theirs.write([key("x")], np.ones((1, 3), np.float32))
    (tmp_path / "ours").mkdir()
    shard.rename(tmp_path / "ours" / shard.name)
    ours = ShardStore(tmp_path / "ours", IDENTITY)
    assert key("x") not in ours
    assert ours.damaged == [shard.name]


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_broken_row_in_a_shard_is_refused_by_name(tmp_path: Path, value: float) -> None:
    """Case A13: a shard edited by hand."""
    store = ShardStore(tmp_path, IDENTITY)
    vectors = np.ones((3, 3), np.float32)
    vectors[1] = value
    shard = store.write(["a", "b", "c"], vectors)
    with pytest.raises(DataError, match=f"{shard.name}: row 1 is not finite or zero"):
        list(store.read(["a"]))


def test_a_broken_vector_stops_the_stage_naming_the_chunk(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteVectorsError, match="chunk 'doc-6#0'"):
        embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "log", at=[TEXTS[6]])))
    assert len(list(tmp_path.glob("plain/*.parquet"))) == 1


def test_an_empty_shard_is_legal(tmp_path: Path) -> None:
    store = ShardStore(tmp_path, IDENTITY)
    store.write([], np.empty((0, 3), np.float32))
    assert ShardStore(tmp_path, IDENTITY).damaged == []


def test_vectors_come_in_the_order_asked_for_across_shards(tmp_path: Path) -> None:
    embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "log")), shard_size=3)
    asked = [TEXTS[number] for number in (19, 0, 7, 7, 12)]
    store = open_stores(tmp_path)["plain"]
    got = np.concatenate(list(store.read([key(text) for text in asked], block=2)))
    np.testing.assert_array_equal(got, [vector(text, "plain") for text in asked])


def test_a_damaged_shard_that_others_replace_is_removed(tmp_path: Path) -> None:
    """Made again with another shard size it has another name; the damaged file must not be found for ever."""
    embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "log")))
    _cut(sorted((tmp_path / "plain").glob("*.parquet"))[0])
    embed(tmp_path, TEXTS, local(FakeEncoder(tmp_path / "log")), shard_size=1)
    store = open_stores(tmp_path)["plain"]
    assert len(store.damaged) == 1
    store.remove_damaged()
    assert open_stores(tmp_path)["plain"].damaged == []
    assert_complete(tmp_path)


def test_a_missing_vector_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no vector for a chunk"):
        list(ShardStore(tmp_path, IDENTITY).read([key("x")]))


MODEL, ARM = ModelSettings(), ArmSettings()


@pytest.mark.parametrize(
    ("fingerprint", "model", "arm"),
    [
        ("other files", MODEL, ARM),
        ("files", MODEL.model_copy(update={"max_length": 256}), ARM),
        ("files", MODEL.model_copy(update={"document_prompt": "passage: "}), ARM),
        ("files", MODEL.model_copy(update={"truncate_dim": 64}), ARM),
        ("files", MODEL.model_copy(update={"dtype": "bfloat16"}), ARM),
        ("files", MODEL, ARM.model_copy(update={"strength": 0.6})),
        ("files", MODEL, ARM.model_copy(update={"strength": 0.0})),
        ("files", MODEL, ARM.model_copy(update={"basket_size": 64})),
        ("files", MODEL, ARM.model_copy(update={"layers": 2})),
        ("files", MODEL, ARM.model_copy(update={"first_mass": "original"})),
    ],
)
def test_what_decides_a_vector_decides_its_identity(
    fingerprint: str, model: ModelSettings, arm: ArmSettings
) -> None:
    """Case A16, the first group."""
    assert embedding_identity(fingerprint, model, arm) != embedding_identity("files", MODEL, ARM)


@pytest.mark.parametrize(
    ("model", "arm"),
    [
        (MODEL.model_copy(update={"name": "/elsewhere/model"}), ARM),
        (MODEL.model_copy(update={"revision": "abc"}), ARM),
        (MODEL.model_copy(update={"query_prompt": "query: "}), ARM),
    ],
)
def test_what_does_not_decide_a_vector_does_not(model: ModelSettings, arm: ArmSettings) -> None:
    """Case A16, the second group: names and places; batch and shard sizes are not even asked for."""
    assert embedding_identity("files", model, arm) == embedding_identity("files", MODEL, ARM)


def test_a_plain_arm_ignores_the_settings_of_its_calibration() -> None:
    plain = ArmSettings(strength=0.0)
    other = ArmSettings(strength=0.0, basket_size=64, layers="all")
    assert embedding_identity("files", MODEL, plain) == embedding_identity("files", MODEL, other)
