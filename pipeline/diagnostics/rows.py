"""The rows of a diagnosis as Parquet tables: one a document, arm and place; one a document, arm and head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.diagnostics.measuring import Measurements, WatchedAttention
from pipeline.diagnostics.permutations import PermutedDocument
from pipeline.tables import table_writer

_SIMILARITIES = pa.schema(
    [
        ("doc_id", pa.string()),
        ("set_id", pa.string()),
        ("pair", pa.string()),
        ("arm", pa.string()),
        ("position", pa.int8()),
        ("segment_id", pa.string()),
        ("language", pa.string()),
        ("n_tokens", pa.int32()),
        ("sigma", pa.float32()),
        ("tau", pa.float32()),
        ("fidelity", pa.float32()),
    ]
)
_ATTENTION = pa.schema(
    [
        ("doc_id", pa.string()),
        ("arm", pa.string()),
        ("layer", pa.int16()),
        ("head_group", pa.int16()),
        ("first", pa.float32()),
        ("last", pa.float32()),
        ("baskets", pa.list_(pa.float32())),
        ("front_loading", pa.float32()),
    ]
)


def write_similarities(path: Path, documents: Sequence[PermutedDocument], measured: Measurements) -> None:
    """Write sigma and tau, one row a document, arm and place; fidelity is of the whole document."""
    _write(path, _SIMILARITIES, _similarities(documents, measured))


def write_attention(
    path: Path, documents: Sequence[PermutedDocument], arms: Sequence[str], attention: WatchedAttention
) -> None:
    """Write the attention masses, one row a document, arm, layer and head group."""
    _write(path, _ATTENTION, _attention(documents, arms, attention))


def _write(path: Path, schema: pa.Schema, rows: Iterator[dict[str, Any]]) -> None:
    with table_writer(path, schema) as table:
        for row in rows:
            table.add(row, n_characters=sum(len(value) for value in row.values() if isinstance(value, str)))


def _similarities(documents: Sequence[PermutedDocument], measured: Measurements) -> Iterator[dict[str, Any]]:
    for number, document in enumerate(documents):
        for arm, name in enumerate(measured.arms):
            for place, segment in enumerate(document.segments):
                yield {
                    "doc_id": document.doc_id,
                    "set_id": document.set_id,
                    "pair": document.pair.label,
                    "arm": name,
                    "position": place + 1,
                    "segment_id": segment.segment_id,
                    "language": segment.language,
                    "n_tokens": segment.n_tokens,
                    "sigma": measured.sigma[arm, number, place],
                    "tau": measured.tau[arm, number, place],
                    "fidelity": measured.fidelity[arm, number],
                }


def _attention(
    documents: Sequence[PermutedDocument], arms: Sequence[str], attention: WatchedAttention
) -> Iterator[dict[str, Any]]:
    _, _, layers, groups = attention.first.shape
    for row, number in enumerate(attention.documents):
        for arm, name in enumerate(arms):
            for layer, group in np.ndindex(layers, groups):
                at = (arm, row, layer, group)
                baskets = attention.baskets[at]
                yield {
                    "doc_id": documents[number].doc_id,
                    "arm": name,
                    "layer": layer,
                    "head_group": group,
                    "first": attention.first[at],
                    "last": attention.last[at],
                    "baskets": baskets[np.isfinite(baskets)].tolist(),
                    "front_loading": attention.front_loading[at],
                }
