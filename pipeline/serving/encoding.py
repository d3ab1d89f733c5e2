"""One thread embeds for everyone: questions first, in batches; explanations in between, in small slices.

An encoder carries out one pass at a time, so that all passes queue up somewhere. Here they queue by urgency:
a question waits for at most the slice that is under way, however much others want to have explained.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from queue import PriorityQueue
from typing import Any, Generic, TypeVar

import numpy as np

from pipeline.ab.embedder import EncodedQuery
from pipeline.encoders.batching import token_batches
from pipeline.encoders.calibration import Calibration
from pipeline.encoders.encoder import Encoder, Progress, Vectors
from pipeline.encoders.loading import LoadedModel

Result = TypeVar("Result")

_URGENT, _PATIENT, _LAST = 0, 1, 2

# When the request that this thread works for is given up; a monotonic time, None is never.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


class DeadlinePassedError(Exception):
    """The request was given up while it was being worked on."""


class EncodingEndedError(Exception):
    """The encoding thread has ended: nobody was thought to need its model any more."""


@dataclass(order=True, slots=True)
class _Job(Generic[Result]):
    urgency: int
    number: int
    work: Callable[[], Result] = field(compare=False)
    future: Future[Result] = field(compare=False)


class EncodingThread:
    """Carries out jobs one after another: the urgent ones first, equal ones in their order."""

    def __init__(self) -> None:
        self._jobs: PriorityQueue[_Job[Any]] = PriorityQueue()
        self._numbers = itertools.count()
        self._is_closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="encode", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this very thread."""
        return threading.current_thread() is self._thread

    def run(self, work: Callable[[], Result], *, urgent: bool = False) -> Future[Result]:
        """Queue a job.

        Raises:
            EncodingEndedError: the thread was closed.
        """
        return self._put(_URGENT if urgent else _PATIENT, work)

    def close(self) -> None:
        """End the thread when all jobs that were queued are done, and those that they queue themselves."""
        with suppress(EncodingEndedError):
            self._put(_LAST, lambda: None)

    def _put(self, urgency: int, work: Callable[[], Result]) -> Future[Result]:
        job: _Job[Result] = _Job(urgency, next(self._numbers), work, Future())
        with self._closing:
            if self._is_closed and not self.is_current:
                # Nobody would carry it out, and whoever waits for it would wait for good.
                raise EncodingEndedError("the model has been replaced, and embeds no more")
            self._is_closed |= urgency == _LAST
            self._jobs.put(job)
        return job.future

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job.future.set_running_or_notify_cancel():
                try:
                    job.future.set_result(job.work())
                except BaseException as error:  # it belongs to whoever waits for the future
                    job.future.set_exception(error)
            if job.urgency == _LAST:
                return


class SharedEncoder(Encoder):
    """An encoder for many threads: each call is cut into slices of few tokens, which queue up patiently.

    A call from the encoding thread itself is carried out at once and whole. `progress` is called there.

    Raises:
        DeadlinePassedError: between two slices, if the request was given up meanwhile.
        EncodingEndedError: the thread was closed.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        arms: Mapping[str, Calibration | None],
        *,
        thread: EncodingThread,
        tokens_per_slice: int,
    ) -> None:
        super().__init__(loaded, arms, tokens_per_batch=tokens_per_slice)
        self.thread = thread

    def encode(
        self,
        texts: Sequence[str],
        arms: Mapping[str, Calibration | None],
        *,
        prompt: str = "",
        truncate: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, Vectors]:
        """Embed texts as `Encoder.encode` does, slice by slice."""
        if self.thread.is_current:
            return super().encode(texts, arms, prompt=prompt, truncate=truncate, progress=progress)
        out = {name: np.empty((len(texts), self.dimension), np.float32) for name in arms}
        lengths = [
            len(encoding) for encoding in self.tokenizer.encode_batch([prompt + text for text in texts])
        ]
        for slice_ in token_batches(lengths, self.tokens_per_batch):
            _check_deadline()
            part = [texts[index] for index in slice_]
            made = self.thread.run(
                partial(self.encode, part, arms, prompt=prompt, truncate=truncate, progress=progress)
            )
            for name, vectors in made.result().items():
                out[name][slice_] = vectors
        return out


def _check_deadline() -> None:
    limit = deadline.get()
    if limit is not None and time.monotonic() > limit:
        raise DeadlinePassedError


@dataclass(slots=True)
class _Waiting:
    text: str
    n_tokens: int
    future: Future[EncodedQuery]


class QueryBatcher:
    """Embeds questions that come at about the same time together."""

    def __init__(
        self,
        thread: EncodingThread,
        encode: Callable[[Sequence[str]], list[EncodedQuery]],
        *,
        wait_seconds: float,
        max_tokens: int,
        expected: Callable[[], int],
        on_batch: Callable[[int], object],
    ) -> None:
        """Batch the questions of one encoder.

        Args:
            thread: where it embeds.
            encode: questions to their vectors.
            wait_seconds: how long the first question of a batch waits for more.
            max_tokens: of a batch; a single longer question is alone in its batch.
            expected: how many requests are under way; when all of them are here, nobody waits.
            on_batch: told the size of each batch.
        """
        self._thread = thread
        self._encode = encode
        self._wait_seconds = wait_seconds
        self._max_tokens = max_tokens
        self._expected = expected
        self._on_batch = on_batch
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._is_scheduled = False

    def submit(self, text: str, n_tokens: int) -> Future[EncodedQuery]:
        """Queue a question of so many tokens."""
        question = _Waiting(text, n_tokens, Future())
        with self._changed:
            self._waiting.append(question)
            self._changed.notify()
            if not self._is_scheduled:
                self._is_scheduled = True
                self._thread.run(self._embed_waiting, urgent=True)
        return question.future

    def _embed_waiting(self) -> None:
        batch = self._next_batch()
        batch = [question for question in batch if question.future.set_running_or_notify_cancel()]
        if batch:
            self._on_batch(len(batch))
            self._embed(batch)

    def _next_batch(self) -> list[_Waiting]:
        last = time.monotonic() + self._wait_seconds
        with self._changed:
            while self._may_grow() and (left := last - time.monotonic()) > 0:
                self._changed.wait(left)
            n_taken = self._n_fitting()
            batch, self._waiting = self._waiting[:n_taken], self._waiting[n_taken:]
            self._is_scheduled = bool(self._waiting)
            if self._is_scheduled:
                self._thread.run(self._embed_waiting, urgent=True)
        return batch

    def _may_grow(self) -> bool:
        is_full = sum(question.n_tokens for question in self._waiting) >= self._max_tokens
        return not is_full and self._expected() > len(self._waiting)

    def _n_fitting(self) -> int:
        """How many of the first questions fit into a batch; padding counts, at least one goes."""
        longest = 0
        for place, question in enumerate(self._waiting):
            longest = max(longest, question.n_tokens)
            if place and longest * (place + 1) > self._max_tokens:
                return place
        return len(self._waiting)

    def _embed(self, batch: Sequence[_Waiting]) -> None:
        try:
            encoded = self._encode([question.text for question in batch])
        except Exception as error:  # it belongs to whoever asked
            self._fail(batch, error)
            return
        for question, vector in zip(batch, encoded, strict=True):
            question.future.set_result(vector)

    def _fail(self, batch: Sequence[_Waiting], error: Exception) -> None:
        """Let a question fail alone; those that only shared a batch with it are embedded again."""
        if len(batch) == 1:
            batch[0].future.set_exception(error)
            return
        for question in batch:
            self._embed([question])
