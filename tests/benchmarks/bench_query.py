"""What explaining a query costs beside the query alone, over 100,000 chunks as long as the model reads.

    .venv/bin/python -m tests.benchmarks.bench_query [--chunks 100000] [--queries 10] [--cpu-time]

Chunks are drawn from the sentences of the built-in corpus, each numbered so that no text comes twice. Vectors
are random (embedding them all would take hours and change no timing); the second arm's are those of the first
with some noise, so that about as many documents move as in a real run. Everything that a query does is the
product's: encoding, search in two flat indexes, evidence, and a test for each document that moved.

Ratios are paired: each query's explanation beside the same query's encoding and search. With other work on
the machine, `--cpu-time` counts the processor's time instead of the clock's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import median

import numpy as np

from pipeline.ab import ABSearcher
from pipeline.ab.windows import sentence_spans
from pipeline.config import ArmSettings, CorpusSettings
from pipeline.corpus import open_corpus
from pipeline.encoders import Encoder
from pipeline.records import Document
from tests.benchmarks.build_from_vectors import publish
from tests.conftest import REPOSITORY

ARMS = {"plain": ArmSettings(strength=0.0), "calibrated": ArmSettings()}
QUERIES = REPOSITORY / "configs" / "python-docs.queries.jsonl"
WORDS_PER_CHUNK = 330
NOISE = 0.3
# Of what can be repeated the quickest of so many: other work only ever adds.
_REPEATS = 3


def sentences() -> list[str]:
    """The sentences of the built-in corpus, of ordinary length."""
    texts = [item.text for item in open_corpus(CorpusSettings()).read() if isinstance(item, Document)]
    found = [text[start:end] for text in texts for start, end in sentence_spans(text)]
    return [sentence for sentence in found if 5 <= len(sentence.split()) <= 40]


def chunk_texts(n_chunks: int) -> Iterator[str]:
    """Texts of about as many words as fit, no sentence twice."""
    numbered = enumerate(cycle(sentences()))
    for _ in range(n_chunks):
        parts: list[str] = []
        n_words = 0
        while n_words < WORDS_PER_CHUNK:
            number, sentence = next(numbered)
            parts.append(f"{number} {sentence}")
            n_words += len(sentence.split()) + 1
        yield " ".join(parts)


def open_searcher(folder: Path, n_chunks: int, encoder: Encoder) -> ABSearcher:
    """Publish the build and open it with an empty cache."""
    random = np.random.default_rng(0)
    plain = random.standard_normal((n_chunks, encoder.dimension), np.float32)
    other = plain + NOISE * random.standard_normal(plain.shape, np.float32)
    vectors = {
        name: rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for name, rows in (("plain", plain), ("calibrated", other))
    }
    texts = {f"document-{number}": text for number, text in enumerate(chunk_texts(n_chunks))}
    return ABSearcher.from_parts(publish(folder, texts, vectors, ARMS), encoder)


def measure(searcher: ABSearcher, queries: list[str], clock: Callable[[], float]) -> None:
    """Print medians over the queries, first asked and asked again."""
    searcher.search("warm up", k=10)
    figures: dict[str, list[float]] = {}
    for query in queries:
        row = _one(searcher, query, clock)
        for name, value in row.items():
            figures.setdefault(name, []).append(value)
    for name, values in figures.items():
        print(f"{name:<28}{median(values):>9.2f}   ({min(values):.2f} to {max(values):.2f})")
    print(f"{'cache, MiB':<28}{searcher.cache.n_bytes / 2**20:>9.2f}")


def _one(searcher: ABSearcher, query: str, clock: Callable[[], float]) -> dict[str, float]:
    encode = min(_ms(clock, lambda: searcher.encode([query])) for _ in range(_REPEATS))
    (encoded,) = searcher.encode([query])
    search = min(_ms(clock, lambda: searcher.search(encoded, k=10, explain=False)) for _ in range(_REPEATS))
    first = _ms(clock, lambda: searcher.search(encoded, k=10))
    again = min(_ms(clock, lambda: searcher.search(encoded, k=10)) for _ in range(_REPEATS))
    documents = searcher.search(encoded, k=10).documents
    return {
        "encode, ms": encode,
        "search both arms, ms": search,
        "documents shown": len(documents),
        "documents that moved": sum(document.explanation is not None for document in documents),
        "explain, first asked, ms": first - search,
        "explain, asked again, ms": again - search,
        "first asked / bare query": (first - search) / (encode + search),
        "asked again / bare query": (again - search) / (encode + search),
    }


def _ms(clock: Callable[[], float], work: Callable[[], object]) -> float:
    started = clock()
    work()
    return 1000 * (clock() - started)


def main() -> None:
    """Build, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--cpu-time", action="store_true", help="count processor time, not the clock's")
    arguments = parser.parse_args()
    lines = QUERIES.read_text(encoding="utf-8").splitlines()
    queries = [json.loads(line)["query"] for line in lines][: arguments.queries]
    encoder = Encoder.load("all-MiniLM-L6-v2", {"plain": None}, max_length=512)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        searcher = open_searcher(Path(folder), arguments.chunks, encoder)
        print(f"{arguments.chunks:,} chunks ready after {time.perf_counter() - started:.0f} s", flush=True)
        measure(searcher, queries, time.process_time if arguments.cpu_time else time.perf_counter)


if __name__ == "__main__":
    main()
