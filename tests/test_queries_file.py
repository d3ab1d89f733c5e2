"""The query file of the built-in corpus: every answer stands where it says it does."""

from __future__ import annotations

import json
import sys
from pydoc_data.topics import topics
from typing import Any

import pytest

from pipeline.chunking import Chunker
from pipeline.config import ChunkSettings
from pipeline.records import Document
from tests.conftest import REPOSITORY

LINES = (REPOSITORY / "configs" / "python-docs.queries.jsonl").read_text(encoding="utf-8").splitlines()
QUERIES: list[dict[str, Any]] = [json.loads(line) for line in LINES]

# The spans are those of Python 3.11; other versions word some topics differently.
ON_3_11 = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="spans are those of Python 3.11's topics"
)


@ON_3_11
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query["query_id"])
def test_answer_is_the_span_and_unique_in_its_document(query: dict[str, Any]) -> None:
    text = topics[query["doc_id"]]
    assert text[query["start"] : query["end"]] == query["answer"]
    assert text.count(query["answer"]) == 1


def test_ids_are_unique_and_many() -> None:
    assert len({query["query_id"] for query in QUERIES}) == len(QUERIES) >= 30
    assert len({query["query"] for query in QUERIES}) == len(QUERIES)


@ON_3_11
def test_answers_stand_early_middle_and_late_in_their_chunks() -> None:
    from pipeline.encoders.loading import load_model
    from pipeline.encoders.model_files import find_model

    loaded = load_model(find_model("all-MiniLM-L6-v2"), max_length=512)
    chunker = Chunker(loaded.tokenizer, ChunkSettings(), max_length=512)
    thirds = [0, 0, 0]
    for query in QUERIES:
        chunks = chunker.chunk_document(Document(query["doc_id"], topics[query["doc_id"]]))
        (chunk,) = [chunk for chunk in chunks if chunk.start <= query["start"] and query["end"] <= chunk.end]
        middle = (query["start"] + query["end"]) / 2
        thirds[int(3 * (middle - chunk.start) / len(chunk.text))] += 1
    assert min(thirds) >= 14, thirds
