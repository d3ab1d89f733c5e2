"""The report, opened in headless Chromium: seen, walked through by keyboard, and inert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.ab.comparing import QueryAnswer
from pipeline.ab.totals import total
from pipeline.ab.verdict import Verdict
from pipeline.html.comparison_view import comparison_page
from tests.pipeline.comparisons import TEXTS, planted_answer

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e\x07"
LONG = "w" * 300


def hostile(answer: QueryAnswer) -> QueryAnswer:
    """The same answer with markup, a right-to-left override and a bell in every text there is."""
    (result,) = answer.comparisons
    documents = tuple(
        replace(document, title=f"{HOSTILE}{LONG}{document.doc_id}") for document in result.documents
    )
    query = replace(answer.query, query_id=f"id {HOSTILE}{LONG}", text=HOSTILE)
    return replace(answer, query=query, comparisons=(replace(result, documents=documents, query=HOSTILE),))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    late = {"positions": {"d": 0.9, "c": 0.0}, "verdicts": {"d": Verdict.LATE_ANSWER}}
    answers = [
        planted_answer("q1", "abcde", "abdce", gold="d", gold_position=0.9, **late),
        hostile(planted_answer("q2", "abcdef", "efabcd", positions={"e": 0.5})),
        planted_answer("q3", "abcde", "abcde"),
    ]
    page = comparison_page(
        answers,
        [total(answers, 0)],
        title=f"Report {HOSTILE}",
        subtitle="runs/x, build y",
        text_of=lambda doc_id: TEXTS[doc_id].replace("Words", HOSTILE[:5]),
        notes=(HOSTILE,),
        n_details=2,
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Callable[..., Any]]:
    """Open the report; at the end nothing may have been logged, thrown or asked for."""
    troubles: list[str] = []
    contexts = []

    def open_(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: troubles.append(request.url))
        page.goto(report.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [trouble for trouble in troubles if trouble != report.as_uri()] == []


def test_the_time_of_embedding_is_called_a_share(opened: Callable[..., Any]) -> None:
    text = opened().locator("body").inner_text()
    assert "encode (share of a batch of up to 3)" in text
    assert "Queries embedded together share the time of their batch equally." in text


def test_queries_stand_by_change_with_details_for_the_most_changed(opened: Callable[..., Any]) -> None:
    page = opened()
    rows = page.locator(".query")
    assert rows.count() == 3
    assert "q1" in rows.nth(1).inner_text()
    assert rows.nth(2).evaluate("row => row.tagName") == "DIV"
    assert "most-changed of 3 queries" in page.locator("#queries0 .lead").inner_text()
    tiles = page.locator(".tile .value").all_inner_texts()
    assert tiles[:5] == ["2", "3", "1", "3", "0"]


def test_hostile_texts_stay_texts(opened: Callable[..., Any]) -> None:
    page = opened()
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert "<img src=x" in page.locator(".query .asked").first.inner_text()


def test_evidence_is_marked_and_seen(opened: Callable[..., Any]) -> None:
    page = opened()
    page.locator("details.query > summary").nth(1).click()
    page.locator("details.query[open] .hit", has_text="Title of d").first.click()
    mark = page.locator("details.doc[open] mark")
    assert mark.is_visible()
    assert len(mark.inner_text()) == 10
    assert page.locator("details.doc[open] .docbar rect.evidence").is_visible()
    assert page.locator("details.doc[open] .badge.late").inner_text() == "late answer"
    colour = mark.evaluate("mark => getComputedStyle(mark).backgroundColor")
    assert colour == "rgb(255, 229, 154)"


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.innerText"))


def test_the_keyboard_alone_leads_to_the_evidence(opened: Callable[..., Any]) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.locator("input.filter").focus()
    page.keyboard.press("Tab")
    first = focused(page)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("ArrowDown")
    assert "q1" in focused(page) != first
    page.keyboard.press("Enter")
    assert page.locator("details.query[open]").count() == 1
    page.keyboard.press("Tab")
    assert "Title of a" in focused(page)
    page.keyboard.press("Enter")
    assert page.locator("details.doc[open]").count() == 1
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("ArrowDown")
    assert "Title of b" in focused(page)
    page.keyboard.press("Home")
    assert "Title of a" in focused(page)
    page.keyboard.press("Escape")
    assert page.locator("details.doc[open]").count() == 0


def test_a_hit_lights_up_its_line_and_its_place_in_both_rankings(opened: Callable[..., Any]) -> None:
    page = opened()
    page.locator("details.query > summary").nth(1).click()
    page.locator("details.query[open] .hit", has_text="Title of c").first.focus()
    assert page.locator(".hit.lit").count() == 2
    assert page.locator("path.line.lit").count() == 1


def test_a_link_into_a_closed_query_opens_it(opened: Callable[..., Any], report: Path) -> None:
    page = opened()
    page.evaluate("location.hash = 'a0q1-d2'")
    page.wait_for_function("document.querySelector('#a0q1-d2').open")
    assert page.locator("#a0q1").evaluate("query => query.open")


def test_the_filter_leaves_what_holds_all_words(opened: Callable[..., Any]) -> None:
    page = opened()
    page.locator("input.filter").fill("does Q3")
    assert page.locator("details.doc[hidden]").count() == 0
    assert page.locator(".query:visible").count() == 1
    page.locator("input.filter").fill("")
    assert page.locator(".query:visible").count() == 3


def luminance(colour: str) -> float:
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_stand_out_in_light_and_dark(opened: Callable[..., Any], scheme: str) -> None:
    page = opened(color_scheme=scheme)
    page.locator("details.query > summary").nth(1).click()
    body = page.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    text, paper = (luminance(colour) for colour in body)
    assert (paper > text) is (scheme == "light")
    assert abs(paper - text) > 0.6
    mark = page.locator("details.query[open] mark").first
    marked = mark.evaluate(
        "(m => [m.color, m.backgroundColor])(getComputedStyle(document.querySelector('mark')))"
    )
    assert abs(luminance(marked[0]) - luminance(marked[1])) > 0.4


def test_a_phone_never_scrolls_sideways(opened: Callable[..., Any]) -> None:
    page = opened(viewport={"width": 360, "height": 740}, has_touch=True)
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    hits = page.locator("details.query[open] .rankings ol").evaluate_all(
        "lists => lists.map(list => list.getBoundingClientRect().width)"
    )
    assert min(hits) > 120


def test_it_prints_without_its_controls(opened: Callable[..., Any]) -> None:
    page = opened()
    page.emulate_media(media="print")
    assert not page.locator("input.filter").is_visible()
    assert page.locator(".tile").first.is_visible()


def test_even_injected_scripts_and_requests_are_refused(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    page.evaluate(
        "const script = document.createElement('script'); script.textContent = 'window.hacked = 1';"
        "document.body.append(script)"
    )
    assert page.evaluate("window.hacked") is None
    refused = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => String(error))")
    assert refused == "TypeError: Failed to fetch"
    page.close()
