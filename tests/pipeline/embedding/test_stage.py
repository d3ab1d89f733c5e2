"""The embed stage with a tiny real model: damage, precision, memory."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from pipeline.embedding import EmbedPlan, LocalEngine, PendingChunk, ShardStore, carry_out, cut_tasks
from pipeline.embedding.plan import read_pending
from tests.pipeline.embedding.making import TinyRun, assert_same_vectors, key

MIB = 2**20


@pytest.fixture
def tiny(tmp_path: Path) -> TinyRun:
    return TinyRun(tmp_path, n_documents=60)


@pytest.mark.parametrize("shard_size", [16, 5])
def test_damaged_shards_are_made_again_once(tiny: TinyRun, shard_size: int) -> None:
    """Under the same name or another one; the damaged file is gone, and nothing is said of it again."""
    tiny.embed("run")
    before = tiny.vectors("run")
    shard = sorted(tiny.folder.glob("run/vectors/*/*.parquet"))[0]
    shard.write_bytes(shard.read_bytes()[:100])
    again = tiny.embed("run", embed__shard_size=shard_size)
    assert [note for note in again.notes if shard.name in note]
    assert_same_vectors(tiny.vectors("run"), before)
    third = tiny.embed("run")
    assert (third.changed, third.notes) == (False, ())


def test_what_is_embedded_is_what_the_key_names(tiny: TinyRun) -> None:
    """With its context: else a vector would be found under the key of another text."""
    tiny.embed("run", chunk__context="title")
    pending = list(read_pending(tiny.folder / "run" / "chunks" / "chunks.parquet"))
    assert any(chunk.text.startswith("title ") for chunk in pending)
    assert [chunk.content_key for chunk in pending] == [key(chunk.text) for chunk in pending]


@pytest.mark.parametrize("workers", [2, 3])
def test_a_setting_of_the_engine_remakes_nothing(tiny: TinyRun, workers: int) -> None:
    """Case A16, the second group."""
    tiny.embed("run")
    assert not tiny.embed("run", embed__workers=workers, embed__engine="ray").changed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_works_on_the_cpu(tiny: TinyRun, dtype: str) -> None:
    """bfloat16 has no numpy counterpart (transformers#21989): the vectors are stored as float32."""
    tiny.embed("half", model__dtype=dtype)
    tiny.embed("full")
    half, full = tiny.vectors("half", model__dtype=dtype), tiny.vectors("full")
    for arm, vectors in half.items():
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
        cosines = (vectors * full[arm]).sum(axis=1)
        assert np.median(cosines) > 0.999
        assert cosines.min() > 0.98


def resident() -> int:
    """Bytes that this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def long_word(random: Random) -> str:
    return "".join(random.choices(string.ascii_letters, k=500))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """So many small passes wait for each other's threads more than they work, on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="needs /proc")
def test_memory_stays_bounded_over_distinct_long_words(one_thread: None, tmp_path: Path) -> None:
    """sentence-transformers#1795, tokenizers#1539: caches of words that never come again.

    2,000 texts of 500 letters and no space under a byte-level tokenizer: kept with its tokens, each would
    take some 10 KiB, and the vectors of a wide arm held on to as much again.
    """
    encoder = byte_level_encoder(tmp_path / "model")
    random = Random(3)  # noqa: S311
    words = [long_word(random) for _ in range(3000)]

    def embed(texts: list[str], folder: Path) -> None:
        stores = {"plain": ShardStore(folder, "a" * 64)}
        chunks = [PendingChunk(key(text), text, 500, text[:5]) for text in texts]
        plan = EmbedPlan(((chunk.content_key, 500) for chunk in chunks), stores)
        engine = LocalEngine(encoder, {"plain": stores["plain"].shards})
        carry_out(plan, cut_tasks(chunks, stores, 100), engine)

    embed(words[:1000], tmp_path / "warm-up")
    before = resident()
    embed(words[1000:], tmp_path / "run")
    assert resident() - before < 10 * MIB


def byte_level_encoder(folder: Path):  # type: ignore[no-untyped-def]
    """A model of one narrow layer behind a byte-level tokenizer: nearly all the work is tokenizing."""
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from pipeline.encoders import Encoder, load_model
    from tests.pipeline.tiny import bytelevel

    PreTrainedTokenizerFast(
        tokenizer_object=bytelevel(), pad_token="!", model_max_length=512
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=400,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=512,
    )
    BertModel(config).eval().save_pretrained(folder)
    return Encoder(load_model(folder, device="cpu", max_length=512), {"plain": None})
