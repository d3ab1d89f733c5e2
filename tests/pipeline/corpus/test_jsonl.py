"""JSON Lines: what is read, and what a bad line does."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.errors import DataError
from pipeline.records import Document, SkipReason
from tests.pipeline.corpus.reading import read, texts

GOOD = '{"id":"1","text":"the cat"}\n{"id":"2","text":"a dog"}\n'
TWO = {"1": "the cat", "2": "a dog"}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["c.jsonl", "c.ndjson", "c.json", "C.JSONL"])
def test_every_usual_suffix_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(GOOD, encoding="utf-8")

    assert texts(tmp_path / name) == TWO


def _zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", _zstd), ("bz2", bz2.compress)])
class TestCompressed:
    def test_it_is_read(self, suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
        path = tmp_path / f"c.jsonl.{suffix}"
        path.write_bytes(pack(GOOD.encode()))

        assert texts(path) == TWO

    def test_one_cut_short_is_an_error(
        self, suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path
    ) -> None:
        path = tmp_path / f"c.jsonl.{suffix}"
        path.write_bytes(pack(GOOD.encode())[:-20])

        with pytest.raises(DataError, match=rf"c\.jsonl\.{suffix}: the file cannot be read to its end"):
            read(path)


def test_several_parts_of_a_gzip_file_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    path.write_bytes(b"".join(gzip.compress(line.encode()) for line in GOOD.splitlines(keepends=True)))

    assert texts(path) == TWO


# A1


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf_8", "U8"])
def test_a_byte_order_mark_changes_nothing(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(GOOD, encoding="utf-8-sig")

    assert texts(tmp_path / "c.jsonl", encoding=encoding) == TWO


def test_byte_order_marks_within_joined_files_change_nothing(tmp_path: Path) -> None:
    first, second = GOOD.splitlines(keepends=True)
    (tmp_path / "c.jsonl").write_text(f"\ufeff{first}\ufeff{second}\ufeff", encoding="utf-8")

    assert texts(tmp_path / "c.jsonl") == TWO


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_read_when_named(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"id":"é","text":"café"}\n', encoding=encoding)

    assert texts(tmp_path / "c.jsonl", encoding=encoding) == {"é": "café"}


# A3

BROKEN = [
    '{"id":"2","text":"tr',
    '["not","an","object"]',
    "null",
    "3",
    "{}",
    '{"id":"2","text":7}',
    "[" * 9999,
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_blank_lines_and_a_missing_last_newline_do_not_matter(newline: str, tmp_path: Path) -> None:
    lines = ['{"id":"1","text":"the cat"}', "", "   ", "\t", '{"id":"2","text":"a dog"}']
    (tmp_path / "c.jsonl").write_bytes(newline.join(lines).encode())

    assert texts(tmp_path / "c.jsonl") == TWO


@pytest.mark.parametrize("broken", [*BROKEN, '{"id":"2","text":"caf\xe9"}'])
class TestBrokenLine:
    def _file(self, broken: str, folder: Path) -> Path:
        path = folder / "c.jsonl"
        path.write_bytes(
            f'{{"id":"1","text":"the cat"}}\n\n{broken}\n{{"id":"3","text":"b"}}'.encode("latin-1")
        )
        return path

    def test_it_fails_with_file_and_line(self, broken: str, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"c\.jsonl:3.*malformed.*bad_records = 'skip'"):
            read(self._file(broken, tmp_path))

    def test_it_is_counted_when_skipped(self, broken: str, tmp_path: Path) -> None:
        documents, skipped = read(self._file(broken, tmp_path), bad_records="skip")

        assert [document.doc_id for document in documents] == ["1", "3"]
        assert [(s.reason, s.place) for s in skipped] == [
            (SkipReason.MALFORMED, str(tmp_path / "c.jsonl") + ":3")
        ]


# A4


@pytest.mark.parametrize(
    ("line", "doc_id"),
    [
        (r'{"id":"s1","text":"hello \ud83d world"}', "s1"),
        (r'{"id":"s1","text":"hello","title":"\ude80"}', "s1"),
        (r'{"id":"s1","text":"hello","note":["\ud83d"]}', "s1"),
        (r'{"id":"s\ud83d","text":"hello"}', r"s\ud83d"),
    ],
    ids=["text", "title", "metadata", "id"],
)
def test_a_lone_surrogate_rejects_its_document_only(line: str, doc_id: str, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(
        '{"id":"1","text":"the cat"}\n' + line + '\n{"id":"2","text":"a dog"}\n', encoding="utf-8"
    )

    documents, skipped = read(path, bad_records="skip", metadata_fields=["note"])

    assert [document.doc_id for document in documents] == ["1", "2"]
    assert [(s.reason, s.doc_id) for s in skipped] == [(SkipReason.SURROGATE, doc_id)]
    with pytest.raises(DataError, match=r"c\.jsonl:2 \(document 's"):
        read(path, metadata_fields=["note"])


def test_a_proper_pair_is_one_character(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(r'{"id":"1","text":"\ud83d\ude80"}')

    assert texts(tmp_path / "c.jsonl") == {"1": "🚀"}


# A5


def test_a_field_may_change_its_type(tmp_path: Path) -> None:
    years = ["1999", 2001, 2.5, None, ["a", {"é": 1}], True]
    path = write(tmp_path / "c.jsonl", *({"id": i, "text": "x", "year": y} for i, y in enumerate(years)))

    documents, _ = read(path, metadata_fields=["year", "absent"])

    assert [dict(document.metadata) for document in documents] == [
        {"year": "1999"},
        {"year": "2001"},
        {"year": "2.5"},
        {},
        {"year": '["a", {"é": 1}]'},
        {"year": "true"},
    ]


# A6


@pytest.mark.parametrize("text", ["", "  \n\t ", None, "\u200b\ufeff", "\u3000\u2029", "\x00"])
def test_a_blank_text_is_skipped_by_id(text: str | None, tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", {"id": "b", "text": text}, {"id": "d", "text": "the cat"})

    documents, skipped = read(path)

    assert [document.doc_id for document in documents] == ["d"]
    assert [(s.doc_id, s.reason) for s in skipped] == [("b", SkipReason.BLANK)]


# Fields


@pytest.mark.parametrize("id_field", ["id", "_id", "doc_id", "docid", "document_id"])
@pytest.mark.parametrize("text_field", ["text", "content", "contents", "body", "passage"])
@pytest.mark.parametrize("title_field", ["title", "name"])
def test_usual_fields_are_found(id_field: str, text_field: str, title_field: str, tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", {title_field: "T", text_field: "x", id_field: 7})

    assert read(path)[0] == [Document("7", "x", "T")]


def test_the_first_of_the_usual_fields_wins(tmp_path: Path) -> None:
    record = {"document_id": "no", "id": "yes", "body": "no", "text": "yes", "name": "no", "title": "yes"}

    assert read(write(tmp_path / "c.jsonl", record))[0] == [Document("yes", "yes", "yes")]


def test_named_fields_are_the_only_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", {"id": "1", "key": "k", "text": "t", "abstract": "a", "head": "h"})

    documents, _ = read(path, id_field="key", text_field="abstract", title_field="head")

    assert documents == [Document("k", "a", "h")]


def test_a_record_without_id_is_known_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('\n{"text":"a"}\n{"text":"b"}\n')

    assert texts(tmp_path / "c.jsonl") == {"c.jsonl:2": "a", "c.jsonl:3": "b"}


@pytest.mark.parametrize("option", ["id_field", "text_field"])
def test_a_missing_named_field_is_an_error_with_those_found(option: str, tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", {"id": "1", "text": "x"})

    with pytest.raises(DataError, match=r"c\.jsonl:1.*'wrong', found id, text"):
        read(path, **{option: "wrong"})


@pytest.mark.parametrize("doc_id", ["", None, True, 1.5, ["a"]])
def test_an_unusable_id_is_an_error(doc_id: object, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"c\.jsonl:1.*the id in field 'id'"):
        read(write(tmp_path / "c.jsonl", {"id": doc_id, "text": "x"}))
