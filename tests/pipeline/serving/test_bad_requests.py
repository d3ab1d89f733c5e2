"""What is wrong is refused before any work, with a stable code and no stack trace; and the server goes on."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.pipeline.serving.servers import Server, wait_for

JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def still_serves(server: Server) -> Iterator[None]:
    yield
    assert server.post("/v1/query", {"query": "a cat", "arm": "plain", "k": 1}).status == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 422, "invalid_request"),
        (b"{", 400, "bad_json"),
        (b'{"query": "a",}', 400, "bad_json"),
        (b'{"query": "\xff\xfe"}', 400, "bad_json"),
        (b"[" * 30_000, 400, "bad_json"),
        (b'{"query":' * 6_000, 400, "bad_json"),
        (b'{"query": "a", "k": ' + b"9" * 5000 + b"}", 400, "bad_json"),
        (b'{"query": "a", "k": NaN}', 422, "invalid_request"),
        (b'{"query": "a", "filters": {"year": {"gte": Infinity}}}', 422, "invalid_request"),
        (b'{"query": "\\ud800"}', 422, "invalid_request"),
        (b"null", 422, "invalid_request"),
        (b'"a"', 422, "invalid_request"),
        (b"[]", 422, "invalid_request"),
        (b'{"query": 1}', 422, "invalid_request"),
        (b'{"query": ["a"]}', 422, "invalid_request"),
        (b'{"query": ""}', 422, "invalid_request"),
        (b'{"query": " \\n\\t\\u2003"}', 422, "invalid_request"),
        (b'{"query": "a", "k": 0}', 422, "invalid_request"),
        (b'{"query": "a", "k": "5"}', 422, "invalid_request"),
        (b'{"query": "a", "k": 2.5}', 422, "invalid_request"),
        (b'{"query": "a", "k": true}', 422, "invalid_request"),
        (b'{"query": "a", "k": 51}', 422, "too_much"),
        (b'{"query": "a", "depth": 201}', 422, "too_much"),
        (b'{"query": "a", "kk": 1}', 422, "invalid_request"),
        (b'{"query": "a", "arm": "no"}', 422, "unknown_arm"),
        (b'{"query": "a", "arms": ["half", "no"]}', 422, "unknown_arm"),
        (b'{"query": "a", "arms": ["plain"]}', 422, "invalid_request"),
        (b'{"query": "a", "arms": []}', 422, "invalid_request"),
        (b'{"query": "a", "arm": "half", "arms": ["half"]}', 422, "invalid_request"),
        (b'{"query": "a", "filters": {"yaer": 1}}', 422, "unknown_field"),
        (b'{"query": "a", "filters": {"lang": {"gte": 1}}}', 422, "invalid_request"),
        (b'{"query": "a", "filters": {"year": {"min": 1}}}', 422, "invalid_request"),
        (b'{"query": "' + b"a " * 101 + b'"}', 422, "query_too_long"),
        (b'{"query": "' + b"a" * 9000 + b'"}', 422, "invalid_request"),
    ],
)
def test_bad_queries(server: Server, body: bytes, status: int, code: str) -> None:
    reply = server.send("POST", "/v1/query", body, JSON)
    assert (reply.status, reply.code) == (status, code), reply.body


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("/v1/query/batch", {"queries": []}, "invalid_request"),
        ("/v1/query/batch", {"queries": ["a"] * 9}, "too_much"),
        ("/v1/query/batch", {"queries": ["a", ""]}, "invalid_request"),
        ("/v1/query/batch", {"queries": ["a", "a " * 101]}, "query_too_long"),
        ("/v1/embed", {"model": "no", "input": "a"}, "unknown_arm"),
        ("/v1/embed", {"model": "full", "input": []}, "invalid_request"),
        ("/v1/embed", {"model": "full", "input": [[1, 2]]}, "invalid_request"),
        ("/v1/embed", {"model": "full", "input": ["a"] * 9}, "too_much"),
        ("/v1/embed", {"model": "full", "input": "a " * 70}, "text_too_long"),
        ("/v1/embed", {"model": "full", "input": "a", "dimensions": 7}, "invalid_request"),
    ],
)
def test_bad_batches_and_embeddings(server: Server, path: str, value: object, code: str) -> None:
    reply = server.post(path, value)
    assert (reply.status, reply.code) == (422, code), reply.body


def test_values_are_not_echoed(server: Server) -> None:
    assert b"confidential" not in server.post("/v1/query", {"query": ["confidential"]}).body


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/xml"}])
def test_a_body_that_is_not_called_json_is_refused(server: Server, headers: dict[str, str]) -> None:
    assert server.send("POST", "/v1/query", b'{"query": "a"}', headers).code == "invalid_request"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/documents/no-such", 404, "unknown_document"),
        ("GET", "/v1/documents/", 404, "unknown_document"),
        ("GET", "/v1/documents/%FF%00", 404, "unknown_document"),
        ("GET", "/v1/query", 405, "method_not_allowed"),
        ("DELETE", "/v1/documents/g0-01", 405, "method_not_allowed"),
        ("PATCH", "/", 405, "method_not_allowed"),
    ],
)
def test_paths_and_methods_that_are_not_there(
    server: Server, method: str, path: str, status: int, code: str
) -> None:
    reply = server.send(method, path)
    assert (reply.status, reply.code) == (status, code)
    assert ("allow" in {name.lower() for name in reply.headers}) == (status == 405)


def test_a_large_body_is_refused_by_its_announcement(server: Server) -> None:
    """Only the head is sent: the answer comes without the body."""
    with socket.create_connection(tuple(urlsplit(server.url).netloc.split(":")), timeout=60) as wire:
        wire.sendall(b"POST /v1/query HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n")
        answer = wire.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"body_too_large"' in answer


def stream(n_kilobytes: int | None) -> Iterator[bytes]:
    """The parts of a body, None for one without end; the server has time to answer to the first 100 KB."""
    yield b'{"query": "'
    for number in itertools.count() if n_kilobytes is None else range(n_kilobytes):
        if number == 100:
            time.sleep(0.3)
        yield b"a" * 1024
    yield b'"}'


def test_a_large_body_is_refused_while_it_streams(server: Server) -> None:
    """Also to a client that sends all of a body, eight times the limit, before it reads anything."""
    for n_kilobytes in (65, 80, 512):
        connection = server.connect()
        connection.request("POST", "/v1/query", stream(n_kilobytes), JSON)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert (response.status, answer["error"]["code"]) == (413, "body_too_large")
        assert response.headers["Connection"] == "close"
        connection.close()


def test_a_body_without_end_is_not_read_for_good(server: Server) -> None:
    sent = 0

    def counted() -> Iterator[bytes]:
        nonlocal sent
        for part in stream(None):
            sent += len(part)
            yield part

    connection = server.connect()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.request("POST", "/v1/query", counted(), JSON)
    connection.close()
    # Sixteen times the limit of 64 KB is read; the rest lay in the buffers of the machine.
    assert 16 * 64 * 1024 < sent < 32 * 1024**2


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/query HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_400(server: Server, head: bytes) -> None:
    with socket.create_connection(tuple(urlsplit(server.url).netloc.split(":")), timeout=60) as wire:
        wire.sendall(head)
        assert wire.recv(65536).startswith(b"HTTP/1.1 400")


def test_a_client_that_leaves_is_forgotten(server: Server) -> None:
    before = total(server, 'lastpage_requests_total{route="/v1/query"')
    for _ in range(5):
        connection = server.connect()
        connection.request("POST", "/v1/query", json.dumps({"query": "the answer"}), JSON)
        connection.close()
    wait_for(lambda: total(server, 'lastpage_requests_total{route="/v1/query"') == before + 5)
    assert total(server, "lastpage_queue{") == 0


def total(server: Server, metric: str) -> float:
    """The sum of all samples of a metric whose lines begin so."""
    lines = server.get("/metrics").body.decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric))


def test_messages_name_the_field_and_the_limit(server: Server) -> None:
    error = server.post("/v1/query", {"query": "a", "k": 0, "depth": "x"}).json["error"]
    assert [issue["field"] for issue in error["issues"]] == ["k", "depth"]
    message = server.post("/v1/query", {"query": "a", "k": 51}).json["error"]["message"]
    assert message == "k = 51; at most 50 is answered"
