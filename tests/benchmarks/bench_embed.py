"""What the embed stage costs beside its encoder: `make bench-embed` (a minute; ARGS=--quick for half of it).

The stage plans, reads the chunk table, encodes both arms with the real MiniLM and writes the shards. It is
compared with the bare encoder on the same texts, in paired, interleaved runs, and, which other work on the
machine disturbs less, with the time that it spends in its own calls of the encoder.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.config import load_config
from pipeline.corpus.table import read_documents
from pipeline.embedding.plan import read_pending
from pipeline.stages import Run, Stage
from tests.benchmarks.bench_encode import Line, Rounds, machine, ratio

GOAL = 1.05
MODEL = "MiniLM-L6, both arms"


class TimedEncoder:
    """An encoder that knows how long it was busy."""

    def __init__(self, encoder: Any, clock: Callable[[], float]) -> None:
        self._encoder = encoder
        self._clock = clock
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode_documents(self, *arguments: Any, **options: Any) -> Any:
        """Encode, and add up the time."""
        start = self._clock()
        vectors = self._encoder.encode_documents(*arguments, **options)
        self.seconds += self._clock() - start
        return vectors


def prepared_run(folder: Path, n_documents: int) -> Run:
    """Cut the first documents of the Python reference into chunks, as the default run does."""
    whole = Run(load_config(None, {"run": str(folder / "whole")}))
    whole.upto(Stage.CORPUS)
    corpus = folder / "docs.jsonl"
    with corpus.open("w", encoding="utf-8") as file:
        for document in itertools.islice(read_documents(whole.layout.documents), n_documents):
            file.write(json.dumps({"id": document.doc_id, "text": document.text}) + "\n")
    run = Run(load_config(None, {"run": str(folder / "run"), "corpus.source": str(corpus)}))
    run.upto(Stage.CHUNK)
    return run


def measure(run: Run, rounds: Rounds) -> Iterator[Line]:
    """Run the stage from nothing and the bare encoder in turn."""
    texts = [chunk.text for chunk in read_pending(run.layout.chunks)]
    bare, within = run._encoder, []

    def stage() -> None:
        shutil.rmtree(run.layout.all_vectors, ignore_errors=True)
        timed = TimedEncoder(bare, rounds.clock)
        vars(run)["_encoder"] = timed
        start = rounds.clock()
        made = run._embed().figures["vectors_made"]
        within.append((rounds.clock() - start) / timed.seconds)
        assert min(made.values()) > 0

    seconds = rounds.paired({"stage": stage, "encoder": lambda: bare.encode_documents(texts)})
    print(f"{len(texts)} chunks, {rounds.count} paired runs")
    yield Line("embed stage / bare encoder", MODEL, GOAL, ratio(seconds, "stage", "encoder"))
    yield Line("embed stage / its time in the encoder", MODEL, GOAL, within)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer documents and rounds")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time, on a busy machine")
    options = parser.parse_args()
    print(machine())
    n_documents, count = (6, 3) if options.quick else (8, 9)
    rounds = Rounds(count, time.process_time if options.cpu_time else time.perf_counter)
    with tempfile.TemporaryDirectory() as folder:
        for line in measure(prepared_run(Path(folder), n_documents), rounds):
            print(line)


if __name__ == "__main__":
    main()
