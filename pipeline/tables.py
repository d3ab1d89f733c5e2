"""Parquet tables, written and read as streams: neither ever holds more than one row group's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.artifacts import atomic_path
from pipeline.errors import DataError

ROWS_PER_GROUP = 16_384
# A character takes at most four bytes, so that no column chunk of a group comes near the 2 GiB limit.
CHARACTERS_PER_GROUP = 16 * 2**20
_ROWS_PER_BATCH = 1024


class RowGroupWriter:
    """Collects rows and writes them as row groups bounded by rows and by characters."""

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._rows: list[Mapping[str, Any]] = []
        self._n_characters = 0

    def add(self, row: Mapping[str, Any], *, n_characters: int) -> None:
        """Append one row whose text columns hold about `n_characters`."""
        self._rows.append(row)
        self._n_characters += n_characters
        if len(self._rows) >= ROWS_PER_GROUP or self._n_characters >= CHARACTERS_PER_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows, if any, as one row group."""
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []
        self._n_characters = 0


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[RowGroupWriter]:
    """Yield a writer for a Parquet file that appears at `path` only when it is complete."""
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as parquet:
        rows = RowGroupWriter(parquet, schema)
        yield rows
        rows.flush()


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Stream the rows of a table written by `table_writer`.

    Raises:
        DataError: the file is missing, damaged or lacks a column.
    """
    try:
        with pq.ParquetFile(path) as table:
            _require(columns, table.schema_arrow.names, path)
            for batch in table.iter_batches(batch_size=_ROWS_PER_BATCH, columns=list(columns)):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise DataError(f"{path}: no such table; build it first") from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: damaged table ({error}); delete it to build it again") from error


def _require(columns: Sequence[str], found: Sequence[str], path: Path) -> None:
    missing = [name for name in columns if name not in found]
    if missing:
        raise DataError(
            f"{path}: expected the columns {', '.join(columns)}, but {', '.join(missing)} is missing"
        )
