"""Vectors of a data set, made once: documents by all arms in one pass, queries plainly.

They lie in the run directory's own shard stores, by content: a warm evaluation embeds nothing, another
strength embeds one arm, another chunk budget only the texts that differ, and a killed run resumes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.artifacts import EvaluationFiles, RunLayout, fingerprint
from pipeline.chunking import RULES
from pipeline.chunking.table import content_key
from pipeline.config import Config, ModelSettings
from pipeline.embedding import EmbedPlan, EmbedSummary, PendingTasks, ShardStore, carry_out
from pipeline.evaluation.cutting import (
    DocumentLength,
    chunk_settings,
    is_chunked,
    make_cutter,
    read_lengths,
    write_cut,
)
from pipeline.evaluation.datasets.records import EvaluationSet
from pipeline.reporting import Reporter, ticking
from pipeline.run_model import RunModel, choose_engine
from pipeline.table_artifact import TableArtifact
from pipeline.tables import read_rows

Vectors = NDArray[np.float32]

# Vectors have length 1. What differs by less was computed in batches of another shape, not in another way.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class RowMap:
    """Which rows of the vectors belong to which document: the rows of a document stand together.

    Attributes:
        doc_ids: in the order of the rows.
        starts: (n_documents + 1,) first row of each document, and the number of rows.
    """

    doc_ids: tuple[str, ...]
    starts: NDArray[np.int64]

    @property
    def n_rows(self) -> int:
        """How many vectors an arm has."""
        return int(self.starts[-1])


@dataclass(frozen=True)
class EmbeddedSet:
    """A data set as vectors.

    Attributes:
        stores: the document vectors of each arm.
        keys: content of each row.
        rows: which rows belong to which document.
        queries: (n_queries, dimension), in the order of the set.
        lengths: of the documents, by doc_id.
        counts: documents, chunks, tokens, documents cut, documents invisible to the tokenizer, and queries
            cut (the beginning of those that are too long is embedded).
        made: vectors embedded this time, by arm, and `queries`.
        tokens: sent through the encoder for documents this time.
        seconds: that embedding took this time.
    """

    stores: Mapping[str, ShardStore]
    keys: Sequence[str]
    rows: RowMap
    queries: Vectors
    lengths: Mapping[str, DocumentLength]
    counts: Mapping[str, int]
    made: Mapping[str, int]
    tokens: int
    seconds: float

    @cached_property
    def dimension(self) -> int:
        """Of the vectors."""
        return int(self.queries.shape[1])

    def documents(self, arm: str) -> Vectors:
        """(n_rows, dimension): the document vectors of an arm."""
        return np.concatenate(list(self.stores[arm].read(self.keys)))


def embed_set(
    data: EvaluationSet,
    config: Config,
    layout: RunLayout,
    reporter: Reporter,
    *,
    model: RunModel | None = None,
) -> EmbeddedSet:
    """Cut and embed the documents of a set in all arms, and its queries; hold the run's lock for it.

    Args:
        data: what to embed.
        config: model, arms, and how documents are cut (`evaluate.chunk_tokens`, `evaluate.long_documents`).
        layout: the run directory, where vectors are kept and found again.
        reporter: shows progress.
        model: the model of `config`, if it is at hand.

    Raises:
        DataError: a document is too long and may not be cut, or a vector comes out non-finite.
        UsageError: a setting does not fit the model.
    """
    model = model or RunModel(config, reporter)
    counts = _cut(data, config, layout, model, reporter)
    started = time.monotonic()
    stores = {name: _clean(layout, identity) for name, identity in model.identities().items()}
    summary = _embed_documents(config, layout, stores, model, reporter)
    queries, n_queries_made = _embed_queries(data, config, layout, model, reporter)
    table = [
        (row["doc_id"], row["content_key"]) for row in read_rows(layout.chunks, ["doc_id", "content_key"])
    ]
    return EmbeddedSet(
        # Opened anew: they know only the shards that were there.
        stores={name: ShardStore(store.folder, store.identity) for name, store in stores.items()},
        keys=[key for _, key in table],
        rows=_row_map([doc_id for doc_id, _ in table]),
        queries=queries,
        lengths=read_lengths(EvaluationFiles(layout.root).lengths),
        counts=counts,
        made={**summary.embedded, "queries": n_queries_made},
        tokens=summary.tokens,
        seconds=time.monotonic() - started,
    )


def have_same_vectors(store: ShardStore, other: ShardStore, keys: Sequence[str]) -> bool:
    """Whether two stores hold the same vectors for some texts, but for rounding."""
    blocks = zip(store.read(keys), other.read(keys), strict=True)
    return all(np.allclose(own, others, rtol=0, atol=_ROUNDING) for own, others in blocks)


def _cut(
    data: EvaluationSet, config: Config, layout: RunLayout, model: RunModel, reporter: Reporter
) -> Mapping[str, int]:
    """Cut the documents, unless the table is there already."""
    made_from = fingerprint(
        {
            "data": data.fingerprint,
            "chunk": _chunk_identity(config) if is_chunked(config.evaluate) else None,
            "long_documents": config.evaluate.long_documents,
            "model": model.fingerprint,
            "max_length": config.model.max_length,
            "prompt": config.model.document_prompt,
            # The figures say how many queries are cut, too.
            "query_prompt": config.model.query_prompt,
        }
    )
    lengths = EvaluationFiles(layout.root).lengths
    table = TableArtifact(layout.chunks, layout.chunks_manifest)
    if lengths.is_file() and (known := table.figures_if_made_from(made_from)):
        return known
    encoder = model.encoder
    cutter = make_cutter(
        config, encoder.tokenizer, max_length=encoder.max_length, prompt=encoder.document_prompt
    )
    table.forget()
    with reporter.task("cutting documents", data.n_documents, "documents") as advance:
        counts = write_cut(ticking(data.documents(), advance), cutter, chunks=layout.chunks, lengths=lengths)
    texts = {query.text for query in data.queries}
    counts["queries_cut"] = sum(encoder.count_query_tokens(text) > encoder.max_length for text in texts)
    table.remember(made_from, counts)
    return counts


def _chunk_identity(config: Config) -> dict[str, Any]:
    return {"rules": RULES, "settings": chunk_settings(config).model_dump(mode="json")}


def _embed_documents(
    config: Config,
    layout: RunLayout,
    stores: Mapping[str, ShardStore],
    model: RunModel,
    reporter: Reporter,
) -> EmbedSummary:
    columns = read_rows(layout.chunks, ["content_key", "n_tokens"])
    plan = EmbedPlan(((row["content_key"], row["n_tokens"]) for row in columns), stores)
    if not plan:
        return EmbedSummary(dict.fromkeys(stores, 0), dict.fromkeys(stores, plan.n_texts))
    shard_size = plan.shard_size(config.embed.shard_size, config.embed.workers)
    folders = {arm: store.shards for arm, store in stores.items()}
    engine = choose_engine(config, model, folders, n_shards=plan.n_shards(shard_size))
    tasks = PendingTasks(layout.chunks.absolute(), stores, shard_size)
    with reporter.task("embedding", plan.tokens, "tokens") as advance:
        return carry_out(plan, tasks, engine, progress=lambda _, tokens: advance(tokens))


def _embed_queries(
    data: EvaluationSet, config: Config, layout: RunLayout, model: RunModel, reporter: Reporter
) -> tuple[Vectors, int]:
    """The vectors of the queries, and how many were made."""
    texts = {content_key(query.text): query.text for query in data.queries}
    store = _clean(layout, _query_identity(model.fingerprint, config.model))
    missing = [key for key in texts if key not in store]
    with reporter.task("embedding queries", len(missing), "queries") as advance:
        for first in range(0, len(missing), config.embed.shard_size):
            keys = missing[first : first + config.embed.shard_size]
            # Queries are embedded alike for all arms.
            vectors = next(
                iter(model.encoder.encode_queries([texts[key] for key in keys], truncate=True).values())
            )
            store.write(keys, vectors)
            advance(len(keys))
    keys_of_all = (content_key(query.text) for query in data.queries)
    return np.concatenate(list(store.read(keys_of_all))), len(missing)


def _query_identity(model_fingerprint: str, model: ModelSettings) -> str:
    """Hash what decides a query's vector besides its text: queries are never calibrated."""
    decisive = model.model_dump(mode="json", include={"max_length", "truncate_dim", "query_prompt", "dtype"})
    return fingerprint({"queries": True, "model": model_fingerprint, "settings": decisive})


def _clean(layout: RunLayout, identity: str) -> ShardStore:
    """Open a store without its damaged shards, which are made again."""
    store = ShardStore(layout.vectors(identity), identity)
    store.remove_damaged()
    return store


def _row_map(doc_ids: Sequence[str]) -> RowMap:
    starts = [row for row, doc_id in enumerate(doc_ids) if row == 0 or doc_id != doc_ids[row - 1]]
    return RowMap(tuple(doc_ids[row] for row in starts), np.array([*starts, len(doc_ids)], dtype=np.int64))
