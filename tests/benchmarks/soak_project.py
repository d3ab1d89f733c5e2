"""A small corpus with settings that change at random, a run directory that is damaged at random."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from pipeline.artifacts import RunLayout, read_json
from tests.conftest import save_tiny_model, write_jsonl

WORDS = ["the", "cat", "dog", "sat", "on", "mat", "answer", "is", "river", "blue", "late", "alpha", "beta"]
# A few values each, so that settings come back and vectors of earlier rounds are used again.
CHOICES: dict[str, list[Any]] = {
    "arms.calibrated.strength": [0.3, 0.5, 1.0],
    "arms.calibrated.basket_size": [4, 5],
    "chunk.max_tokens": [8, 16, 32],
    "chunk.overlap_tokens": [0, 2],
    "chunk.context": ["none", "title"],
    "embed.shard_size": [2, 8, 64],
    "embed.workers": [1, 1, 2],
    "embed.tokens_per_batch": [64, 8192],
    "index.factory": ["Flat", "Flat", "HNSW8"],
}
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 5, 60


class Project:
    """What a user has: documents, settings, and a run directory."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.documents: dict[str, dict[str, str]] = {}
        self.settings: dict[str, Any] = {name: values[0] for name, values in CHOICES.items()}
        self._n_added = 0
        save_tiny_model(folder / "model")
        for _ in range(30):
            self._add()

    @property
    def layout(self) -> RunLayout:
        """The run directory that lives through all rounds."""
        return RunLayout(self.folder / "run")

    def all_settings(self, run: Path) -> dict[str, Any]:
        """Everything a run needs, with the run directory asked for."""
        return {
            **self.settings,
            "run": str(run),
            "corpus.source": str(self.folder / "docs.jsonl"),
            "model.name": str(self.folder / "model"),
            "model.max_length": 64,
            "arms.plain.strength": 0.0,
        }

    def edit(self) -> None:
        """Change some documents, and sometimes a setting or two; then write the corpus anew."""
        edits = [
            self._add,
            self._add,
            self._remove,
            self._shorten,
            self._lengthen,
            self._retitle,
            self._blank,
        ]
        for edit in self.random.choices(edits, k=self.random.randint(1, 6)):
            edit()
        for name in self.random.sample(sorted(CHOICES), k=self.random.choice([0, 0, 1, 2])):
            self.settings[name] = self.random.choice(CHOICES[name])
        write_jsonl(self.folder / "docs.jsonl", list(self.documents.values()))

    def damage(self) -> str | None:
        """Do to the run directory what a full disk or a dying machine does; return what was done."""
        shards = self._shards_in_use()
        if not shards:
            return None
        damages: dict[str, Callable[[Path], object]] = {
            "shard cut": lambda path: _cut(path, self.random),
            "shard emptied": lambda path: path.write_bytes(b""),
            "shard lost": Path.unlink,
            "shard of another identity": lambda path: self._misplace(path, shards),
            "stray temporary": lambda path: path.with_name(f".tmp-soak-{path.name}").write_bytes(b"x"),
            "stray temporary folder": lambda path: (path.parent / ".tmp-soak" / "a").mkdir(
                parents=True, exist_ok=True
            ),
            "chunk table cut": lambda _: _cut(self.layout.chunks, self.random),
        }
        name = self.random.choice(sorted(damages))
        for shard in self.random.sample(shards, k=min(len(shards), self.random.randint(1, 8))):
            damages[name](shard)
        return name

    def _shards_in_use(self) -> list[Path]:
        """Shards of the arms of the last run: what happens to older ones has no consequence."""
        identities = (read_json(self.layout.identities) or {"arms": {}})["arms"].values()
        folders = {self.layout.vectors(identity) for identity in identities}
        return sorted(path for folder in folders for path in folder.glob("*.parquet"))

    def _misplace(self, path: Path, shards: list[Path]) -> None:
        """Put another arm's vectors of the same texts in the place of a shard, if there are any."""
        others = [other for other in shards if other.parent != path.parent and other.name == path.name]
        if others:
            shutil.copy(others[0], path)

    def _add(self) -> None:
        if len(self.documents) < MOST_DOCUMENTS:
            self._n_added += 1
            doc_id = f"d{self._n_added}"
            self.documents[doc_id] = {"id": doc_id, "title": self._words(2), "text": self._words(80)}

    def _remove(self) -> None:
        if len(self.documents) > FEWEST_DOCUMENTS:
            del self.documents[self._any()["id"]]

    def _shorten(self) -> None:
        document = self._any()
        words = document["text"].split()
        document["text"] = " ".join(words[: len(words) // 2 + 1])

    def _lengthen(self) -> None:
        document = self._any()
        document["text"] = f"{document['text']} {self._words(30)}".strip()

    def _retitle(self) -> None:
        self._any()["title"] = self._words(2)

    def _blank(self) -> None:
        if self.random.random() < 0.2:
            self._any()["text"] = " "

    def _any(self) -> dict[str, str]:
        return self.documents[self.random.choice(sorted(self.documents))]

    def _words(self, most: int) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, most)))


def _cut(path: Path, random: Random) -> None:
    """Leave only the beginning of a file, as another file: builds may share the old one."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: random.randrange(1, max(2, len(content)))])
