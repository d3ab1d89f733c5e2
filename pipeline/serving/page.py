"""The page where people look at both rankings together: its state is its address, JavaScript is a comfort."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from markupsafe import Markup
from pydantic import ValidationError
from starlette.responses import Response

from indexes import MovementStatus
from pipeline.ab.lookup import StoredDocument
from pipeline.ab.results import ABResult, DocumentResult
from pipeline.ab.verdict import Verdict
from pipeline.html.ab_view import ab_view, legend
from pipeline.html.page import Section, render_template
from pipeline.serving.builds import ServedBuild
from pipeline.serving.problems import Problem
from pipeline.serving.schema import MAX_QUERY_CHARACTERS, QueryRequest
from pipeline.serving.service import SearchService
from pipeline.serving.shell import html_page

_CHOICES_OF_K = (5, 10, 20, 50)
_EXAMPLES_SHOWN = 60


@dataclass(frozen=True, slots=True)
class PageState:
    """What the address of a page asks for.

    Attributes:
        question: may be empty: nothing is asked yet.
        k: documents to show from each arm.
        arm: what the reference is compared with; None leaves it to `level`.
        level: the place on the strength slider; None is the build's second arm.
    """

    question: str = ""
    k: int = 10
    arm: str | None = None
    level: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, str]) -> PageState:
        """Read an address.

        Raises:
            Problem: a number is none (422).
        """
        return cls(
            question=values.get("q", "").strip(),
            k=_whole(values.get("k", "10"), "k"),
            arm=values.get("arm") or None,
            level=_whole(values["level"], "level") if values.get("level") else None,
        )

    @property
    def address(self) -> str:
        """The address that shows the same."""
        values = {"q": self.question, "k": self.k, "arm": self.arm, "level": self.level}
        return "/?" + urlencode({name: value for name, value in values.items() if value is not None})


def page_routes(service: SearchService, examples: Sequence[str]) -> APIRouter:
    """The page over one service."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def search(request: Request) -> Response:
        with service.builds.lease() as served:
            request.state.log["build_id"] = served.build_id
            state = PageState()
            try:
                state = PageState.of(request.query_params)
                result = await _result(service, served, state) if state.question else []
            except Problem as problem:
                sections = [_form(service, served, state, examples), _warning(problem)]
                return html_page("lastpage", sections, status=problem.status, headers=problem.headers)
            return html_page("lastpage", [_form(service, served, state, examples), *result])

    @router.get("/document")
    async def document(request: Request) -> Response:
        try:
            state = PageState.of(request.query_params)
            build_id, found = await service.document(request.query_params.get("id", ""))
            body = await asyncio.to_thread(_document, found, state, request.query_params, build_id)
        except Problem as problem:
            return html_page("lastpage", [_warning(problem)], status=problem.status, headers=problem.headers)
        request.state.log["build_id"] = build_id
        title = found.title or found.doc_id
        return html_page(title, [Section("", "document", body)], subtitle=found.doc_id)

    return router


def _warning(problem: Problem) -> Section:
    note = Markup('<p class="warning" role="alert">{}</p>').format(problem.message)
    return Section("", "result", note)


async def _result(service: SearchService, served: ServedBuild, state: PageState) -> list[Section]:
    """Ask, and show both rankings."""
    asked = _request(state, _other(served, state))
    answer, documents = await service.comparison(served, asked.query, asked)
    return await asyncio.to_thread(_show, answer.comparisons[0], documents, state)


def _show(result: ABResult, documents: Mapping[str, StoredDocument], state: PageState) -> list[Section]:
    """Render both rankings; on a thread, since texts may be long."""
    view = ab_view(result, text_of=lambda doc_id: documents[doc_id].text, link=_link_of(result, state))
    head = Markup('<p class="verdict">{}</p>').format(summary(result))
    words = Markup('<details class="small"><summary>What the words mean</summary>{}</details>').format(
        legend()
    )
    build = Markup('<p class="small dim">build {}</p>').format(result.build_id)
    return [Section("", "result", head + view + words + build)]


def _request(state: PageState, other: str | None) -> QueryRequest:
    try:
        return QueryRequest(query=state.question, k=state.k, arms=None if other is None else [other])
    except ValidationError as error:
        first = error.errors()[0]
        field = {"query": "The question"}.get(str(first["loc"][0]), str(first["loc"][0]))
        raise Problem(422, "invalid_request", f"{field}: {first['msg']}") from None


def _other(served: ServedBuild, state: PageState) -> str | None:
    """The arm that the address means; None: the build's second."""
    if state.arm is not None:
        return state.arm
    strengths = _strengths(served)
    if state.level is None or not strengths:
        return None
    return strengths[min(max(state.level, 0), len(strengths) - 1)][0]


def _strengths(served: ServedBuild) -> list[tuple[str, str]]:
    """The arms beside the reference with their strengths, ascending, if there are several different ones."""
    arms: Mapping[str, Mapping[str, Any]] = served.application["arms"]
    found = sorted((float(arms[arm]["strength"]), arm) for arm in served.searcher.arms[1:])
    is_scale = len(found) > 1 and len({strength for strength, _ in found}) == len(found)
    return [(arm, f"{strength:g}") for strength, arm in found] if is_scale else []


def _form(service: SearchService, served: ServedBuild, state: PageState, examples: Sequence[str]) -> Section:
    reference, *others = served.searcher.arms
    other = _other(served, state) or (others[0] if others else "")
    strengths = _strengths(served)
    level = next((place for place, (arm, _) in enumerate(strengths) if arm == other), 0)
    body = render_template(
        "search.html.j2",
        question=state.question,
        k=state.k,
        choices_of_k=sorted({*(k for k in _CHOICES_OF_K if k <= service.settings.max_k), state.k}),
        reference=reference,
        others=others,
        other=other,
        strengths=strengths,
        level=level,
        max_characters=MAX_QUERY_CHARACTERS,
        examples=[(example, PageState(example).address) for example in examples[:_EXAMPLES_SHOWN]],
    )
    return Section("", "search", body)


def summary(result: ABResult) -> str:
    """Say in two sentences what the other arm changes, and what the tests of position say."""
    actions = {
        "brings {} into": len(result.with_status(MovementStatus.ENTERED)),
        "drops {} from": len(result.with_status(MovementStatus.LEFT)),
        "moves {} within": len(result.with_status(MovementStatus.MOVED)),
    }
    changes = [action.format(_count(number)) for action, number in actions.items() if number]
    if not changes:
        return f"{result.other_arm} ranks its first {result.k} documents as {result.reference_arm} does."
    *first, last = changes
    what = f"{', '.join(first)} and {last}" if first else last
    verdicts = [(verdict, len(result.with_verdict(verdict))) for verdict in Verdict]
    reasons = ", ".join(f"{verdict} {number}" for verdict, number in verdicts if number)
    why = f" Why: {reasons}." if reasons else ""
    return f"Against {result.reference_arm}, {result.other_arm} {what} the top {result.k}.{why}"


def _count(number: int) -> str:
    return f"{number} document{'' if number == 1 else 's'}"


def _link_of(result: ABResult, state: PageState) -> Callable[[str], str]:
    """Where a document opens: at its evidence, or at the chunk that was found."""
    documents = {document.doc_id: document for document in result.documents}

    def link(doc_id: str) -> str:
        start, end = _marked(documents[doc_id])
        place = {"id": doc_id, "start": start, "end": end, "build": result.build_id}
        return "/document?" + urlencode(place) + "&" + state.address.removeprefix("/?") + "#evidence"

    return link


def _marked(document: DocumentResult) -> tuple[int, int]:
    if document.evidence is not None:
        return document.evidence.start, document.evidence.end
    hit = document.other or document.reference
    return (hit.start, hit.end) if hit is not None else (0, 0)


def _document(found: StoredDocument, state: PageState, values: Mapping[str, str], build_id: str) -> Markup:
    length = len(found.text)
    start = min(max(_whole(values.get("start", "0"), "start"), 0), length)
    end = min(max(_whole(values.get("end", "0"), "end"), start), length)
    return render_template(
        "document.html.j2",
        back=state.address if state.question else "/",
        is_other_build=values.get("build", build_id) != build_id,
        metadata=found.metadata,
        before=found.text[:start],
        marked=found.text[start:end],
        after=found.text[end:],
    )


def _whole(text: str, name: str) -> int:
    try:
        return int(text[:12])
    except ValueError:
        raise Problem(422, "invalid_request", f"{name} = {text[:20]!r} is not a whole number") from None
