"""Chunks: right spans in every script, right lengths as embedded, and an end in all cases."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline.chunking import Chunker
from pipeline.chunking.context import NoContexts
from pipeline.chunking.meter import Budget, TokenMeter
from pipeline.chunking.semantic import SemanticSplitter
from pipeline.chunking.table import content_key, read_chunks, write_chunks
from pipeline.config import ChunkSettings
from pipeline.errors import DataError, UsageError
from pipeline.records import Chunk, Document, SkipReason
from tests.pipeline.tiny import bytelevel, wordpiece

TOKENIZERS = {"wordpiece": wordpiece(), "bytelevel": bytelevel()}
STRATEGIES = ["sentences", "markdown", "tokens"]

every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
awkward_text = st.text(
    st.one_of(
        st.sampled_from(list("ab. \n\t\r#*-|`>[]é🚀界\u200b\u0301\u00a0\x1c")), st.characters(codec="utf-8")
    ),
    max_size=80,
)


def chunker(tokenizer: Tokenizer, *, max_length: int = 1000, prompt: str = "", **values: Any) -> Chunker:
    return Chunker(tokenizer, ChunkSettings(**values), max_length=max_length, prompt=prompt)


def chunk(text: str, tokenizer: Tokenizer, **values: Any) -> list[Chunk]:
    return chunker(tokenizer, **values).chunk_document(Document("d", text))


def n_own_tokens(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False))


def assert_sound(
    text: str, chunks: list[Chunk], tokenizer: Tokenizer, max_tokens: int, prompt: str = ""
) -> None:
    limit = len(tokenizer.encode(prompt)) + max_tokens
    for part in chunks:
        assert part.text == text[part.start : part.end]
        assert part.text == part.text.strip() != ""
        assert part.n_tokens == len(tokenizer.encode(prompt + part.text)) <= limit
    assert [part.ordinal for part in chunks] == list(range(len(chunks)))
    assert all(one.start < two.start and one.end < two.end for one, two in pairwise(chunks))
    ends = [0, *(part.end for part in chunks)]
    starts = [*(part.start for part in chunks), len(text)]
    for end, start in zip(ends, starts, strict=True):
        between = text[end:start].strip()
        assert not between or n_own_tokens(tokenizer, between) == 0


@every_tokenizer
@every_strategy
@given(text=awkward_text, max_tokens=st.integers(4, 12), data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_text_is_covered_by_sound_spans(
    text: str, max_tokens: int, data: st.DataObject, strategy: str, tokenizer: Tokenizer
) -> None:
    overlap = data.draw(st.integers(0, max_tokens - 1))
    prompt = data.draw(st.sampled_from(["", "query: ", "the"]))
    values: dict[str, Any] = {"strategy": strategy, "max_tokens": max_tokens, "overlap_tokens": overlap}

    chunks = chunk(text, tokenizer, prompt=prompt, **values)

    assert_sound(text, chunks, tokenizer, max_tokens, prompt)


@every_tokenizer
@pytest.mark.parametrize("markdown", [False, True])
@given(text=awkward_text, window=st.integers(1, 20), overlap=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_a_text_longer_than_a_window_is_covered_too(
    text: str, window: int, overlap: int, tokenizer: Tokenizer, markdown: bool
) -> None:
    meter = TokenMeter(tokenizer)
    budget = Budget(meter, max_length=100, max_tokens=6, overlap=overlap)

    (pieces,) = SemanticSplitter(meter, budget, markdown=markdown, window=window).pieces(
        [text], [NoContexts()]
    )

    chunks = [
        Chunk("d", i, piece.start, piece.end, text[piece.start : piece.end], piece.n_tokens)
        for i, piece in enumerate(pieces)
    ]
    assert_sound(text, chunks, tokenizer, 6)


headed_text = st.lists(
    st.sampled_from(
        ["# The cat", "## A dog", "Late\n----", "the cat sat on the mat.", "blue river", "hello " * 9]
    ),
    max_size=12,
).map("\n\n".join)


@every_tokenizer
@pytest.mark.parametrize("strategy", ["sentences", "markdown"])
@given(text=headed_text, max_tokens=st.integers(6, 20), overlap=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_headed_texts_are_covered_too(
    text: str, max_tokens: int, overlap: int, strategy: str, tokenizer: Tokenizer
) -> None:
    values: dict[str, Any] = {"strategy": strategy, "max_tokens": max_tokens, "overlap_tokens": overlap}

    assert_sound(text, chunk(text, tokenizer, **values), tokenizer, max_tokens)


@pytest.mark.parametrize("strategy", ["sentences", "markdown"])
@pytest.mark.parametrize("heading", ["# The cat", "The cat\n-------", "# Late\n\n## The cat"])
def test_a_heading_stays_with_what_it_heads(strategy: str, heading: str) -> None:
    # The paragraph alone fills the budget of 12 tokens, so that the splitter leaves the heading alone.
    before, body = "hello world is late.", "the river is blue and the mat is the answer."
    text = f"{before}\n\n{heading}\n\n{body}"

    chunks = chunk(text, wordpiece(), strategy=strategy, max_tokens=12)

    assert chunks[0].text == before
    assert chunks[1].text.startswith(f"{heading}\n\nthe river")
    assert chunks[-1].end == len(text)


def test_a_heading_at_the_end_of_a_text_stays_there() -> None:
    text = "the cat sat on the mat.\n\n# Late"
    texts = [part.text for part in chunk(text, wordpiece(), strategy="sentences", max_tokens=8)]
    assert "".join(texts).endswith("# Late")


def test_a_heading_that_leaves_no_room_is_kept_as_it_was() -> None:
    text = "# the cat sat on the mat\n\nincomprehensibility"
    texts = [part.text for part in chunk(text, wordpiece(), strategy="sentences", max_tokens=9)]
    assert "".join(texts).replace("\n", "").replace(" ", "") == text.replace("\n", "").replace(" ", "")


def test_windows_change_nothing_about_ordinary_text() -> None:
    text = " ".join(f"The cat sat on mat {i}." for i in range(300))
    meter = TokenMeter(wordpiece())
    budget = Budget(meter, max_length=64, max_tokens=30, overlap=8)

    whole = SemanticSplitter(meter, budget).pieces([text], [NoContexts()])

    assert SemanticSplitter(meter, budget, window=1000).pieces([text], [NoContexts()]) == whole


# A6


@every_tokenizer
@every_strategy
@pytest.mark.parametrize("text", ["", "  \n\t ", "\x1c", "\u3000"])
def test_a_blank_text_has_no_chunk(text: str, strategy: str, tokenizer: Tokenizer) -> None:
    assert chunk(text, tokenizer, strategy=strategy) == []


@every_strategy
@pytest.mark.parametrize("prompt", ["", "query: "])
def test_what_the_tokenizer_does_not_see_has_no_chunk(strategy: str, prompt: str) -> None:
    assert chunk("\u200b\ufeff", wordpiece(), strategy=strategy, prompt=prompt) == []
    assert len(chunk("\u200b\ufeff", bytelevel(), strategy=strategy)) == 1


# A7


@every_tokenizer
@every_strategy
@pytest.mark.parametrize(
    "text", ["the cat sat. " * 40, "a a a a a a a a", "ab" * 30, "\n\n".join(["same"] * 20)]
)
@pytest.mark.parametrize("overlap", [0, 2, 7])
def test_repeated_text_keeps_its_places(text: str, overlap: int, strategy: str, tokenizer: Tokenizer) -> None:
    chunks = chunk(text, tokenizer, strategy=strategy, max_tokens=8, overlap_tokens=overlap)

    assert chunks[0].start == 0
    assert_sound(text, chunks, tokenizer, 8)


# A8

UNEVEN = "hi the cat sat on incomprehensibilities the river is blue  late\n\nearly answer"


@every_tokenizer
@every_strategy
@pytest.mark.parametrize("overlap", [1, 2, 3])
@pytest.mark.parametrize("max_tokens", [6, 8])
def test_overlap_does_not_shift_places(
    overlap: int, max_tokens: int, strategy: str, tokenizer: Tokenizer
) -> None:
    chunks = chunk(UNEVEN, tokenizer, strategy=strategy, max_tokens=max_tokens, overlap_tokens=overlap)

    assert_sound(UNEVEN, chunks, tokenizer, max_tokens)
    for one, two in pairwise(chunks):
        assert n_own_tokens(tokenizer, UNEVEN[two.start : one.end].strip()) <= overlap


@pytest.mark.parametrize("overlap", [0, 1, 2, 3])
def test_token_windows_are_full_and_share_exactly_the_overlap(overlap: int) -> None:
    text = " ".join(["the cat sat on mat"] * 10)

    chunks = chunk(text, wordpiece(), strategy="tokens", max_tokens=6, overlap_tokens=overlap)

    assert {part.n_tokens for part in chunks[:-1]} == {6 + 2}
    for one, two in pairwise(chunks):
        assert n_own_tokens(wordpiece(), text[two.start : one.end]) == overlap


# A9

MULTIBYTE = "né🚀界" * 50


@every_strategy
@pytest.mark.parametrize("max_tokens", [4, 5, 6, 7])
def test_characters_of_several_tokens_stay_whole(max_tokens: int, strategy: str) -> None:
    chunks = chunk(MULTIBYTE, bytelevel(), strategy=strategy, max_tokens=max_tokens)

    assert_sound(MULTIBYTE, chunks, bytelevel(), max_tokens)
    assert "".join(part.text for part in chunks) == MULTIBYTE


@every_strategy
@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_a_budget_below_one_character_is_refused_with_both_numbers(max_tokens: int, strategy: str) -> None:
    with pytest.raises(UsageError, match=rf"max_tokens = {max_tokens} .*🚀.* takes 4 tokens"):
        chunk("🚀" + MULTIBYTE, bytelevel(), strategy=strategy, max_tokens=max_tokens)


def test_a_token_that_spans_two_characters_keeps_them_together() -> None:
    first, second = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("éü")[0][0][1:3]
    alphabet = [*pre_tokenizers.ByteLevel.alphabet(), first + second]
    vocabulary = {token: number for number, token in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [(first, second)]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    chunks = chunk("éüéü", tokenizer, strategy="tokens", max_tokens=3)

    assert_sound("éüéü", chunks, tokenizer, 3)


# A10


@every_strategy
@pytest.mark.parametrize(
    "text",
    [
        " " + "a" * 5000 + " tail",
        "| a | b |\n|" + "-" * 300 + "|" + "-" * 300 + "|\n" + "| x | y |\n" * 50,
        "-" * 5000,
        "界" * 1500,
        "a" + " " * 5000 + "b",
        "\n" * 20_000 + "a",
        "a" + "\n " * 8000 + "b" + "\n " * 200 + "c",
    ],
    ids=["no spaces", "table", "dashes", "no words", "spaces", "empty lines", "blank lines"],
)
def test_long_runs_end_in_time(text: str, strategy: str) -> None:
    begin = time.monotonic()

    chunks = chunk(text, bytelevel(), strategy=strategy, max_tokens=32, overlap_tokens=8)

    assert time.monotonic() - begin < 5
    assert_sound(text, chunks, bytelevel(), 32)


@pytest.mark.parametrize("overlap", [62, 63, 100])
def test_an_overlap_as_large_as_the_room_is_refused(overlap: int) -> None:
    with pytest.raises(UsageError, match=f"overlap_tokens = {overlap} .*max_tokens = 62"):
        chunker(wordpiece(), max_length=64, overlap_tokens=overlap)


@pytest.mark.parametrize("max_length", [0, 1, 2])
def test_no_room_beside_the_special_tokens_is_refused(max_length: int) -> None:
    with pytest.raises(UsageError, match=f"takes {max_length} tokens, and 2 special tokens"):
        chunker(wordpiece(), max_length=max_length)


# A11


@every_strategy
@pytest.mark.parametrize("prompt", ["", "the cat: "])
def test_a_budget_above_the_model_is_refused_with_what_takes_the_room(prompt: str, strategy: str) -> None:
    n_prompt = n_own_tokens(wordpiece(), prompt)
    room = 64 - 2 - n_prompt
    with pytest.raises(
        UsageError, match=rf"max_tokens = {room + 1} .* and {room}: .* 64 .* {n_prompt} tokens"
    ):
        chunker(wordpiece(), max_length=64, prompt=prompt, strategy=strategy, max_tokens=room + 1)
    assert chunker(wordpiece(), max_length=64, prompt=prompt, max_tokens=room).max_tokens == room
    assert chunker(wordpiece(), max_length=64, prompt=prompt).max_tokens == room


@every_strategy
def test_the_end_of_a_long_document_is_in_a_chunk(strategy: str) -> None:
    chunks = chunk("the cat " * 60 + "answer is river", wordpiece(), max_length=64, strategy=strategy)

    assert chunks[-1].text.endswith("answer is river")
    assert max(part.n_tokens for part in chunks) <= 64


@every_strategy
def test_a_prompt_that_merges_badly_makes_smaller_chunks(strategy: str) -> None:
    """`xa` is no word: with this prompt each chunk that begins with `aa` is two tokens longer."""
    vocabulary = {"[UNK]": 0, "a": 1, "aa": 2, "aaa": 3, "aaaa": 4, "x": 5, "##a": 6, " ": 7}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=next(iter(vocabulary))))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    text = " ".join(["aaaa"] * 20)

    chunks = chunk(text, tokenizer, prompt="x", strategy=strategy, max_tokens=8, max_length=9)

    assert_sound(text, chunks, tokenizer, 8, "x")


def test_the_callers_tokenizer_is_neither_changed_nor_trusted() -> None:
    tokenizer = wordpiece()
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=20)
    before = tokenizer.to_str()

    chunks = chunk("the cat sat on mat " * 5, tokenizer, max_tokens=10)

    assert tokenizer.to_str() == before
    assert [part.n_tokens for part in chunks] == [12, 12, 7]


# The table


def test_documents_at_once_give_the_chunks_that_each_gives_alone() -> None:
    cut = chunker(wordpiece(), max_tokens=5, overlap_tokens=1)
    documents = [Document(str(i), "the cat sat on mat. " * i) for i in range(6)]

    assert cut.chunk_documents(documents) == [cut.chunk_document(document) for document in documents]


def test_chunks_come_back_as_written(tmp_path: Path) -> None:
    cut = chunker(wordpiece(), max_tokens=5)
    documents = [
        Document("../../escape", "the cat sat on mat. " * 3),
        Document("blank", "\u200b"),
        Document("x" * 5000, "a dog"),
    ]

    summary = write_chunks(iter(documents), cut, tmp_path / "chunks.parquet")

    expected = [part for document in documents for part in cut.chunk_document(document)]
    assert list(read_chunks(tmp_path / "chunks.parquet")) == expected
    assert (summary.n_documents, summary.n_chunks) == (2, len(expected))
    assert summary.n_tokens == sum(part.n_tokens for part in expected)
    assert summary.longest_chunk == max(part.n_tokens for part in expected)
    assert summary.skip_counts == {SkipReason.BLANK: 1}
    assert [skipped.doc_id for skipped in summary.skipped] == ["blank"]
    assert [path.name for path in tmp_path.iterdir()] == ["chunks.parquet"]


def test_the_content_key_is_that_of_the_text_alone() -> None:
    assert content_key("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert content_key("a") != content_key("b")


def test_a_failed_run_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "chunks.parquet"
    write_chunks([Document("1", "a dog")], chunker(wordpiece()), path)
    before = path.read_bytes()

    with pytest.raises(UsageError):
        write_chunks([Document("1", "a🚀")], chunker(bytelevel(), max_tokens=2), path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, b"", b"no parquet"], ids=["missing", "empty", "other"])
def test_a_table_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "chunks.parquet"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(DataError, match=r"chunks\.parquet"):
        list(read_chunks(path))
