"""Folders of text, Markdown and HTML."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pipeline.errors import DataError, UsageError
from pipeline.records import Document, SkipReason
from tests.pipeline.corpus.reading import read, texts


def fill(folder: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


# A1


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html"])
def test_a_byte_order_mark_is_no_text(name: str, tmp_path: Path) -> None:
    fill(tmp_path, {name: b"\xef\xbb\xbfhello"})

    assert texts(tmp_path) == {name: "hello"}
    assert texts(tmp_path / name) == {name: "hello"}


def test_text_is_kept_as_it_is(tmp_path: Path) -> None:
    text = "\n  one\r\ntwo\rthree\u2028four \n"

    assert texts(fill(tmp_path, {"a.txt": text})) == {"a.txt": text}


# A2


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    folder = fill(
        tmp_path / "mixed",
        {
            "a.md": "the cat",
            ".DS_Store": b"\x00\x05\x16\x80",
            ".git/b.txt": "hidden",
            "latin.txt": b"caf\xe9",
            "empty.txt": b"",
            "photo.png": b"\x89PNG",
            "sub/b.txt": "a dog",
        },
    )
    (folder / "loop").symlink_to(folder)
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "broken.txt").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.txt")
    return folder


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_one_bad_file_stops_no_folder(policy: str, mixed: Path) -> None:
    documents, skipped = read(mixed, bad_records=policy)

    assert {document.doc_id: document.text for document in documents} == {
        "a.md": "the cat",
        "sub/b.txt": "a dog",
    }
    assert {item.doc_id: item.reason for item in skipped} == {
        "broken.txt": SkipReason.UNREADABLE,
        "empty.txt": SkipReason.BLANK,
        "latin.txt": SkipReason.UNDECODABLE,
        "photo.png": SkipReason.UNSUPPORTED,
        "pipe.txt": SkipReason.UNREADABLE,
    }
    assert all(item.place == f"{mixed}/{item.doc_id}" for item in skipped)


def test_a_name_that_is_not_utf8_loses_its_file_only(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("late")

    documents, skipped = read(tmp_path)

    assert [document.doc_id for document in documents] == ["a.txt"]
    assert [(one.reason, one.doc_id) for one in skipped] == [(SkipReason.UNDECODABLE, "caf\\udce9.txt")]


def test_a_folder_named_like_a_pattern_is_named_whole(tmp_path: Path) -> None:
    folder = fill(tmp_path / "a[1]", {"a.txt": "hello", "b.bin": b""})

    assert texts(folder) == {"a.txt": "hello"}
    assert [skipped.place for skipped in read(folder)[1]] == [f"{folder}/b.bin"]


def test_a_heading_before_many_spaces_takes_no_time(tmp_path: Path) -> None:
    fill(tmp_path, {"a.md": "# a" + " " * 20_000 + "b"})
    begin = time.monotonic()

    (document,) = read(tmp_path)[0]

    assert document.title.startswith("a ")
    assert time.monotonic() - begin < 1


def test_the_place_of_an_undecodable_byte_is_told(mixed: Path) -> None:
    _, skipped = read(mixed)

    (latin,) = (item for item in skipped if item.doc_id == "latin.txt")
    assert "byte 3 is not utf-8" in latin.detail


def test_an_encoding_that_is_named_is_used(mixed: Path) -> None:
    assert texts(mixed / "latin.txt", encoding="latin-1") == {"latin.txt": "café"}


@pytest.mark.parametrize("encoding", ["utf-9", "hex", ""])
def test_an_unknown_encoding_is_refused(encoding: str, mixed: Path) -> None:
    with pytest.raises(UsageError, match=f"corpus.encoding = '{encoding}'"):
        read(mixed, encoding=encoding)


def test_a_linked_folder_is_read_once(tmp_path: Path) -> None:
    fill(tmp_path, {"elsewhere/a.txt": "the cat", "corpus/b.txt": "a dog"})
    (tmp_path / "corpus" / "x").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus" / "y").symlink_to(tmp_path / "elsewhere")

    assert texts(tmp_path / "corpus") == {"b.txt": "a dog", "x/a.txt": "the cat"}


# Titles and HTML


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("intro\n\n## The *cat* ##\n# Later", "The *cat*"),
        ("The cat\n=======\n\ntext", "The cat"),
        ("```\n# a comment\n```\n# The cat", "The cat"),
        ("#hashtag\ntext", "page"),
        ("no heading", "page"),
    ],
)
def test_the_title_of_markdown_is_its_first_heading(text: str, title: str, tmp_path: Path) -> None:
    fill(tmp_path, {"sub/page.md": text})

    assert read(tmp_path)[0] == [Document("sub/page.md", text, title)]


def test_the_title_of_a_text_is_its_name(tmp_path: Path) -> None:
    assert read(fill(tmp_path, {"my.notes.txt": "# x"}))[0] == [Document("my.notes.txt", "# x", "my.notes")]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>one\n  two</p><p>three</p>", "one two\n\nthree"),
        ("a<b>b</b>c &amp; d<br>e", "abc & d\ne"),
        ("<script>x()</script><style>y</style><!-- z --><p>cat", "cat"),
        ("<ul>\n <li>one</li>\n <li>two</li>\n</ul>", "one\ntwo"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</table>end", "a b\nc\n\nend"),
        ("<pre>def f():\n    return  1</pre>", "def f():\n    return  1"),
        ("<div>" * 3000 + "deep", "deep"),
        ("https://example.org/page.html", "https://example.org/page.html"),
    ],
)
def test_html_keeps_its_blocks_apart(page: str, text: str, tmp_path: Path) -> None:
    assert texts(fill(tmp_path, {"a.htm": page})) == {"a.htm": text}


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("<title>T</title><p>x<h2>The\n <i>cat</i></h2>", "The cat"),
        ("<title>T</title><p>x", "T"),
        ("<p>x", "a"),
    ],
)
def test_the_title_of_html_is_its_first_heading(page: str, title: str, tmp_path: Path) -> None:
    assert read(fill(tmp_path, {"a.html": page}))[0][0].title == title


@pytest.mark.parametrize("name", ["data.csv", "noend", "a.txt.gz"])
def test_a_lone_file_of_unknown_kind_is_refused(name: str, tmp_path: Path) -> None:
    fill(tmp_path, {name: "x"})

    with pytest.raises(DataError, match=rf"{name}: expected a file ending in one of .*\.jsonl.*\.txt"):
        read(tmp_path / name)
    if not name.endswith(".gz"):
        assert texts(tmp_path / name, format="folder") == {name: "x"}


def test_a_folder_of_two_formats_is_refused_until_one_is_named(tmp_path: Path) -> None:
    fill(tmp_path, {"a.txt": "the cat", "b.jsonl": '{"id":"1","text":"a dog"}', "package.json": "{}"})

    with pytest.raises(DataError, match=r"several formats \(folder and jsonl\); set corpus\.format"):
        read(tmp_path)
    assert texts(tmp_path, format="folder") == {"a.txt": "the cat"}
