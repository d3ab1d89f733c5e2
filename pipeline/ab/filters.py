"""Search only documents whose metadata fit: which rows a set of conditions allows.

Metadata are stored as text. A condition on a text compares the text; one on a number or a truth value
compares what the stored text reads as, so that 2020 finds "2020" and "2020.0". A document without the field
never fits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from indexes import OpenBuild, RowFilter
from pipeline.artifacts import BuildFiles
from pipeline.errors import UsageError

Value = str | bool | int | float


class UnknownFieldError(UsageError):
    """A condition names a metadata field that no document of the build has."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field holds one of these values."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class InRange:
    """The field holds a number between these bounds; None is no bound.

    Attributes:
        gt, gte: it is greater than, or at least, this.
        lt, lte: it is less than, or at most, this.
    """

    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None

    def holds(self, number: float) -> bool:
        """Tell whether a number lies within."""
        return not (
            (self.gt is not None and number <= self.gt)
            or (self.gte is not None and number < self.gte)
            or (self.lt is not None and number >= self.lt)
            or (self.lte is not None and number > self.lte)
        )


Condition = OneOf | InRange


class MetadataFilter:
    """The metadata of a build's documents, read at the first filter. Any number of threads may ask."""

    def __init__(self, build: OpenBuild) -> None:
        self._build_id = build.build.build_id
        self._rows = build.rows
        self._reading = Lock()
        # Opened now: the folder of a build that is no longer current may be pruned while it still answers.
        self._file = pq.ParquetFile(BuildFiles(build.build.path).documents, memory_map=True)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that at least one document has."""
        return tuple(self._columns())

    def allow(self, conditions: Mapping[str, Condition]) -> RowFilter:
        """Allow the rows of the documents that meet every condition.

        Raises:
            UnknownFieldError: no document has a field that is named.
            UsageError: a range on a field that holds no number.
        """
        documents = np.ones(self._rows.n_documents, np.bool_)
        for name, condition in conditions.items():
            documents &= self._column(name).meets(condition)
        return RowFilter.of_documents(self._rows, documents)

    def _column(self, name: str) -> _Column:
        columns = self._columns()
        if name not in columns:
            known = ", ".join(columns) or "none; name some with corpus.metadata_fields and index again"
            raise UnknownFieldError(
                f"build {self._build_id} has no metadata field {name!r}; there are: {known}"
            )
        return columns[name]

    def _columns(self) -> dict[str, _Column]:
        with self._reading:  # several threads may come first at once; one reads
            return self._read_columns

    @cached_property
    def _read_columns(self) -> dict[str, _Column]:
        codes = {doc_id: code for code, doc_id in enumerate(self._rows.doc_ids.dictionary.to_pylist())}
        found: dict[str, dict[int, str]] = {}
        for batch in self._file.iter_batches(columns=["doc_id", "metadata"]):
            for row in batch.to_pylist():
                if row["doc_id"] in codes:
                    for name, value in json.loads(row["metadata"]).items():
                        found.setdefault(name, {})[codes[row["doc_id"]]] = value
        return {name: _Column.of(name, values, len(codes)) for name, values in found.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One field of all documents.

    Attributes:
        places: (n_documents,) where in `distinct` each document's value stands; the last place is no value.
        distinct: every value once.
    """

    name: str
    places: npt.NDArray[np.int64]
    distinct: tuple[str, ...]

    @classmethod
    def of(cls, name: str, values: Mapping[int, str], n_documents: int) -> _Column:
        distinct = {value: place for place, value in enumerate(dict.fromkeys(values.values()))}
        places = np.full(n_documents, len(distinct), np.int64)
        places[list(values)] = [distinct[value] for value in values.values()]
        return cls(name, places, tuple(distinct))

    def meets(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """(n_documents,) whether each document's value meets a condition."""
        fits = self._in_range(condition) if isinstance(condition, InRange) else self._one_of(condition)
        return np.array([*fits, False])[self.places]

    def _one_of(self, condition: OneOf) -> list[bool]:
        texts = {value for value in condition.values if isinstance(value, str)}
        texts |= {str(value).lower() for value in condition.values if isinstance(value, bool)}
        numbers = {value for value in condition.values if not isinstance(value, str | bool)}
        return [value in texts or (bool(numbers) and _number(value) in numbers) for value in self.distinct]

    def _in_range(self, condition: InRange) -> list[bool]:
        numbers = [_number(value) for value in self.distinct]
        if all(number is None for number in numbers):
            raise UsageError(
                f"metadata field {self.name!r} holds no number, such as {self.distinct[0]!r:.60}; "
                "a range needs numbers, ask for values instead"
            )
        return [number is not None and condition.holds(number) for number in numbers]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
