"""Eight clients ask while builds are published; then the server is told to end.

`LASTPAGE_LOAD_SECONDS=60` makes the load as long as one wishes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexes import BuildStore
from tests.conftest import save_tiny_model
from tests.pipeline.serving.servers import Server, documents, index, wait_for

SECONDS = float(os.environ.get("LASTPAGE_LOAD_SECONDS", "6"))
N_CLIENTS = 8
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/query", {"query": "the answer is blue", "k": 5}),
    ("/v1/query", {"query": "a river is late", "arm": "half", "k": 5}),
    ("/v1/query", {"query": "a cat on a mat", "explain": False, "arms": ["half", "full"], "k": 5}),
    ("/v1/query", {"query": "the dog", "arm": "full", "filters": {"year": {"lt": 2020}}, "k": 5}),
    ("/v1/query/batch", {"queries": ["the answer", "a dog", "a mat"], "arm": "plain", "k": 3}),
    ("/v1/embed", {"model": "full", "input": ["a cat sat on a mat"] * 3}),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    run = tmp_path_factory.mktemp("load") / "run"
    index(run, model, documents(0))
    return run


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    started = Server(run, "--set=serve.poll_seconds=0.05", "--set=serve.drain_seconds=1.5")
    yield started
    started.stop()


def asked_again_and_again(server: Server, client: int, until: threading.Event, seen: list[Any]) -> None:
    """Send requests over one connection, and note each answer."""
    connection = server.connect()
    number = client
    while not until.is_set():
        path, value = REQUESTS[number % len(REQUESTS)]
        started = time.monotonic()
        connection.request("POST", path, json.dumps(value), {"Content-Type": "application/json"})
        response = connection.getresponse()
        seen.append((response.status, response.read(), time.monotonic() - started))
        number += 1
    connection.close()


def builds_and_generations(value: Any) -> Iterator[tuple[str | None, str | None]]:
    """Every build id and every generation that stand anywhere in an answer."""
    if isinstance(value, dict):
        yield value.get("build_id"), (value["doc_id"][:2] if "doc_id" in value else None)
        for part in value.values():
            yield from builds_and_generations(part)
    elif isinstance(value, list):
        for part in value:
            yield from builds_and_generations(part)


def test_no_error_and_no_mixed_answer_while_builds_change(server: Server, run: Path, model: Path) -> None:
    published = {(run / "current").read_text().strip(): "g0"}
    until, seen = threading.Event(), [[] for _ in range(N_CLIENTS)]  # type: ignore[var-annotated]
    clients = [
        threading.Thread(target=asked_again_and_again, args=(server, client, until, seen[client]))
        for client in range(N_CLIENTS)
    ]
    started = time.monotonic()
    for client in clients:
        client.start()
    for generation in (1, 2):
        time.sleep(SECONDS / 4)
        published[index(run, model, documents(generation))] = f"g{generation}"
        BuildStore(run).prune(1)
        wait_for(lambda: server.get("/readyz").json["build_id"] in list(published)[-1:])
    time.sleep(max(SECONDS / 4, started + SECONDS - time.monotonic()))
    until.set()
    for client in clients:
        client.join(60)
    answers = [answer for own in seen for answer in own]
    assert {status for status, _, _ in answers} == {200}
    per_build: Counter[str] = Counter()
    for _, body, _ in answers:
        found = list(builds_and_generations(json.loads(body)))
        (build_id,) = {build for build, _ in found if build is not None}
        assert {generation for _, generation in found if generation is not None} <= {published[build_id]}
        per_build[published[build_id]] += 1
    assert set(per_build) == {"g0", "g1", "g2"}
    assert min(map(len, seen)) > 5
    assert not [line for line in server.log if line["level"] == "error"]
    seconds = sorted(duration for _, _, duration in answers)
    p50, p99 = (1000 * seconds[len(seconds) * share // 100] for share in (50, 99))
    took = time.monotonic() - started
    sys.stdout.write(
        f"\n{len(answers)} answers in {took:.0f} s, {dict(per_build)}, p50 {p50:.0f} ms, p99 {p99:.0f} ms\n"
    )


def test_a_request_at_work_is_finished_after_the_signal(server: Server) -> None:
    """Half of a request is there when the signal comes, the other half comes when nothing new is taken."""
    body = json.dumps({"query": "the answer is blue", "k": 3}).encode()
    at_work = server.connect()
    at_work.putrequest("POST", "/v1/query")
    at_work.putheader("Content-Type", "application/json")
    at_work.putheader("Content-Length", str(len(body)))
    at_work.endheaders(body[:10])
    assert server.get("/readyz").status == 200
    server.terminate()
    drained = wait_for(lambda: reply if (reply := server.get("/readyz")).status == 503 else None)
    assert drained.json["status"] == "draining"
    assert server.post("/v1/query", {"query": "a cat", "k": 1}).status == 200  # drained, not refused
    wait_for(lambda: is_closed(server))
    at_work.send(body[10:])
    answer = at_work.getresponse()
    assert answer.status == 200
    assert json.loads(answer.read())["comparisons"][0]["k"] == 3
    at_work.close()
    assert server.process.wait(60) == 0
    assert not [line for line in server.log if line["level"] == "error"]


def is_closed(server: Server) -> bool:
    try:
        server.get("/healthz")
    except OSError:
        return True
    return False
