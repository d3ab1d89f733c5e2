"""A server as users start it, on a free port, and a client for it that sends what it is told to."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pipeline.config import load_config
from pipeline.stages import Run, Stage
from tests.conftest import REPOSITORY, write_jsonl

Value = TypeVar("Value")

# Ids are any text; these are the awkward ones.
ODD_IDS = ["a/b c.md", "100%", "%2F", "日本/ünï", "?q=1#x", "/from/the/root", "a//b", "plus+and&amp;", "\\"]
ANSWER = "the answer is blue."


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem; every problem has this form."""
        problem = self.json
        assert list(problem) == ["error"]
        assert {"code", "message"} <= set(problem["error"]) <= {"code", "message", "issues"}
        assert b"Traceback" not in self.body
        assert b".py" not in self.body
        return str(problem["error"]["code"])


class Server:
    """`lastpage serve` in a process of its own."""

    def __init__(self, run: Path, *options: str, token: str | None = None) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
        environment.pop("LASTPAGE_TOKEN", None)
        if token is not None:
            environment["LASTPAGE_TOKEN"] = token
        command = [sys.executable, "-m", "pipeline", "serve", "--run", str(run), "--port", "0", *options]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        self.head = self.process.stdout.readline()
        line = self.process.stdout.readline()
        assert line.startswith("serving at "), "".join(self.errors)
        self.url = line.removeprefix("serving at ").strip().rstrip("/")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of its log; each is JSON."""
        return [json.loads(line) for line in list(self.errors)]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """End it, and return its exit code."""
        self.terminate()
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self._reader.join(10)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=120)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        connection = self.connect()
        try:
            # Refused while it still sends, a client stops sending and reads why.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Reply(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, value: Any, **headers: str) -> Reply:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.send("POST", path, body, {"Content-Type": "application/json", **headers})


def wait_for(get: Callable[[], Value], seconds: float = 60) -> Value:
    """Ask again and again until there is something true."""
    last = time.monotonic() + seconds
    while not (value := get()) and time.monotonic() < last:
        time.sleep(0.02)
    assert value, f"not within {seconds} seconds"
    return value


def documents(generation: int = 0, n_documents: int = 30) -> list[dict[str, Any]]:
    """Documents of one generation, known by ids and texts; the answer stands early to late in them."""
    filler = "a dog sat on a mat. the cat sat late. a river is blue. "
    records = []
    for number in range(n_documents):
        before, after = filler * (number % 4), filler * (3 - number % 4)
        text = f"{before}{ANSWER} {after}gamma {generation} beta {number}."
        doc_id = f"g{generation}-{number:02}"
        records.append({"id": doc_id, "text": text, "year": 2000 + number, "lang": "en"})
    return records


def odd_documents() -> list[dict[str, Any]]:
    """Documents with the ids that are hard to put into an address."""
    texts = [f"the dog sat in {number}." for number in range(len(ODD_IDS))]
    return [{"id": doc_id, "text": text, "lang": "xx"} for doc_id, text in zip(ODD_IDS, texts, strict=True)]


def index(run: Path, model: Path, records: list[dict[str, Any]], **settings: Any) -> str:
    """Build a run of three arms, and return the id of the new build."""
    run.mkdir(parents=True, exist_ok=True)
    arms = {
        "plain": {"strength": 0.0},
        "half": {"basket_size": 4},
        "full": {"strength": 1.0, "basket_size": 4},
    }
    overrides = {
        "run": str(run),
        "corpus.source": str(write_jsonl(run / "corpus.jsonl", records)),
        "corpus.metadata_fields": ["year", "lang"],
        "model.name": str(model),
        "model.max_length": 64,
        "chunk.max_tokens": 32,
        "arms": arms,
        **settings,
    }
    Run(load_config(None, overrides)).upto(Stage.INDEX)
    return (run / "current").read_text().strip()
