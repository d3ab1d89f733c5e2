"""Segments and documents through the encoder: how much of each segment is in the document's vector.

The yardstick is the same for every arm: the segment embedded alone and plainly, as a query would be.

- sigma, positional fairness: the cosine between a document's vector and a segment's.
- tau, information retention: the cosine between a segment alone and the same segment inside the document,
  both pooled over the segment's own contextual tokens (late chunking, arXiv:2409.04701), without special
  tokens. CLS and last-token pooling have no row for a part, so the mean of its tokens stands for it on both
  sides; the pooled row itself is what sigma looks at.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.diagnostics.cache import ArrayCache, Arrays
from pipeline.diagnostics.permutations import PermutedDocument
from pipeline.encoders.contextual import Observation, Part, widened
from pipeline.reporting import Reporter

Vectors = NDArray[np.float32]
Item = TypeVar("Item")

_SEGMENTS_AT_ONCE = 256
_DOCUMENTS_AT_ONCE = 96
_WATCHED_AT_ONCE = 24


class DocumentEncoder(Protocol):
    """What a diagnosis asks of an encoder; `pipeline.encoders.contextual.ContextualEncoder` has it."""

    max_length: int

    @property
    def arms(self) -> Mapping[str, Any]:
        """The names of the arms, the plain one first."""
        ...

    @property
    def fewest_tokens(self) -> int:
        """Texts of fewer tokens are embedded plainly in every arm."""
        ...

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a document as it is embedded."""
        ...

    def observe(
        self,
        texts: Sequence[str],
        parts: Sequence[Sequence[Part]],
        *,
        attention: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Observation]:
        """Embed documents and their parts with every arm in one pass."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """Embed queries, plainly in every arm."""
        ...


@dataclass(frozen=True, slots=True)
class TextVectors:
    """Texts embedded alone.

    Attributes:
        row: of each text.
        vectors: (arms, texts, dimension).
        pooled: (texts, dimension), plainly, pooled over the text's own tokens.
    """

    row: Mapping[str, int]
    vectors: Vectors
    pooled: Vectors


@dataclass(frozen=True, slots=True)
class WatchedAttention:
    """Where the pooled rows of some documents look.

    Attributes:
        documents: which of the documents, ascending.
        first, last, front_loading: (arms, documents, layers, head groups).
        baskets: (arms, documents, layers, head groups, baskets), NaN where a document has none.
        (What each is: `pipeline.encoders.contextual.Attention`.)
    """

    documents: NDArray[np.intp]
    first: Vectors
    last: Vectors
    baskets: Vectors
    front_loading: Vectors


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds that the encoder took, whenever it was; attention is timed apart."""

    documents: int
    seconds: float
    watched_documents: int
    watched_seconds: float

    @property
    def per_thousand(self) -> float | None:
        """Seconds for 1,000 documents with all arms."""
        return 1000 * self.seconds / self.documents if self.documents else None

    @property
    def per_thousand_watched(self) -> float | None:
        """The same with attention."""
        return 1000 * self.watched_seconds / self.watched_documents if self.watched_documents else None


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured on the documents.

    Attributes:
        arms: their names, plain first.
        sigma, tau: (arms, documents, places).
        fidelity: (arms, documents), cosine between an arm's vector of a document and the plain one.
        attention: of some documents; None if of none.
        cost: of all this.
    """

    arms: tuple[str, ...]
    sigma: Vectors
    tau: Vectors
    fidelity: Vectors
    attention: WatchedAttention | None
    cost: Cost


def embed_alone(
    encoder: DocumentEncoder, texts: Sequence[str], cache: ArrayCache, reporter: Reporter, *, label: str
) -> TextVectors:
    """Embed each distinct text by itself with every arm, from the cache where it is there."""
    distinct = sorted(dict.fromkeys(texts), key=len)
    shards = []
    with reporter.task(label, len(distinct), "texts") as advance:
        for block in _blocks(distinct, _SEGMENTS_AT_ONCE):
            step = _Steps(advance)
            shards.append(cache.get(["alone", block], partial(_alone, encoder, block, step)))
            step.finish(len(block))
    return TextVectors(
        {text: number for number, text in enumerate(distinct)},
        np.concatenate([shard["vectors"] for shard in shards], axis=1),
        np.concatenate([shard["pooled"] for shard in shards]),
    )


def measure(
    encoder: DocumentEncoder,
    documents: Sequence[PermutedDocument],
    segments: TextVectors,
    cache: ArrayCache,
    reporter: Reporter,
    *,
    watched: int = 0,
    seed: int = 0,
) -> Measurements:
    """Measure every document, with its attention for `watched` of them; from the cache where it is there.

    Raises:
        DataError: a document is too long, or a vector comes out non-finite or zero.
    """
    drawn = random.Random(seed).sample(range(len(documents)), min(watched, len(documents)))  # noqa: S311
    watch = set(drawn)
    rest = [number for number in range(len(documents)) if number not in watch]
    work = [(True, block) for block in _blocks(sorted(watch), _WATCHED_AT_ONCE)]
    work += [(False, block) for block in _blocks(rest, _DOCUMENTS_AT_ONCE)]
    shards: list[tuple[bool, list[int], Arrays]] = []
    with reporter.task("documents", len(documents), "documents") as advance:
        for attention, block in work:
            chosen = [documents[number] for number in block]
            key = ["documents", attention, [[each.text, each.parts] for each in chosen]]
            step = _Steps(advance)
            compute = partial(_measured, encoder, chosen, segments, attention, step)
            shards.append((attention, block, cache.get(key, compute)))
            step.finish(len(block))
    return _joined(tuple(encoder.arms), shards)


def cosine(left: Vectors, right: Vectors) -> Vectors:
    """Cosine along the last dimension, broadcasting the others."""
    norms = np.linalg.norm(left, axis=-1) * np.linalg.norm(right, axis=-1)
    clipped: Vectors = np.clip((left * right).sum(axis=-1) / norms, -1.0, 1.0)  # rounding can exceed 1
    return clipped


class _Steps:
    """Progress within a block that may as well come from the cache, all at once."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance
        self._done = 0

    def __call__(self, n_texts: int, _: int) -> None:
        self._advance(n_texts)
        self._done += n_texts

    def finish(self, n_texts: int) -> None:
        self._advance(n_texts - self._done)


def _alone(encoder: DocumentEncoder, texts: Sequence[str], step: _Steps) -> Arrays:
    seen = list(encoder.observe(texts, [[(0, len(text))] for text in texts], progress=step).values())
    return {"vectors": np.stack([each.vectors for each in seen]), "pooled": seen[0].parts[:, 0]}


def _measured(
    encoder: DocumentEncoder,
    documents: Sequence[PermutedDocument],
    segments: TextVectors,
    attention: bool,
    step: _Steps,
) -> Arrays:
    started = time.perf_counter()
    seen = list(
        encoder.observe(
            [document.text for document in documents],
            [document.parts for document in documents],
            attention=attention,
            progress=step,
        ).values()
    )
    seconds = time.perf_counter() - started
    rows = np.array([[segments.row[segment.text] for segment in document.segments] for document in documents])
    alone, alone_pooled = segments.vectors[0][rows], segments.pooled[rows]
    arrays: Arrays = {
        "sigma": np.stack([cosine(each.vectors[:, None], alone) for each in seen]),
        "tau": np.stack([cosine(each.parts, alone_pooled) for each in seen]),
        "fidelity": np.stack([cosine(each.vectors, seen[0].vectors) for each in seen]),
        "seconds": np.array(seconds),
    }
    for name in _attention_names() if attention else ():
        arrays[name] = np.stack([getattr(each.attention, name) for each in seen])
    return arrays


def _joined(arms: tuple[str, ...], shards: Sequence[tuple[bool, list[int], Arrays]]) -> Measurements:
    order = np.argsort(np.concatenate([block for _, block, _ in shards]))

    def whole(name: str) -> Vectors:
        return np.concatenate([arrays[name] for _, _, arrays in shards], axis=1)[:, order]

    def cost_of(attention: bool) -> tuple[int, float]:
        own = [(len(block), float(arrays["seconds"])) for kind, block, arrays in shards if kind is attention]
        return sum(count for count, _ in own), sum(seconds for _, seconds in own)

    watched = [(block, arrays) for attention, block, arrays in shards if attention]
    return Measurements(
        arms=arms,
        sigma=whole("sigma"),
        tau=whole("tau"),
        fidelity=whole("fidelity"),
        attention=_joined_attention(watched) if watched else None,
        cost=Cost(*cost_of(False), *cost_of(True)),
    )


def _joined_attention(shards: Sequence[tuple[list[int], Arrays]]) -> WatchedAttention:
    most = max(arrays["baskets"].shape[-1] for _, arrays in shards)
    whole = {
        name: np.concatenate([arrays[name] for _, arrays in shards], axis=1)
        for name in _attention_names()
        if name != "baskets"
    }
    baskets = [widened(arrays["baskets"], most) for _, arrays in shards]
    documents = np.concatenate([np.array(block) for block, _ in shards])
    return WatchedAttention(documents, baskets=np.concatenate(baskets, axis=1), **whole)


def _attention_names() -> list[str]:
    return [field.name for field in fields(WatchedAttention) if field.name != "documents"]


def _blocks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
