"""Publish a build from texts and vectors at hand: one document, one chunk, one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from indexes import BuildLayout, BuildStore, IndexSpec, OpenBuild, Rows, VectorIndex, open_build, write_rows
from pipeline.artifacts import BuildFiles
from pipeline.chunking.table import CHUNK_SCHEMA, content_key
from pipeline.config import ArmSettings
from pipeline.corpus.table import write_documents
from pipeline.records import Document
from pipeline.tables import table_writer


def publish(
    root: Path,
    texts: Mapping[str, str],
    vectors: Mapping[str, np.ndarray],
    arms: Mapping[str, ArmSettings],
) -> OpenBuild:
    """Publish and open a build.

    Args:
        root: where builds lie.
        texts: the documents by id, each one chunk.
        vectors: for each arm (n_documents, dimension), in the order of the texts.
        arms: what the arms are.
    """
    dim = next(iter(vectors.values())).shape[1]

    def write(staging: Path) -> None:
        write_rows(BuildLayout(staging).rows, Rows.from_ids([f"{doc_id}#0" for doc_id in texts], texts))
        for name, of_arm in vectors.items():
            index = VectorIndex.build(of_arm, dim=dim, spec=IndexSpec("Flat"))
            index.save(BuildLayout(staging).arm_index(name))
        _write_chunks(texts, BuildFiles(staging).chunks)
        write_documents(
            (Document(doc_id, text) for doc_id, text in texts.items()), BuildFiles(staging).documents
        )

    manifest = {"arms": {name: arm.model_dump(mode="json") for name, arm in arms.items()}}
    build = BuildStore(root).publish(write, arms=list(arms), n_rows=len(texts), dim=dim, manifest=manifest)
    return open_build(build, verify=False)


def _write_chunks(texts: Mapping[str, str], path: Path) -> None:
    with table_writer(path, CHUNK_SCHEMA) as table:
        for doc_id, text in texts.items():
            row = {
                "doc_id": doc_id,
                "ordinal": 0,
                "start": 0,
                "end": len(text),
                "text": text,
                "n_tokens": 0,
                "doc_chars": len(text),
                "doc_chunks": 1,
                "title": "",
                "content_key": content_key(text),
                "context": "",
                "context_is_cut": False,
            }
            table.add(row, n_characters=len(text))


def row_of(ids: Sequence[str]) -> dict[str, int]:
    """The place of each id."""
    return {doc_id: place for place, doc_id in enumerate(ids)}
