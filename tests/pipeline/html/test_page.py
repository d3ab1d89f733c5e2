"""The page and the A/B view: escaped, self-contained, and inert whatever texts hold."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markupsafe import Markup

from indexes import MovementStatus
from pipeline.ab.verdict import Verdict
from pipeline.html.ab_view import ab_view, legend
from pipeline.html.document_view import Excerpt, Place, movement_words
from pipeline.html.page import Section, content_security_policy, render_page, visible
from tests.pipeline.comparisons import TEXTS, planted_result


def test_titles_are_escaped_and_control_characters_shown() -> None:
    page = render_page("<b>\x1b[31m", [Section("A & B", "a", Markup("<p>kept</p>"), lead="<i>")])
    assert "&lt;b&gt;\ufffd[31m" in page
    assert "A &amp; B" in page
    assert "&lt;i&gt;" in page
    assert "<p>kept</p>" in page
    assert "\x1b" not in page


def test_markup_and_numbers_pass_unchanged() -> None:
    assert visible(Markup("\x07")) == Markup("\x07")
    assert visible(3) == 3
    assert visible("a\tb\n\x00\x9f") == "a\tb\n\ufffd\ufffd"


def test_a_report_forbids_everything_and_a_service_talks_to_itself() -> None:
    report = content_security_policy(["one"])
    assert "default-src 'none'" in report
    assert "connect-src 'none'" in report
    assert re.search(r"script-src 'sha256-[\w+/]{43}='", report)
    assert "unsafe-inline" not in report.split("script-src")[1]
    service = content_security_policy(["one"], same_origin=True)
    assert "connect-src 'self'; form-action 'self'" in service


def test_no_outside_address_stands_in_the_page() -> None:
    result = planted_result("abcd", "abdc", positions={"d": 0.9})
    page = render_page("t", [Section("s", "s", ab_view(result, text_of=TEXTS.__getitem__) + legend())])
    assert not re.search(r"(?:src|href|action)\s*=\s*[\"'](?!#|data:)", page)
    assert "url(" not in page
    assert "://" not in page


def test_every_document_stands_in_both_rankings_and_is_joined_by_a_line() -> None:
    html = ab_view(planted_result("abcd", "abdc"), text_of=TEXTS.__getitem__, anchor="x")
    # The union of the top 3: a, b, d and c; rows of 40 pixels, so c goes from row 3 to row 4.
    assert html.count('class="hit"') == 8
    assert html.count('class="line') == 4
    assert 'class="line down" data-doc="3" d="M4 100C32 100 32 140 56 140"' in html
    assert 'class="line up" data-doc="2" d="M4 140C32 140 32 100 56 100"' in html
    assert html.count('id="x-d') == 4


def test_a_document_below_the_depth_says_so() -> None:
    html = ab_view(planted_result("abc", "abd"), text_of=TEXTS.__getitem__)
    assert "▲ new" in html
    assert "▼ gone" in html
    assert '<span class="rank">&gt;5</span>' in html


def test_nothing_is_shown_of_a_hit_that_does_not_exist() -> None:
    empty = planted_result("", "", n_documents=0)
    html = ab_view(empty, text_of=TEXTS.__getitem__)
    assert "Neither ranking holds a document" in html
    assert "0 documents, fewer than k = 3" in html
    assert 'class="hit' not in html


@pytest.mark.parametrize(
    ("status", "words"),
    [(MovementStatus.TIED, "tied"), (MovementStatus.SAME, ""), (MovementStatus.MOVED, "▲1")],
)
def test_movements_in_words(status: MovementStatus, words: str) -> None:
    document = planted_result("abcd", "abdc").documents[2]
    if status is MovementStatus.SAME:
        document = replace(document, other=document.reference)
    assert movement_words(replace(document, status=status)) == words


def test_the_excerpt_is_the_chunk_with_its_evidence_apart() -> None:
    result = planted_result("abcd", "abdc", positions={"d": 0.9})
    moved, text = result.documents[2], TEXTS["d"]
    part = Excerpt.of(moved, text)
    assert part.before + part.marked + part.after == text
    assert moved.evidence is not None
    assert part.marked == moved.evidence.text
    assert (part.n_before, part.n_after) == (0, 0)


def test_what_an_excerpt_leaves_out_is_counted() -> None:
    text = "x" * 1000
    same = planted_result("abc", "abc", positions={"a": 0.5}).documents[0]
    assert same.evidence is not None
    hit = replace(same.reference, end=1000)  # type: ignore[type-var]
    evidence = replace(same.evidence, start=500, end=510)
    part = Excerpt.of(replace(same, reference=hit, other=hit, evidence=evidence), text)
    assert (part.n_before, len(part.before)) == (220, 280)
    assert (part.n_after, len(part.after)) == (210, 280)
    assert len(part.marked) == 10
    moved = replace(same, status=MovementStatus.MOVED, reference=hit, other=hit, evidence=evidence)
    assert Excerpt.of(moved, text).n_before == 0


def test_the_bar_places_chunk_and_evidence_in_percent() -> None:
    document = planted_result("abcd", "abdc", positions={"d": 0.9}).documents[2]
    hit = replace(document.other, start=100, end=200, ordinal=1, n_chunks=4)  # type: ignore[type-var]
    first = replace(hit, start=0, end=100, ordinal=0, rank=4)
    evidence = replace(document.evidence, start=150, end=151)  # type: ignore[type-var]
    moved = replace(document, doc_chars=400, other=hit, reference=first, evidence=evidence)
    place = Place.of(moved)
    assert place.chunk == (25.0, 25.0)
    assert place.other_chunk == (0.0, 25.0)
    assert place.evidence == (37.5, 0.6)
    assert place.chunk_words == "chunk 2 of 4 (25\u201350 % of the document)"


def test_equal_titles_are_told_apart_by_ids() -> None:
    result = planted_result("abc", "abc")
    twins = tuple(replace(document, title="Twin") for document in result.documents)
    html = ab_view(replace(result, documents=twins), text_of=TEXTS.__getitem__)
    assert "Twin (a)" in html
    assert "Twin (b)" in html


def test_verdicts_stand_as_badges_with_their_reason() -> None:
    result = planted_result("abcd", "abdc", positions={"d": 0.9}, verdicts={"d": Verdict.LATE_ANSWER})
    html = ab_view(result, text_of=TEXTS.__getitem__, gold=["d"])
    assert '<span class="badge late">late answer</span>' in html
    assert "Reason: late answer." in html
    assert "plain, evidence moved" in html
    assert html.count("★ gold") == 1
