"""What calibration costs: `make bench-encode`, or `python tests/benchmarks/bench_encode.py [--quick]`.

Prints one table of ratios, each the median over paired runs that are interleaved, so that other work on
the machine weighs on both sides alike. MiniLM is the real model; the others are random models of a
realistic shape (the time does not depend on the weights).
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import transformers
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedModel
from transformers.utils import logging

from pipeline.encoders import Calibration, Encoder, Pooling, load_model
from pipeline.encoders.attention import ATTENTION_NAME
from pipeline.encoders.loading import LoadedModel
from pipeline.encoders.model_files import find_model

TOKENS = 512
LONG = 8192
BATCH = 8
MEMORY_ROUNDS = 3
STRENGTHS = (0.0, 0.1, 0.25, 0.5, 0.6, 0.75, 1.0)
WORDS = ["the", "a", "river", "stone", "light", "answer", "late", "early", "page"]
ARMS = {"plain": None, "calibrated": Calibration()}


@dataclass(frozen=True)
class Line:
    """One ratio: what was measured, on which model, and the goal."""

    what: str
    model: str
    goal: float
    ratios: Sequence[float]

    @property
    def median(self) -> float:
        """The figure that the table shows."""
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        low, high = min(self.ratios), max(self.ratios)
        verdict = "" if self.median <= self.goal else "  MISSED"
        figures = f"{self.median:>6.3f}  {low:.3f}-{high:.3f}  {self.goal:>5.2f}{verdict}"
        return f"{self.what:<42} {self.model:<22} {figures}"


@dataclass(frozen=True)
class Rounds:
    """How often everything is run, and what counts as its time."""

    count: int
    clock: Callable[[], float] = time.perf_counter

    def paired(self, contestants: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
        """Run each contestant once a round, forwards and backwards in turn; return the seconds of each.

        A first round warms up and does not count.
        """
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(self.count + 1):
            for name in list(contestants)[:: -1 if number % 2 else 1]:
                start = self.clock()
                contestants[name]()
                if number:
                    seconds[name].append(self.clock() - start)
        return seconds


def ratio(seconds: dict[str, list[float]], name: str, base: str) -> list[float]:
    """Divide run by run."""
    return [one / other for one, other in zip(seconds[name], seconds[base], strict=True)]


def minilm(pooling: Pooling) -> LoadedModel:
    """The real all-MiniLM-L6-v2, 6 layers, 384 wide, at its full 512 positions."""
    loaded = load_model(find_model("all-MiniLM-L6-v2"), device="cpu", max_length=TOKENS)
    return replace(loaded, pooling=pooling)


def random_model(kind: str, pooling: Pooling, **config: int) -> LoadedModel:
    """A random model of a class, behind MiniLM's tokenizer."""
    values = {"vocab_size": 30522, "num_hidden_layers": 12, "pad_token_id": 0, **config}
    settings = getattr(transformers, f"{kind}Config")(**values)
    transformer: PreTrainedModel = getattr(transformers, f"{kind}Model")(settings)
    transformer.set_attn_implementation(ATTENTION_NAME)
    length = max(TOKENS, values.get("max_position_embeddings", 0))
    return replace(minilm(pooling), transformer=transformer.eval(), pooling=pooling, max_length=length)


def bert12(positions: int = TOKENS) -> LoadedModel:
    """12 layers, 384 wide: the shape of e5-small and MiniLM-L12."""
    return random_model(
        "Bert",
        Pooling.CLS,
        hidden_size=384,
        num_attention_heads=12,
        intermediate_size=1536,
        max_position_embeddings=positions,
    )


def qwen12() -> LoadedModel:
    """12 layers, 512 wide, grouped key heads: a small Qwen3-Embedding."""
    return random_model(
        "Qwen3",
        Pooling.LAST,
        hidden_size=512,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        intermediate_size=1536,
        max_position_embeddings=TOKENS,
    )


def texts_of(tokens: int, count: int) -> list[str]:
    """Texts of exactly `tokens` tokens, special ones included: one word is one token for MiniLM."""
    return [
        " ".join(WORDS[(number + place) % len(WORDS)] for place in range(tokens - 2))
        for number in range(count)
    ]


def measure_minilm(rounds: Rounds) -> Iterator[Line]:
    """Mean pooling, and our plain arm against sentence-transformers."""
    texts = texts_of(TOKENS, BATCH)
    theirs = SentenceTransformer(str(find_model("all-MiniLM-L6-v2")), device="cpu")
    theirs.max_seq_length = TOKENS
    for pooling in (Pooling.MEAN, Pooling.CLS):
        encoder = Encoder(minilm(pooling), ARMS)
        contestants = {**runs(encoder, texts), "theirs": lambda: theirs.encode(texts, batch_size=BATCH)}
        seconds = rounds.paired(contestants)
        name = f"MiniLM-L6, {pooling.value}"
        goals = (1.35, 1.95) if pooling is Pooling.MEAN else (1.02, 1.45)
        yield Line("plain / sentence-transformers encode", name, 1.00, ratio(seconds, "plain", "theirs"))
        yield Line("calibrated / plain", name, goals[0], ratio(seconds, "calibrated", "plain"))
        yield Line("both arms / plain", name, goals[1], ratio(seconds, "both", "plain"))


def measure_bert(rounds: Rounds) -> Iterator[Line]:
    """CLS pooling in 12 layers."""
    seconds = rounds.paired(runs(Encoder(bert12(), ARMS), texts_of(TOKENS, BATCH)))
    yield Line("calibrated / plain", "BERT 12 x 384, cls", 1.02, ratio(seconds, "calibrated", "plain"))
    yield Line("both arms / plain", "BERT 12 x 384, cls", 1.45, ratio(seconds, "both", "plain"))


def measure_qwen(rounds: Rounds) -> Iterator[Line]:
    """Last-token pooling of a causal model, two and seven arms."""
    texts = texts_of(TOKENS, BATCH)
    loaded = qwen12()
    sweep = Encoder(loaded, {f"strength {strength}": Calibration(strength) for strength in STRENGTHS})
    encoder = Encoder(loaded, ARMS)
    seconds = rounds.paired({**runs(encoder, texts), "seven": lambda: sweep.encode_documents(texts)})
    yield Line("calibrated / plain", "Qwen3 12 x 512, last", 1.02, ratio(seconds, "calibrated", "plain"))
    yield Line("both arms / plain", "Qwen3 12 x 512, last", 1.15, ratio(seconds, "both", "plain"))
    yield Line("seven strengths / plain", "Qwen3 12 x 512, last", 1.40, ratio(seconds, "seven", "plain"))


def runs(encoder: Encoder, texts: Sequence[str]) -> dict[str, Callable[[], object]]:
    """Each arm alone, and both in one pass."""
    return {
        "plain": lambda: encoder.encode_documents(texts, ["plain"]),
        "calibrated": lambda: encoder.encode_documents(texts, ["calibrated"]),
        "both": lambda: encoder.encode_documents(texts),
    }


def measure_memory(_: Rounds) -> Iterator[Line]:
    """Peak memory of a process that embeds one text of 8,192 tokens, in all and above the loaded model."""
    peaks: dict[str, list[float]] = {
        arm: [peak_in_process(arm) for _ in range(MEMORY_ROUNDS)] for arm in ("none", *ARMS)
    }
    used = {arm: [peak - statistics.median(peaks["none"]) for peak in peaks[arm]] for arm in ARMS}
    name = "BERT 12 x 384, cls"
    yield Line("peak memory, calibrated / plain, 8192", name, 1.05, ratio(peaks, "calibrated", "plain"))
    yield Line("  the same above the loaded model", name, 1.05, ratio(used, "calibrated", "plain"))


def peak_in_process(arm: str) -> float:
    """Run `embed_one_long_text` in a process of its own; return its peak in MiB."""
    command = [sys.executable, __file__, "--peak-of", arm]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def embed_one_long_text(arm: str) -> float:
    """Embed with one arm (or `none`: only load) and return this process's peak in MiB."""
    encoder = Encoder(bert12(LONG), {arm: ARMS.get(arm)})
    if arm in ARMS:
        encoder.encode_documents(texts_of(LONG, 1))
    return peak_of_this_process()


def peak_of_this_process() -> float:
    """MiB; on Linux a child inherits the `ru_maxrss` of its parent, so its own high-water mark is read."""
    status = Path("/proc/self/status")
    if status.is_file():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def machine() -> str:
    """Name the machine: the figures mean nothing without it."""
    model = platform.processor() or platform.machine()
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.is_file():
        names = [
            line.split(":", 1)[1].strip()
            for line in cpu_info.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return (
        f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads; "
        f"torch {torch.__version__}, transformers {transformers.__version__}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five rounds instead of eleven")
    parser.add_argument("--threads", type=int, help="torch threads; one is steadiest on a busy machine")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count processor time: steadier on a busy machine"
    )
    parser.add_argument("--peak-of", choices=["none", *ARMS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    logging.disable_progress_bar()
    if options.peak_of:
        print(embed_one_long_text(options.peak_of))
        return
    rounds = Rounds(5 if options.quick else 11, time.process_time if options.cpu_time else time.perf_counter)
    unit = "processor time" if options.cpu_time else "wall time"
    print(f"{machine()}\n{BATCH} texts of {TOKENS} tokens; medians of {rounds.count} paired runs, {unit}\n")
    print(f"{'':<42} {'model':<22} {'median':>6}  {'range':<11}  {'goal':>5}")
    for measure in (measure_minilm, measure_bert, measure_qwen, measure_memory):
        for line in measure(rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
