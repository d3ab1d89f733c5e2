"""Which chunk, and of which document, stands in each row of every arm; one Parquet file in row order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indexes.errors import InvalidIndexError
from indexes.files import replacing

# large_string: 32-bit offsets overflow at 2 GiB of ids.
_SCHEMA = pa.schema(
    [
        pa.field("chunk_id", pa.large_string(), nullable=False),
        pa.field("doc_id", pa.large_string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The map from row to chunk and document, kept as Arrow arrays: make it with `from_ids` or `read_rows`.

    Both arrays have length n_rows: `chunk_ids` of large_string, `doc_ids` of dictionary-encoded large_string.
    """

    chunk_ids: pa.LargeStringArray
    doc_ids: pa.DictionaryArray

    @classmethod
    def from_ids(cls, chunk_ids: Iterable[str], doc_ids: Iterable[str]) -> Rows:
        """Map row i to the i-th chunk id and the i-th document id.

        Raises:
            InvalidIndexError: unequal numbers of ids, or a chunk id that comes twice.
        """
        chunks = pa.array(chunk_ids, pa.large_string())
        documents = pa.array(doc_ids, pa.large_string())
        if len(chunks) != len(documents):
            raise InvalidIndexError(f"row map: {len(chunks)} chunk ids but {len(documents)} document ids")
        n_distinct = len(pc.unique(chunks))
        if n_distinct != len(chunks):
            raise InvalidIndexError(f"row map: {len(chunks)} rows but only {n_distinct} distinct chunk ids")
        return cls(chunks, documents.dictionary_encode())

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.chunk_ids)

    @property
    def n_documents(self) -> int:
        """The number of distinct documents."""
        return len(self.doc_ids.dictionary)

    @property
    def document_codes(self) -> npt.NDArray[np.int32]:
        """One integer per row, (n_rows,) int32: equal for rows of the same document. A view, not a copy."""
        codes: npt.NDArray[np.int32] = self.doc_ids.indices.to_numpy()
        return codes

    def chunk_id(self, row: int) -> str:
        """Return the chunk that stands in a row."""
        return str(self.chunk_ids[row].as_py())

    def doc_id(self, row: int) -> str:
        """Return the document that the chunk in a row belongs to."""
        return str(self.doc_ids[row].as_py())

    def doc_ids_of(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the documents of many rows, in their order; much faster than one by one."""
        found: list[str] = self.doc_ids.dictionary.take(pa.array(self.document_codes[rows])).to_pylist()
        return found


def write_rows(path: Path, rows: Rows) -> None:
    """Write the map to `path`, which is replaced only when the new file is complete on the disk."""
    table = pa.table([rows.chunk_ids, rows.doc_ids.cast(pa.large_string())], schema=_SCHEMA)
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_rows(path: Path) -> Rows:
    """Read a map that `write_rows` wrote.

    Raises:
        InvalidIndexError: the file is missing, damaged, or holds other columns.
    """
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
    except FileNotFoundError as error:
        raise InvalidIndexError(f"{path}: the row map is missing; build it again") from error
    except (pa.ArrowException, OSError) as error:
        raise InvalidIndexError(f"{path}: not a readable Parquet file ({error}); build it again") from error
    if not table.schema.equals(_SCHEMA):
        raise InvalidIndexError(
            f"{path}: expected the columns {_described(_SCHEMA)}, got {_described(table.schema)}; "
            "build it again"
        )
    table = table.combine_chunks()
    return Rows(_single(table["chunk_id"]), _single(table["doc_id"]).dictionary_encode())


def _single(column: pa.ChunkedArray) -> pa.LargeStringArray:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)
