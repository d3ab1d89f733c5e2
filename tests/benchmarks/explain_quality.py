"""Measure evidence and verdict against known answers.

    .venv/bin/python -m tests.benchmarks.explain_quality evidence ../shared/data
    .venv/bin/python -m tests.benchmarks.explain_quality verdict ../shared/data

`evidence`: the share of questions whose gold answer overlaps the evidence span of the gold document, beside
two baselines: the document's first window of two sentences, and the window of two sentences that BM25 ranks
first. Whatever was chosen was chosen on half A of the questions; half B is the measurement.

`verdict`: see `tests/benchmarks/explain_verdict.py`.

Questions fall into halves by the hash of their id, so that all places of one answer are in the same half.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pyarrow.parquet as pq

from pipeline.ab.embedder import QueryEmbedder, VectorCache
from pipeline.ab.evidence import Passage, Question, find_evidence
from pipeline.ab.windows import Span, sentence_spans
from pipeline.chunking import Chunker
from pipeline.config import ChunkSettings, ExplainSettings
from pipeline.encoders import Encoder
from pipeline.records import Document

Row = dict[str, Any]
_BATCH = 64


@dataclass(frozen=True)
class Labelled:
    """A question, the text in which its answer stands, and where."""

    question_id: str
    question: str
    text: str
    answer: Span


def half_of(question_id: str) -> str:
    """Half A chooses, half B is measured."""
    return "AB"[int(hashlib.sha256(str(question_id).encode()).hexdigest(), 16) % 2]


def xquad(data: Path) -> list[Labelled]:
    """English documents of five paragraphs, in their own order."""
    return _labelled(data / "xquad_posq", ".en", [("shift", "=", 0)])


def covidqa(data: Path) -> list[Labelled]:
    """Windows of about 300 words; each answer stands once in every fifth of its window."""
    return _labelled(data / "covidqa_phase_w300", "", None)


def _labelled(folder: Path, language: str, filters: list[tuple[str, str, int]] | None) -> list[Labelled]:
    corpus = pq.read_table(folder / f"corpus{language}.parquet", columns=["_id", "text"]).to_pylist()
    texts = {row["_id"]: row["text"] for row in corpus}
    queries = pq.read_table(folder / f"queries{language}.parquet", filters=filters).to_pylist()
    return [
        Labelled(row["question_id"], row["text"], texts[row["gold_doc"]], tuple(row["pos_char_span"]))
        for row in queries
    ]


def in_chunks(labelled: Sequence[Labelled], encoder: Encoder) -> list[Labelled]:
    """The same with the chunk that holds the answer's beginning in place of the document."""
    chunker = Chunker(encoder.tokenizer, ChunkSettings(), max_length=encoder.max_length, prompt="")
    texts = list(dict.fromkeys(one.text for one in labelled))
    chunks = dict(zip(texts, chunker.chunk_documents([Document(text, text) for text in texts]), strict=True))
    return [
        _in_chunk(one, chunk.start, chunk.text)
        for one in labelled
        for chunk in chunks[one.text]
        if chunk.start <= one.answer[0] < chunk.end
    ]


def _in_chunk(one: Labelled, start: int, text: str) -> Labelled:
    answer = one.answer[0] - start, min(one.answer[1] - start, len(text))
    return Labelled(one.question_id, one.question, text, answer)


# -- the three ways to choose a window -----------------------------------------------------------------


def pairs_of(text: str) -> list[Span]:
    """Windows of two sentences; the only sentence, where there is one only."""
    sentences = sentence_spans(text)
    return [(first[0], second[1]) for first, second in pairwise(sentences)] or list(sentences)


def first_windows(labelled: Sequence[Labelled]) -> Iterator[Span]:
    """The first two sentences."""
    for one in labelled:
        yield pairs_of(one.text)[0]


def bm25_windows(labelled: Sequence[Labelled]) -> Iterator[Span]:
    """The two sentences that BM25 ranks first among all such windows of the text."""
    ranked: dict[str, tuple[list[Span], bm25s.BM25]] = {}
    for one in labelled:
        if one.text not in ranked:
            windows = pairs_of(one.text)
            index = bm25s.BM25()
            words = [_words(one.text[start:end]) for start, end in windows]
            index.index(words, show_progress=False)
            ranked[one.text] = windows, index
        windows, index = ranked[one.text]
        known = [word for word in _words(one.question) if word in index.vocab_dict]
        yield windows[int(np.argmax(index.get_scores(known)))] if known else windows[0]


def evidence_windows(labelled: Sequence[Labelled], embedder: QueryEmbedder) -> Iterator[Span]:
    """What the product shows."""
    weight = ExplainSettings().lexical_weight
    for start in range(0, len(labelled), _BATCH):
        batch = labelled[start : start + _BATCH]
        for one, encoded in zip(batch, embedder.queries([one.question for one in batch]), strict=True):
            question = Question(one.question, encoded.vector)
            passage = Passage(one.text, 0, len(one.text))
            (found,) = find_evidence(question, [passage], embedder.windows, lexical_weight=weight)
            assert found is not None
            yield found.start, found.end


def _words(text: str) -> list[str]:
    (words,) = bm25s.tokenize([text], return_ids=False, show_progress=False, stopwords=None)
    return list(words)


# -- figures -------------------------------------------------------------------------------------------


def measure_evidence(data: Path) -> None:
    """Print one row a set and way of choosing."""
    encoder = Encoder.load("all-MiniLM-L6-v2", {"plain": None}, max_length=512)
    embedder = QueryEmbedder(encoder, VectorCache(2**30))
    sets = {
        "xquad_posq, whole documents": xquad(data),
        "xquad_posq, chunks of 512": in_chunks(xquad(data), encoder),
        "covidqa_phase_w300": covidqa(data),
    }
    ways: dict[str, Callable[[Sequence[Labelled]], Iterator[Span]]] = {
        "first window": first_windows,
        "BM25-best window": bm25_windows,
        "evidence": lambda labelled: evidence_windows(labelled, embedder),
    }
    print(
        f"{'set':<30} {'way':<18} {'half A':>7} {'half B':>7} {'all':>7} {'questions':>10} {'characters':>11}"
    )
    for name, labelled in sets.items():
        for way, choose in ways.items():
            spans = list(choose(labelled))
            hits = np.array([_overlap(span, one.answer) for span, one in zip(spans, labelled, strict=True)])
            halves = np.array([half_of(one.question_id) for one in labelled])
            shares = [hits[halves == half].mean() for half in "AB"] + [hits.mean()]
            length = np.mean([end - start for start, end in spans])
            print(
                f"{name:<30} {way:<18} "
                + " ".join(f"{share:7.3f}" for share in shares)
                + f" {len(labelled):>10,} {length:>11.0f}",
                flush=True,
            )


def _overlap(first: Span, second: Span) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["evidence", "verdict"])
    parser.add_argument("data", type=Path, help="the folder that holds xquad_posq and covidqa_phase_w300")
    parser.add_argument("--vectors", type=Path, help="verdict: keep the documents' vectors in this folder")
    parser.add_argument("--rows", type=Path, help="verdict: write the single verdicts into this folder")
    arguments = parser.parse_args()
    if arguments.what == "evidence":
        measure_evidence(arguments.data)
    else:
        from tests.benchmarks.explain_verdict import measure_verdict

        measure_verdict(arguments.data, arguments.vectors, arguments.rows)


if __name__ == "__main__":
    main()
