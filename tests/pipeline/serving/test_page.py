"""The page in a browser, on the started server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from indexes import MovementStatus
from pipeline.ab.results import ABResult, DocumentResult
from pipeline.serving.page import summary
from tests.pipeline.serving.conftest import EXAMPLES
from tests.pipeline.serving.servers import ODD_IDS, Server

QUERY = "the answer is blue"


class Watched:
    """A browser page that notes what must not happen: messages on the console, requests to elsewhere."""

    def __init__(self, browser: Any, server: Server, **options: Any) -> None:
        self.url = server.url
        self.complaints: list[str] = []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._note)

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.complaints.append(request.url)

    def goto(self, path: str) -> Any:
        self.page.goto(self.url + path)
        return self.page


@pytest.fixture
def watched(browser: Any, server: Server) -> Iterator[Watched]:
    made = Watched(browser, server)
    yield made
    assert made.complaints == []
    made.context.close()


def rankings(page: Any) -> list[list[str]]:
    lists = page.locator(".ab .rankings ol")
    return [lists.nth(i).locator("li:not(.below) .name").all_inner_texts() for i in range(2)]


def test_search_shows_the_rankings_of_the_api(watched: Watched, server: Server) -> None:
    page = watched.goto("/")
    page.fill("input[name=q]", QUERY)
    page.select_option("select[name=k]", "5")
    page.keyboard.press("Enter")
    page.click("button.primary")
    page.wait_for_selector(".ab")
    assert "q=the+answer+is+blue" in page.url
    result = server.post("/v1/query", {"query": QUERY, "k": 5, "arms": ["half"]}).json["comparisons"][0]
    for arm, names in zip(("reference", "other"), rankings(page), strict=True):
        hits = [(d[arm]["rank"], d["doc_id"]) for d in result["documents"] if d[arm] and d[arm]["rank"] <= 5]
        assert names == [doc_id for _, doc_id in sorted(hits)]
    assert page.title() == f"{QUERY} · lastpage"


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ([], "half ranks its first 5 documents as plain does."),
        (["same", "tied"], "half ranks its first 5 documents as plain does."),
        (["moved"] * 2, "Against plain, half moves 2 documents within the top 5."),
        (
            ["entered", "left"],
            "Against plain, half brings 1 document into and drops 1 document from the top 5.",
        ),
        (
            ["entered", "entered", "left", "moved"],
            "Against plain, half brings 2 documents into, drops 1 document from and moves 1 document within "
            "the top 5.",
        ),
    ],
)
def test_the_summary_says_what_changed(statuses: list[str], words: str) -> None:
    documents = [
        DocumentResult(f"d{place}", "", 9, MovementStatus(status), None, None, None)
        for place, status in enumerate(statuses)
    ]
    result = ABResult("q", 3, False, "b", "plain", "half", 5, 100, 9, tuple(documents), 1, 1, None, {})
    assert summary(result) == words


def test_the_document_opens_at_its_evidence(watched: Watched, server: Server) -> None:
    page = watched.goto(f"/?q={quote(QUERY)}&k=5&arm=full")
    page.locator(".ab .doc summary").first.click()
    marked = page.locator(".ab .doc[open] mark").inner_text()
    page.click("text=Open the document")
    page.wait_for_selector("#evidence")
    assert page.locator("#evidence").inner_text() == marked
    assert page.evaluate("document.querySelector('#evidence').getBoundingClientRect().top < innerHeight")
    page.click("text=Back to the rankings")
    page.wait_for_selector(".ab")
    assert "arm=full" in page.url


def test_the_keyboard_is_enough(watched: Watched) -> None:
    page = watched.goto(f"/?q={quote(QUERY)}")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement === document.querySelectorAll('.doc summary')[1]")
    page.keyboard.press("Enter")
    assert page.locator(".doc").nth(1).get_attribute("open") is not None
    page.keyboard.press("Escape")
    assert page.locator(".doc").nth(1).get_attribute("open") is None
    page.keyboard.press("/")
    page.keyboard.type("a cat")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=a+cat**")


def test_a_slash_can_still_be_typed(watched: Watched) -> None:
    page = watched.goto("/")
    page.focus("input[name=q]")
    page.keyboard.type("a/b")
    assert page.input_value("input[name=q]") == "a/b"


def test_the_slider_asks_for_another_strength(watched: Watched) -> None:
    page = watched.goto(f"/?q={quote(QUERY)}&k=5")
    assert page.locator(".heads span").last.inner_text() == "half"
    page.focus("input[name=level]")
    page.keyboard.press("ArrowRight")
    page.locator(".heads span:last-child", has_text="full").wait_for()
    assert page.locator("output").inner_text() == "1 (full)"
    assert page.evaluate("document.activeElement.name") == "level"
    assert "level=1" in page.url
    page.reload()
    assert page.locator(".heads span").last.inner_text() == "full"


def test_examples_are_offered_and_escaped(watched: Watched) -> None:
    page = watched.goto("/")
    assert page.locator("ul.examples a").all_inner_texts() == EXAMPLES
    page.click(f"text={EXAMPLES[2]}")
    page.wait_for_selector(".ab")
    assert page.input_value("input[name=q]") == EXAMPLES[2]
    assert page.locator("b", has_text="hello").count() == 0


def test_without_javascript_all_is_there(browser: Any, server: Server) -> None:
    watched = Watched(browser, server, java_script_enabled=False)
    page = watched.goto("/")
    page.fill("input[name=q]", QUERY)
    page.click("button.primary")
    assert all(len(names) == 10 for names in rankings(page))
    page.locator(".ab .doc summary").first.click()
    page.click("text=Open the document")
    assert page.locator("#evidence").count() == 1
    watched.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Any, server: Server, scheme: str) -> None:
    watched = Watched(browser, server, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = watched.goto(f"/?q={quote(QUERY)}")
    for head in page.locator(".ab .doc summary").all()[:3]:
        head.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness > 128) == (scheme == "light")
    assert watched.complaints == []
    watched.context.close()


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/?q=cat&k=51", 422, "at most 50"),
        ("/?q=cat&k=x", 422, "not a whole number"),
        ("/?q=cat&k=0", 422, "greater than or equal to 1"),
        ("/?q=cat&arm=no", 422, "no arm"),
        ("/?q=" + "a%20" * 200, 422, "at most 100"),
        ("/document?id=no-such", 404, "no document"),
        ("/document?id=g0-01&start=-5&end=999999", 200, "gamma"),
        ("/?q=%20", 200, "Questions to try"),
        ("/?q=%00%FF", 200, "</html>"),
    ],
)
def test_what_the_page_says_to_bad_addresses(server: Server, path: str, status: int, words: str) -> None:
    reply = server.get(path)
    assert reply.status == status
    assert words in reply.body.decode()
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]


@pytest.mark.parametrize("doc_id", ODD_IDS)
def test_any_id_can_be_opened(server: Server, doc_id: str) -> None:
    reply = server.get(f"/document?id={quote(doc_id, safe='')}")
    assert reply.status == 200
    assert "the dog sat in" in reply.body.decode()


def test_a_link_of_another_build_says_so(server: Server) -> None:
    assert b"built again" in server.get("/document?id=g0-01&start=0&end=9&build=20200101-000000").body
    assert b"built again" not in server.get("/document?id=g0-01&start=0&end=9").body
