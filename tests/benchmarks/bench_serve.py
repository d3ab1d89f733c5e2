"""What the service costs: `make bench-serve` (some minutes; ARGS="--chunks 20000 --seconds 5" for less).

The chunk table is cut by the real pipeline from recombined paragraphs of the Python reference; the vectors
are random, because embedding so many chunks would take hours; questions are embedded by the real MiniLM. The
server is started as users start it. Bare is FAISS and the encoder alone, in this process, asked in turn with
the server, so that other work on the machine weighs on both alike. Processor time is printed beside wall
time: on a busy machine every change of threads waits its turn, and only the server changes threads.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow.parquet as pq

from indexes import BuildLayout, BuildStore, IndexSpec, VectorIndex
from pipeline.artifacts import BuildFiles, link_or_copy
from pipeline.config import load_config
from pipeline.corpus.builtin import PythonDocs
from pipeline.corpus.table import read_documents
from pipeline.encoders import Encoder
from pipeline.encoders.model_files import find_model, model_fingerprint
from pipeline.indexing import write_chunk_rows
from pipeline.records import Document
from pipeline.stages import Run, Stage
from tests.benchmarks.bench_encode import machine
from tests.conftest import REPOSITORY
from tests.pipeline.serving.servers import Server

K = 10
DEPTH = 100
GOAL = 15.0
WAYS: dict[str, dict[str, Any]] = {
    "one arm": {"arm": "calibrated"},
    "A/B, not explained": {"explain": False},
    "A/B, explained": {"explain": True},
}
STEPS = ("encode", "search", "explain")
# So many documents move as in a real run, not all of them.
NOISE = 0.3


@dataclass
class Sample:
    """The seconds of each request, and of each step within as the server tells them."""

    total: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=lambda: {step: [] for step in STEPS})

    def add(self, seconds: float, steps: dict[str, float]) -> None:
        """Note one request."""
        self.total.append(seconds)
        for step in STEPS:
            self.steps[step].append(steps.get(step, 0.0))

    def share(self, step: str) -> float:
        """The share of one step in the time of all requests, in percent."""
        return 100 * sum(self.steps[step]) / sum(self.total)


def texts(n_documents: int) -> Iterator[dict[str, str]]:
    """Documents of twenty paragraphs each, drawn from the Python reference."""
    paragraphs = [
        paragraph
        for _, document in PythonDocs().read()
        if isinstance(document, Document)
        for paragraph in document.text.split("\n\n")
        if 200 < len(paragraph) < 1200
    ]
    draw = random.Random(0)  # noqa: S311
    for number in range(n_documents):
        text = "\n\n".join(f"{number}. {draw.choice(paragraphs)}" for _ in range(20))
        yield {"id": f"d{number}", "title": f"Document {number}", "text": text}


def prepared_run(folder: Path, n_chunks: int) -> Path:
    """Cut so many chunks, and publish a build over random vectors."""
    corpus = folder / "corpus.jsonl"
    with corpus.open("w", encoding="utf-8") as file:
        for record in texts(n_chunks // 20):  # about 20 chunks come of each
            file.write(json.dumps(record) + "\n")
    settings = {"run": str(folder / "run"), "corpus.source": str(corpus), "chunk.max_tokens": 128}
    run = Run(load_config(None, settings))
    run.upto(Stage.CHUNK)
    publish(run)
    return folder / "run"


def publish(run: Run) -> None:
    """Publish a build whose vectors are random."""
    n_rows = int(pq.read_metadata(run.layout.chunks).num_rows)
    draw = np.random.default_rng(0)
    plain = _unit(draw.standard_normal((n_rows, 384), np.float32))
    other = _unit(plain + NOISE * _unit(draw.standard_normal((n_rows, 384), np.float32)))

    def write(staging: Path) -> None:
        layout = BuildLayout(staging)
        write_chunk_rows(run.layout.chunks, layout.rows)
        for arm, vectors in (("plain", plain), ("calibrated", other)):
            VectorIndex.build(vectors, dim=384, spec=IndexSpec()).save(layout.arm_index(arm))
        link_or_copy(run.layout.chunks, BuildFiles(staging).chunks)
        link_or_copy(run.layout.documents, BuildFiles(staging).documents)

    manifest = {
        "fingerprint": "benchmark",
        "model": run.config.model.model_dump(),
        "model_fingerprint": model_fingerprint(find_model(run.config.model.name)),
        "arms": {name: arm.model_dump() for name, arm in run.config.arms.items()},
        "documents": sum(1 for _ in read_documents(run.layout.documents)),
        "source": "recombined paragraphs, random vectors",
    }
    BuildStore(run.layout.root).publish(
        write, arms=["plain", "calibrated"], n_rows=n_rows, dim=384, manifest=manifest
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


class Bare:
    """FAISS and the encoder, and nothing else."""

    def __init__(self, run: Path) -> None:
        build = BuildStore(run).current()
        self._encoder = Encoder.load("all-MiniLM-L6-v2", {"plain": None}, max_length=512)
        self._indexes = {
            arm: faiss.read_index(str(build.layout.arm_index(arm))) for arm in ("plain", "calibrated")
        }

    def ask(self, question: str, arms: Sequence[str]) -> None:
        """Embed and search: k for one arm alone; as deep as ranks are looked up for a comparison."""
        vector = self._encoder.encode_queries([question])["plain"]
        for arm in arms:
            self._indexes[arm].search(vector, K if len(arms) == 1 else DEPTH)


def client(server: Server, way: dict[str, Any]) -> Callable[[str], dict[str, float]]:
    """Something that asks over one connection, and returns the seconds of each step."""
    connection: http.client.HTTPConnection = server.connect()

    def ask(question: str) -> dict[str, float]:
        body = json.dumps({"query": question, "k": K, **way})
        connection.request("POST", "/v1/query", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"the server answered {response.status}: {answer}")
        found = answer["ranking"] or answer["comparisons"][0]
        return dict(found["seconds"])

    return ask


@dataclass
class Pair:
    """The server's requests and the bare ones, asked in turn; processor seconds of both in all."""

    served: Sample = field(default_factory=Sample)
    bare: list[float] = field(default_factory=list)
    served_cpu: float = 0.0
    bare_cpu: float = 0.0

    @property
    def overhead(self) -> float:
        """By how much the median of the server's requests lies above that of the bare ones, in percent."""
        return 100 * (statistics.median(self.served.total) / statistics.median(self.bare) - 1)

    @property
    def cpu_overhead(self) -> float:
        """The same in processor time, of the means."""
        return 100 * (self.served_cpu / self.bare_cpu - 1)


def paired(server: Server, bare: Bare, way: dict[str, Any], questions: Iterator[str], seconds: float) -> Pair:
    """Ask the server and the bare parts in turn."""
    ask, pair = client(server, way), Pair()
    arms = ["calibrated"] if "arm" in way else ["plain", "calibrated"]
    for _ in range(8):
        ask(next(questions))
        bare.ask(next(questions), arms)
    served_before, bare_before = cpu_seconds(server), time.process_time()
    until, spent_asking = time.perf_counter() + seconds, 0.0
    while time.perf_counter() < until or len(pair.bare) < 10:
        question = next(questions)
        started, cpu_started = time.perf_counter(), time.process_time()
        steps = ask(question)
        between, cpu_between = time.perf_counter(), time.process_time()
        pair.served.add(between - started, steps)
        spent_asking += cpu_between - cpu_started
        bare.ask(question, arms)
        pair.bare.append(time.perf_counter() - between)
    pair.served_cpu = cpu_seconds(server) - served_before
    pair.bare_cpu = time.process_time() - bare_before - spent_asking
    return pair


def cpu_seconds(server: Server) -> float:
    """The processor time that the server has used; Linux only."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def together(
    server: Server, way: dict[str, Any], questions: Iterator[str], n_clients: int, seconds: float
) -> tuple[Sample, float]:
    """Ask with several clients at once; return the sample and the requests per second."""
    sample, lock, started = Sample(), threading.Lock(), time.perf_counter()

    def work() -> None:
        ask = client(server, way)
        while time.perf_counter() < started + seconds:
            with lock:
                question = next(questions)
            begun = time.perf_counter()
            steps = ask(question)
            with lock:
                sample.add(time.perf_counter() - begun, steps)

    threads = [threading.Thread(target=work) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sample, len(sample.total) / (time.perf_counter() - started)


def endless_questions() -> Iterator[str]:
    """The questions of the built-in corpus, each time a little different."""
    lines = (REPOSITORY / "configs" / "python-docs.queries.jsonl").read_text("utf-8").splitlines()
    asked = [json.loads(line)["query"] for line in lines]
    number = 0
    while True:
        yield f"{asked[number % len(asked)]} ({number})"
        number += 1


HEAD = f"{'':<20} clients      p50        p95   req/s   encode   search  explain  over bare   in CPU time"


def line(name: str, n_clients: int, sample: Sample, rest: str = "", rate: float | None = None) -> str:
    """One row of the table."""
    p50, p95 = (1000 * float(np.percentile(sample.total, share)) for share in (50, 95))
    shares = " ".join(f"{sample.share(step):>6.0f} %" for step in STEPS)
    speed = f"{rate:>7.1f}" if rate is not None else " " * 7
    return f"{name:<20} {n_clients:>7} {p50:>5.1f} ms {p95:>7.1f} ms {speed} {shares} {rest}"


def rows(
    name: str, way: dict[str, Any], server: Server, bare: Bare, options: argparse.Namespace
) -> Iterator[str]:
    """Measure one way to ask."""
    questions = endless_questions()
    pair = paired(server, bare, way, questions, options.seconds)
    verdict = "  MISSED" if pair.overhead > GOAL else ""
    over = f"{pair.overhead:>+8.1f} % {pair.cpu_overhead:>+10.1f} %{verdict}"
    yield line(name, 1, pair.served, "" if way.get("explain") else over)
    p50, p95 = (1000 * float(np.percentile(pair.bare, share)) for share in (50, 95))
    yield f"{'  bare, in turn':<20} {1:>7} {p50:>5.1f} ms {p95:>7.1f} ms"
    sample, rate = together(server, way, questions, options.clients, options.seconds)
    yield line(name, options.clients, sample, rate=rate)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000, help="about so many")
    parser.add_argument("--clients", type=int, default=8, help="at once, for the requests per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    parser.add_argument("--keep", type=Path, help="where to prepare the run, and to find it the next time")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        is_there = (folder / "run" / "current").is_file()
        run = folder / "run" if is_there else prepared_run(folder, options.chunks)
        server = Server(run, "--set=serve.drain_seconds=0", "--set=serve.timeout_seconds=600")
        try:
            bare = Bare(run)
            n_chunks = BuildStore(run).current().manifest.n_rows
            print(f"{n_chunks} chunks, k = {K}, {options.seconds:g} s a row\n{HEAD}")
            for name, way in WAYS.items():
                for row in rows(name, way, server, bare, options):
                    print(row, flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
