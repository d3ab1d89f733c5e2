"""From a corpus to sets of segments: what fits together, and what is left out and why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline.config import CorpusSettings
from pipeline.diagnostics.planning import plan_documents
from pipeline.diagnostics.segments import SegmentSet, TokenRoom, make_sets
from pipeline.diagnostics.settings import DiagnosisSettings
from pipeline.diagnostics.sources import LeftOut, paragraphs_of, read_paragraphs
from pipeline.errors import DataError, UsageError
from tests.conftest import SHARED, write_jsonl
from tests.pipeline.diagnostics.planted import PlantedEncoder, words


def corpus(folder: Path, documents: dict[str, str], name: str = "corpus.jsonl") -> CorpusSettings:
    path = write_jsonl(folder / name, [{"id": key, "text": text} for key, text in documents.items()])
    return CorpusSettings(source=str(path))


def sets_of(settings: CorpusSettings, left_out: Counter[LeftOut] | None = None, **asked) -> list[SegmentSet]:
    encoder = PlantedEncoder({"plain": [1, 1, 1]})
    return make_sets(
        read_paragraphs(settings, asked.get("languages", ()), Counter() if left_out is None else left_out),
        DiagnosisSettings(**{"min_tokens": 2, **asked}),
        count_tokens=encoder.count_tokens,
        room=TokenRoom.of(encoder.count_tokens, asked.pop("max_length", 60)),
        left_out=Counter() if left_out is None else left_out,
    )


def lengths(segment_set: SegmentSet, language: str = "") -> list[int]:
    return sorted(segment[language].n_tokens for segment in segment_set.segments)


def test_paragraphs_are_cut_at_blank_lines():
    assert paragraphs_of("\n a b\nc \n\n \t\n d\n\n\n") == ["a b\nc", "d"]


def test_sets_take_neighbours_by_length_longest_first(tmp_path):
    """One document of paragraphs of 2 to 16 words: by length, and nobody twice."""
    starts = {16: 0, 14: 16, 9: 30, 8: 39, 7: 47, 3: 54, 2: 57}
    order = (2, 16, 8, 3, 14, 9, 7)
    text = "\n\n".join(words(starts[count], count) for count in order)
    left_out: Counter[LeftOut] = Counter()
    sets = sets_of(corpus(tmp_path, {"a": text, "b": text.replace("w", "w0")}), left_out, ratio=2.0)
    assert [lengths(each) for each in sets] == [[9, 14, 16], [9, 14, 16]]
    # 8, 7 and 3 are not of like length, nor 7, 3 and 2: these four are left over in both documents.
    assert left_out == {LeftOut.LEFT_OVER: 8, LeftOut.NO_TRANSLATION: 0}
    wider = sets_of(corpus(tmp_path, {"a": text}), ratio=3.0)
    assert [lengths(each) for each in wider] == [[9, 14, 16], [3, 7, 8]]


def test_segments_within_a_document_or_from_anywhere(tmp_path):
    documents = {f"d{number}": f"{words(8 * number, 4)}\n\n{words(8 * number + 4, 4)}" for number in range(4)}
    settings = corpus(tmp_path, documents)
    with pytest.raises(DataError, match=r"0 sets of 3 .* 8 paragraphs with no others"):
        sets_of(settings)
    assert len(sets_of(settings, within="corpus")) == 2


def test_everything_left_out_is_counted_by_its_reason(tmp_path):
    three = "\n\n".join(words(10 * place, 5) for place in range(3))
    documents = {
        "a": three,
        "again": three,
        "b": "\n\n".join(words(30 + 5 * place, 5) for place in range(3)),
        "c": "\n\n".join(words(45 + 5 * place, 5) for place in range(3)) + "\n\nw1\n\n" + words(0, 30),
    }
    left_out: Counter[LeftOut] = Counter()
    sets = sets_of(corpus(tmp_path, documents), left_out, max_sets=2, max_tokens=20)
    assert len(sets) == 2
    assert {reason: count for reason, count in left_out.items() if count} == {
        LeftOut.REPEATED: 3,
        LeftOut.TOO_SHORT: 1,
        LeftOut.TOO_LONG: 1,
        LeftOut.NOT_DRAWN: 1,
    }


def test_the_seed_decides_which_sets_are_drawn(tmp_path):
    documents = {
        f"d{number}": "\n\n".join(words(6 * number + 2 * place, 2) for place in range(3))
        for number in range(10)
    }
    settings = corpus(tmp_path, documents)
    first, again, other = ([each.set_id for each in sets_of(settings, max_sets=4, seed=s)] for s in (1, 1, 2))
    assert first == again
    assert first != other


def parallel(folder: Path) -> CorpusSettings:
    english = {f"x-en-{n}": "\n\n".join(words(9 * n + 3 * p, 3) for p in range(3)) for n in range(4)}
    german = {
        f"x-de-{n}": "\n\n".join(words(9 * n + 3 * p, 3) + " w60 w61" for p in range(3)) for n in range(5)
    }
    german["x-de-3"] += "\n\nw62 w63"
    corpus(folder, english, "corpus.en.jsonl")
    corpus(folder, german, "corpus.de.jsonl")
    return CorpusSettings(source=str(folder))


def test_a_comparable_corpus_is_joined_by_ids_and_paragraphs(tmp_path):
    left_out: Counter[LeftOut] = Counter()
    sets = sets_of(parallel(tmp_path), left_out, languages=("en", "de"))
    assert [each.set_id for each in sets] == [f"x-*-{n}#0+x-*-{n}#1+x-*-{n}#2" for n in range(3)]
    assert left_out[LeftOut.NO_TRANSLATION] == 1
    assert left_out[LeftOut.NOT_PARALLEL] == 1
    for segment_set in sets:
        for segment in segment_set.segments:
            assert segment["de"].text == segment["en"].text + " w60 w61"


def test_mixed_documents_compare_lengths_over_languages(tmp_path):
    """3 English and 5 German words are of like length within a language at any ratio, mixed from 5/3 on."""
    settings = parallel(tmp_path)
    assert len(sets_of(settings, languages=("en", "de"), ratio=1.0)) == 3
    with pytest.raises(DataError, match="0 sets"):
        sets_of(settings, languages=("en", "de"), mixed=True, ratio=1.6)
    assert len(sets_of(settings, languages=("en", "de"), mixed=True, ratio=1.7)) == 3


def test_languages_that_are_not_there_are_named(tmp_path):
    settings = parallel(tmp_path)
    with pytest.raises(UsageError, match=r"no file corpus\.fr\..*there: de, en"):
        sets_of(settings, languages=("en", "fr"))
    with pytest.raises(UsageError, match="holds the languages de, en; choose with --languages"):
        sets_of(settings)


def test_ids_that_share_nothing_are_refused(tmp_path):
    corpus(tmp_path, {"a": "w1"}, "corpus.en.jsonl")
    corpus(tmp_path, {"b": "w1"}, "corpus.de.jsonl")
    with pytest.raises(DataError, match="no document id is shared by the languages en, de"):
        sets_of(CorpusSettings(source=str(tmp_path)), languages=("en", "de"))


class Gluey(PlantedEncoder):
    """Joining costs this tokenizer more than its parts say: two words across a border become three tokens."""

    def count_tokens(self, text: str) -> int:
        return super().count_tokens(text) + 3 * text.count("w5\n\nw7")


def test_a_set_that_is_too_long_in_one_order_is_left_out_whole_and_nothing_is_cut(tmp_path):
    documents = {
        "a": "w3 w4 w5\n\nw7 w8 w9\n\nw10 w11 w12",
        "b": "w20 w21 w22\n\nw23 w24 w25\n\nw26 w27 w28",
        "c": "w30 w31 w32\n\nw33 w34 w35\n\nw36 w37 w38",
    }
    encoder = Gluey({"plain": [1, 1, 1]}, max_length=12)
    plan = plan_documents(encoder, corpus(tmp_path, documents), DiagnosisSettings(min_tokens=2))
    assert plan.counts.sets == 2
    assert plan.counts.documents == len(plan.documents) == 12
    assert plan.counts.longest == 11
    assert plan.counts.tokens == 12 * 11
    assert plan.counts.left_out == {str(LeftOut.TOO_LONG_TOGETHER): 1}
    assert {document.set_id[0] for document in plan.documents} == {"b", "c"}


def test_room_is_measured_with_the_tokenizer():
    room = TokenRoom.of(lambda text: 2 + len(text.replace("\n\n", "#")), 30)
    assert room == TokenRoom(30, 2, 1)
    assert room.holds([13, 13])
    assert room.holds([9, 9, 8])
    assert not room.holds([9, 9, 9])


@pytest.mark.skipif(not SHARED.is_dir(), reason="the parallel corpus is not on this machine")
def test_xquad_is_parallel_in_all_its_languages():
    settings = CorpusSettings(source=str(SHARED / "data" / "xquad_posq"))
    left_out: Counter[LeftOut] = Counter()
    paragraphs = list(read_paragraphs(settings, ("en", "zh", "ar"), left_out))
    assert len(paragraphs) == 240
    assert left_out[LeftOut.REPEATED] == 4 * 240
    assert left_out[LeftOut.NO_TRANSLATION] == left_out[LeftOut.NOT_PARALLEL] == 0
