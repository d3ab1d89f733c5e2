"""A build whose every score can be computed in the head: an encoder that weighs sentences by their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from indexes import BuildLayout, BuildStore, IndexSpec, OpenBuild, Rows, VectorIndex, open_build, write_rows
from pipeline.ab.windows import sentence_spans
from pipeline.artifacts import BuildFiles
from pipeline.chunking.table import CHUNK_SCHEMA
from pipeline.config import ArmSettings
from pipeline.corpus.table import write_documents
from pipeline.encoders import Calibration
from pipeline.records import Document, embedded_text
from pipeline.tables import table_writer

WORDS = ("river", "bridge", "harbour", "rain", "wind", "snow", "sun", "fog")
PLAIN = ArmSettings(strength=0.0)
FLAT = ArmSettings(strength=1.0)


class PlaceEncoder:
    """Counts words, sentence by sentence.

    Plainly the n-th sentence weighs 1/n, so that what stands first counts most; calibrated, every sentence
    of a text weighs the same, 1 / (number of sentences); a strength mixes the two. A vector is the weighted
    sum of the sentences' word counts, and a query's score the sum over its words.
    """

    dimension = len(WORDS) + 1
    document_prompt = ""

    def __init__(self, max_length: int = 1000) -> None:
        self.max_length = max_length
        self.calls: list[list[str]] = []

    @property
    def n_texts(self) -> int:
        """Texts embedded so far, queries excepted."""
        return sum(map(len, self.calls))

    @property
    def tokenizer(self) -> PlaceEncoder:
        return self

    def encode_batch(self, texts: Sequence[str]) -> list[list[str]]:
        return [text.split() for text in texts]

    def count_query_tokens(self, query: str) -> int:
        return len(query.split())

    def encode_queries(self, texts: Sequence[str], *, truncate: bool = False) -> dict[str, np.ndarray]:
        assert truncate
        return {"plain": np.array([[*_counts(text), 0.0] for text in texts], np.float32)}

    def encode(
        self,
        texts: Sequence[str],
        arms: Mapping[str, Calibration | None],
        *,
        prompt: str = "",
        truncate: bool = False,
    ) -> dict[str, np.ndarray]:
        assert prompt == self.document_prompt
        assert truncate
        self.calls.append(list(texts))
        return {
            name: np.array([self.vector(text, arm.strength if arm else 0.0) for text in texts], np.float32)
            for name, arm in arms.items()
        }

    def vector(self, text: str, strength: float) -> np.ndarray:
        counts = np.array([_counts(text[start:end]) for start, end in sentence_spans(text)])
        places = np.arange(1, len(counts) + 1)
        weights = (1 - strength) / places + strength / len(counts)
        # The last dimension, which no query has, keeps vectors from being zero.
        return np.append(weights @ counts, 1.0)


def _counts(text: str) -> list[float]:
    words = text.lower().replace(".", " ").replace("?", " ").split()
    return [float(words.count(word)) for word in WORDS]


Chunks = Sequence[str]


def planted_build(
    root: Path,
    documents: Mapping[str, str | Chunks],
    *,
    arms: Mapping[str, ArmSettings] | None = None,
    context: Mapping[str, str] | None = None,
) -> OpenBuild:
    """Publish a build; a document given as several texts is cut into these chunks, joined by a blank."""
    arms = {"plain": PLAIN, "calibrated": FLAT} if arms is None else arms
    rows = [row for doc_id, text in documents.items() for row in _chunk_rows(doc_id, text, context or {})]
    encoder = PlaceEncoder()

    def write(staging: Path) -> None:
        ids = Rows.from_ids(
            [f"{row['doc_id']}#{row['ordinal']}" for row in rows], [row["doc_id"] for row in rows]
        )
        write_rows(BuildLayout(staging).rows, ids)
        for name, arm in arms.items():
            texts = [embedded_text(row["context"], row["text"]) for row in rows]
            vectors = np.array([encoder.vector(text, arm.strength) for text in texts], np.float32)
            index = VectorIndex.build(vectors, dim=encoder.dimension, spec=IndexSpec("Flat"))
            index.save(BuildLayout(staging).arm_index(name))
        with table_writer(BuildFiles(staging).chunks, CHUNK_SCHEMA) as table:
            for row in rows:
                table.add(row, n_characters=len(row["text"]))
        whole = [
            Document(doc_id, text if isinstance(text, str) else " ".join(text))
            for doc_id, text in documents.items()
        ]
        write_documents(whole, BuildFiles(staging).documents)

    manifest: dict[str, Any] = {"arms": {name: arm.model_dump(mode="json") for name, arm in arms.items()}}
    build = BuildStore(root).publish(
        write, arms=list(arms), n_rows=len(rows), dim=encoder.dimension, manifest=manifest
    )
    return open_build(build)


def _chunk_rows(doc_id: str, text: str | Chunks, context: Mapping[str, str]) -> list[dict[str, Any]]:
    chunks = [text] if isinstance(text, str) else list(text)
    starts = [sum(len(chunk) + 1 for chunk in chunks[:n]) for n in range(len(chunks))]
    return [
        {
            "doc_id": doc_id,
            "ordinal": n,
            "start": start,
            "end": start + len(chunk),
            "text": chunk,
            "n_tokens": len(chunk.split()),
            "doc_chars": len(" ".join(chunks)),
            "doc_chunks": len(chunks),
            "title": doc_id.title(),
            "content_key": f"{doc_id}#{n}",
            "context": context.get(doc_id, ""),
            "context_is_cut": False,
        }
        for n, (start, chunk) in enumerate(zip(starts, chunks, strict=True))
    ]
