"""Where long work says how far it is: a protocol, so that only the command line knows of terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

T = TypeVar("T")


class Reporter(Protocol):
    """Where progress goes."""

    def task(self, label: str, total: int | None, unit: str) -> AbstractContextManager[Callable[[int], None]]:
        """Open a progress display; the callable advances it by some units."""

    def say(self, sentence: str) -> None:
        """Show a sentence before long work begins."""


class SilentReporter:
    """Shows nothing."""

    def task(self, label: str, total: int | None, unit: str) -> AbstractContextManager[Callable[[int], None]]:  # noqa: ARG002
        """Ignore progress."""
        return nullcontext(lambda _: None)

    def say(self, sentence: str) -> None:
        """Ignore the sentence."""


def ticking(items: Iterable[T], advance: Callable[[int], None]) -> Iterator[T]:
    """Pass items on and advance a display by one for each."""
    for item in items:
        yield item
        advance(1)
