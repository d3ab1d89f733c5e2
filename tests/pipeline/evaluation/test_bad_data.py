"""What is refused is named with file and row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import DataError
from tests.pipeline.evaluation.making import document, load, posir, qrel, query, write_lines

CORPUS = [document("d1", "the cat sat on the mat"), document("d2", "a dog")]
QUERIES = [query("q1", "cat?", [4, 7], 22, answer="cat"), query("q2", "dog?", [2, 5], 5, answer="dog")]
QRELS = [qrel("q1", "d1"), qrel("q2", "d2")]


def _refusal(folder: Path, **parts: Any) -> str:
    posir(folder, parts.get("corpus", CORPUS), parts.get("queries", QUERIES), parts.get("qrels", QRELS))
    with pytest.raises(DataError) as refused:
        load(folder)
    return str(refused.value)


def test_good_data_is_taken(tmp_path: Path) -> None:
    assert len(load(posir(tmp_path, CORPUS, QUERIES, QRELS)).queries) == 2


def test_duplicate_document(tmp_path: Path) -> None:
    message = _refusal(tmp_path, corpus=[*CORPUS, document("d1", "again")])
    assert "corpus.parquet row 3: document id 'd1' occurs twice" in message


def test_duplicate_query(tmp_path: Path) -> None:
    message = _refusal(tmp_path, queries=[*QUERIES, QUERIES[0]])
    assert "queries.parquet row 3: query id 'q1' was already used at" in message
    assert "queries.parquet row 1" in message


def test_qrels_naming_an_unknown_query(tmp_path: Path) -> None:
    message = _refusal(tmp_path, qrels=[*QRELS, qrel("q9", "d1")])
    assert "qrels.parquet row 3: the qrels name the query 'q9', which is not among the 2 queries" in message


def test_qrels_naming_an_unknown_document(tmp_path: Path) -> None:
    message = _refusal(tmp_path, qrels=[QRELS[0], qrel("q2", "d9")])
    assert "qrels.parquet row 2: the qrels of query 'q2' name the document 'd9'" in message


def test_double_judgement(tmp_path: Path) -> None:
    message = _refusal(tmp_path, qrels=[*QRELS, qrel("q1", "d1", 0)])
    assert "qrels.parquet row 3: query 'q1' and document 'd1' are judged twice" in message


def test_score_that_is_not_finite(tmp_path: Path) -> None:
    message = _refusal(tmp_path, qrels=[qrel("q1", "d1", 1.0), qrel("q2", "d2", float("nan"))])
    assert "qrels.parquet row 2: score is nan; expected a whole number" in message


def test_span_outside_of_the_text(tmp_path: Path) -> None:
    message = _refusal(tmp_path, queries=[QUERIES[0], query("q2", "dog?", [2, 6], 5)])
    assert "queries.parquet row 2: the span [2, 6] of query 'q2' lies outside of document 'd2'" in message
    assert "which has 5 characters" in message


def test_answer_that_stands_elsewhere(tmp_path: Path) -> None:
    message = _refusal(tmp_path, queries=[QUERIES[0], query("q2", "dog?", [0, 3], 5, answer="dog")])
    assert "characters 0 to 3 of document 'd2' are 'a d', but the answer is 'dog'" in message


@pytest.mark.parametrize("span", [[3, 3], [5, 2], [-1, 2]])
def test_span_that_is_none(tmp_path: Path, span: list[int]) -> None:
    message = _refusal(tmp_path, queries=[QUERIES[0], query("q2", "dog?", span, 5)])
    assert (
        f"queries.parquet row 2: pos_char_span is [{span[0]}, {span[1]}]; expected 0 <= start < end"
        in message
    )


def test_span_that_is_not_finite(tmp_path: Path) -> None:
    queries = [query("q1", "cat?", [4.0, 7.0], 22), query("q2", "dog?", [2.0, float("inf")], 5)]
    assert "row 2: pos_char_span is inf; expected a whole number" in _refusal(tmp_path, queries=queries)


def test_empty_query(tmp_path: Path) -> None:
    message = _refusal(tmp_path, queries=[QUERIES[0], query("q2", " ", [2, 5], 5, answer="dog")])
    assert "queries.parquet row 2: query 'q2' has no text (1 such questions)" in message
    data = load(tmp_path, bad_records="skip")
    assert [asked.query_id for asked in data.queries] == ["q1"]
    assert list(data.left_out.values()) == [1]


def test_blank_gold_document(tmp_path: Path) -> None:
    message = _refusal(tmp_path, corpus=[CORPUS[0], document("d2", " ")])
    assert "corpus.parquet row 2: document 'd2' is blank, but query 'q2' is to be answered by it" in message


def test_blank_document_that_answers_too(tmp_path: Path) -> None:
    corpus = [*CORPUS, document("d3", "")]
    assert "'d3' is blank" in _refusal(tmp_path, corpus=corpus, qrels=[*QRELS, qrel("q1", "d3")])
    posir(tmp_path, corpus, QUERIES, [*QRELS, qrel("q1", "d3", 0)])
    assert load(tmp_path).left_out == {"blank documents": 1}


def test_half_a_character(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    line = '{"question": "q?", "content": "a \\ud800", "span_class": ["end"]}\n'
    path.write_text(line)
    with pytest.raises(DataError, match=r"rows\.jsonl:1: document .* has half a character"):
        load(path)
    path.write_text('{"question": "\\ud800", "content": "one", "span_class": ["end"]}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:1: query .* has half a character"):
        load(path)


def test_relevant_documents_in_several_indexes(tmp_path: Path) -> None:
    corpus = [document("d1", "the cat sat on the mat", shift=0), document("d2", "a dog", shift=1)]
    message = _refusal(tmp_path, corpus=corpus, qrels=[*QRELS, qrel("q1", "d2")])
    assert "query 'q1' has relevant documents in several indexes (shift 0, shift 1)" in message


def test_missing_column_and_missing_file(tmp_path: Path) -> None:
    message = _refusal(tmp_path, queries=[{"_id": "q1"}])
    assert "queries.parquet: expected _id, text, but text is missing" in message
    (tmp_path / "qrels.parquet").unlink()
    with pytest.raises(DataError, match=r"expected corpus.parquet, queries.parquet and qrels.parquet"):
        load(tmp_path)


def test_damaged_file(tmp_path: Path) -> None:
    posir(tmp_path, CORPUS, QUERIES, QRELS)
    path = tmp_path / "corpus.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"corpus\.parquet: not a readable Parquet file"):
        load(tmp_path)


def test_nothing_to_measure_on(tmp_path: Path) -> None:
    message = _refusal(tmp_path, qrels=[qrel("q1", "d1", 0)])
    assert "no question is left to measure on (2 questions without a relevant document)" in message


def test_squad_answer_that_stands_elsewhere(tmp_path: Path) -> None:
    rows = [
        {
            "id": "1",
            "context": "the cat",
            "question": "q?",
            "answers": {"text": ["cat"], "answer_start": [3]},
        }
    ]
    with pytest.raises(DataError, match=r"rows.jsonl:1: characters 3 to 6 .* are ' ca'"):
        load(write_lines(tmp_path / "rows.jsonl", rows))


def test_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "q?", "content": "one", "span_class": ["end"]}\n{"question": \n')
    with pytest.raises(DataError, match=r"rows\.jsonl:2: not valid JSON"):
        load(path)
