"""The server against its own description, by schemathesis."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.pipeline.serving.servers import Server

OPERATIONS = {
    "POST /v1/query",
    "POST /v1/query/batch",
    "POST /v1/embed",
    "GET /v1/documents/{doc_id}",
    "GET /v1/builds",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
}
# Valid by its form is not all: names of arms and fields are those of the build.
EXCLUDED = [positive_data_acceptance]


@pytest.fixture(scope="module")
def operations(server: Server) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


def test_all_endpoints_are_described(operations: dict[str, Any]) -> None:
    assert set(operations) == OPERATIONS


CASES = [(label, "POSITIVE") for label in sorted(OPERATIONS)]
# Only a body can be wrong: any path is that of a document, or unknown.
CASES += [(label, "NEGATIVE") for label in sorted(OPERATIONS) if label.startswith("POST")]


@pytest.mark.parametrize(("label", "mode"), CASES)
def test_every_answer_is_as_described(operations: dict[str, Any], label: str, mode: str) -> None:
    generation = schemathesis.GenerationMode[mode]

    @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operations[label].as_strategy(generation_mode=generation))
    def answers(case: Any) -> None:
        case.call_and_validate(excluded_checks=EXCLUDED, timeout=60)

    answers()


def test_the_examples_are_answered(server: Server) -> None:
    parts = server.get("/openapi.json").json["components"]["schemas"]
    paths = {"QueryRequest": "/v1/query", "BatchRequest": "/v1/query/batch", "EmbedRequest": "/v1/embed"}
    for name, path in paths.items():
        for example in parts[name]["examples"]:
            # The arm of the default configuration is called otherwise here.
            request = {key: "half" if value == "calibrated" else value for key, value in example.items()}
            assert server.post(path, request).status == 200


def test_what_types_do_not_say_is_described_too(server: Server) -> None:
    described = server.get("/openapi.json").json
    responses = described["paths"]["/v1/query"]["post"]["responses"]
    assert {"200", "400", "401", "413", "422", "429", "500", "504"} <= set(responses)
    assert "rank_change" in described["components"]["schemas"]["DocumentResult"]["properties"]
