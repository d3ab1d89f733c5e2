"""Rows of labelled data with the place each was read at, and values taken from them with a reason if not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.corpus.files import SourceFile, list_files
from pipeline.corpus.jsonl import read_objects
from pipeline.corpus.parquet import column_names, read_records
from pipeline.errors import DataError

Row = tuple[str, Mapping[str, Any]]


def source_file(path: Path) -> SourceFile:
    """Open one file as a source.

    Raises:
        DataError: there is no such file.
    """
    return list_files(path.as_posix()).files[0]


def parquet_rows(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Row]:
    """Stream some columns of a Parquet file.

    Raises:
        DataError: the file is damaged, lacks a required column, or a row does not decode.
    """
    file = source_file(path)
    found = column_names(file)
    require(required, found, str(path))
    columns = [*required, *(name for name in optional if name in found)]
    for place, record in read_records(file, columns):
        yield place, _decoded(record, place)


def jsonl_rows(path: Path, required: Sequence[str]) -> Iterator[Row]:
    """Stream the objects of a JSON Lines file.

    Raises:
        DataError: a line is no JSON object, or lacks a required key.
    """
    for _, place, record in read_objects(source_file(path)):
        row = _decoded(record, place)
        require(required, list(row), place)
        yield place, row


def table_rows(path: Path, columns: Sequence[str], *, separator: str | None = "\t") -> Iterator[Row]:
    """Stream the lines of a text table without a heading as rows; the last column takes what is left.

    Args:
        path: a text file in UTF-8.
        columns: their names; a line must have as many.
        separator: None for any white space.

    Raises:
        DataError: a line has too few columns, or the file is not UTF-8.
    """
    try:
        with source_file(path).open() as lines:
            for number, line in enumerate(lines, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not text.strip():
                    continue
                values = text.split(separator, len(columns) - 1)
                if len(values) != len(columns):
                    raise DataError(
                        f"{path}:{number}: expected {len(columns)} columns ({', '.join(columns)}), "
                        f"got {len(values)}"
                    )
                yield f"{path}:{number}", dict(zip(columns, values, strict=True))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the file cannot be read to its end: {error}") from error


def require(wanted: Sequence[str], found: Sequence[str], place: str) -> None:
    """Refuse what lacks a column.

    Raises:
        DataError: one of `wanted` is not among `found`.
    """
    if missing := [name for name in wanted if name not in found]:
        raise DataError(
            f"{place}: expected {', '.join(wanted)}, but {', '.join(missing)} is missing "
            f"(found: {', '.join(found)})"
        )


def text_of(row: Mapping[str, Any], name: str, place: str) -> str:
    """Take an id or a text: text, or a whole number written as text.

    Raises:
        DataError: it is empty or of another type.
    """
    value = row.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{place}: {name} is {value!r}; expected text that is not empty")
    return value


def optional_text(row: Mapping[str, Any], name: str) -> str | None:
    """Take an id that may be absent."""
    value = row.get(name)
    return None if value is None else str(value)


def whole_number(value: Any, name: str, place: str) -> int:
    """Take a whole number, also from a float or text that is one.

    Raises:
        DataError: it is none, or not finite.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number != int(number):
        raise DataError(f"{place}: {name} is {value!r}; expected a whole number")
    return int(number)


def optional_number(row: Mapping[str, Any], name: str, place: str) -> int | None:
    """Take a whole number that may be absent."""
    value = row.get(name)
    return None if value is None else whole_number(value, name, place)


def span_of(value: Any, name: str, place: str) -> tuple[int, int] | None:
    """Take `[start, end)`; None if absent.

    Raises:
        DataError: it is no pair of whole numbers, negative or empty.
    """
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise DataError(f"{place}: {name} is {value!r}; expected [start, end]")
    start, end = (whole_number(number, name, place) for number in value)
    if not 0 <= start < end:
        raise DataError(f"{place}: {name} is [{start}, {end}]; expected 0 <= start < end")
    return start, end


def _decoded(record: Mapping[str, Any] | str, place: str) -> Mapping[str, Any]:
    if isinstance(record, str):
        raise DataError(f"{place}: {record}")
    return record
