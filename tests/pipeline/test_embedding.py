"""The vector store: identity, completeness, resuming; and what an embed stage writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import ArmSettings, ModelSettings
from pipeline.embedding import EmbedPlan, PendingChunk, ShardStore, Vectors, embedding_identity
from pipeline.errors import DataError, NonFiniteVectorsError

IDENTITY = "a" * 64


def key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def vector(text: str, arm: str) -> np.ndarray:
    """A vector that anyone can recompute from the text and the arm."""
    seed = int.from_bytes(hashlib.sha256((arm + text).encode()).digest()[:4], "big")
    values = np.random.default_rng(seed).normal(size=3).astype(np.float32)
    return values / np.linalg.norm(values)


class CountingEncoder:
    """Embeds by `vector` and keeps count; breaks where it is told to."""

    def __init__(self, broken: str | None = None, dies_after: int | None = None) -> None:
        self.seen: list[tuple[str, tuple[str, ...]]] = []
        self._broken = broken
        self._dies_after = dies_after

    def encode_documents(
        self,
        texts: Sequence[str],
        arms: Sequence[str] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Vectors]:
        if self._dies_after is not None and len(self.seen) >= self._dies_after:
            raise KeyboardInterrupt
        arms = tuple(arms or ())
        self.seen.extend((text, arms) for text in texts)
        if self._broken in texts:
            row = list(texts).index(self._broken)
            raise NonFiniteVectorsError(arms[0], [f"text {row}"], [row])
        return {arm: np.stack([vector(text, arm) for text in texts]) for arm in arms}


def chunks(texts: Sequence[str]) -> list[PendingChunk]:
    return [PendingChunk(key(text), text, 5, f"doc-{number}#0") for number, text in enumerate(texts)]


def open_stores(folder: Path) -> dict[str, ShardStore]:
    return {arm: ShardStore(folder / arm, arm * 10) for arm in ("plain", "calibrated")}


def embed(folder: Path, texts: Sequence[str], encoder: CountingEncoder, shard_size: int = 4) -> Any:
    stores = open_stores(folder)
    plan = EmbedPlan(((chunk.content_key, chunk.n_tokens) for chunk in chunks(texts)), stores)
    return plan.carry_out(chunks(texts), encoder, shard_size=shard_size)


def stored(folder: Path, texts: Sequence[str]) -> dict[str, Vectors]:
    return {
        arm: np.concatenate(list(store.read([key(text) for text in texts])))
        for arm, store in open_stores(folder).items()
    }


TEXTS = [f"text number {number}" for number in range(20)]


def assert_complete(folder: Path) -> None:
    for arm, vectors in stored(folder, TEXTS).items():
        np.testing.assert_array_equal(vectors, [vector(text, arm) for text in TEXTS])


def test_both_arms_come_from_one_call_a_shard(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    summary = embed(tmp_path, TEXTS, encoder)
    assert encoder.seen == [(text, ("plain", "calibrated")) for text in TEXTS]
    assert summary.embedded == {"plain": 20, "calibrated": 20}
    assert summary.tokens == 100
    assert len(list(tmp_path.glob("plain/*.parquet"))) == 5
    assert_complete(tmp_path)


def test_equal_texts_are_embedded_once(tmp_path: Path) -> None:
    encoder = CountingEncoder()
    embed(tmp_path, ["same", "other", "same"], encoder)
    assert [text for text, _ in encoder.seen] == ["same", "other"]
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
    embed(tmp_path, TEXTS, CountingEncoder())
    damage(sorted((tmp_path / "calibrated").glob("*.parquet"))[2])
    encoder = CountingEncoder()
    summary = embed(tmp_path, TEXTS, encoder)
    assert [arms for _, arms in encoder.seen] == [("calibrated",)] * redone
    assert summary.embedded == {"plain": 0, "calibrated": redone}
    assert_complete(tmp_path)


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    embed(tmp_path, TEXTS, CountingEncoder())
    path = sorted((tmp_path / "plain").glob("*.parquet"))[0]
    content = bytearray(path.read_bytes())
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
        embed(tmp_path, TEXTS, CountingEncoder(dies_after=done))
    encoder = CountingEncoder()
    embed(tmp_path, TEXTS, encoder)
    assert [text for text, _ in encoder.seen] == TEXTS[done:]
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
        embed(tmp_path, TEXTS, CountingEncoder(broken=TEXTS[6]))
    assert len(list(tmp_path.glob("plain/*.parquet"))) == 1


def test_an_empty_shard_is_legal(tmp_path: Path) -> None:
    store = ShardStore(tmp_path, IDENTITY)
    store.write([], np.empty((0, 3), np.float32))
    assert ShardStore(tmp_path, IDENTITY).damaged == []


def test_vectors_come_in_the_order_asked_for_across_shards(tmp_path: Path) -> None:
    embed(tmp_path, TEXTS, CountingEncoder(), shard_size=3)
    asked = [TEXTS[number] for number in (19, 0, 7, 7, 12)]
    store = open_stores(tmp_path)["plain"]
    got = np.concatenate(list(store.read([key(text) for text in asked], block=2)))
    np.testing.assert_array_equal(got, [vector(text, "plain") for text in asked])


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
