"""How much of a document is embedded, and that nothing goes uncounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import Config
from pipeline.errors import DataError
from pipeline.evaluation.cutting import DocumentLength, WholeDocuments, make_cutter, read_lengths, write_cut
from pipeline.evaluation.scoring import count_truncation
from pipeline.records import Document
from tests.pipeline.evaluation.making import document, load, posir, qrel, query
from tests.pipeline.tiny import bytelevel, wordpiece


def _whole(max_length: int, prompt: str = "", *, may_cut: bool = True) -> WholeDocuments:
    return WholeDocuments(wordpiece(), max_length=max_length, prompt=prompt, may_cut=may_cut)


def test_a_document_that_fits_is_left_alone() -> None:
    cutter = _whole(8)
    ((_, (chunk,)),) = cutter.stream([Document("d", " the cat sat on the mat ")])
    assert chunk.text == " the cat sat on the mat "
    assert chunk.n_tokens == 8
    assert cutter.lengths == [DocumentLength("d", 24, 6, 24)]
    assert not cutter.lengths[0].is_cut


def test_a_document_that_does_not_fit_ends_with_the_last_token_that_does() -> None:
    cutter = _whole(6)
    ((_, (chunk,)),) = cutter.stream([Document("d", "the cat sat on the mat")])
    assert (chunk.text, chunk.n_tokens) == ("the cat sat on", 6)
    assert cutter.lengths == [DocumentLength("d", 22, 6, 14)]


def test_the_prompt_takes_its_share() -> None:
    ((_, (chunk,)),) = _whole(6, "hello ").stream([Document("d", "the cat sat on the mat")])
    assert (chunk.text, chunk.n_tokens) == ("the cat sat", 6)


def test_a_cut_inside_of_a_word_or_a_character_still_fits() -> None:
    tokenizer = bytelevel()
    text = "hello 😀😀😀 world"
    whole = len(tokenizer.encode(text))
    for max_length in range(1, whole):
        cutter = WholeDocuments(tokenizer, max_length=max_length, prompt="", may_cut=True)
        ((_, (chunk,)),) = cutter.stream([Document("d", text)])
        assert len(tokenizer.encode(chunk.text)) <= max_length
        assert text.startswith(chunk.text)


def test_a_long_document_can_be_refused() -> None:
    with pytest.raises(DataError, match=r"document 'd' has 8 tokens .* but the model takes 6"):
        list(_whole(6, may_cut=False).stream([Document("d", "the cat sat on the mat")]))


def test_chunks_hold_all_of_a_document(tmp_path: Path) -> None:
    config = Config.model_validate({"evaluate": {"chunk_tokens": 3}})
    cutter = make_cutter(config, wordpiece(), max_length=64, prompt="")
    counts = write_cut(
        [Document("d", "the cat sat. on the mat.")],
        cutter,
        chunks=tmp_path / "chunks.parquet",
        lengths=tmp_path / "lengths.parquet",
    )
    assert counts["chunks"] == 3
    assert counts["cut"] == 0
    assert read_lengths(tmp_path / "lengths.parquet") == {"d": DocumentLength("d", 24, 8, 24)}


def test_truncation_is_counted_by_group(tmp_path: Path) -> None:
    text = "the cat sat on the mat"  # 22 characters; 14 of them fit
    corpus = [document("long", text), document("short", "a dog")]
    queries = [
        query("early", "?", [0, 3], 22),  # 0-20%
        query("across", "?", [12, 16], 22),  # 60-80%: ends behind the cut
        query("late", "?", [19, 22], 22),  # 80-100%
        query("late-but-short", "?", [4, 5], 5),  # 80-100%
    ]
    golds = {"early": "long", "across": "long", "late": "long", "late-but-short": "short"}
    data = load(posir(tmp_path, corpus, queries, [qrel(name, gold) for name, gold in golds.items()]))
    cutter = _whole(6)
    list(cutter.stream(data.documents()))
    counted = count_truncation(data, {length.doc_id: length for length in cutter.lengths})
    assert [(g.group, g.n_queries, g.golds_cut, g.answers_cut, g.answers_known) for g in counted] == [
        ("0-20%", 1, 1, 0, 1),
        ("60-80%", 1, 1, 1, 1),
        ("80-100%", 2, 1, 1, 2),
    ]
