"""Edit, kill, damage and resume at random: `make soak` (ARGS="--rounds 10 --seed 3"). Takes some minutes.

Each round changes a corpus and its settings, starts the real command, mostly kills it (-9) at some moment,
sometimes damages what it left, runs it to the end, and compares the build that then serves with one made
from nothing. All the while the build of the round before has to open. Exits with 1 on any mismatch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as pq

from indexes import BuildStore, NoBuildError, open_build
from pipeline.artifacts import BuildFiles
from pipeline.config import load_config
from pipeline.stages import Run, Stage
from tests.benchmarks.soak_project import Project
from tests.conftest import REPOSITORY

KILLED, DAMAGED = 0.8, 0.4
SECONDS_PER_COMMAND = 180
SECONDS_TO_END = 10


@dataclass
class Tally:
    """What happened in all rounds."""

    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    damages: Counter[str] = field(default_factory=Counter)
    builds_opened: int = 0
    mismatches: list[str] = field(default_factory=list)

    def report(self) -> str:
        """Say it in a few lines."""
        lines = [
            f"{self.rounds} rounds, {self.kills.total()} kills, {self.damages.total()} damages, "
            f"{self.builds_opened} openings while commands ran, {len(self.mismatches)} mismatches"
        ]
        lines += [f"  killed {moment}: {count}" for moment, count in sorted(self.kills.items())]
        lines += [f"  {name}: {count}" for name, count in sorted(self.damages.items())]
        return "\n".join([*lines, *(f"  MISMATCH {mismatch}" for mismatch in self.mismatches)])


class Soak:
    """The rounds over one project."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311
        self.project = Project(folder, self.random)
        self.tally = Tally()
        self._seconds = 10.0

    def round(self) -> None:
        """Edit, perhaps kill, perhaps damage, run to the end, compare."""
        self.tally.rounds += 1
        self.project.edit()
        if self.random.random() < KILLED:
            self._start_and_kill()
        if self.random.random() < DAMAGED and (damage := self.project.damage()):
            self.tally.damages[damage] += 1
        self._run_to_the_end()
        self._compare()

    # -- the command -----------------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        options = [
            part
            for name, value in self.project.all_settings(self.project.layout.root).items()
            for part in ("--set", f"{name}={json.dumps(value)}")
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline", "index", "--quiet", "--allow-skipped", *options],
            cwd=REPOSITORY,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def _start_and_kill(self) -> None:
        before = self._served()
        moment = self.random.choice(["at any time", "while it writes shards", "while it builds"])
        process = self._start()
        self._watch(process, before, self._is_moment(moment))
        process.kill()
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            self.tally.kills[moment] += 1
        self._expect_no_process(process.pid)

    def _is_moment(self, moment: str) -> Callable[[], object]:
        layout, at = self.project.layout, time.monotonic() + self.random.uniform(0, self._seconds)
        if moment == "at any time":
            return lambda: time.monotonic() > at
        if moment == "while it writes shards":
            before, n_more = set(layout.all_vectors.glob("*/*")), self.random.randint(1, 6)
            return lambda: len(set(layout.all_vectors.glob("*/*")) - before) >= n_more
        return lambda: list(layout.root.glob("builds/.staging-*/*"))

    def _run_to_the_end(self) -> None:
        before, started = self._served(), time.monotonic()
        process = self._start()
        self._watch(process, before, lambda: False)
        _, errors = process.communicate()
        self._seconds = time.monotonic() - started
        if process.returncode != 0:
            self._mismatch(f"exit code {process.returncode}: {errors.decode()[-2000:]}")
        self._expect_no_process(process.pid)

    def _watch(
        self, process: subprocess.Popen[bytes], before: str | None, enough: Callable[[], object]
    ) -> None:
        """Open what serves, over and over, until the process ends or `enough` is true."""
        deadline = time.monotonic() + SECONDS_PER_COMMAND
        seen = {before}
        while process.poll() is None and not enough():
            seen.add(self._served())
            if time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                self._mismatch(f"the command did not end within {SECONDS_PER_COMMAND} s")
            time.sleep(0.02)
        if len(seen) > 2:
            self._mismatch(f"more than one new build served: {seen}")

    def _served(self) -> str | None:
        """Open the build that serves now; whatever is going on, it has to be whole."""
        try:
            build = BuildStore(self.project.layout.root).current()
            open_build(build)
        except NoBuildError:
            return None
        except Exception as error:  # anything at all is a finding
            self._mismatch(f"what serves cannot be opened: {error!r}")
            return None
        self.tally.builds_opened += 1
        return build.build_id

    def _expect_no_process(self, group: int) -> None:
        deadline = time.monotonic() + SECONDS_TO_END
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)
        self._mismatch("a process is left over")
        os.killpg(group, signal.SIGKILL)

    # -- the comparison --------------------------------------------------------------------------------

    def _compare(self) -> None:
        clean = self.project.folder / "clean"
        shutil.rmtree(clean, ignore_errors=True)
        settings = {**self.project.all_settings(clean), "embed.workers": 1}
        Run(load_config(None, settings)).upto(Stage.INDEX)
        for difference in differences(self.project.layout.root, clean):
            self._mismatch(difference)

    def _mismatch(self, what: str) -> None:
        self.tally.mismatches.append(f"round {self.tally.rounds}: {what} (settings {self.project.settings})")
        print(self.tally.mismatches[-1], flush=True)


def differences(run: Path, clean: Path) -> list[str]:
    """Say in what the build that serves in `run` differs from that in `clean`, and what lies about."""
    found = [f"left over: {path.relative_to(run)}" for path in run.glob("**/.tmp-*")]
    found += [f"left over: {path.relative_to(run)}" for path in run.glob("builds/.staging-*")]
    opened, expected = (open_build(BuildStore(root).current()) for root in (run, clean))
    ours, theirs = (pq.read_table(BuildFiles(one.build.path).chunks) for one in (opened, expected))
    if not ours.equals(theirs):
        return [*found, f"chunk table: {ours.num_rows} rows, expected {theirs.num_rows}, or other content"]
    for arm, index in expected.arms.items():
        counts = (opened.arms[arm].n_rows, opened.rows.n_rows, index.n_rows, ours.num_rows)
        if len(set(counts)) != 1:
            found.append(f"arm {arm}: counts differ: {counts}")
            continue
        mine, right = (one.arms[arm]._index.reconstruct_n(0, index.n_rows) for one in (opened, expected))
        if not np.allclose(mine, right, atol=1e-5):
            found.append(f"arm {arm}: vectors differ by up to {np.abs(mine - right).max():.2e}")
    return found


def main() -> None:
    """Run the rounds and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lastpage-soak-"))
    soak = Soak(folder, options.seed)
    for number in range(options.rounds):
        soak.round()
        print(f"round {number + 1} of {options.rounds}: {soak.tally.kills.total()} kills", flush=True)
    print(soak.tally.report())
    if soak.tally.mismatches:
        print(f"kept: {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
