"""Every layout, read into the same form; values computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.errors import DataError, UsageError
from tests.pipeline.evaluation.making import (
    document,
    load,
    posir,
    qrel,
    query,
    rotated,
    write_lines,
    write_parquet,
)

TEXT = "x" * 100


def _one_set(folder: Path, *, ids: str = "", ending: str = "", **columns: object) -> Path:
    corpus = [document(f"d1{ids}", TEXT), document(f"d2{ids}", "y" * 50)]
    queries = [query("q1", f"early{ids}", [0, 10], 100, **columns), query("q2", f"late{ids}", [85, 95], 100)]
    qrels = [qrel("q1", f"d1{ids}"), qrel("q2", f"d1{ids}", 2), qrel("q2", f"d2{ids}", 1)]
    return posir(folder, corpus, queries, qrels, ending=ending)


def test_posir_positions_and_fifths(tmp_path: Path) -> None:
    data = load(_one_set(tmp_path / "set"))
    assert (data.name, data.layout, data.group_names) == ("set", "posir", ("0-20%", "80-100%"))
    assert [query.position for query in data.queries] == [0.05, 0.9]
    assert [query.group for query in data.queries] == ["0-20%", "80-100%"]
    assert data.queries[1].qrels == {"d1": 2, "d2": 1}
    assert data.queries[1].gold_doc == "d1"
    assert [(corpus.name, corpus.doc_ids) for corpus in data.corpora] == [("all", ("d1", "d2"))]
    assert [found.text for found in data.documents()] == [TEXT, "y" * 50]
    assert data.notes == (
        "no question in group 20-40%",
        "no question in group 40-60%",
        "no question in group 60-80%",
    )


def test_posir_twenty_bins_and_thirds(tmp_path: Path) -> None:
    folder = _one_set(tmp_path / "set")
    assert load(folder, groups="twentieths").group_names == ("0-5%", "85-90%")
    assert load(folder, groups="thirds").group_names == ("early", "late")


def test_posir_domains_are_indexes_of_their_own(tmp_path: Path) -> None:
    for domain in ("law", "news"):
        _one_set(tmp_path / "eng-Latn" / domain)
        qrels = tmp_path / "eng-Latn" / domain / "qrels.parquet"
        (tmp_path / "eng-Latn" / domain / "qrels").mkdir()
        qrels.rename(tmp_path / "eng-Latn" / domain / "qrels" / "test.parquet")
    data = load(tmp_path / "eng-Latn")
    assert [corpus.name for corpus in data.corpora] == ["law/all", "news/all"]
    assert [query.query_id for query in data.queries] == ["law/q1", "law/q2", "news/q1", "news/q2"]
    assert data.queries[2].corpus == "news/all"
    assert load(tmp_path, language="eng-Latn").n_documents == 4
    assert load(tmp_path).n_documents == 4  # the only language


def test_posir_across_languages_by_shared_query_ids(tmp_path: Path) -> None:
    _one_set(tmp_path, ids="-en", ending="en")
    _one_set(tmp_path, ids="-de", ending="de")
    write_parquet(tmp_path / "queries.de.parquet", [query("q1", "früh", [0, 1], 7)])
    data = load(tmp_path, language="de", corpus_language="en")
    (asked,) = data.queries
    assert (asked.text, asked.gold_doc, asked.span, asked.doc_chars) == ("früh", "d1-en", (0, 10), 100)
    assert data.left_out == {"questions without a translation": 1}
    assert data.name.endswith("de-en")


def test_posir_across_languages_by_qrels_where_query_ids_differ(tmp_path: Path) -> None:
    _one_set(tmp_path, ending="en")
    posir(
        tmp_path,
        [document("d1", "z" * 40)],
        [query("f1", "tôt", [30, 36], 40)],
        [qrel("f1", "d1")],
        ending="fr",
    )
    (asked,) = load(tmp_path, language="fr", corpus_language="en").queries
    assert (asked.query_id, asked.text, asked.gold_doc, asked.group) == ("f1", "tôt", "d1", "80-100%")


def test_posir_asks_which_language(tmp_path: Path) -> None:
    _one_set(tmp_path, ending="en")
    _one_set(tmp_path, ending="de")
    with pytest.raises(UsageError, match=r"several languages \(de, en\); choose with --language"):
        load(tmp_path)
    with pytest.raises(UsageError, match="no language 'xx'; there are de, en"):
        load(tmp_path, language="xx")


def test_rotations_are_indexes_of_their_own_or_siblings(tmp_path: Path) -> None:
    data = load(rotated(tmp_path / "set"))
    assert [(corpus.name, len(corpus.doc_ids)) for corpus in data.corpora] == [
        ("shift 0", 2),
        ("shift 1", 2),
        ("shift 2", 2),
    ]
    assert data.group_names == ("1 of 3", "2 of 3", "3 of 3")
    assert {query.group for query in data.queries if query.question_id == "q01"} == set(data.group_names)
    assert {query.cluster for query in data.queries} == {"a0", "a1"}
    siblings = load(tmp_path / "set", protocol="siblings")
    assert [(corpus.name, len(corpus.doc_ids)) for corpus in siblings.corpora] == [("all rotations", 6)]
    assert siblings.fingerprint != data.fingerprint


def test_siblings_need_rotations(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs documents in rotations"):
        load(_one_set(tmp_path / "set"), protocol="siblings")


def _squad(path: Path) -> Path:
    context = "a" * 99 + " b" + "c" * 450  # 551 characters
    paragraphs = [
        {
            "context": context,
            "qas": [
                {"id": "1", "question": "at 100?", "answers": [{"text": "b", "answer_start": 100}]},
                {"id": "2", "question": "at 0?", "answers": [{"text": "a", "answer_start": 0}, {}]},
                {"id": "3", "question": "at 500?", "answers": [{"text": "cc", "answer_start": 500}]},
                {"id": "4", "question": "nowhere?", "answers": [], "is_impossible": True},
            ],
        },
        {"context": "nobody asks", "qas": []},
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "T", "paragraphs": paragraphs}]}))
    return path


def test_squad_files_become_squad_posq(tmp_path: Path) -> None:
    for data in (load(_squad(tmp_path / "squad" / "dev-v2.0.json")), load(tmp_path / "squad")):
        assert data.layout == "squad"
        assert {query.query_id: query.group for query in data.queries} == {
            "1": "100-200",
            "2": "0-100",
            "3": "500+",
        }
        assert data.group_names == ("0-100", "100-200", "500+")
        assert data.left_out == {"unanswerable questions": 1}
        assert data.n_documents == 2
        assert data.queries[0].span == (100, 101)


def test_squad_rows_of_the_datasets_library(tmp_path: Path) -> None:
    import datasets

    rows = [
        {
            "id": f"{split}{number}",
            "title": "T",
            "context": "the cat sat",
            "question": f"{split}?",
            "answers": {"text": ["cat"] if number else [], "answer_start": [4] if number else []},
        }
        for split in ("train", "validation")
        for number in (0, 1)
    ]
    saved = datasets.DatasetDict(
        {"train": datasets.Dataset.from_list(rows[:2]), "validation": datasets.Dataset.from_list(rows[2:])}
    )
    saved.save_to_disk(tmp_path / "squad_v2")
    data = load(tmp_path / "squad_v2")
    assert [query.query_id for query in data.queries] == ["train1", "validation1"]
    assert data.left_out == {"unanswerable questions": 2}
    assert data.n_documents == 1
    assert [query.query_id for query in load(tmp_path / "squad_v2", split="train").queries] == ["train1"]
    assert load(write_parquet(tmp_path / "squad.parquet", rows)).n_documents == 1


def _fineweb_rows() -> list[dict[str, object]]:
    return [
        {"question": "first?", "content": "one", "span_class": ["beginning"]},
        {"question": "both?", "content": "one", "span_class": ["middle", "end"]},
        {"question": None, "content": "two", "span_class": None},
        {"question": "old name?", "content": "three", "span_class": ["after"]},
    ]


def test_fineweb_counts_a_question_in_each_of_its_classes(tmp_path: Path) -> None:
    data = load(write_lines(tmp_path / "fineweb.jsonl", _fineweb_rows()))
    assert data.layout == "fineweb"
    assert data.group_names == ("beginning", "middle", "end")
    assert [(query.query_id, query.group) for query in data.queries] == [
        ("q1-beginning", "beginning"),
        ("q2-middle", "middle"),
        ("q2-end", "end"),
        ("q4-end", "end"),
    ]
    assert data.n_documents == 3
    assert data.queries[1].gold_doc == data.queries[0].gold_doc
    assert data.queries[0].position is None


def test_fineweb_from_a_saved_dataset(tmp_path: Path) -> None:
    import datasets

    datasets.Dataset.from_list(_fineweb_rows()).save_to_disk(tmp_path / "FineWeb-PosQ")
    data = load(tmp_path / "FineWeb-PosQ")
    assert (data.name, len(data.queries)) == ("FineWeb-PosQ", 4)


def test_fineweb_refuses_an_unknown_class(tmp_path: Path) -> None:
    rows = [{"question": "q?", "content": "one", "span_class": ["centre"]}]
    with pytest.raises(DataError, match=r"rows.jsonl:1: span_class is \['centre'\]"):
        load(write_lines(tmp_path / "rows.jsonl", rows))


def _beir(folder: Path, *, spans: bool) -> Path:
    write_lines(
        folder / "corpus.jsonl",
        [
            {"_id": "d1", "title": "Cats", "text": "the cat sat on the mat"},
            {"_id": "d2", "title": "", "text": "a dog"},
            {"_id": "d3", "title": "", "text": "  "},
        ],
    )
    write_lines(folder / "queries.jsonl", [{"_id": "q1", "text": "mat?"}, {"_id": "q2", "text": "unjudged"}])
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    if spans:
        (folder / "spans.tsv").write_text("q1\td1\t19\t22\n")
    return folder


def test_beir_without_spans_knows_no_positions(tmp_path: Path) -> None:
    data = load(_beir(tmp_path, spans=False))
    assert (data.layout, data.group_names, data.has_positions) == ("beir", ("all",), False)
    assert [found.text for found in data.documents()] == ["Cats the cat sat on the mat", "a dog"]
    assert data.left_out == {"questions without a relevant document": 1, "blank documents": 1}
    with pytest.raises(UsageError, match="no answer's place in its text is known"):
        load(tmp_path, groups="thirds")


def test_beir_spans_count_from_behind_the_title(tmp_path: Path) -> None:
    data = load(_beir(tmp_path, spans=True))
    (asked,) = data.queries
    assert asked.span == (24, 27)  # "Cats " comes before
    assert next(data.documents()).text[24:27] == "mat"
    assert asked.group == "80-100%"


def test_a_span_that_cannot_be_is_named_by_its_line(tmp_path: Path) -> None:
    _beir(tmp_path, spans=True)
    (tmp_path / "spans.tsv").write_text("query-id\tcorpus-id\tstart\tend\n\nq1\td1\t19\t99\n")
    with pytest.raises(DataError, match=r"spans\.tsv:3: the span .* of query 'q1' lies outside"):
        load(tmp_path)


def test_beir_asks_which_split(tmp_path: Path) -> None:
    _beir(tmp_path, spans=False)
    (tmp_path / "qrels" / "test.tsv").rename(tmp_path / "qrels" / "dev.tsv")
    assert len(load(tmp_path).queries) == 1
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(UsageError, match="one of dev, train"):
        load(tmp_path)
    assert len(load(tmp_path, split="dev").queries) == 1


def test_trec(tmp_path: Path) -> None:
    (tmp_path / "collection.tsv").write_text("d1\tthe cat sat\nd2\ta dog\twith a tab\n")
    (tmp_path / "topics.tsv").write_text("1\tcat?\n")
    (tmp_path / "qrels.txt").write_text("1 0 d1 2\n1 0 d2 0\n")
    (tmp_path / "spans.tsv").write_text("query-id\tcorpus-id\tstart\tend\n1\td1\t4\t7\n")
    data = load(tmp_path)
    (asked,) = data.queries
    assert (data.layout, asked.qrels, asked.span, asked.group) == (
        "trec",
        {"d1": 2, "d2": 0},
        (4, 7),
        "40-60%",
    )
    assert [found.text for found in data.documents()] == ["the cat sat", "a dog\twith a tab"]


def test_unknown_layout_says_what_was_found_and_expected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"found notes.txt; expected one of\n  posir: corpus.parquet"):
        load(tmp_path)
    rows = write_lines(tmp_path / "rows.jsonl", [{"a": 1}])
    with pytest.raises(DataError, match=r"found rows with a; expected one of\n  squad: "):
        load(rows, layout="squad")
    with pytest.raises(DataError, match="no such file or folder"):
        load("nowhere")
    with pytest.raises(UsageError, match="give --data"):
        load_evaluation_settings_without_data()


def load_evaluation_settings_without_data() -> None:
    from pipeline.config import EvaluateSettings
    from pipeline.evaluation.datasets import load_evaluation_set

    load_evaluation_set(EvaluateSettings())


def test_sample_keeps_a_question_at_all_its_positions(tmp_path: Path) -> None:
    folder = rotated(tmp_path / "set", n_articles=4)
    data = load(folder, sample=5, seed=3)
    assert len(data.queries) == 15
    assert len({query.question_id for query in data.queries}) == 5
    assert data.left_out == {"questions not in the sample": 21}
    assert data.n_documents == 12
    again = load(folder, sample=5, seed=3)
    assert [query.query_id for query in again.queries] == [query.query_id for query in data.queries]
    other = load(folder, sample=5, seed=4)
    assert {q.question_id for q in other.queries} != {q.question_id for q in data.queries}


def test_document_limit_keeps_whole_families_in_every_index(tmp_path: Path) -> None:
    data = load(rotated(tmp_path / "set", n_articles=4), limit_documents=2)
    assert [len(corpus.doc_ids) for corpus in data.corpora] == [2, 2, 2]
    assert len({doc_id.split("-")[0] for corpus in data.corpora for doc_id in corpus.doc_ids}) == 2
    assert len(data.queries) == 18
    assert data.left_out == {
        "documents not among those kept": 6,
        "questions whose document is not among those kept": 18,
    }
    assert len(list(data.documents())) == 6
