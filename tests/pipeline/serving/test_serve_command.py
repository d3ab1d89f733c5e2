"""The command itself: what it refuses before anything is loaded, and which settings count."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.cli.serve_command import _is_loopback, _settings
from pipeline.errors import UsageError
from tests.conftest import Outcome
from tests.pipeline.serving.servers import Server

NOTHING = {"host": None, "port": None, "examples": None}


def test_an_address_that_is_taken_is_refused(
    lastpage: Callable[..., Outcome], run: Path, server: Server
) -> None:
    port = server.url.rsplit(":", 1)[1]
    refused = lastpage("serve", "--run", run, "--port", port)
    assert refused.code == 2
    assert f"127.0.0.1:{port}: cannot listen there" in refused.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "serve.port"),
        (["--set", "serve.max_kk=5"], "did you mean 'max_k'"),
        (["--set", "chunk.max_tokens=5"], "settings of its own only"),
        (["--token-file", "/no/such/file"], "the token cannot be read"),
        (["--examples", "/no/such/file.jsonl"], "/no/such/file.jsonl"),
    ],
)
def test_wrong_requests_are_refused_by_name(
    lastpage: Callable[..., Outcome], run: Path, options: list[str], message: str
) -> None:
    refused = lastpage("serve", "--run", run, "--port", "0", *options)
    assert refused.code in (1, 2)
    assert message in refused.err


def test_a_run_without_a_build_is_refused(lastpage: Callable[..., Outcome], tmp_path: Path) -> None:
    refused = lastpage("serve", "--run", tmp_path, "--port", "0")
    assert (refused.code, "nothing is indexed there yet" in refused.err) == (2, True)


def test_options_come_before_the_file_and_the_file_before_the_run(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("[serve]\nmax_k = 7\nport = 1234\n")
    assert _settings(run, None, (), NOTHING).max_k == 100
    assert _settings(run, file, (), NOTHING).max_k == 7
    chosen = _settings(run, file, ("serve.max_k=8",), {**NOTHING, "port": 4321})
    assert (chosen.max_k, chosen.port) == (8, 4321)
    with pytest.raises(UsageError, match="no such configuration file"):
        _settings(run, tmp_path / "none.toml", (), NOTHING)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("192.0.2.1", False), ("example.org", False)],
)
def test_only_loopback_needs_no_token(host: str, expected: bool) -> None:
    assert _is_loopback(host) is expected


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 on this machine")
def test_it_listens_by_ipv6_too() -> None:
    from pipeline.serving.server import listen

    try:
        bound = listen("::1", 0)
    except UsageError:
        pytest.skip("IPv6 is switched off")
    assert bound.getsockname()[1] > 0
    bound.close()
