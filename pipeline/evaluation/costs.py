"""What a setting costs in time: embedding and asking.

Embedding is timed on a few documents, every kind of setting in turn and several times over, so that a slow
moment of the machine hits all alike; of each setting's ratio to plain in the same turn the median is kept.
Latency is that of one exact search in an index of the size that the chunk budget makes. Times differ from run
to run, everything else of a sweep does not; so they are kept apart from what is reproducible.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

import numpy as np

from indexes import IndexSpec, VectorIndex
from pipeline.config import Config
from pipeline.embedding.loading import as_calibration
from pipeline.evaluation.cutting import make_cutter
from pipeline.evaluation.datasets.records import EvaluationSet
from pipeline.evaluation.grid import Setting, only_plain
from pipeline.reporting import Reporter
from pipeline.run_model import RunModel

_DOCUMENTS_TIMED = 8
_TURNS = 5
_QUERIES_TIMED = 50
_DEPTH = 100

Key = TypeVar("Key", bound=Hashable)
_Kind = tuple[int | None, str | None]


@dataclass(frozen=True, slots=True)
class Timing:
    """What a setting takes.

    Attributes:
        embed_ratio: time to embed documents over that of the first setting (plain, the largest chunks).
        query_ms: median time of one exact search in one arm, milliseconds.
    """

    embed_ratio: float
    query_ms: float


def embed_ratios(
    settings: Sequence[Setting], data: EvaluationSet, config: Config, reporter: Reporter
) -> dict[str, float]:
    """Time the embedding of a few documents; settings that differ in basket or strength share a figure."""
    model = RunModel(only_plain(config), reporter)
    kinds: dict[_Kind, Setting] = {}
    for setting in settings:
        kinds.setdefault(_kind(setting), setting)
    work = {kind: _embedding(setting, data, config, model) for kind, setting in kinds.items()}
    with reporter.task("timing", (_TURNS + 1) * len(work), "runs") as advance:
        seconds = in_turn(work, turns=_TURNS, advance=advance)
    first = seconds[_kind(settings[0])]
    ratios = {
        kind: statistics.median(own / base for own, base in zip(taken, first, strict=True))
        for kind, taken in seconds.items()
    }
    return {setting.name: ratios[_kind(setting)] for setting in settings}


def query_milliseconds(sizes: Mapping[Key, tuple[int, int]]) -> dict[Key, float]:
    """Time one exact search in indexes of (n_vectors, dimension) random vectors."""
    generator = np.random.default_rng(0)
    median: dict[Key, float] = {}
    for key, (n_vectors, dimension) in sizes.items():
        vectors = generator.normal(size=(n_vectors, dimension)).astype(np.float32)
        index = VectorIndex.build(vectors, dim=dimension, spec=IndexSpec())
        queries = generator.normal(size=(_QUERIES_TIMED, dimension)).astype(np.float32)
        searches = {number: partial(index.search, query, _DEPTH) for number, query in enumerate(queries)}
        taken = in_turn(searches, turns=1)
        median[key] = 1000 * statistics.median(seconds for own in taken.values() for seconds in own)
    return median


def in_turn(
    work: Mapping[Key, Callable[[], object]],
    *,
    turns: int,
    advance: Callable[[int], None] = lambda _: None,
) -> dict[Key, list[float]]:
    """Do pieces of work one after the other, some turns over after one to warm up; return their seconds."""
    seconds: dict[Key, list[float]] = {key: [] for key in work}
    for turn in range(turns + 1):
        for key, run in work.items():
            begun = time.perf_counter()
            run()
            if turn > 0:
                seconds[key].append(time.perf_counter() - begun)
            advance(1)
    return seconds


def _kind(setting: Setting) -> _Kind:
    return setting.chunk_tokens, None if setting.is_plain else str(setting.calibration.layers)


def _embedding(
    setting: Setting, data: EvaluationSet, config: Config, model: RunModel
) -> Callable[[], object]:
    """Embed the chunks of the first documents under one setting."""
    changed = config.evaluate.model_copy(update={"chunk_tokens": setting.chunk_tokens})
    encoder = model.encoder
    cutter = make_cutter(
        config.model_copy(update={"evaluate": changed}),
        encoder.tokenizer,
        max_length=encoder.max_length,
        prompt=encoder.document_prompt,
    )
    documents = islice(data.documents(), _DOCUMENTS_TIMED)
    texts = [chunk.embedded_text for _, chunks in cutter.stream(documents) for chunk in chunks]
    arms = {setting.arm: as_calibration(setting.calibration)}
    return partial(encoder.encode, texts, arms, prompt=encoder.document_prompt)
