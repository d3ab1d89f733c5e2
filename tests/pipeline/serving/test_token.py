"""With a token nothing is told without it; a body that does not come is not waited for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Outcome
from tests.pipeline.serving.servers import Server

TOKEN = "a-token-of-no-meaning+/="  # noqa: S105


@pytest.fixture(scope="module")
def guarded(run: Path) -> Iterator[Server]:
    started = Server(run, "--set=serve.timeout_seconds=2", "--set=serve.drain_seconds=0", token=TOKEN)
    yield started
    assert started.stop() == 0
    assert TOKEN not in "".join(started.errors)


def with_token(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "path", ["/v1/builds", "/v1/documents/g0-01", "/metrics", "/openapi.json", "/nowhere"]
)
@pytest.mark.parametrize(
    "headers",
    [{}, with_token("wrong"), with_token(""), {"Authorization": TOKEN[:5]}, {"Cookie": "lastpage=x"}],
)
def test_nothing_without_the_token(guarded: Server, path: str, headers: dict[str, str]) -> None:
    reply = guarded.get(path, **headers)
    assert (reply.status, reply.code) == (401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"


def test_the_token_opens_everything(guarded: Server) -> None:
    assert guarded.get("/v1/builds", **with_token(TOKEN)).status == 200
    assert guarded.post("/v1/query", {"query": "a cat"}, **with_token(TOKEN)).status == 200
    described = guarded.get("/openapi.json", **with_token(TOKEN)).json
    assert described["security"] == [{"bearer": []}]


def test_probes_need_no_token(guarded: Server) -> None:
    assert guarded.get("/healthz").status == 200
    assert guarded.get("/readyz").status == 200


def test_the_page_asks_for_the_token_once(guarded: Server) -> None:
    asked = guarded.get("/?q=cat")
    assert (asked.status, asked.headers["location"]) == (303, "/login")
    assert b'name="token"' in guarded.get("/login").body
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    wrong = guarded.send("POST", "/login", b"token=wrong", form)
    assert wrong.status == 401
    assert "set-cookie" not in wrong.headers
    right = guarded.send("POST", "/login", b"token=a-token-of-no-meaning%2B%2F%3D", form)
    cookie = right.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert "no-meaning" not in cookie
    assert guarded.get("/?q=cat", Cookie=cookie.split(";")[0]).status == 200


def test_half_a_body_is_not_waited_for(guarded: Server) -> None:
    connection = guarded.connect()
    connection.putrequest("POST", "/v1/query")
    for name, value in {**with_token(TOKEN), "Content-Length": "50"}.items():
        connection.putheader(name, value)
    started = time.monotonic()
    connection.endheaders(b'{"query"')
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["error"]["code"]) == (408, "body_timeout")
    assert time.monotonic() - started >= 1.9


@pytest.mark.parametrize("token", ["", "\n", "two words", "ü"])
def test_a_token_that_cannot_be_sent_is_refused(
    lastpage: Callable[..., Outcome], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """An empty token would look like protection."""
    file = tmp_path / "token"
    file.write_text(token)
    refused = lastpage("serve", "--run", run, "--token-file", file)
    assert (refused.code, "not a token" in refused.err) == (2, True)
    monkeypatch.setenv("LASTPAGE_TOKEN", token)
    refused = lastpage("serve", "--run", run)
    assert (refused.code, "not a token" in refused.err) == (2, True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104
def test_other_machines_are_not_served_without_a_token(
    lastpage: Callable[..., Outcome], run: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.delenv("LASTPAGE_TOKEN", raising=False)
    refused = lastpage("serve", "--run", run, "--host", host)
    assert refused.code == 2
    assert "without a token" in refused.err
