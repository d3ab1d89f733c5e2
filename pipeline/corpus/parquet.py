"""Parquet: one file or many parts, read batch by batch and only where needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.corpus.fields import FieldMap
from pipeline.corpus.files import SourceFile
from pipeline.corpus.source import Reading
from pipeline.errors import DataError
from pipeline.records import Skipped, SkipReason

_ROWS_PER_BATCH = 1024


def check_columns(files: Iterable[SourceFile], fields: FieldMap, source: str) -> None:
    """Look at the schema of every part before any is read; columns that are not used may differ.

    Raises:
        DataError: a part is damaged or lacks the text column, or no part has a column that the user named.
    """
    found: set[str] = set()
    for file in files:
        with _opened(file) as table:
            fields.needed(table.schema_arrow.names, file.place)
            found.update(table.schema_arrow.names)
    if found:
        fields.check_optional(found, source)


def read_parquet(file: SourceFile, *, fields: FieldMap) -> Iterator[Reading]:
    """Stream the records of a part; a record without an id is known as `<file name>:<row>`.

    Raises:
        DataError: the part is damaged.
    """
    with _opened(file) as table:
        columns = fields.needed(table.schema_arrow.names, file.place)
    for number, (place, record) in enumerate(read_records(file, columns), 1):
        if isinstance(record, str):
            yield place, Skipped(place, SkipReason.MALFORMED, detail=record)
        else:
            yield place, fields.read(record, place=place, default_id=f"{file.name}:{number}")


def column_names(file: SourceFile) -> list[str]:
    """The columns of a part, or raise DataError if it is damaged."""
    with _opened(file) as table:
        return list(table.schema_arrow.names)


def read_records(file: SourceFile, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Stream places and rows of a part; a row that does not decode comes as a sentence that says why.

    Raises:
        DataError: the part is damaged.
    """
    with _opened(file) as table:
        batches = table.iter_batches(batch_size=_ROWS_PER_BATCH, columns=list(columns))
        for number, record in enumerate(chain.from_iterable(map(_records, batches)), 1):
            yield f"{file.place} row {number}", record


def _records(batch: pa.RecordBatch) -> list[dict[str, Any] | str]:
    """The rows of a batch; where one does not decode, each by itself, so that only that one is lost."""
    try:
        rows: list[dict[str, Any] | str] = batch.to_pylist()
    except UnicodeDecodeError:
        rows = [_record(batch.slice(row, 1)) for row in range(batch.num_rows)]
    return rows


def _record(row: pa.RecordBatch) -> dict[str, Any] | str:
    """Read one row, or say what is wrong with it: nothing checks that a writer's text is UTF-8."""
    try:
        record: dict[str, Any] = row.to_pylist()[0]
    except UnicodeDecodeError as error:
        return f"byte {error.object[error.start]:#04x} at byte {error.start} of a text is not UTF-8"
    return record


@contextmanager
def _opened(file: SourceFile) -> Iterator[pq.ParquetFile]:
    try:
        with file.open() as raw, pq.ParquetFile(raw) as table:
            yield table
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file.place}: not a readable Parquet file: {error}") from error
