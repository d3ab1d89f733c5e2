"""What stands before chunks when they are embedded: the right headings, once, within the budget."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline.chunking import Chunker
from pipeline.chunking.context import ContextLimiter, DocumentContexts
from pipeline.chunking.meter import TokenMeter
from pipeline.chunking.semantic import SemanticSplitter
from pipeline.chunking.spans import Span
from pipeline.chunking.table import content_key, read_chunks, write_chunks
from pipeline.config import ChunkSettings, ContextKind
from pipeline.errors import UsageError
from pipeline.records import Chunk, Document
from pipeline.tables import read_rows
from tests.pipeline.tiny import bytelevel, wordpiece

TOKENIZERS = {"wordpiece": wordpiece(), "bytelevel": bytelevel()}
STRATEGIES = ["sentences", "markdown", "tokens"]

every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)

GUIDE = """# Cats

The cat sat on the mat.

## Food

A cat is late.

### Late food

The river is blue.

## Sleep

Hello world.

# Dogs

A dog is late.
"""


def chunker(tokenizer: Tokenizer, *, prompt: str = "", **values: Any) -> Chunker:
    return Chunker(tokenizer, ChunkSettings(**values), max_length=1000, prompt=prompt)


def chunk(document: Document, tokenizer: Tokenizer | None = None, **values: Any) -> list[Chunk]:
    return chunker(tokenizer or wordpiece(), **values).chunk_document(document)


def contexts(
    text: str, title: str = "", kind: ContextKind = "headings", limit: int = 500
) -> DocumentContexts:
    return DocumentContexts(Document("d", text, title), kind, ContextLimiter(TokenMeter(wordpiece()), limit))


def before(words: str, text: str, title: str = "", **values: Any) -> str:
    """The context of a chunk that goes from `words` to the end of `text`."""
    return contexts(text, title, **values).before(Span(text.index(words), len(text))).text


def test_without_a_context_chunks_are_embedded_as_they_are() -> None:
    for part in chunk(Document("d", GUIDE, "Cats"), max_tokens=16):
        assert part.context == ""
        assert part.embedded_text == part.text


def test_a_title_stands_before_every_chunk_a_blank_line_between() -> None:
    chunks = chunk(
        Document("d", "A dog is late. " * 9, "On dogs\nand rivers"), max_tokens=16, context="title"
    )

    assert len(chunks) > 3
    assert {part.context for part in chunks} == {"On dogs and rivers"}
    assert chunks[1].embedded_text == f"On dogs and rivers\n\n{chunks[1].text}"


@pytest.mark.parametrize("kind", ["title", "headings"])
def test_no_title_and_no_heading_is_no_context(kind: str) -> None:
    document = Document("d", "A dog is late. " * 9)

    assert chunk(document, max_tokens=16, context=kind) == chunk(document, max_tokens=16)


def test_headings_are_those_above_the_beginning_of_a_chunk() -> None:
    assert before("# Cats", GUIDE, "Animals") == "Animals"
    assert before("The cat", GUIDE, "Animals") == "Animals > Cats"
    assert before("## Food", GUIDE, "Animals") == "Animals > Cats"
    assert before("A cat", GUIDE, "Animals") == "Animals > Cats > Food"
    assert before("### Late", GUIDE, "Animals") == "Animals > Cats > Food"
    assert before("The river", GUIDE, "Animals") == "Animals > Cats > Food > Late food"
    assert before("## Sleep", GUIDE, "Animals") == "Animals > Cats"
    assert before("Hello", GUIDE, "Animals") == "Animals > Cats > Sleep"
    assert before("# Dogs", GUIDE, "Animals") == "Animals"
    assert before("A dog", GUIDE, "Animals") == "Animals > Dogs"


def test_a_title_that_is_the_first_heading_stands_once() -> None:
    assert before("The cat", GUIDE, "Cats") == "Cats"
    assert before("A cat", GUIDE, "CATS") == "CATS > Food"


@pytest.mark.parametrize(
    "opening",
    [
        "# Cats and dogs\n\nlate",
        "Cats and dogs",
        "Cats  and\ndogs are late",
        "cats and dogs",
        "**Cats and dogs**",
        "## Cats and dogs ##",
    ],
)
def test_a_chunk_that_begins_with_its_title_has_it_once(opening: str) -> None:
    assert before(opening, opening, "Cats and dogs") == ""


def test_a_word_that_only_begins_like_the_title_is_another() -> None:
    assert before("Catsup", "Catsup is late.", "Cats") == "Cats"


def test_a_chunk_that_begins_with_the_words_of_a_heading_above_has_them_once() -> None:
    text = "# Cats\n\n## Food\n\nFood is late."

    assert before("Food is", text) == "Cats"


def test_comments_in_code_are_no_headings() -> None:
    text = "# Cats\n\n```\n# river\n```\n\nlate"

    assert before("late", text) == "Cats"


def test_a_chunk_from_within_a_heading_stands_under_it() -> None:
    text = "# The cat sat on the mat\n\nlate"

    assert before("sat", text) == "The cat sat on the mat"


def test_a_long_context_is_cut_at_a_word() -> None:
    text = "# the cat sat\n\nlate"

    whole = contexts(text, "a dog", limit=6)
    cut = contexts(text, "a dog", limit=5)
    span = Span(text.index("late"), len(text))

    assert whole.before(span) == ("a dog > the cat sat", False)
    assert cut.before(span) == ("a dog > the cat", True)
    assert contexts(text, "a dog", limit=3).before(span) == ("a dog", True)
    assert contexts(text, "a" * 30 + " b", limit=3).before(span) == ("", True)
    assert cut.most_tokens == 5


# As cut and as stored


headed_text = st.lists(
    st.one_of(
        st.sampled_from(
            ["# late\n", "## river cat\n", "\n", "the cat sat. ", "blue\n---\n", "🚀界 ", "```\n"]
        ),
        st.text(st.characters(codec="utf-8"), max_size=12),
    ),
    max_size=25,
).map("".join)


@every_tokenizer
@every_strategy
@given(
    text=headed_text, title=st.text(max_size=40) | st.sampled_from(["late", "the cat sat"]), data=st.data()
)
@settings(max_examples=80, deadline=None)
def test_context_and_chunk_keep_to_the_budget_and_the_places(
    text: str, title: str, data: st.DataObject, strategy: str, tokenizer: Tokenizer
) -> None:
    max_tokens = data.draw(st.integers(12, 24))
    overlap = data.draw(st.integers(0, 4))
    kind = data.draw(st.sampled_from(["title", "headings"]))
    prompt = data.draw(st.sampled_from(["", "query: "]))
    cut = chunker(
        tokenizer,
        prompt=prompt,
        strategy=strategy,
        max_tokens=max_tokens,
        overlap_tokens=overlap,
        context=kind,
    )

    chunks = cut.chunk_document(Document("d", text, title))

    n_overhead = len(tokenizer.encode(prompt))
    for part in chunks:
        assert part.text == text[part.start : part.end] == part.text.strip() != ""
        assert part.n_tokens == len(tokenizer.encode(prompt + part.embedded_text)) <= n_overhead + max_tokens
        before_it = len(tokenizer.encode(prompt + part.context)) - n_overhead
        assert before_it <= max_tokens // 2
    assert all(one.start < two.start and one.end < two.end for one, two in pairwise(chunks))
    ends = [0, *(part.end for part in chunks)]
    for end, start in zip(ends, [*(part.start for part in chunks), len(text)], strict=True):
        between = text[end:start].strip()
        assert not between or not tokenizer.encode(between, add_special_tokens=False).ids


@every_strategy
def test_what_the_tokenizer_does_not_see_has_no_chunk_for_all_its_title(strategy: str) -> None:
    assert chunk(Document("d", "\u200b\ufeff", "the cat"), strategy=strategy, context="title") == []


@every_strategy
def test_a_character_that_does_not_fit_beside_its_context_is_refused_with_both_numbers(strategy: str) -> None:
    with pytest.raises(UsageError, match=r"max_tokens = 6 .*🚀.* takes 7 tokens with its context"):
        chunk(Document("d", "🚀" * 9, "a"), bytelevel(), strategy=strategy, max_tokens=6, context="title")


def test_many_titles_need_few_splitters() -> None:
    """Each copies the tokenizer; texts with titles of all lengths share them."""
    cut = chunker(wordpiece(), max_tokens=320, context="title")
    documents = [Document(str(n), "the cat sat. " * 99, "late " * n) for n in range(200)]

    cut.chunk_documents(documents)

    assert isinstance(cut._splitter, SemanticSplitter)
    assert cut._splitter._splitter.cache_info().misses <= 10


def test_the_table_holds_the_context_and_counts_the_cut_ones(tmp_path: Path) -> None:
    path = tmp_path / "chunks.parquet"
    documents = [
        Document("long", "A dog is late. " * 9, "the cat sat on the mat " * 4),
        Document("short", "A dog is late. " * 9, "cat"),
    ]
    cut = chunker(wordpiece(), max_tokens=16, context="title")

    summary = write_chunks(documents, cut, path)

    expected = [part for document in documents for part in cut.chunk_document(document)]
    assert list(read_chunks(path)) == expected
    n_cut = sum(part.doc_id == "long" for part in expected)
    assert summary.n_contexts_cut == n_cut > 0
    assert {part.context for part in expected} == {"the cat sat on the mat the cat", "cat"}
    keys = [row["content_key"] for row in read_rows(path, ["content_key"])]
    assert keys == [content_key(f"{part.context}\n\n{part.text}") for part in expected]
