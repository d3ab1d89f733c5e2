"""What A/B queries embed: questions, windows, and chunks turned around. Vectors are remembered by content."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError

if TYPE_CHECKING:
    from pipeline.encoders import Calibration, Encoder

Vectors = NDArray[np.float32]

# Beside the vector itself: the key, the array's own record, and its place in the dictionary.
_ENTRY_BYTES = 300


@dataclass(frozen=True, slots=True, eq=False)
class EncodedQuery:
    """A question and its vector.

    Attributes:
        vector: (dimension,).
        n_tokens: with prompt and special tokens, before any cut.
        truncated: whether the model saw only its beginning.
        seconds: what embedding took; its share, where it was one of many.
        batch_seconds: what embedding took all of them together: so long its answer waited for its vector.
    """

    text: str
    vector: Vectors
    n_tokens: int
    truncated: bool
    seconds: float
    batch_seconds: float


class VectorCache:
    """The vectors of the texts used last, up to a number of bytes. Any number of threads may use it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._vectors: OrderedDict[bytes, Vectors] = OrderedDict()
        self._n_bytes = 0
        self._lock = Lock()

    @property
    def n_bytes(self) -> int:
        """Bytes held now."""
        return self._n_bytes

    def get(self, key: bytes) -> Vectors | None:
        """The vector under a key, which thereby becomes the one used last."""
        with self._lock:
            vector = self._vectors.get(key)
            if vector is not None:
                self._vectors.move_to_end(key)
            return vector

    def put(self, key: bytes, vector: Vectors) -> None:
        """Keep a vector; those not used for longest make room."""
        vector = vector.copy()  # a row would keep its whole batch alive
        with self._lock:
            self._forget(key)
            self._vectors[key] = vector
            self._n_bytes += vector.nbytes + _ENTRY_BYTES
            while self._n_bytes > self._max_bytes:
                self._forget(next(iter(self._vectors)))

    def _forget(self, key: bytes) -> None:
        if key in self._vectors:
            self._n_bytes -= self._vectors.pop(key).nbytes + _ENTRY_BYTES


class QueryEmbedder:
    """An encoder as A/B queries use it.

    Attributes:
        encoder: may be shared, also between threads.
        cache: may be shared by everything that uses the same encoder.
    """

    def __init__(self, encoder: Encoder, cache: VectorCache) -> None:
        self.encoder = encoder
        self.cache = cache

    def queries(self, texts: Sequence[str]) -> list[EncodedQuery]:
        """Embed questions in one batch; those that are too long are cut, and say so.

        Raises:
            UsageError: an empty question.
        """
        if any(not text.strip() for text in texts):
            raise UsageError("the query is empty; ask in words")
        if not texts:
            return []
        started = time.perf_counter()
        lengths = [self.encoder.count_query_tokens(text) for text in texts]
        vectors = next(iter(self.encoder.encode_queries(texts, truncate=True).values()))
        seconds = time.perf_counter() - started
        longest = self.encoder.max_length
        return [
            EncodedQuery(text, vector, n_tokens, n_tokens > longest, seconds / len(texts), seconds)
            for text, vector, n_tokens in zip(texts, vectors, lengths, strict=True)
        ]

    def windows(self, texts: Sequence[str]) -> Vectors:
        """Embed parts of chunks plainly, as documents: (n, dimension)."""
        return self.documents(texts, None)

    def fit(self, texts: Sequence[str]) -> list[bool]:
        """Say of each text whether the model reads it whole."""
        prompt = self.encoder.document_prompt
        encodings = self.encoder.tokenizer.encode_batch([prompt + text for text in texts])
        return [len(encoding) <= self.encoder.max_length for encoding in encodings]

    def documents(self, texts: Sequence[str], calibration: Calibration | None) -> Vectors:
        """Embed texts as documents, (n, dimension); those already known cost nothing.

        Part of a chunk can have a token or two more alone than it has there: a text that thereby becomes too
        long is cut at its end.
        """
        keys = [_key(text, calibration) for text in texts]
        known = {key: self.cache.get(key) for key in keys}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if known[key] is None}
        if missing:
            made = self.encoder.encode(
                list(missing.values()),
                {"asked": calibration},
                prompt=self.encoder.document_prompt,
                truncate=True,
            )["asked"]
            for key, vector in zip(missing, made, strict=True):
                known[key] = vector
                self.cache.put(key, vector)
        found = [vector for vector in (known[key] for key in keys) if vector is not None]
        return np.stack(found) if found else np.empty((0, self.encoder.dimension), np.float32)


def _key(text: str, calibration: Calibration | None) -> bytes:
    return hashlib.blake2b(f"{calibration}\0{text}".encode(), digest_size=16).digest()
