"""What the service counts, for Prometheus: all of it in a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The metrics of one service."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter(
            "lastpage_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "lastpage_request_seconds", "Time to an answer.", ["route"], buckets=_SECONDS, registry=registry
        )
        self.step_seconds = Histogram(
            "lastpage_step_seconds",
            "Time of one step of a query: wait (to be embedded), encode (its whole batch), search, explain; "
            "or of embed.",
            ["step"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.queries_per_batch = Histogram(
            "lastpage_encode_batch_queries",
            "Queries embedded together.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self.queue = Gauge(
            "lastpage_queue", "Requests at work or waiting, by kind.", ["kind"], registry=registry
        )
        self.refused = Counter(
            "lastpage_refused", "Requests refused because the queue was full.", ["kind"], registry=registry
        )
        self.build = Gauge(
            "lastpage_build", "1 for the build that serves now.", ["build_id", "model"], registry=registry
        )
        self.build_documents = Gauge(
            "lastpage_build_documents", "Documents in the build that serves now.", registry=registry
        )
        self.builds_opened = Counter(
            "lastpage_builds_opened", "Builds taken into service.", registry=registry
        )
        self.builds_failed = Counter(
            "lastpage_builds_failed", "New builds that could not be opened.", registry=registry
        )

    def observe_steps(self, seconds: dict[str, float]) -> None:
        """Note the time of each step of one query."""
        for step, duration in seconds.items():
            self.step_seconds.labels(step).observe(duration)

    def serve_build(self, build_id: str, *, model: str, n_documents: int) -> None:
        """Note which build serves from now on."""
        self.build.clear()
        self.build.labels(build_id, model).set(1)
        self.build_documents.set(n_documents)
        self.builds_opened.inc()

    def text(self) -> bytes:
        """All of them, in the format that Prometheus reads."""
        return generate_latest(self._registry)
