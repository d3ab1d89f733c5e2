"""The text of an HTML page, with its blocks on lines of their own."""

from __future__ import annotations

import re
import warnings

from bs4 import BeautifulSoup
from bs4.element import NavigableString

_HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_DROPPED = ["head", "script", "style", "template", "noscript"]
_PARAGRAPHS = re.compile(
    "^(address|article|aside|blockquote|body|caption|details|dialog|div|dl|fieldset|figcaption|figure|footer"
    "|form|h[1-6]|header|hr|legend|main|nav|ol|p|pre|section|summary|table|ul)$"
)
_LINES = ["br", "dd", "dt", "li", "option", "tr"]
_CELLS = ["td", "th"]
_SPACE = re.compile(r"\s+")
# One space before a line is what is left of the page's own layout; more than one is preformatted.
_SPACE_AT_BREAK = re.compile(r" *\n(?: (?! ))?")
_EMPTY_LINES = re.compile(r"\n{3,}")


def extract(page: str) -> tuple[str, str]:
    """Return the title (the first heading, else the page's title, else nothing) and the text of a page."""
    with warnings.catch_warnings(action="ignore"):  # it warns of short pages that look like a file name
        soup = BeautifulSoup(page, "html.parser")
    heading = soup.find(_HEADINGS) or soup.find("title")
    title = _SPACE.sub(" ", heading.get_text()).strip() if heading else ""
    for tag in soup.find_all(_DROPPED):
        tag.decompose()
    _collapse_space(soup)
    _mark_breaks(soup)
    return title, _EMPTY_LINES.sub("\n\n", _SPACE_AT_BREAK.sub("\n", soup.get_text())).strip()


def _collapse_space(soup: BeautifulSoup) -> None:
    """Turn each run of white space into one space, as a browser does, except in preformatted text."""
    for string in soup.find_all(string=True):
        if type(string) is NavigableString and not string.find_parent("pre"):
            string.replace_with(NavigableString(_SPACE.sub(" ", string)))


def _mark_breaks(soup: BeautifulSoup) -> None:
    """Write as white space what a browser shows as distance."""
    for tag in soup.find_all(_PARAGRAPHS):
        tag.insert_before("\n")
        tag.insert_after("\n")
    for tag in soup.find_all(_LINES):
        tag.insert_after("\n")
    for tag in soup.find_all(_CELLS):
        tag.insert_after(" ")
