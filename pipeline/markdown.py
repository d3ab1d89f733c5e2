"""The headings of a Markdown text: `# so` and underlined, but none of those in code or front matter.

After https://spec.commonmark.org, except that an underlined heading must be one line after a blank one. Every
pattern takes a time linear in the text: one for a whole heading, closing hashes and trailing spaces included,
backtracks for minutes over a line of 5,000 spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(
    r"^ {0,3}(?:"
    r"(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})(?P<info>[^\n]*)"
    r"|(?P<hashes>\#{1,6})(?P<words>(?:[ \t][^\n]*)?)"
    r"|(?P<alone>(?![-*+>|=\#]|\d{1,9}[.)])\S[^\n]*)\n {0,3}(?P<under>=+|-{2,})[ \t\r]*"
    r")$",
    re.MULTILINE,
)
_FRONT_MATTER = re.compile(r"---[ \t\r]*\n(?=[\w-]+:)(?:[^\n]*\n)*?---[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `start` is the place of its first `#`, or of its text if it is underlined."""

    level: int
    text: str
    start: int
    end: int


def headings(text: str) -> Iterator[Heading]:
    """Find the headings of `text`, first to last."""
    front_matter = _FRONT_MATTER.match(text)
    fence = ""
    for line in _LINE.finditer(text, front_matter.end() if front_matter else 0):
        if line["fence"]:
            fence = _fence_after(line, fence)
        elif not fence and (heading := _heading(line)):
            yield heading


def _fence_after(line: re.Match[str], fence: str) -> str:
    """The open fence after a line of backticks or tildes; code without an end goes on to the last line."""
    if not fence:
        return line["fence"]
    return "" if line["fence"].startswith(fence) and not line["info"].strip() else fence


def _heading(line: re.Match[str]) -> Heading | None:
    if line["hashes"]:
        words = _without_closing_hashes(line["words"].strip())
        return Heading(len(line["hashes"]), words, line.start("hashes"), line.end()) if words else None
    if not _follows_blank_line(line.string, line.start()):
        return None
    level = 1 if line["under"][0] == "=" else 2
    return Heading(level, line["alone"].strip(), line.start("alone"), line.end())


def _without_closing_hashes(words: str) -> str:
    bare = words.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else words


def _follows_blank_line(text: str, start: int) -> bool:
    return not text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : start].strip()
