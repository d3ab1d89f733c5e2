"""Parquet: parts that differ in what nobody needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.corpus import parquet
from pipeline.errors import DataError
from pipeline.records import Document, SkipReason
from tests.pipeline.corpus.reading import corpus, read, texts


def write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


# A5


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "parts"
    write(folder / "p1.parquet", id=["1"], text=["one"])
    write(folder / "p2.parquet", score=[0.5], text=pa.array(["two"], pa.large_string()), id=["2"])
    write(
        folder / "p3.parquet",
        id=[3],
        text=pa.array(["three"]).dictionary_encode(),
        when=pa.array([1], pa.date32()),
    )
    return folder


def test_columns_and_string_types_may_differ(parts: Path) -> None:
    assert texts(parts) == {"1": "one", "2": "two", "3": "three"}


def test_metadata_is_text_whatever_the_column_is(parts: Path) -> None:
    documents, _ = read(parts, metadata_fields=["score", "when"])

    assert [dict(document.metadata) for document in documents] == [
        {},
        {"score": "0.5"},
        {"when": '"1970-01-02"'},
    ]


@pytest.mark.parametrize("option", [{}, {"text_field": "words"}])
def test_a_part_without_the_column_fails_before_anything_is_read(option: dict[str, str], parts: Path) -> None:
    write(parts / "p4.parquet", id=["4"], words=[["four"]])
    write(parts / "p5.parquet", id=["4"], score=[0.1])
    missing = option.get("text_field", "text")

    with pytest.raises(DataError, match=rf"p\d\.parquet: expected a column .*'{missing}'.*, found id, "):
        corpus(parts, **option)


@pytest.mark.parametrize("option", [{"title_field": "wrong"}, {"metadata_fields": ["score", "wrong"]}])
def test_a_named_column_that_no_part_has_is_refused(option: dict[str, Any], parts: Path) -> None:
    with pytest.raises(DataError, match=r"expected a column 'wrong', found id, score, text, when"):
        corpus(parts, **option)


def test_a_column_that_stands_twice_is_refused_if_it_is_needed(tmp_path: Path) -> None:
    columns = [pa.array(["1"]), pa.array(["one"]), pa.array(["two"])]
    pq.write_table(pa.Table.from_arrays(columns, ["id", "text", "text"]), tmp_path / "a.parquet")
    pq.write_table(
        pa.Table.from_arrays([*columns, columns[0]], ["id", "text", "x", "x"]), tmp_path / "b.parquet"
    )

    with pytest.raises(DataError, match=r"a\.parquet: several columns are named 'text'"):
        corpus(tmp_path / "a.parquet")
    assert texts(tmp_path / "b.parquet") == {"1": "one"}


def test_a_text_that_is_not_utf8_loses_its_row_only(tmp_path: Path) -> None:
    """Nothing checks what a writer calls a string."""
    column = pa.array([b"one", b"caf\xe9", b"three"], pa.binary()).view(pa.string())
    path = write(tmp_path / "a.parquet", id=["1", "2", "3"], text=column)

    with pytest.raises(DataError, match=r"a\.parquet row 2: malformed: byte 0xe9 at byte 3"):
        texts(path)
    documents, skipped = read(path, bad_records="skip")
    assert [document.doc_id for document in documents] == ["1", "3"]
    assert [(one.place, one.reason) for one in skipped] == [(f"{path} row 2", SkipReason.MALFORMED)]


def test_parts_come_in_numeric_order(tmp_path: Path) -> None:
    for number in (10, 2, 1, 33):
        write(tmp_path / f"part-{number}.parquet", text=[str(number)])

    assert list(texts(tmp_path)) == [f"part-{number}.parquet:1" for number in (1, 2, 10, 33)]


@pytest.mark.parametrize("pattern", ["*/p*.parquet", "**/*.parquet", "*/p[123].parquet", "parts/p?.parquet"])
def test_a_glob_names_parts(pattern: str, parts: Path) -> None:
    assert list(texts(parts.parent / pattern)) == ["1", "2", "3"]


def test_rows_are_numbered_through_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROWS_PER_BATCH", 3)
    path = write(tmp_path / "c.parquet", text=["x"] * 7)

    assert list(texts(path)) == [f"c.parquet:{row}" for row in range(1, 8)]


def test_empty_parts_are_legal(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", text=pa.array([], pa.string()))
    write(tmp_path / "2.parquet", text=["x"], title=["T"])

    assert read(tmp_path)[0] == [Document("2.parquet:1", "x", "T")]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all"])
def test_a_damaged_part_is_named(content: bytes, parts: Path) -> None:
    (parts / "p9.parquet").write_bytes(content)

    with pytest.raises(DataError, match=r"p9\.parquet: not a readable Parquet file"):
        corpus(parts)


def test_other_files_in_the_folder_are_reported(parts: Path) -> None:
    (parts / "README.rst").write_text("hello")

    assert [skipped.doc_id for skipped in read(parts)[1]] == ["README.rst"]
