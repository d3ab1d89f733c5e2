"""What a client can get wrong, or the service cannot do: an HTTP status and a stable code each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from indexes import IndexesError
from pipeline.ab.filters import UnknownFieldError
from pipeline.errors import LastpageError, UsageError


class ProblemDetail(BaseModel):
    """What is wrong; `code` is stable, `message` is for people."""

    code: str = Field(examples=["query_too_long"])
    message: str = Field(examples=["the query has 2000 tokens; at most 1024 are taken"])
    issues: list[Issue] | None = Field(default=None, description="The fields that do not fit.")


class Issue(BaseModel):
    """One field that does not fit."""

    field: str = Field(examples=["k"])
    message: str = Field(examples=["Input should be greater than or equal to 1"])


class ProblemBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ProblemDetail


class Problem(Exception):  # noqa: N818  what HTTP calls it
    """An answer that is not a success.

    Attributes:
        status: the HTTP status.
        code: stable, for programs.
        message: for people.
        headers: to send with it.
    """

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """The answer that says so."""
        return problem_response(self.status, self.code, self.message, headers=self.headers)


def problem_response(
    status: int,
    code: str,
    message: str,
    *,
    issues: Sequence[Issue] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Put a problem into the form that all of them have."""
    body = ProblemBody(error=ProblemDetail(code=code, message=message, issues=list(issues) or None))
    return JSONResponse(body.model_dump(exclude_none=True), status, headers=dict(headers or {}))


def queue_full(what: str, limit: int) -> Problem:
    """Refuse a request because as many as allowed are at work or waiting."""
    message = f"{limit} {what} are at work or waiting; come back in a second"
    return Problem(429, "queue_full", message, headers={"Retry-After": "1"})


def timed_out(seconds: float) -> Problem:
    """Give up on a request."""
    return Problem(504, "timeout", f"no answer after {seconds:g} seconds; ask for less, or later")


def as_problem(error: LastpageError | IndexesError) -> Problem:
    """Say which status an error of the searcher has."""
    if isinstance(error, UnknownFieldError):
        return Problem(422, "unknown_field", str(error))
    if isinstance(error, UsageError):
        return Problem(422, "invalid_request", str(error))
    return Problem(500, "build_unusable", str(error))


RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": ProblemBody, "description": "The body is not JSON, or not UTF-8."},
    401: {"model": ProblemBody, "description": "The token is missing or wrong."},
    413: {"model": ProblemBody, "description": "The body is too large."},
    422: {"model": ProblemBody, "description": "The request does not fit, or asks for too much."},
    429: {"model": ProblemBody, "description": "Too many requests wait; see Retry-After."},
    500: {"model": ProblemBody, "description": "A fault of the service; the log has it under X-Request-Id."},
    504: {"model": ProblemBody, "description": "No answer in time."},
}

ProblemDetail.model_rebuild()
