"""Progress on the terminal, with rate and time left; quiet where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

_WIDTH = 120


class RichReporter:
    """Shows each long stage as one bar on standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True, quiet=quiet)
        # Without a terminal rich assumes 80 columns, too few for counts, rates and times.
        self._console = console if console.is_terminal else Console(stderr=True, quiet=quiet, width=_WIDTH)

    def say(self, sentence: str) -> None:
        """Print a sentence above the bars."""
        self._console.print(sentence, markup=False, highlight=False)

    @contextmanager
    def task(self, label: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
        """Open a bar; the callable advances it."""
        columns = (
            TextColumn("{task.description:<18}"),
            BarColumn(),
            _CountColumn(unit),
            _RateColumn(unit),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(label, total=total)
            yield lambda amount: progress.advance(task, amount)


class _CountColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        total = f"/{int(task.total):,}" if task.total is not None else ""
        return Text(f"{int(task.completed):,}{total} {self._unit}")


class _RateColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {self._unit}/s" if speed else "")
