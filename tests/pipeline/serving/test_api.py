"""The endpoints of a started server, compared with the same questions asked in this process."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from pipeline.ab import ABSearcher
from pipeline.config import ArmSettings
from pipeline.embedding.loading import as_calibration
from tests.pipeline.serving.servers import ODD_IDS, Server, wait_for

QUERY = "the answer is blue"


@pytest.fixture(scope="module")
def searcher(run: Path) -> ABSearcher:
    return ABSearcher.open(run)


def test_a_comparison_is_the_one_of_the_command_line(server: Server, searcher: ABSearcher) -> None:
    reply = server.post("/v1/query", {"query": QUERY, "k": 5})
    assert reply.status == 200
    assert reply.json["build_id"] == searcher.build_id
    assert reply.json["ranking"] is None
    (got,) = reply.json["comparisons"]
    expected = json.loads(json.dumps(searcher.search(QUERY, k=5).as_json()))
    assert got.pop("seconds").keys() == {"encode", "search", "explain"}
    del expected["seconds"]
    for answer in (got, expected):
        for document in answer["documents"]:
            for place in ("reference", "other"):
                if document[place]:
                    document[place]["score"] = round(document[place]["score"], 4)
            document["evidence"] = document["evidence"]["start"], document["evidence"]["end"]
            document["explanation"] = document["explanation"] and document["explanation"]["verdict"]
    assert got == expected


def test_without_explanations_none_is_made(server: Server) -> None:
    reply = server.post("/v1/query", {"query": QUERY, "explain": False, "arms": ["half", "full"]})
    assert [result["other_arm"] for result in reply.json["comparisons"]] == ["half", "full"]
    for result in reply.json["comparisons"]:
        assert result["seconds"].keys() == {"encode", "search"}
        assert all(d["evidence"] is None and d["explanation"] is None for d in result["documents"])


@pytest.mark.parametrize("arm", ["plain", "half", "full"])
def test_one_arm_alone_is_searched_once(server: Server, searcher: ABSearcher, arm: str) -> None:
    reply = server.post("/v1/query", {"query": QUERY, "arm": arm, "k": 4})
    assert reply.json["comparisons"] == []
    ranking = reply.json["ranking"]
    assert ranking["seconds"].keys() == {"encode", "search"}
    expected = searcher.rank(QUERY, arm=arm, k=4)
    assert [d["doc_id"] for d in ranking["documents"]] == [d.doc_id for d in expected.documents]
    assert [d["text"] for d in ranking["documents"]] == [d.text for d in expected.documents]


@pytest.mark.parametrize(
    ("filters", "years"),
    [
        ({"year": 2007}, {2007}),
        ({"year": [2007, 2009]}, {2007, 2009}),
        ({"year": {"gte": 2003, "lt": 2006}}, {2003, 2004, 2005}),
        ({"year": {"gte": 2003, "lt": 2006}, "lang": "xx"}, set()),
    ],
)
@pytest.mark.parametrize("way", [{"arm": "half"}, {}])
def test_filters_restrict_the_search(
    server: Server, filters: dict[str, object], years: set[int], way: dict[str, object]
) -> None:
    reply = server.post("/v1/query", {"query": QUERY, "filters": filters, "k": 5, **way})
    assert reply.status == 200, reply.body
    found = reply.json["ranking"] or reply.json["comparisons"][0]
    assert {2000 + int(d["doc_id"][-2:]) for d in found["documents"]} == years


def test_a_batch_is_its_questions_in_order(server: Server) -> None:
    questions = [QUERY, "a cat on a mat", QUERY]
    batch = server.post("/v1/query/batch", {"queries": questions, "arm": "half", "k": 3}).json
    for question, answer in zip(questions, batch["answers"], strict=True):
        alone = server.post("/v1/query", {"query": question, "arm": "half", "k": 3}).json
        assert alone["build_id"] == answer["build_id"] == batch["build_id"]
        assert [d["doc_id"] for d in alone["ranking"]["documents"]] == [
            d["doc_id"] for d in answer["ranking"]["documents"]
        ]


def test_embeddings_are_those_of_the_arm(server: Server, searcher: ABSearcher) -> None:
    text = "a cat sat on a mat. the answer is blue. a river is late."
    calibration = as_calibration(ArmSettings(strength=1.0, basket_size=4))
    expected = searcher.encoder.encode([text], {"full": calibration})["full"][0]
    reply = server.post("/v1/embed", {"model": "full", "input": text}).json
    assert (reply["object"], reply["model"], reply["build_id"]) == ("list", "full", searcher.build_id)
    assert reply["usage"] == {"prompt_tokens": 19, "total_tokens": 19}
    np.testing.assert_allclose(reply["data"][0]["embedding"], expected, atol=1e-6)
    plain = server.post("/v1/embed", {"model": "plain", "input": text}).json["data"][0]["embedding"]
    assert np.abs(np.array(plain) - expected).max() > 1e-3


def test_embeddings_come_in_base64_and_as_queries(server: Server, searcher: ABSearcher) -> None:
    request = {"model": "full", "input": [QUERY, "a cat"], "encoding_format": "base64", "input_type": "query"}
    data = server.post("/v1/embed", request).json["data"]
    assert [entry["index"] for entry in data] == [0, 1]
    got = np.stack([np.frombuffer(base64.b64decode(entry["embedding"]), "<f4") for entry in data])
    np.testing.assert_allclose(got, searcher.encoder.encode_queries([QUERY, "a cat"])["plain"], atol=1e-6)


@pytest.mark.parametrize("doc_id", [*ODD_IDS, "g0-07"])
def test_documents_are_found_by_any_id(server: Server, searcher: ABSearcher, doc_id: str) -> None:
    reply = server.get("/v1/documents/" + quote(doc_id, safe=""))
    assert reply.status == 200, reply.body
    stored = searcher.document(doc_id)
    assert reply.json == {
        "build_id": searcher.build_id,
        "document": {"doc_id": doc_id, "title": "", "text": stored.text, "metadata": dict(stored.metadata)},
    }


def test_slashes_of_an_id_may_stand_as_they_are(server: Server) -> None:
    assert server.get("/v1/documents/a/b%20c.md").json["document"]["doc_id"] == "a/b c.md"


def test_builds_tell_what_serves(server: Server, run: Path) -> None:
    answer = server.get("/v1/builds").json
    assert answer["current"]["build_id"] == (run / "current").read_text().strip()
    assert {name: arm["strength"] for name, arm in answer["current"]["arms"].items()} == {
        "plain": 0.0,
        "half": 0.5,
        "full": 1.0,
    }
    assert (answer["current"]["n_documents"], answer["current"]["dimension"]) == (30 + len(ODD_IDS), 32)
    assert answer["current"]["metadata_fields"] == ["year", "lang"]
    assert answer["available"] == [answer["current"]["build_id"]]
    assert answer["failed"] is None


def test_health_and_metrics(server: Server, run: Path) -> None:
    assert server.get("/healthz").json == {"status": "ok"}
    build_id = (run / "current").read_text().strip()
    assert server.get("/readyz").json == {"status": "ready", "build_id": build_id, "failed": None}
    server.post("/v1/query", {"query": QUERY})
    metrics = server.get("/metrics").body.decode()
    assert f'lastpage_build{{build_id="{build_id}",' in metrics
    for step in ("encode", "search", "explain"):
        assert f'lastpage_step_seconds_count{{step="{step}"}}' in metrics
    assert 'lastpage_requests_total{route="/v1/query",status="200"}' in metrics
    assert 'lastpage_queue{kind="requests"} 0.0' in metrics
    assert "a/b" not in metrics  # no label for each document


def test_answers_do_not_wait_for_delayed_acknowledgements(server: Server) -> None:
    """With Nagle's algorithm every answer on a kept connection takes 40 ms and more."""
    connection, seconds = server.connect(), []
    for _ in range(20):
        started = time.monotonic()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        seconds.append(time.monotonic() - started)
    connection.close()
    assert min(seconds[1:]) < 0.03


def test_the_log_has_one_line_a_request_and_no_query(server: Server) -> None:
    reply = server.post("/v1/query", {"query": "a secret alpha question", "arm": "plain"})
    request_id = reply.headers["x-request-id"]
    lines = wait_for(lambda: [line for line in server.log if line.get("request_id") == request_id])
    assert len(lines) == 1
    assert lines[0]["route"] == "/v1/query"
    assert lines[0]["status"] == 200
    assert lines[0]["build_id"] == reply.json["build_id"]
    assert "secret" not in "".join(server.errors)
