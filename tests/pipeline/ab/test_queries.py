"""Query files: both forms, gold in its shapes, and every way a line can be wrong, named by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.ab.queries import Gold, Query, check_gold, read_queries
from pipeline.errors import DataError, UsageError
from tests.conftest import REPOSITORY


def written(tmp_path: Path, text: str | bytes, name: str = "q.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_json_lines_with_every_shape_of_gold(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '\ufeff{"id": "a", "query": "one?"}\n\n  \n'
        '{"query_id": 7, "text": "two?", "gold": ["d1", {"doc_id": "d2"}]}\r\n'
        '{"_id": "c", "query": "three?", "gold": [{"doc_id": "d1", "start": 2, "end": 5}]}\n'
        '{"id": "d", "query": "four?", "doc_id": "d1", "start": 0, "end": 3, "answer": "abc", "note": 1}',
    )
    assert list(read_queries(path)) == [
        Query("a", "one?", (), f"{path}:1"),
        Query("7", "two?", (Gold("d1"), Gold("d2")), f"{path}:4"),
        Query("c", "three?", (Gold("d1", 2, 5),), f"{path}:5"),
        Query("d", "four?", (Gold("d1", 0, 3, "abc"),), f"{path}:6"),
    ]


def test_tab_separated_with_and_without_gold(tmp_path: Path) -> None:
    path = written(tmp_path, "a\tone?\nb\ttwo?\td1\r\nc\t three\u2028more? \td1\t2\t5\n", "q.tsv")
    assert [(query.query_id, query.text, query.gold) for query in read_queries(path)] == [
        ("a", "one?", ()),
        ("b", "two?", (Gold("d1"),)),
        ("c", " three\u2028more? ", (Gold("d1", 2, 5),)),
    ]


def test_a_line_that_names_the_columns_is_no_query(tmp_path: Path) -> None:
    path = tmp_path / "q.tsv"
    path.write_text("id\tquery\tdoc_id\nq1\twhere?\td1\nid\tquery\n", encoding="utf-8")
    assert [query.query_id for query in read_queries(path)] == ["q1", "id"]


def test_one_gold_document_needs_no_list(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"id": "q1", "query": "where?", "gold": "d1"}\n', encoding="utf-8")
    assert [gold.doc_id for query in read_queries(path) for gold in query.gold] == ["d1"]


def test_the_built_in_queries_are_read() -> None:
    queries = list(read_queries(REPOSITORY / "configs" / "python-docs.queries.jsonl"))
    assert len(queries) == 45
    assert all(query.gold[0].end is not None and query.gold[0].answer for query in queries)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "expected a JSON object"),
        ('{"query": "q"}', "expected a field 'query_id' or 'id'"),
        ('{"id": "a"}', "expected a field 'query' or 'text'"),
        ('{"id": true, "query": "q"}', "field 'id' must be text"),
        ('{"id": "", "query": "q"}', "field 'id' must be text"),
        ('{"id": "a", "query": 3}', "field 'query' must be text"),
        ('{"id": "a", "query": " \\u200b "}', "query 'a' is empty"),
        ('{"id": "a", "query": "\\ud800"}', "lone surrogate"),
        ('{"id": "a", "query": "q", "gold": 1}', "'gold' must be a list"),
        ('{"id": "a", "query": "q", "gold": [1]}', "ids or objects"),
        ('{"id": "a", "query": "q", "gold": [{"start": 1, "end": 2}]}', "doc_id of gold must be text"),
        ('{"id": "a", "query": "q", "gold": [{"doc_id": "d", "start": 1}]}', "needs both start and end"),
        ('{"id": "a", "query": "q", "gold": [{"doc_id": "d", "start": 2, "end": 2}]}', "0 <= start < end"),
        ('{"id": "a", "query": "q", "gold": [{"doc_id": "d", "start": -1, "end": 2}]}', "0 <= start < end"),
        ('{"id": "a", "query": "q", "gold": [{"doc_id": "d", "start": 1.0, "end": 2}]}', "of type int"),
        ('{"id": "a", "query": "q", "gold": [{"doc_id": "d", "start": true, "end": 2}]}', "of type int"),
        ('{"id": "a", "query": "q", "gold": [], "doc_id": "d"}', "keep one of them"),
        ('{"id": 1' + "0" * 5000 + ', "query": "q"}', "not valid JSON"),
    ],
)
def test_bad_json_lines_are_refused_with_their_place(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, '{"id": "fine", "query": "q"}\n' + line + "\n")
    with pytest.raises(DataError) as refused:
        list(read_queries(path))
    assert str(refused.value).startswith(f"{path}:2: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("only", "expected id<TAB>query"),
        ("a\tq\td\t1", "got 4 columns"),
        ("a\tq\td\t1\t2\tx", "got 6 columns"),
        ("\tq", "the id ''"),
        ("a\t  ", "query 'a' is empty"),
        ("a\tq\td\t-1\t2", "whole number from 0, got '-1'"),
        ("a\tq\td\t1_0\t20", "whole number from 0, got '1_0'"),
        ("a\tq\td\t٣\t20", "whole number from 0"),
        ("a\tq\td\t1\t" + "9" * 5000, "whole number from 0"),
        ("a\tq\t\t1\t2", "doc_id of gold must be text"),
    ],
)
def test_bad_tab_separated_lines_are_refused_with_their_place(
    tmp_path: Path, line: str, message: str
) -> None:
    path = written(tmp_path, f"fine\tq\n{line}\n", "q.tsv")
    with pytest.raises(DataError) as refused:
        list(read_queries(path))
    assert str(refused.value).startswith(f"{path}:2: ")
    assert message in str(refused.value)


def test_what_no_line_can_mend_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"q\.jsonl:3: query id 'a' stands already at .*q\.jsonl:1"):
        list(read_queries(written(tmp_path, '{"id":"a","query":"x"}\n\n{"id":"a","query":"y"}\n')))
    with pytest.raises(DataError, match="no query in this file"):
        list(read_queries(written(tmp_path, "\n \n")))
    with pytest.raises(DataError, match=r"q\.tsv:2: not UTF-8 \(byte 0xff at 2\)"):
        list(read_queries(written(tmp_path, b"a\tq\nb\t\xff\n", "q.tsv")))
    with pytest.raises(DataError, match=r"no\.tsv: the file cannot be read"):
        list(read_queries(tmp_path / "no.tsv"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_queries(_folder(tmp_path / "folder.tsv")))
    with pytest.raises(UsageError, match=r"known by its ending; expected one of \.json, \.jsonl"):
        list(read_queries(written(tmp_path, "a\tq\n", "q.txt")))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def text_of(doc_id: str) -> str:
    if doc_id != "d1":
        raise DataError(f"no document {doc_id!r}")
    return "The ünïcode text."


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        (Gold("d2"), "gold document 'd2' of query 'a' is not among the documents"),
        (Gold("d1", 3, 18), "gold span 3-18 ends after document 'd1', which has 17 characters"),
        (Gold("d1", 4, 11, "unicode"), "has 'ünïcode' at 4-11, not the answer 'unicode'"),
    ],
)
def test_gold_that_does_not_fit_the_index_is_refused(gold: Gold, message: str) -> None:
    with pytest.raises(DataError) as refused:
        check_gold([Query("a", "q", (gold,), "q.tsv:4")], text_of)
    assert str(refused.value).startswith("q.tsv:4: ")
    assert message in str(refused.value)


def test_gold_up_to_the_last_character_fits() -> None:
    gold = (Gold("d1", 4, 11, "ünïcode"), Gold("d1", 12, 17), Gold("d1"))
    check_gold([Query("a", "q", gold, "q.tsv:4")], text_of)
