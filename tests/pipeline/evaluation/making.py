"""Tiny labelled data in every layout, small enough to compute by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import EvaluateSettings
from pipeline.evaluation.datasets import EvaluationSet, load_evaluation_set

Row = dict[str, Any]

# Three sentences of 20 characters each, with two spaces between: an answer in each third.
SENTENCES = ("the cat sat on a mat", "a dog is late hello.", "the river is blue e.")
ANSWERS = ("cat", "dog", "river")
QUESTIONS = ("cat sat", "dog late", "river blue")


def load(data: Path | str, **settings: Any) -> EvaluationSet:
    return load_evaluation_set(EvaluateSettings(data=str(data), **settings))


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    return path


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def document(doc_id: str, text: str, **columns: Any) -> Row:
    return {"_id": doc_id, "text": text, **columns}


def query(query_id: str, text: str, span: Sequence[int] | None, length: int | None, **columns: Any) -> Row:
    return {"_id": query_id, "text": text, "pos_char_span": span, "pos_char_length": length, **columns}


def qrel(query_id: str, doc_id: str, score: Any = 1) -> Row:
    return {"query-id": query_id, "corpus-id": doc_id, "score": score}


def posir(
    folder: Path, corpus: Sequence[Row], queries: Sequence[Row], qrels: Sequence[Row], *, ending: str = ""
) -> Path:
    """Write a set in PosIR's layout; with a language in the names if `ending` is one."""
    suffix = f".{ending}.parquet" if ending else ".parquet"
    for name, rows in (("corpus", corpus), ("queries", queries), ("qrels", qrels)):
        write_parquet(folder / f"{name}{suffix}", rows)
    return folder


def rotated(folder: Path, *, n_articles: int = 2, filler: str = "") -> Path:
    """Write articles of three sentences in all three rotations: each answer stands once in each third.

    Article n adds the word `alpha` n times, so that no two documents are equal.
    """
    corpus, queries, qrels = [], [], []
    for article in range(n_articles):
        for shift in range(3):
            order = [(shift + place) % 3 for place in range(3)]
            extra = " alpha" * article
            text = "  ".join(SENTENCES[place] for place in order) + extra + filler
            doc_id = f"a{article}-s{shift}"
            corpus.append(document(doc_id, text, article=f"a{article}", shift=shift))
            for place, sentence in enumerate(order):
                start = text.index(ANSWERS[sentence])
                query_id = f"q{article}{sentence}-s{shift}"
                queries.append(
                    query(
                        query_id,
                        QUESTIONS[sentence] + extra,
                        [start, start + len(ANSWERS[sentence])],
                        len(text),
                        question_id=f"q{article}{sentence}",
                        answer=ANSWERS[sentence],
                        paragraph_position=place,
                        article=f"a{article}",
                        shift=shift,
                    )
                )
                qrels.append(qrel(query_id, doc_id))
    return posir(folder, corpus, queries, qrels)
