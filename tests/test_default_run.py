"""The main job as a newcomer runs it: the default config, to the end, with the real model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *arguments]
    environment = {"PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("default")
    done = run(folder, "index", "--config", str(REPOSITORY / "configs" / "default.toml"))
    assert done.returncode == 0, done.stderr
    assert "79 documents" in done.stdout
    assert "embedding" in done.stderr
    assert "tokens/s" in done.stderr
    return folder


def test_nothing_is_written_outside_the_run_directory(indexed: Path) -> None:
    assert [path.name for path in indexed.iterdir()] == ["runs"]
    assert [path.name for path in (indexed / "runs").iterdir()] == ["python-docs"]


def test_a_second_run_does_no_work_and_says_so(indexed: Path) -> None:
    again = run(indexed, "index")
    assert again.returncode == 0
    assert "nothing to do: runs/python-docs is up to date" in again.stdout


def test_a_query_compares_both_arms(indexed: Path) -> None:
    asked = run(indexed, "query", "--json", "When is the finally clause of a generator executed?")
    assert asked.returncode == 0, asked.stderr
    result: dict[str, Any] = json.loads(asked.stdout)
    assert (result["reference_arm"], result["other_arm"], result["n_documents"]) == (
        "plain",
        "calibrated",
        79,
    )
    assert {"try", "return"} & {document["doc_id"] for document in result["documents"][:5]}
    ranks = [document["other"]["rank"] for document in result["documents"][:10]]
    assert ranks == list(range(1, 11))
    moved = [document for document in result["documents"] if document["rank_change"]]
    assert moved, "the calibrated arm ranks exactly as the plain one"


def test_the_report_reads_well(indexed: Path) -> None:
    asked = run(indexed, "query", "If I return from inside a try, does its finally block still run?")
    assert asked.returncode == 0
    lines = asked.stdout.splitlines()
    assert lines[0].startswith("query  If I return")
    assert all(len(line) <= 120 for line in lines)
    heading = next(line for line in lines if "movement" in line)
    columns = "calibrated  plain  movement  document  best chunk  answer at  why  what seems to answer"
    assert heading.split() == columns.split()
    rows = lines[lines.index(heading) + 1 :]
    assert sum(bool(re.match(r" +\d+ +\S+ ", row)) for row in rows) >= 10
    assert any(verdict in row for row in rows for verdict in ("late answer", "uncertain", "not position"))
