"""Ids: unique over the whole corpus, otherwise free."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.corpus.table import read_documents, write_documents
from pipeline.errors import DataError
from tests.pipeline.corpus.reading import corpus, texts


def write(path: Path, *ids: object) -> Path:
    path.write_text("".join(json.dumps({"id": i, "text": f"text {n}"}) + "\n" for n, i in enumerate(ids)))
    return path


# A18


@pytest.mark.parametrize("ids", [("d1", "d1", "d2"), (1, "1", "d2"), ("x" * 5000, "x" * 5000)])
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_duplicate_is_an_error_that_names_both_lines(
    ids: tuple[object, ...], policy: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "c.jsonl", *ids)

    with pytest.raises(DataError, match=r"stands twice: at .*c\.jsonl:1 and at .*c\.jsonl:2"):
        list(corpus(path, bad_records=policy).read())


def test_a_duplicate_is_found_across_files_and_sources(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", "a", "b")
    two = tmp_path / "two.parquet"
    pq.write_table(pa.table({"id": ["c", "b"], "text": ["x", "y"]}), two)

    with pytest.raises(DataError, match=r"'b' stands twice: at .*one\.jsonl:2 and at .*two\.parquet row 2"):
        list(corpus([str(one), str(two)]).read())


def test_a_duplicate_across_the_files_of_a_folder_is_found(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", "a", "b")
    write(tmp_path / "2.jsonl", "b")

    with pytest.raises(DataError, match=r"1\.jsonl:2 and at .*2\.jsonl:1"):
        list(corpus(tmp_path).read())


def test_ids_that_look_alike_are_different(tmp_path: Path) -> None:
    ids = ["d1", "d1 ", " d1", "D1", "e\u0301", "\xe9", "01", "1"]

    assert list(texts(write(tmp_path / "c.jsonl", *ids))) == ids


def test_ids_whose_hashes_clash_are_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.corpus.corpus.hash", lambda _: 0, raising=False)

    assert list(texts(write(tmp_path / "c.jsonl", "a", "b"))) == ["a", "b"]


# A24


def test_ids_are_never_paths(tmp_path: Path) -> None:
    ids = [
        "../../escape",
        "/etc/passwd",
        "a/b",
        "a\\b",
        ".",
        "con",
        "x" * 5000,
        "a\nb",
        "%2e%2e%2fq",
        " ",
        "\x00",
    ]
    path = write(tmp_path / "c.jsonl", *ids)
    table = tmp_path / "out" / "documents.parquet"

    write_documents(corpus(path).read(), table)

    assert [document.doc_id for document in read_documents(table)] == ids
    assert sorted(found.name for found in tmp_path.rglob("*")) == ["c.jsonl", "documents.parquet", "out"]
