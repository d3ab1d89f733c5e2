"""The ASGI application: endpoints, page, and what is around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from pipeline.serving.api import api_routes
from pipeline.serving.login import login_routes
from pipeline.serving.middleware import BearerToken, BodyLimit, RequestLog
from pipeline.serving.page import page_routes
from pipeline.serving.problems import Issue, Problem, problem_response
from pipeline.serving.service import SearchService

_DESCRIPTION = (
    "Dense retrieval with plain and attention-calibrated embeddings, one arm alone or side by side. "
    'Every answer bears the id of the build that gave it; every error is `{"error": {"code", "message"}}`.'
)
_CODES = {400: "bad_json", 404: "not_found", 405: "method_not_allowed"}
_ISSUES_SHOWN = 10


def create_app(service: SearchService, *, token: str | None = None, examples: Sequence[str] = ()) -> FastAPI:
    """Put the application together.

    Args:
        service: what answers.
        token: what clients must send; None lets everyone in.
        examples: questions that the page offers.
    """
    app = FastAPI(
        title="lastpage",
        version=version("lastpage"),
        description=_DESCRIPTION,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan_of(service),
        middleware=_middleware(service, token),
    )
    app.include_router(api_routes(service))
    app.include_router(page_routes(service, examples))
    if token is not None:
        app.include_router(login_routes(token))
    app.exception_handler(Problem)(_answer_problem)
    app.exception_handler(HTTPException)(_answer_http_error)
    app.exception_handler(RequestValidationError)(_answer_invalid)
    _document_rest(app, needs_token=token is not None)
    return app


def _middleware(service: SearchService, token: str | None) -> list[Middleware]:
    """From the outside in: what is refused is logged and counted too."""
    settings = service.settings
    guard = [Middleware(BearerToken, token=token)] if token is not None else []
    limit = Middleware(
        BodyLimit, max_bytes=1024 * settings.max_body_kb, timeout_seconds=settings.timeout_seconds
    )
    return [Middleware(RequestLog, metrics=service.metrics), *guard, limit]


def _lifespan_of(service: SearchService) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(service.builds.watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            service.close()

    return lifespan


async def _answer_problem(_: Request, error: Problem) -> Response:
    return error.response()


async def _answer_http_error(_: Request, error: HTTPException) -> Response:
    """What the framework refuses: an unknown path, a method, a body that cannot be read."""
    code = _CODES.get(error.status_code, "http_error")
    return problem_response(error.status_code, code, str(error.detail), headers=error.headers)


async def _answer_invalid(_: Request, error: RequestValidationError) -> Response:
    """Name the fields that do not fit, never their values: they may be confidential, or huge."""
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        where = problems[0]["loc"][-1]
        return problem_response(400, "bad_json", f"the body is not valid JSON (at character {where})")
    issues = [
        Issue(field=".".join(map(str, problem["loc"][1:])) or "body", message=problem["msg"])
        for problem in problems[:_ISSUES_SHOWN]
    ]
    message = "; ".join(f"{issue.field}: {issue.message}" for issue in issues[:3])
    return problem_response(422, "invalid_request", message, issues=issues)


def _document_rest(app: FastAPI, *, needs_token: bool) -> None:
    """Complete the OpenAPI description with what types alone do not say."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = make()
            parts = schema["components"]
            parts["schemas"]["DocumentResult"]["properties"]["rank_change"] = {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "title": "Rank Change",
                "description": "Ranks gained in the other arm; null where one rank is not known.",
            }
            if needs_token:
                parts["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
                schema["security"] = [{"bearer": []}]
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
