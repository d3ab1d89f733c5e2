"""Pseudo-queries: every block visits every position, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pipeline.evaluation.pseudo_queries import (
    Passage,
    cut_passage,
    make_query,
    pseudo_set,
    sample_chunks,
    words,
)
from pipeline.evaluation.scoring import design_of
from pipeline.records import Chunk

SENTENCES = [
    "Copper kettles in the northern workshops were riveted by hand before dawn.",
    "Most visitors arrive by ferry and leave with the last evening train.",
    "A grey heron stood motionless above the shallow water for nearly an hour.",
    "Tax records from that decade list eleven bakers and only two clock makers.",
    "The second violin section rehearsed the slow movement until the lights failed.",
    "Rain gauges along the ridge reported less than half of the usual amount.",
]


def chunk(text: str, name: str = "doc") -> Chunk:
    return Chunk(name, 0, 0, len(text), text, 99)


def passage(number: int = 0) -> Passage:
    made = cut_passage(chunk(" ".join(SENTENCES), f"doc{number}"), 3, seed=1)
    assert made is not None
    return made


def test_blocks_are_runs_of_whole_sentences_of_about_equal_length() -> None:
    made = passage()

    assert [block.text for block in made.blocks] == [" ".join(SENTENCES[i : i + 2]) for i in (0, 2, 4)]
    assert all(sentence in block.text for block in made.blocks for sentence in block.sentences)


def test_rotations_hold_the_same_blocks_each_once_in_every_place() -> None:
    texts = [rotation.split("\n\n") for rotation in passage().rotations()]

    assert [sorted(blocks) for blocks in texts] == [sorted(texts[0])] * 3
    for place in range(3):
        assert len({blocks[place] for blocks in texts}) == 3


def test_a_set_is_known_by_its_ids_and_questions_as_well_as_by_its_texts() -> None:
    """Chunk tables are kept by it: a renamed corpus must not find that of the old names."""
    made = passage()
    others = [
        replace(made, passage_id="renamed"),
        replace(made, blocks=tuple(replace(each, sentences=each.sentences[:1]) for each in made.blocks)),
    ]
    sets = [pseudo_set([own], name="mine", n_words=5) for own in (made, *others)]

    assert len({each.fingerprint for each in sets}) == 3


def test_every_question_stands_once_in_every_group_and_its_span_is_its_sentence() -> None:
    data = pseudo_set([passage(number) for number in range(4)], name="mine", n_words=5)
    texts = {document.doc_id: document.text for document in data.documents()}

    design = design_of(data.queries, data.group_names)
    assert design.is_paired
    assert design.n_clusters == 4
    assert {corpus.name: len(corpus.doc_ids) for corpus in data.corpora} == {
        f"rotation {i}": 4 for i in range(3)
    }
    for query in data.queries:
        assert query.span is not None
        assert query.gold_doc in next(c.doc_ids for c in data.corpora if c.name == query.corpus)
        third = int(3 * (query.span[0] + query.span[1]) / 2 / len(texts[query.gold_doc]))
        assert query.group == data.group_names[third]
        assert texts[query.gold_doc][slice(*query.span)] in SENTENCES


def test_the_same_passages_and_words_give_the_same_fingerprint_and_others_another() -> None:
    prints = [
        pseudo_set([passage(n) for n in numbers], name="x", n_words=n_words).fingerprint
        for numbers, n_words in (((0, 1), 5), ((0, 1), 5), ((0, 1), 4))
    ]

    assert prints[0] == prints[1]
    assert prints[2] != prints[0]


def test_a_query_keeps_the_rarest_words_in_their_order() -> None:
    frequency = Counter({"the": 9, "cat": 2, "sat": 1, "on": 8, "mat": 1})

    assert make_query("The cat sat on the mat.", frequency, 3) == "cat sat mat"
    assert make_query("The cat sat on the mat.", frequency, 99) == "the cat sat on mat"


def test_words_of_scripts_without_spaces_are_pairs_of_characters() -> None:
    assert words("東京都に住む Tokyo 2024") == ["東京", "都に", "住む", "tokyo", "2024"]


@pytest.mark.parametrize(
    "text", ["", "Too short. No. Yes.", SENTENCES[0], " ".join([SENTENCES[0], "No.", "Yes."])]
)
def test_passages_that_cannot_be_asked_about_in_every_third_are_left_out(text: str) -> None:
    assert cut_passage(chunk(text), 3, seed=0) is None


def test_a_sample_is_in_order_the_same_for_a_seed_and_fair() -> None:
    stream = [chunk("x", f"{number}") for number in range(30)]
    counts: Counter[str] = Counter()
    for seed in range(600):
        sampled, n_seen = sample_chunks(stream, 10, seed=seed)
        ids = [int(one.doc_id) for one in sampled]
        assert ids == sorted(set(ids))
        assert (len(ids), n_seen) == (10, 30)
        counts.update(one.doc_id for one in sampled)

    assert sample_chunks(stream, 10, seed=5) == sample_chunks(stream, 10, seed=5)
    # Each is drawn 200 times on average, give or take 12.
    assert np.abs(np.array(list(counts.values())) - 200).max() < 50
    assert len(counts) == 30


@pytest.mark.parametrize("text", ["မြန်မာစာ", "ភាសាខ្មែរ", "ภาษาไทย", "時々𠮷野家"])
def test_what_is_written_without_spaces_is_taken_two_characters_at_a_time(text: str) -> None:
    assert words(text) == [text[place : place + 2] for place in range(0, len(text), 2)]
