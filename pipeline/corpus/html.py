"""The text of an HTML page, with its blocks on lines of their own."""

from __future__ import annotations

import re
import warnings

from bs4 import BeautifulSoup
from bs4.element import NavigableString

_HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_DROPPED = ["head", "script", "style", "template", "noscript"]
_BLOCKS = re.compile(
    "^(address|article|aside|blockquote|body|br|caption|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure"
    "|footer|form|h[1-6]|header|hr|legend|li|main|nav|ol|option|p|pre|section|summary|table|td|th|tr|ul)$"
)
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
    for tag in soup.find_all(_BLOCKS):
        tag.insert_before("\n")
        tag.insert_after("\n")
    return title, _EMPTY_LINES.sub("\n\n", _SPACE_AT_BREAK.sub("\n", soup.get_text())).strip()


def _collapse_space(soup: BeautifulSoup) -> None:
    """Turn each run of white space into one space, as a browser does, except in preformatted text."""
    for string in soup.find_all(string=True):
        if type(string) is NavigableString and not string.find_parent("pre"):
            string.replace_with(NavigableString(_SPACE.sub(" ", string)))
