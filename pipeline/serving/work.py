"""Work off the event loop: a pool of threads for each kind of work, and an end to every wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from indexes import IndexesError
from pipeline.errors import LastpageError
from pipeline.serving.encoding import DeadlinePassedError, deadline
from pipeline.serving.problems import as_problem, timed_out

Result = TypeVar("Result")


class Pool:
    """Threads for one kind of work, so that no other kind waits for it."""

    def __init__(self, name: str, n_threads: int, *, timeout_seconds: float) -> None:
        """Start threads as they are needed."""
        self._threads = ThreadPoolExecutor(n_threads, name)
        self._timeout_seconds = timeout_seconds

    async def run(self, work: Callable[[], Result], *, until: float | None = None) -> Result:
        """Carry out work on a thread; it can see in `deadline` when it is given up.

        Args:
            work: the work.
            until: when to give up, a monotonic time; by default after the usual timeout.

        Raises:
            Problem: it failed, or was not done in time.
        """
        limit = until or time.monotonic() + self._timeout_seconds

        def with_deadline() -> Result:
            deadline.set(limit)
            return work()

        return await within(self._threads.submit(with_deadline), limit, timeout_seconds=self._timeout_seconds)

    def close(self) -> None:
        """Begin no more work."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def within(future: Future[Result], until: float, *, timeout_seconds: float) -> Result:
    """Wait for work until a monotonic time; `timeout_seconds` is what the message says.

    Raises:
        Problem: it failed, or was not done in time.
    """
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), until - time.monotonic())
    except (TimeoutError, DeadlinePassedError):
        raise timed_out(timeout_seconds) from None
    except (LastpageError, IndexesError) as error:
        raise as_problem(error) from error


async def few_at_a_time(jobs: Sequence[Callable[[], Awaitable[Result]]], width: int) -> list[Result]:
    """Carry out jobs, `width` of them at once; the first that fails ends the others.

    Returns:
        Their results, in the order of the jobs.
    """
    places = asyncio.Semaphore(width)

    async def take_turn(job: Callable[[], Awaitable[Result]]) -> Result:
        async with places:
            return await job()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(take_turn(job)) for job in jobs]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
