"""Build retrieval documents of three XQuAD paragraphs that a 512-token model reads whole.

    .venv/bin/python -m tests.benchmarks.xquad_three OUT

Reads the English set of five-paragraph documents beside the repository (see its README there) and writes
corpus, queries and qrels as Parquet to OUT. A document is three consecutive paragraphs of an article; it
comes in all three rotations (`shift` 0 to 2), so that each answer stands once in each third of the same
content, and is kept only if every rotation fits. Each shift is an index of its own.

The documents of an article overlap by one or two paragraphs, so that up to three hold the answer and only one
counts as right: scores are lower than retrieval is good, and tell positions apart well.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from pipeline.artifacts import atomic_path
from pipeline.encoders.model_files import find_model
from tests.conftest import SHARED

BREAK = "\n\n"
PARAGRAPHS = 3
MOST_TOKENS = 510  # 512 less two special tokens

Row = dict[str, Any]


def rotations(paragraphs: Sequence[str]) -> list[list[int]]:
    """The orders of the paragraphs, by shift: shift s begins with paragraph s."""
    n = len(paragraphs)
    return [[(shift + place) % n for place in range(n)] for shift in range(n)]


def three_of(article: Row, first: int, tokenizer: Tokenizer) -> list[Row]:
    """The documents of three paragraphs from `first` on, one a rotation; none if one is too long."""
    paragraphs = article["text"].split(BREAK)[first : first + PARAGRAPHS]
    rows = []
    for shift, order in enumerate(rotations(paragraphs)):
        text = BREAK.join(paragraphs[place] for place in order)
        rows.append(
            {
                "_id": f"{article['_id'].removesuffix('-s0')}-p{first}-s{shift}",
                "text": text,
                "title": article["title"],
                "article": article["article"],
                "shift": shift,
                "first": first,
                "n_tokens": len(tokenizer.encode(text, add_special_tokens=False)),
            }
        )
    return rows if all(row["n_tokens"] <= MOST_TOKENS for row in rows) else []


def questions_of(document: Row, article: Row, queries: Sequence[Row]) -> Iterator[Row]:
    """The questions whose answer stands in a document, each with its place there."""
    paragraphs = article["text"].split(BREAK)
    starts = [sum(len(text) + len(BREAK) for text in paragraphs[:place]) for place in range(len(paragraphs))]
    order = [document["first"] + place for place in rotations(paragraphs[:PARAGRAPHS])[document["shift"]]]
    for query in queries:
        if query["paragraph_position"] not in order:
            continue
        place = order.index(query["paragraph_position"])
        before = sum(len(paragraphs[other]) + len(BREAK) for other in order[:place])
        moved = before - starts[query["paragraph_position"]]
        start, end = (offset + moved for offset in query["pos_char_span"])
        assert document["text"][start:end] == query["answer"]
        question_id = f"{query['question_id']}-p{document['first']}"
        yield {
            "_id": f"{question_id}-s{document['shift']}",
            "text": query["text"],
            "pos_char_span": [start, end],
            "pos_char_length": len(document["text"]),
            "pos_token_length": document["n_tokens"],
            "gold_doc": document["_id"],
            "question_id": question_id,
            "answer": query["answer"],
            "shift": document["shift"],
            "paragraph_position": place,
            "article": document["article"],
        }


def build(out: Path) -> tuple[int, int]:
    """Write the set; return how many documents and query rows it has."""
    source = SHARED / "data" / "xquad_posq"
    tokenizer = Tokenizer.from_file(str(find_model("all-MiniLM-L6-v2") / "tokenizer.json"))
    tokenizer.no_truncation()
    by_article: dict[str, list[Row]] = {}
    for query in pq.read_table(source / "queries.en.parquet", filters=[("shift", "=", 0)]).to_pylist():
        by_article.setdefault(query["article"], []).append(query)
    corpus: list[Row] = []
    queries: list[Row] = []
    for article in pq.read_table(source / "corpus.en.parquet", filters=[("shift", "=", 0)]).to_pylist():
        for first in range(len(article["text"].split(BREAK)) - PARAGRAPHS + 1):
            for document in three_of(article, first, tokenizer):
                corpus.append(document)
                queries += questions_of(document, article, by_article[article["article"]])
    qrels = [{"query-id": query["_id"], "corpus-id": query["gold_doc"], "score": 1} for query in queries]
    for name, rows in (("corpus", corpus), ("queries", queries), ("qrels", qrels)):
        with atomic_path(out / f"{name}.en.parquet") as temporary:
            pq.write_table(pa.Table.from_pylist(rows), temporary)
    return len(corpus), len(queries)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    n_documents, n_queries = build(parser.parse_args().out)
    print(f"{n_documents} documents, {n_queries} query rows")
