from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexes import InvalidIndexError, Rows, read_rows, write_rows


@pytest.fixture
def rows() -> Rows:
    return Rows.from_ids(["b#0", "a#0", "b#1", "日本#0"], ["b", "a", "b", "日本"])


def test_rows_name_their_chunk_and_document(rows: Rows) -> None:
    assert (rows.n_rows, rows.n_documents) == (4, 3)
    assert [rows.chunk_id(row) for row in range(4)] == ["b#0", "a#0", "b#1", "日本#0"]
    assert [rows.doc_id(row) for row in range(4)] == ["b", "a", "b", "日本"]
    assert rows.document_codes.tolist() == [0, 1, 0, 2]


def test_round_trip_keeps_the_order(rows: Rows, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", rows)
    read = read_rows(tmp_path / "rows.parquet")
    assert read.chunk_ids.equals(rows.chunk_ids)
    assert read.doc_ids.equals(rows.doc_ids)


def test_the_file_has_large_strings_in_row_order(rows: Rows, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", rows)
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.types == [pa.large_string(), pa.large_string()]
    assert table.to_pydict() == {
        "chunk_id": ["b#0", "a#0", "b#1", "日本#0"],
        "doc_id": ["b", "a", "b", "日本"],
    }


def test_no_rows_are_legal(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", Rows.from_ids([], []))
    read = read_rows(tmp_path / "rows.parquet")
    assert (read.n_rows, read.n_documents, read.document_codes.tolist()) == (0, 0, [])


def test_several_row_groups_are_read_as_one(tmp_path: Path, rows: Rows) -> None:
    write_rows(tmp_path / "rows.parquet", rows)
    table = pq.read_table(tmp_path / "rows.parquet")
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=1)
    assert read_rows(tmp_path / "rows.parquet").document_codes.tolist() == [0, 1, 0, 2]


def test_a_folder_named_like_a_partition_adds_no_column(tmp_path: Path, rows: Rows) -> None:
    folder = tmp_path / "doc_id=7"
    folder.mkdir()
    write_rows(folder / "rows.parquet", rows)
    assert read_rows(folder / "rows.parquet").doc_id(1) == "a"


def test_unequal_or_repeated_ids_are_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidIndexError, match="2 chunk ids but 1 document ids"):
        Rows.from_ids(["a#0", "a#1"], ["a"])
    with pytest.raises(InvalidIndexError, match="3 rows but only 2 distinct chunk ids"):
        Rows.from_ids(["d1#0", "d1#0", "d2#0"], ["d1", "d1", "d2"])


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x80\x04\x95 pickled"])
def test_damaged_files_are_refused_by_path(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(InvalidIndexError, match=r"rows\.parquet: not a readable Parquet file"):
        read_rows(tmp_path / "rows.parquet")


def test_missing_file_and_foreign_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidIndexError, match="the row map is missing"):
        read_rows(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"chunk_id": ["a"], "doc": [1]}), tmp_path / "rows.parquet")
    with pytest.raises(InvalidIndexError, match="got chunk_id: string, doc: int64"):
        read_rows(tmp_path / "rows.parquet")


def test_missing_ids_are_refused(tmp_path: Path) -> None:
    ids = pa.array(["a", None], pa.large_string())
    pq.write_table(pa.table({"chunk_id": ids, "doc_id": ids}), tmp_path / "rows.parquet")
    with pytest.raises(InvalidIndexError, match="not null"):
        read_rows(tmp_path / "rows.parquet")
