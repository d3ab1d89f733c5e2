"""Around every request: an id, a line in the log, the token, and the size of the body. Plain ASGI."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
import uuid
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.serving.metrics import Metrics
from pipeline.serving.problems import Problem

_log = logging.getLogger("lastpage.serve")

COOKIE = "lastpage"

# Of a body that is too large, so many times the limit is still read, for so long at most in all and between
# two parts of it: who sends it whole before reading would lose the answer if the connection closed at once.
_DRAINED_LIMITS = 16
_DRAIN_SECONDS = 10.0
_DRAIN_IDLE_SECONDS = 1.0

# Probes and the login itself; they tell nothing of the corpus.
_OPEN_PATHS = frozenset({"/healthz", "/readyz", "/login"})


class RequestLog:
    """Gives each request an id, answers what nobody caught with a 500, and writes one line a request.

    Handlers add to the line through `scope["state"]["log"]`. Texts of queries are only in it if they do.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        notes: dict[str, Any] = {"request_id": uuid.uuid4().hex, "method": scope["method"]}
        scope.setdefault("state", {})["log"] = notes
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = notes["request_id"]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            _log.exception("unhandled", extra={"event": "error", "request_id": notes["request_id"]})
            if status:
                raise  # too late for another answer; the server cuts the connection
            message = f"a fault of the service; its log has it under {notes['request_id']}"
            await Problem(500, "internal_error", message).response()(scope, receive, send_with_id)
        finally:
            self._note(scope, notes, status, time.perf_counter() - started)

    def _note(self, scope: Scope, notes: dict[str, Any], status: int, seconds: float) -> None:
        # The route as it is written, never the path: a label for each document id would fill the memory.
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.requests.labels(route, str(status or "aborted")).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        extra = {"event": "request", "route": route, "status": status, "seconds": round(seconds, 6), **notes}
        _log.info("request", extra=extra)


class BearerToken:
    """Lets a request pass that brings the token: as a bearer token, or as the cookie that the page sets."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or self._is_allowed(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["path"] in ("/", "/document"):
            headers = {"Location": "/login"}
            await Problem(303, "unauthorized", "sign in first", headers=headers).response()(
                scope, receive, send
            )
        else:
            headers = {"WWW-Authenticate": "Bearer"}
            message = "send the service's token as `Authorization: Bearer …`"
            await Problem(401, "unauthorized", message, headers=headers).response()(scope, receive, send)

    def _is_allowed(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same_secret(given.strip(), self._token):
            return True
        return same_secret(_cookie(headers), cookie_value(self._token))


def same_secret(given: str, secret: str) -> bool:
    """Compare two secrets in a time that does not tell how much of them is the same."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode("utf-8"))


def cookie_value(token: str) -> str:
    """What the page's cookie holds: a digest, so that the token itself is not kept in the browser."""
    return hmac.new(token.encode("utf-8"), b"lastpage page", hashlib.sha256).hexdigest()


def _cookie(headers: Headers) -> str:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[COOKIE].value if COOKIE in cookies else ""


class BodyLimit:
    """Reads a body before anything else is done, up to a number of bytes and for so long at most."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout_seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_seconds = timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._timeout_seconds):
                messages = await self._read(Headers(scope=scope), receive)
        except TimeoutError:
            problem = Problem(408, "body_timeout", f"no whole body after {self._timeout_seconds:g} seconds")
            await _refuse(problem, scope, receive, send)
        except Problem as problem:
            await _refuse(problem, scope, receive, send, n_drained=_DRAINED_LIMITS * self._max_bytes)
        else:
            await self._app(scope, _replay(messages, receive), send)

    async def _read(self, headers: Headers, receive: Receive) -> list[Message]:
        announced = headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > self._max_bytes:
            raise self._too_large()
        messages, n_bytes = [], 0
        while True:
            message = await receive()
            messages.append(message)
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._max_bytes:
                raise self._too_large()
            if message["type"] != "http.request" or not message.get("more_body", False):
                return messages

    def _too_large(self) -> Problem:
        return Problem(413, "body_too_large", f"the body is larger than {self._max_bytes} bytes")


async def _refuse(
    problem: Problem, scope: Scope, receive: Receive, send: Send, *, n_drained: int = 0
) -> None:
    """Answer before the body has come whole, and close the connection when so many bytes of it are read."""
    problem.headers["Connection"] = "close"

    async def send_unended(message: Message) -> None:
        # The server closes the connection at the end of the answer, which by its length is complete already.
        await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

    await problem.response()(scope, receive, send_unended)
    await _drain(receive, n_drained)
    await send({"type": "http.response.body"})


async def _drain(receive: Receive, n_bytes: int) -> None:
    """Read on and keep nothing, until the body or the connection ends, or the client takes too long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while n_bytes > 0:
                async with asyncio.timeout(_DRAIN_IDLE_SECONDS):
                    message = await receive()
                if not message.get("more_body", False):
                    return
                n_bytes -= len(message.get("body", b""))


def _replay(messages: list[Message], receive: Receive) -> Receive:
    """Give the messages that were read already, then what comes."""
    waiting = iter(messages)

    async def replayed() -> Message:
        message = next(waiting, None)
        return await receive() if message is None else message

    return replayed
