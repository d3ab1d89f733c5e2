"""A chunk turned around: which words stand where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ab.counterfactual import evidence_first, evidence_last, turned

TEXT = "One two. Three four.\n\nFive six. Seven."


def span(part: str, text: str = TEXT) -> tuple[int, int]:
    return text.index(part), text.index(part) + len(part)


@pytest.mark.parametrize(
    ("part", "first", "last"),
    [
        ("One two.", TEXT, "Three four.\n\nFive six. Seven. One two."),
        ("Three", "Three four.\n\nFive six. Seven. One two.", "Five six. Seven.\n\nOne two. Three four."),
        ("Five six.", "Five six. Seven.\n\nOne two. Three four.", "Seven. One two. Three four.\n\nFive six."),
        ("six. Sev", "Five six. Seven.\n\nOne two. Three four.", TEXT),
        ("Seven.", "Seven. One two. Three four.\n\nFive six.", TEXT),
    ],
)
def test_whole_sentences_of_the_evidence_stand_at_the_end(part: str, first: str, last: str) -> None:
    assert evidence_first(TEXT, span(part)) == first
    assert evidence_last(TEXT, span(part)) == last


def test_scripts_without_spaces_get_none() -> None:
    text = "北京很大。上海也大。"
    assert evidence_first(text, span("上海", text)) == "上海也大。北京很大。"


@pytest.mark.parametrize("text", ["One.", "  One.  ", "One two"])
def test_a_single_sentence_stays(text: str) -> None:
    assert evidence_first(text, (0, len(text))) == text
    assert evidence_last(text, (0, len(text))) == text


@given(st.text(alphabet=st.sampled_from("ab. \n界"), max_size=30), st.integers(0, 30))
def test_no_visible_character_is_added_or_lost(text: str, offset: int) -> None:
    offset = min(offset, len(text))
    result = turned(text, offset)
    assert sorted("".join(result.split())) == sorted("".join(text.split()))
    assert len(result.strip()) <= len(text)
