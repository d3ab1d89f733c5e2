"""Which position groups a set is reported by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import DataError, UsageError
from pipeline.evaluation.datasets.positions import N_PARTS, part_names, relative_position
from pipeline.evaluation.datasets.records import Question, Source
from pipeline.positions import position_bin

NO_SPAN = "questions without a known position"
ALL = "all"


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups in order, and the group of a question (None: not in any, for `reason`)."""

    names: tuple[str, ...]
    group_of: Callable[[Question], str | None]
    reason: str = NO_SPAN


def choose_grouping(
    source: Source, questions: Sequence[Question], asked: str, n_chars: Mapping[str, int]
) -> Grouping:
    """Take the set's own groups, or equal parts of the document, as asked.

    Args:
        source: the set.
        questions: that are measured on.
        asked: `auto`, or a key of `N_PARTS`.
        n_chars: characters of each gold document.

    Raises:
        UsageError: parts are asked for, but no position is known.
        DataError: the set's own group numbers are no numbers.
    """
    if asked == "auto" and source.group_names:
        return Grouping(source.group_names, lambda question: question.group)
    if asked == "auto" and questions and all(question.group is not None for question in questions):
        return _numbered(questions)
    if not any(question.span for question in questions):
        if asked == "auto":
            return Grouping((ALL,), lambda _: ALL)
        raise UsageError(f"{source.name}: groups = {asked!r}, but no answer's place in its text is known")
    n_parts = N_PARTS["fifths" if asked == "auto" else asked]
    names = part_names(n_parts)

    def group_of(question: Question) -> str | None:
        if question.span is None:
            return None
        length = question.doc_chars or n_chars[question.gold_doc]
        return names[position_bin(relative_position(question.span, length), n_parts)]

    return Grouping(names, group_of)


def _numbered(questions: Sequence[Question]) -> Grouping:
    """Name groups that a set counts from 0: `1 of 5` and so on."""
    numbers = {question.group: _number(question) for question in questions}
    n_groups = max(numbers.values()) + 1
    names = tuple(f"{number + 1} of {n_groups}" for number in range(n_groups))
    return Grouping(names, lambda question: names[numbers[question.group]])


def _number(question: Question) -> int:
    text = question.group or ""
    if not text.isdecimal():
        raise DataError(f"{question.place}: position group {text!r}; expected a whole number from 0")
    return int(text)
