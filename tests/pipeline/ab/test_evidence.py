"""Evidence: the windows, their offsets, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ab.evidence import Passage, find_evidence, sentence_spans

WORDS = ["river", "cat", "answer", "late"]


def bag(texts: Sequence[str]) -> np.ndarray:
    """Embed by counting words, at unit length: scores can be computed in the head."""
    counts = np.array([[text.lower().split().count(word) for word in WORDS] for text in texts], np.float32)
    return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


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


def test_the_best_window_is_found_with_offsets_in_the_document() -> None:
    document = "Nothing here . " * 4 + "the river is the answer . then the cat sat . "
    chunk_start = 15
    passage = Passage(document[chunk_start:], chunk_start, len(document))
    query = bag(["river answer"])[0]
    (evidence,) = find_evidence(query, [passage], bag)
    assert evidence is not None
    assert evidence.text == document[evidence.start : evidence.end] == "the river is the answer ."
    assert evidence.score == pytest.approx(1.0)
    middle = (evidence.start + evidence.end) / 2
    assert evidence.position_in_document == pytest.approx(middle / len(document))
    assert evidence.position_in_chunk == pytest.approx((middle - chunk_start) / (len(document) - chunk_start))


def test_an_answer_of_two_sentences_is_one_window() -> None:
    passage = Passage("The cat . The river . The answer . Late .", 0, 41)
    (evidence,) = find_evidence(bag(["river answer"])[0], [passage], bag)
    assert evidence is not None
    assert evidence.text == "The river . The answer ."


def test_all_passages_share_two_batches_and_equal_texts_are_embedded_once() -> None:
    calls: list[list[str]] = []

    def embed(texts: Sequence[str]) -> np.ndarray:
        calls.append(list(texts))
        return bag(texts)

    passages = [Passage("The cat sat . Late .", 0, 20), Passage("   ", 0, 3), Passage("Late .", 5, 12)]
    found = find_evidence(bag(["late"])[0], passages, embed)
    assert calls == [["The cat sat .", "Late ."], ["The cat sat . Late ."]]
    assert [evidence.text if evidence else None for evidence in found] == ["Late .", None, "Late ."]
