"""Headings: what is one and what only looks like one, in a time linear in the text."""

from __future__ import annotations

import time

import pytest

from pipeline.markdown import Heading, headings

FOUND: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "levels": ("# a\n## b\n###### c\n####### d", [(1, "a"), (2, "b"), (6, "c")]),
    "underlined": ("One\n===\n\nTwo\n--\n", [(1, "One"), (2, "Two")]),
    "closing hashes": ("# a #\n# b ##  \n# C#\n# #\n", [(1, "a"), (1, "b"), (1, "C#")]),
    "windows lines": ("# a\r\ntext\r\n\r\nb\r\n=\r\n", [(1, "a"), (1, "b")]),
    "indented": ("   # a\n    # code\n", [(1, "a")]),
    "tags": ("#tag\n#\n\\# no\n", []),
    "fenced": ("```\n# no\n~~~\n```\n# a\n~~~~py\n# no\n~~~\n# no\n~~~~\n# b\n", [(1, "a"), (1, "b")]),
    "fence without an end": ("# a\n```\n# no\n", [(1, "a")]),
    "inline code": ("```no fence```\n# a\n", [(1, "a")]),
    "list, quote, table": ("- item\n---\n\n> quote\n---\n\n| a |\n---\n\n1. one\n---\n", []),
    "rule": ("a\n\n---\n\n***\n", []),
    "end of a paragraph": ("one\ntwo\n---\n", []),
    "front matter": ("---\ntitle: no\n---\n\n# a\n", [(1, "a")]),
    "other scripts": ("# 界 🚀\n\né\n===\n", [(1, "界 🚀"), (1, "é")]),
}


@pytest.mark.parametrize(("text", "expected"), FOUND.values(), ids=FOUND)
def test_headings_are_found(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(heading.level, heading.text) for heading in headings(text)] == expected
    assert all(text[found.start] in ("#", found.text[0]) for found in headings(text))


def test_the_place_is_that_of_the_first_character() -> None:
    assert list(headings("x\n\n  ## a\n\n b\n===")) == [Heading(2, "a", 5, 9), Heading(1, "b", 12, 17)]


@pytest.mark.parametrize(
    "line",
    [
        "# a" + " " * 50_000 + "b",
        "# a" + " #" * 50_000 + "b",
        "=" * 50_000 + " " * 50_000 + "b",
        "`\n" * 50_000,
    ],
    ids=["spaces", "hashes", "underline", "ticks"],
)
def test_no_line_takes_long(line: str) -> None:
    begin = time.monotonic()

    list(headings(f"a\n\nb\n{line}"))

    assert time.monotonic() - begin < 1
