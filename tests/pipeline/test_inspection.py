"""What `lastpage inspect` says, through the command line: the truth about `index`, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.lengths import Bar, LengthCounter
from tests.conftest import Outcome, write_jsonl
from tests.pipeline.tiny import wordpiece

Command = Callable[..., Outcome]

RECORDS = [
    {"id": "one", "title": "Cats", "text": "The cat sat on the mat. A dog is late. " * 5},
    {"id": "two", "title": "Cats", "text": "The river is blue."},
    {"id": "same", "title": "Cats", "text": "The river is blue."},
]


@pytest.fixture(autouse=True)
def _in_empty_folder(empty_folder: Path) -> None:
    """Before all other fixtures, which write there."""


@pytest.fixture
def corpus() -> Path:
    return write_jsonl(Path("docs.jsonl"), RECORDS)


def test_it_says_what_index_then_does(lastpage: Command, corpus: Path, tiny_settings: list[str]) -> None:
    outcome = lastpage("inspect", "--corpus", corpus, "--json", *tiny_settings)
    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert sorted(path.name for path in Path().iterdir()) == ["docs.jsonl"]

    stages = {
        stage["stage"]: stage
        for stage in lastpage("index", "--corpus", corpus, "--json", *tiny_settings).json["stages"]
    }

    assert found["source"] == stages["corpus"]["source"]
    assert found["documents"]["count"] == stages["corpus"]["documents"] == 3
    assert found["characters"] == stages["corpus"]["characters"]
    assert found["chunks"]["count"] == stages["chunk"]["chunks"]
    assert found["chunks"]["total"] == stages["chunk"]["tokens"]
    assert found["chunks"]["longest"] == stages["chunk"]["longest_chunk"]
    assert found["distinct_texts"] == stages["embed"]["vectors_made"]["plain"] < found["chunks"]["count"]
    assert found["tokens_to_embed"] == stages["embed"]["tokens"]
    assert found["dimension"] == stages["index"]["dimension"] == 32
    assert found["seconds"] == pytest.approx(found["tokens_to_embed"] / found["tokens_per_second"])
    assert found["refusals"] == []


def test_documents_are_counted_by_the_models_own_tokenizer(
    lastpage: Command, corpus: Path, tiny_settings: list[str]
) -> None:
    found = lastpage("inspect", "--corpus", corpus, "--no-timing", "--json", *tiny_settings).json
    lengths = [len(wordpiece().encode(record["text"], add_special_tokens=False)) for record in RECORDS]
    assert found["documents"]["total"] == sum(lengths)
    assert (found["documents"]["shortest"], found["documents"]["longest"]) == (min(lengths), max(lengths))
    assert found["documents"]["histogram"][0] == {"lowest": 0, "highest": 16, "count": 2}
    assert sum(bar["count"] for bar in found["chunks"]["histogram"]) == found["chunks"]["count"]
    assert found["tokens_per_second"] is None
    assert found["seconds"] is None


def test_the_estimated_disk_is_about_what_is_written(lastpage: Command, tiny_settings: list[str]) -> None:
    corpus = write_jsonl(Path("many.jsonl"), [{"id": n, "text": f"the cat {n}"} for n in range(2000)])
    disk = lastpage("inspect", "--corpus", corpus, "--no-timing", "--json", *tiny_settings).json["disk"]
    assert lastpage("index", "--corpus", corpus, *tiny_settings).code == 0
    shards = sum(path.stat().st_size for path in Path("runs").rglob("vectors/*/*.parquet"))
    indexes = sum(path.stat().st_size for path in Path("runs").rglob("*.faiss"))
    assert disk["is_exact"] is True
    assert disk["vectors"] <= shards <= 1.4 * disk["vectors"]
    assert disk["indexes"] == pytest.approx(indexes, rel=0.05)


def test_people_see_bars_and_words(lastpage: Command, corpus: Path, tiny_settings: list[str]) -> None:
    outcome = lastpage("inspect", "--corpus", corpus, *tiny_settings)
    assert outcome.code == 0
    for words in (
        "1 jsonl file from docs.jsonl",
        "of at most 16 tokens",
        "distinct texts",
        "2 arms (plain, calibrated)",
        "estimated from one batch",
        "(Flat)",
        "documents by tokens",
        "0-16  ████████████████████████████████████████  2",
    ):
        assert words in outcome.out
    assert "not estimated" in lastpage("inspect", "--corpus", corpus, "--no-timing", *tiny_settings).out


def test_what_is_skipped_is_counted_named_and_changes_the_exit_code(
    lastpage: Command, tiny_settings: list[str]
) -> None:
    corpus = write_jsonl(
        Path("docs.jsonl"), [*RECORDS, {"id": "e", "text": " "}, {"id": "i", "text": "\u200b\u0301"}]
    )
    outcome = lastpage("inspect", "--corpus", corpus, "--no-timing", "--json", *tiny_settings)
    assert outcome.code == 3
    assert outcome.json["skipped"] == {"blank": 2}
    assert [record["doc_id"] for record in outcome.json["skipped_records"]] == ["e", "i"]
    allowed = lastpage("inspect", "--corpus", corpus, "--no-timing", "--allow-skipped", *tiny_settings)
    assert allowed.code == 0
    assert "skipped at reading and cutting: 2 blank" in allowed.out


def test_bad_records_are_all_counted_though_index_stops_at_the_first(
    lastpage: Command, tiny_settings: list[str]
) -> None:
    Path("docs.jsonl").write_text('{"id":"1","text":"the cat"}\n{"id":\n[]\n{"id":"2","text":"\\ud83d"}\n')
    arguments = ["--corpus", "docs.jsonl", *tiny_settings]
    outcome = lastpage("inspect", "--no-timing", *arguments)
    assert outcome.code == lastpage("index", *arguments).code == 1
    assert "2 malformed, 1 lone surrogate" in outcome.out
    assert "`index` would refuse: bad records" in outcome.out
    assert "docs.jsonl:2" in outcome.out
    skipping = lastpage("inspect", "--no-timing", *arguments, "--set", "corpus.bad_records=skip")
    assert skipping.code == 3
    assert "would refuse" not in skipping.out


@pytest.mark.parametrize(
    ("factory", "told"),
    [("IVF256,Flat", "trains 256 inverted lists"), ("PQ5", "dimension is 32"), ("Flut", "Flut")],
)
def test_an_index_that_cannot_be_built_is_told(
    lastpage: Command, corpus: Path, tiny_settings: list[str], factory: str, told: str
) -> None:
    arguments = ["--corpus", corpus, *tiny_settings, "--set", f"index.factory={factory}"]
    outcome = lastpage("inspect", "--no-timing", *arguments)
    assert outcome.code == lastpage("index", *arguments).code == 2
    assert "`index` would refuse: " in outcome.out
    assert told in outcome.out
    assert f"as if Flat; {factory} differs" in outcome.out


@pytest.mark.parametrize(
    ("setting", "code", "told"),
    [
        ("chunk.max_tokens=63", 2, "63"),
        ("corpus.source=nowhere.jsonl", 1, "nowhere.jsonl"),
        ("arms.calibrated.basket_size=62", 2, "basket_size = 62"),
    ],
)
def test_what_stops_it_stops_index(
    lastpage: Command, corpus: Path, tiny_settings: list[str], setting: str, code: int, told: str
) -> None:
    outcome = lastpage("inspect", "--set", f"corpus.source={corpus}", *tiny_settings, "--set", setting)
    assert outcome.code == code
    assert told in outcome.err
    assert not Path("runs").exists()


def test_cut_contexts_are_told(lastpage: Command, tiny_settings: list[str]) -> None:
    corpus = write_jsonl(Path("docs.jsonl"), [{**RECORDS[0], "title": "the cat sat on the mat " * 5}])
    arguments = ["--corpus", corpus, "--no-timing", *tiny_settings, "--set", "chunk.context=title"]
    assert "cut at a word, to half of a chunk's tokens" in lastpage("inspect", *arguments).out
    found = lastpage("inspect", "--json", *arguments).json
    assert found["contexts_cut"] == found["chunks"]["count"]


def test_a_corpus_of_which_the_model_sees_nothing(lastpage: Command, tiny_settings: list[str]) -> None:
    corpus = write_jsonl(Path("docs.jsonl"), [{"id": "1", "text": "\u0301"}])
    outcome = lastpage("inspect", "--corpus", corpus, "--json", *tiny_settings)
    assert outcome.code == 3
    assert outcome.json["chunks"] == {"count": 0, "total": 0, "shortest": 0, "longest": 0, "histogram": []}
    assert lastpage("inspect", "--corpus", corpus, *tiny_settings).code == 3


# Lengths


@given(st.lists(st.integers(0, 100)), st.sets(st.integers(1, 50), min_size=1).map(sorted))
def test_each_length_is_in_one_bar(lengths: list[int], edges: list[int]) -> None:
    counter = LengthCounter(edges)
    for length in lengths:
        counter.add(length)

    result = counter.result()

    assert (result.count, result.total) == (len(lengths), sum(lengths))
    assert (result.shortest, result.longest) == (min(lengths, default=0), max(lengths, default=0))
    for bar in result.histogram:
        last = bar.highest == edges[-1]
        assert bar.count == sum(bar.lowest <= n and (last or n <= bar.highest) for n in lengths)


def test_a_histogram_has_no_empty_ends() -> None:
    counter = LengthCounter([10, 20, 30, 40, 50])
    for length in (11, 20, 45):
        counter.add(length)

    bars = counter.result().histogram

    assert bars == (Bar(11, 20, 2), Bar(21, 30, 0), Bar(31, 40, 0), Bar(41, 50, 1))
    assert counter.result().mean == 76 / 3
