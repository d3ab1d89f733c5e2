"""TREC run files: what is written is read again, as trec_eval's own parser reads it; bad lines are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytrec_eval

from pipeline.ab.trec import as_word, read_run, write_run
from pipeline.errors import DataError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "a.run"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_written_run_is_read_again_by_us_and_by_trec_eval(tmp_path: Path) -> None:
    path = tmp_path / "plain.trec"
    scores = [("d2", 0.1 + 0.2), ("d1", 0.25), ("ünï", -1e-7)]
    write_run(path, "plain", [("q1", scores), ("q 2", [("my notes 100%.md", 1.0)])])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "q1 Q0 d2 1 0.30000000000000004 plain"
    assert lines[3] == "q%202 Q0 my%20notes%20100%25.md 1 1.0 plain"
    run = read_run(path)
    assert (run.name, run.n_reordered, run.n_documents) == ("plain", 0, 3)
    assert [(document.doc_id, document.score) for document in run.rankings["q1"]] == scores
    with path.open(encoding="utf-8") as file:
        assert pytrec_eval.parse_run(file)["q1"] == dict(scores)


def test_a_tag_of_several_words_is_one_column(tmp_path: Path) -> None:
    path = tmp_path / "my run.trec"
    write_run(path, "my run", [("q1", [("d1", 1.0)])])
    assert path.read_text(encoding="utf-8") == "q1 Q0 d1 1 1.0 my%20run\n"
    assert read_run(path).name == "my%20run"


def test_different_ids_stay_different_words() -> None:
    names = ["a b", "a%20b", "a\u00a0b", "a\tb", "a%2520b", "ab"]
    assert len({as_word(name) for name in names}) == len(names)
    assert all(as_word(name).split() == [as_word(name)] for name in names)


def test_scores_decide_and_equal_ones_stand_by_id(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "q1 Q0 low 1 0.1 A\nq1 Q0 tie-b 2 0.5 A\nq1 Q0 tie-a 3 0.5 A\n"
        "q2\tQ0  x 5 2 A\n\nq2 Q0 y 9 1e0 A\nq3 Q0 b 0 1 A\nq3 Q0 a 1 1 A\n",
    )
    run = read_run(path)
    assert run.rankings["q1"].doc_ids == ("tie-a", "tie-b", "low")
    assert [document.rank for document in run.rankings["q1"]] == [1, 2, 3]
    assert run.rankings["q2"].doc_ids == ("x", "y")
    # Only q1's ranks contradict its scores: within a tie any order is right.
    assert run.n_reordered == 1


def test_a_run_of_several_tags_goes_by_its_file(tmp_path: Path) -> None:
    assert read_run(written(tmp_path, "q Q0 d 1 1 A\nq Q0 e 2 0 B\n")).name == "a"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 Q0 d 1 0.5", "got 5 columns"),
        ("q1 Q0 d 1 0.5 my tag", "got 7 columns"),
        ("q1 Q0 d one 0.5 A", "numbers as rank and score"),
        ("q1 Q0 d 1 high A", "numbers as rank and score"),
        ("q1 Q0 d 1 nan A", "scores must be finite"),
        ("q1 Q0 d 1 -inf A", "scores must be finite"),
        ("q1 Q0 first 2 0.1 A", "document 'first' stands twice for query 'q1'"),
    ],
)
def test_bad_lines_are_refused_with_their_place(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, f"q1 Q0 first 1 0.9 A\n{line}\n")
    with pytest.raises(DataError) as refused:
        read_run(path)
    assert str(refused.value).startswith(f"{path}:2: ")
    assert message in str(refused.value)


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no line in this run file"):
        read_run(written(tmp_path, "\n"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = written(tmp_path, "q Q0 d 1 1 A\n")

    def broken():  # type: ignore[no-untyped-def]
        yield "q1", [("d", 1.0)]
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_run(path, "A", broken())
    assert path.read_text() == "q Q0 d 1 1 A\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a.run"]
