"""Evidence: the windows, their offsets, the choice among them, and what is embedded for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ab.evidence import Evidence, EvidenceSource, Passage, Question, find_evidence
from pipeline.ab.windows import coverage, covering_sentences, sentence_spans, terms

WORDS = ["river", "cat", "answer", "late"]


class Bag:
    """Embeds by counting words, at unit length: similarities can be computed in the head."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        counts = np.array(
            [[text.lower().split().count(word) for word in WORDS] for text in texts], np.float32
        )
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


def asked(text: str) -> Question:
    return Question(text, Bag()([text])[0])


def one(question: str, passage: Passage, **settings: float) -> Evidence:
    (found,) = find_evidence(asked(question), [passage], Bag(), **settings)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_sentences_have_exact_spans() -> None:
    text = "  The cat sat. Is it late?\nA line\nwrapped hard.\n\n* item  "
    assert [text[start:end] for start, end in sentence_spans(text)] == [
        "The cat sat.",
        "Is it late?",
        "A line\nwrapped hard.",
        "* item",
    ]


@given(st.text(alphabet=st.sampled_from("aé界🚀 .!?。\n\t\u200b\u0301"), max_size=80))
def test_sentences_hold_every_visible_character_once(text: str) -> None:
    spans = sentence_spans(text)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    in_sentences = "".join(text[start:end] for start, end in spans)
    assert "".join(in_sentences.split()) == "".join(text.split())


def test_words_are_compared_by_their_beginnings_and_unspaced_scripts_by_pairs() -> None:
    assert terms("Rotated, rotating ROTATION!") == {"rotat"}
    assert terms("北京大学 a") == {"北京", "京大", "大学", "a"}
    assert terms("水") == {"水"}
    # Iteration mark, and the planes beyond the first: both belong to the run of characters.
    assert terms("時々𠮷") == {"時々", "々𠮷"}


def test_coverage_weighs_rare_words_more() -> None:
    sentences = [terms("the river"), terms("the cat"), terms("the cat")]
    shared = coverage(terms("river the"), sentences, weighted_by=sentences)
    # log(1 + 2.5/1.5) for "river" in one of three sentences, log(1 + 0.5/3.5) for "the" in all.
    rare, common = np.log(1 + 2.5 / 1.5), np.log(1 + 0.5 / 3.5)
    assert shared == pytest.approx([1.0, common / (rare + common), common / (rare + common)])
    assert coverage(frozenset(), sentences, weighted_by=sentences).tolist() == [0.0, 0.0, 0.0]


def test_the_best_window_is_found_with_offsets_in_the_document() -> None:
    document = "Nothing here . " * 4 + "the river is the answer . then the cat sat . "
    chunk_start = 15
    found = one("river answer", Passage(document[chunk_start:], chunk_start, len(document)))
    assert found.text == document[found.start : found.end] == "the river is the answer ."
    # Similarity 1 and every word of the question.
    assert found.score == pytest.approx(1.7)
    middle = (found.start + found.end) / 2
    assert found.position_in_document == pytest.approx(middle / len(document))
    assert found.position_in_chunk == pytest.approx((middle - chunk_start) / (len(document) - chunk_start))
    assert found.source is EvidenceSource.ESTIMATE


def test_an_answer_of_two_sentences_is_one_window() -> None:
    found = one("river answer", Passage("The cat . The river . The answer . Late .", 0, 41))
    assert found.text == "The river . The answer ."
    # Both sentences: similarity 1/sqrt(2), both words, and the bonus of a pair.
    assert found.score == pytest.approx(1 / np.sqrt(2) + 0.7 + 0.05, abs=1e-6)


def test_a_sentence_that_adds_nothing_is_left_out() -> None:
    assert one("river", Passage("The cat . The river . Late late .", 0, 33)).text == "The river ."


def test_confidence_is_the_margin_over_the_best_window_elsewhere() -> None:
    text = "The river answer . Late . The river . Late ."
    found = one("river answer", Passage(text, 0, len(text)), lexical_weight=0.0)
    # Without words the best is the sentence itself (1.0); elsewhere, not overlapping it, "The river ."
    assert found.text == "The river answer ."
    assert found.confidence == pytest.approx(1.0 - 1 / np.sqrt(2), abs=1e-6)


def test_one_sentence_is_its_own_evidence_without_confidence() -> None:
    found = one("river", Passage("the river", 0, 9))
    assert (found.text, found.position_in_chunk, found.confidence) == ("the river", 0.5, None)


def test_of_equal_windows_the_first_is_taken() -> None:
    text = "The river . Late . The river . Late ."
    found = one("river", Passage(text, 0, len(text)))
    assert (found.start, found.confidence) == (0, 0.0)


def test_a_gold_span_replaces_the_estimate() -> None:
    text = "The river . Late . The cat . Late ."
    found = one("river", Passage(text, 100, 200, gold=(19, 26)))
    assert (found.start, found.end, found.text) == (119, 126, "The cat")
    assert found.source is EvidenceSource.GOLD
    assert found.confidence is None
    assert found.score == 0.0


def test_all_passages_share_one_batch_and_equal_texts_are_embedded_once() -> None:
    embed = Bag()
    passages = [Passage("The cat sat . Late .", 0, 20), Passage("   ", 0, 3), Passage("Late .", 5, 12)]
    found = find_evidence(asked("late"), passages, embed)
    assert embed.calls == [["The cat sat .", "Late ."]]
    assert [evidence.text if evidence else None for evidence in found] == ["Late .", None, "Late ."]


def test_nothing_is_embedded_for_nothing() -> None:
    embed = Bag()
    assert find_evidence(asked("late"), [Passage(" ", 0, 1)], embed) == [None]
    assert embed.calls == []


def test_only_the_sentences_that_share_most_words_are_embedded() -> None:
    sentences = [f"Filler number {n} ." for n in range(10)]
    sentences[6] = "The river answer ."
    sentences[7] = "An answer ."
    embed = Bag()
    passage = Passage(" ".join(sentences), 0, 300)
    (found,) = find_evidence(asked("river answer"), [passage], embed, n_sentences=3)
    # Beside the two that share words, the neighbour that completes a window with the better of them.
    assert embed.calls == [["Filler number 5 .", "The river answer .", "An answer ."]]
    assert found is not None
    assert found.text == "The river answer ."


@pytest.mark.parametrize(("question", "settings"), [("late", {}), ("river", {"lexical_weight": 0.0})])
def test_where_words_say_nothing_every_sentence_is_embedded(
    question: str, settings: dict[str, float]
) -> None:
    embed = Bag()
    text = " ".join(["The cat ."] * 5 + ["The river ."] + ["A dog ."] * 5)
    find_evidence(asked(question), [Passage(text, 0, 200)], embed, n_sentences=2, **settings)  # type: ignore[arg-type]
    assert set(embed.calls[0]) == {"The cat .", "The river .", "A dog ."}


def test_a_span_is_widened_to_whole_sentences() -> None:
    text = "The cat sat. A dog is late. Hello."
    sentences = sentence_spans(text)
    assert covering_sentences(sentences, (4, 7)) == (0, 12)
    assert covering_sentences(sentences, (8, 15)) == (0, 27)
    assert covering_sentences(sentences, (12, 13)) == (12, 13)
