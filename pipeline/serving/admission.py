"""Refuse before working: no more requests at work or waiting than the queue holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.serving.metrics import Metrics
from pipeline.serving.problems import queue_full


class Admission:
    """Counts the requests of one kind. Used on the event loop only, so that it needs no lock."""

    def __init__(self, kind: str, limit: int, metrics: Metrics) -> None:
        """Allow `limit` requests of a `kind`, which metrics and refusals name."""
        self._kind = kind
        self._limit = limit
        self._metrics = metrics
        self._n_admitted = 0
        metrics.queue.labels(kind).set_function(lambda: self._n_admitted)

    @property
    def n_admitted(self) -> int:
        """Requests at work or waiting now."""
        return self._n_admitted

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Hold a place in the queue.

        Raises:
            Problem: the queue is full (429).
        """
        if self._n_admitted >= self._limit:
            self._metrics.refused.labels(self._kind).inc()
            raise queue_full(self._kind, self._limit)
        self._n_admitted += 1
        try:
            yield
        finally:
            self._n_admitted -= 1
