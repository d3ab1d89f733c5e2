"""The document table: what is written comes back, what is left out is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline import skips, tables
from pipeline.corpus.table import read_documents, write_documents
from pipeline.errors import DataError
from pipeline.records import Document, Skipped, SkipReason
from tests.pipeline.corpus.reading import corpus


def test_documents_come_back_unchanged(tmp_path: Path) -> None:
    documents = [
        Document("1", "the cat\r\n\x00\u2028🚀", "T", {"year": "1999", "é": '["a"]'}),
        Document("2", "a dog"),
    ]

    summary = write_documents(iter(documents), tmp_path / "d.parquet")

    assert list(read_documents(tmp_path / "d.parquet")) == documents
    assert (summary.n_documents, summary.n_characters) == (2, sum(len(d.text) for d in documents))


def test_what_is_left_out_is_counted_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skips, "MAX_EXAMPLES", 2)
    skipped = [Skipped(f"f:{i}", SkipReason.BLANK, str(i)) for i in range(5)]
    skipped.append(Skipped("f:9", SkipReason.MALFORMED))

    summary = write_documents([*skipped, Document("1", "x")], tmp_path / "d.parquet")

    assert summary.skipped == skipped[:2]
    assert summary.skip_counts == {SkipReason.BLANK: 5, SkipReason.MALFORMED: 1}


@pytest.mark.parametrize("lines", ["", "\n \n", '{"id":"1","text":" "}\n'])
def test_a_corpus_without_documents_is_an_error(lines: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(lines)

    with pytest.raises(DataError, match=r"no document \(left out: (nothing|1 blank)\)"):
        write_documents(corpus(tmp_path / "c.jsonl").read(), tmp_path / "d.parquet")
    assert not (tmp_path / "d.parquet").exists()


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(DataError, match="no document"):
        write_documents(corpus(tmp_path / "empty").read(), tmp_path / "d.parquet")


def test_row_groups_are_bounded_by_rows_and_by_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 4)
    monkeypatch.setattr(tables, "CHARACTERS_PER_GROUP", 100)
    documents = [Document(str(i), "x") for i in range(6)] + [Document(str(i), "y" * 60) for i in range(6, 9)]

    write_documents(documents, tmp_path / "d.parquet")

    metadata = pq.read_metadata(tmp_path / "d.parquet")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 1]
    assert list(read_documents(tmp_path / "d.parquet")) == documents


def test_a_failed_read_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    def fails() -> Iterator[Document]:
        yield Document("2", "new")
        raise DataError("the source is gone")

    path = tmp_path / "d.parquet"
    write_documents([Document("1", "old")], path)

    with pytest.raises(DataError, match="the source is gone"):
        write_documents(fails(), path)
    assert [document.text for document in read_documents(path)] == ["old"]
    assert list(tmp_path.iterdir()) == [path]
