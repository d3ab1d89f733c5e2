from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import save_tiny_model
from tests.pipeline.serving.servers import Server, documents, index, odd_documents

EXAMPLES = ["the answer is blue", "a cat on a mat", "say \"<b>hello</b>\" & 'world'"]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    index(folder / "run", save_tiny_model(folder / "model"), documents() + odd_documents())
    return folder / "run"


@pytest.fixture(scope="session")
def server(run: Path) -> Iterator[Server]:
    """One server for all tests that change nothing, with small limits."""
    examples = run / "questions.jsonl"
    examples.write_text(
        "".join(json.dumps({"id": f"q{i}", "query": query}) + "\n" for i, query in enumerate(EXAMPLES))
    )
    limits = {"max_body_kb": 64, "max_k": 50, "max_depth": 200, "max_batch": 8, "max_query_tokens": 100}
    options = [f"--set=serve.{name}={value}" for name, value in limits.items()]
    started = Server(run, "--examples", str(examples), "--set=serve.drain_seconds=0", *options)
    yield started
    assert started.stop() == 0
    assert not [line for line in started.log if line["level"] == "error"]
