"""The stages of a run: each looks at what is there, does what is missing, and says what it did.

corpus -> chunks -> vectors -> indexes. Stages meet on disk; each artefact lies beside a manifest with the
fingerprint of everything that decided it. Same fingerprint, nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline.artifacts import (
    BuildFiles,
    RunLayout,
    fingerprint,
    link_or_copy,
    read_json,
    run_lock,
    scratch_layout,
    write_json,
)
from pipeline.config import Config
from pipeline.corpus import open_corpus
from pipeline.corpus.table import read_documents, write_documents
from pipeline.embedding import (
    EmbedPlan,
    PendingTasks,
    ShardStore,
    carry_out,
)
from pipeline.plan import ReembedPlan, compare_chunks
from pipeline.reporting import Reporter, SilentReporter, ticking
from pipeline.run_model import RunModel, choose_engine
from pipeline.table_artifact import TableArtifact
from pipeline.tables import read_rows


class Stage(StrEnum):
    """The stages, in order."""

    CORPUS = "corpus"
    CHUNK = "chunk"
    EMBED = "embed"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage did.

    Attributes:
        stage: which one.
        changed: False if everything was there already.
        seconds: wall time.
        figures: counts for the summary, by name.
        notes: sentences for the user.
    """

    stage: Stage
    changed: bool
    seconds: float
    figures: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Run:
    """One run directory and the configuration that it is to hold.

    Attributes:
        plan: what the last `upto` found to embed; None before.
    """

    def __init__(
        self, config: Config, reporter: Reporter | None = None, *, layout: RunLayout | None = None
    ) -> None:
        self.config = config
        self.layout = layout or RunLayout(Path(config.run))
        self.plan: ReembedPlan | None = None
        self._reporter = reporter or SilentReporter()
        self._model = RunModel(config, self._reporter)
        self._documents = TableArtifact(self.layout.documents, self.layout.documents_manifest)
        self._chunks = TableArtifact(self.layout.chunks, self.layout.chunks_manifest)

    def upto(self, last: Stage) -> list[StageResult]:
        """Run what is missing, up to and including `last`.

        Raises:
            DataError: a corpus, model, shard or build cannot be used; what was complete stays.
            UsageError: the configuration does not fit the model.
        """
        steps: dict[Stage, Callable[[], StageResult]] = {
            Stage.CORPUS: self._corpus,
            Stage.CHUNK: self._chunk,
            Stage.EMBED: self._embed,
            Stage.INDEX: self._index,
        }
        results = []
        with run_lock(self.layout):
            for stage, step in steps.items():
                if stage is Stage.CHUNK:
                    write_json(self.layout.config, self.config.model_dump(mode="json"))
                if stage is Stage.EMBED:
                    self._announce()
                results.append(step())
                if stage is last:
                    break
            self._record_rate(results)
        return results

    # -- plan ----------------------------------------------------------------------------------------

    def dry_run(self) -> ReembedPlan:
        """Say what `upto` would do, and leave the run directory as it is.

        Raises:
            DataError, UsageError: as `upto`.
        """
        with run_lock(self.layout), scratch_layout(self.layout) as scratch:
            self._share_tables(scratch)
            rehearsal = Run(self.config, self._reporter, layout=scratch)
            rehearsal._corpus()
            rehearsal._chunk()
            return self._make_plan(scratch.chunks)

    def _share_tables(self, scratch: RunLayout) -> None:
        """Let a rehearsal find what is there already, so that only what has changed is read and cut again."""
        here = self.layout
        pairs = [
            (here.documents, scratch.documents),
            (here.documents_manifest, scratch.documents_manifest),
            (here.chunks, scratch.chunks),
            (here.chunks_manifest, scratch.chunks_manifest),
        ]
        for source, target in pairs:
            target.parent.mkdir(exist_ok=True)
            if source.is_file():
                link_or_copy(source, target)

    def _announce(self) -> None:
        write_json(self.layout.identities, {"arms": self._model.identities()})
        self.plan = self._make_plan(self.layout.chunks)
        if self.plan:
            self._reporter.say(self.plan.sentence())

    def _make_plan(self, chunks: Path) -> ReembedPlan:
        from pipeline.indexing import current_build

        build = current_build(self.layout.root)
        serving = BuildFiles(build.path).chunks if build is not None else None
        columns = read_rows(chunks, ["content_key", "n_tokens"])
        work = EmbedPlan(((row["content_key"], row["n_tokens"]) for row in columns), self._stores())
        rate = (read_json(self.layout.embed_record) or {}).get("tokens_per_second")
        return ReembedPlan(
            compare_chunks(serving, chunks), work.missing, work.tokens, work.tokens / rate if rate else None
        )

    def _record_rate(self, results: list[StageResult]) -> None:
        for result in results:
            if result.stage is Stage.EMBED and result.changed and result.seconds > 0:
                rate = result.figures["tokens"] / result.seconds
                write_json(self.layout.embed_record, {"tokens_per_second": rate})

    # -- corpus --------------------------------------------------------------------------------------

    def _corpus(self) -> StageResult:
        started = time.monotonic()
        corpus = open_corpus(self.config.corpus)
        wanted = corpus.fingerprint()
        if known := self._documents.figures_if_made_from(wanted):
            return _unchanged(Stage.CORPUS, started, known)
        self._documents.forget()
        with self._reporter.task("reading documents", None, "documents") as advance:
            summary = write_documents(ticking(corpus.read(), advance), self.layout.documents)
        figures = {
            "source": corpus.describe(),
            "documents": summary.n_documents,
            "characters": summary.n_characters,
            "skipped": {str(reason): count for reason, count in summary.skip_counts.items()},
            "skipped_records": [skipped.as_json() for skipped in summary.skipped],
        }
        self._documents.remember(wanted, figures)
        return StageResult(Stage.CORPUS, True, time.monotonic() - started, figures)

    # -- chunks --------------------------------------------------------------------------------------

    def _chunk(self) -> StageResult:
        from pipeline.chunking import RULES

        started = time.monotonic()
        documents = self._documents.record
        wanted = fingerprint(
            {
                "documents": documents["sha256"],
                "rules": RULES,
                "settings": self.config.chunk.model_dump(mode="json"),
                "model": self._model.fingerprint,
                "max_length": self.config.model.max_length,
                "prompt": self.config.model.document_prompt,
            }
        )
        if known := self._chunks.figures_if_made_from(wanted):
            return StageResult(Stage.CHUNK, False, time.monotonic() - started, known, _context_notes(known))
        figures = self._write_chunks(documents["figures"]["documents"])
        self._chunks.remember(wanted, figures)
        return StageResult(Stage.CHUNK, True, time.monotonic() - started, figures, _context_notes(figures))

    def _write_chunks(self, n_documents: int) -> dict[str, Any]:
        from pipeline.chunking import Chunker
        from pipeline.chunking.table import write_chunks

        encoder = self._model.encoder
        chunker = Chunker(
            encoder.tokenizer,
            self.config.chunk,
            max_length=encoder.max_length,
            prompt=encoder.document_prompt,
        )
        self._chunks.forget()
        with self._reporter.task("cutting chunks", n_documents, "documents") as advance:
            documents = ticking(read_documents(self.layout.documents), advance)
            summary = write_chunks(documents, chunker, self.layout.chunks)
        return {
            "documents": summary.n_documents,
            "chunks": summary.n_chunks,
            "tokens": summary.n_tokens,
            "longest_chunk": summary.longest_chunk,
            "contexts_cut": summary.n_contexts_cut,
            "max_tokens": chunker.max_tokens,
            "skipped": {str(reason): count for reason, count in summary.skip_counts.items()},
            "skipped_records": [skipped.as_json() for skipped in summary.skipped],
        }

    # -- vectors -------------------------------------------------------------------------------------

    def _stores(self) -> dict[str, ShardStore]:
        return {
            name: ShardStore(self.layout.vectors(identity), identity)
            for name, identity in self._model.identities().items()
        }

    def _embed(self) -> StageResult:
        started = time.monotonic()
        stores = self._stores()
        columns = read_rows(self.layout.chunks, ["content_key", "n_tokens"])
        plan = EmbedPlan(((row["content_key"], row["n_tokens"]) for row in columns), stores)
        notes = tuple(
            f"shard {name} was incomplete and is made again"
            for store in stores.values()
            for name in store.damaged
        )
        figures: dict[str, Any] = {
            "vectors_made": dict.fromkeys(stores, 0),
            "vectors_reused": dict.fromkeys(stores, plan.n_texts),
        }
        # Before anything is embedded: a shard that is made again may well get the same name.
        for store in stores.values():
            store.remove_damaged()
        if plan:
            figures = self._carry_out(plan, stores)
        return StageResult(Stage.EMBED, bool(plan), time.monotonic() - started, figures, notes)

    def _carry_out(self, plan: EmbedPlan, stores: Mapping[str, ShardStore]) -> dict[str, Any]:
        self._refuse_impossible_index(self._model.encoder.dimension)
        shard_size = plan.shard_size(self.config.embed.shard_size, self.config.embed.workers)
        tasks = PendingTasks(self.layout.chunks.absolute(), stores, shard_size)
        folders = {arm: store.shards for arm, store in stores.items()}
        engine = choose_engine(self.config, self._model, folders, n_shards=plan.n_shards(shard_size))
        with self._reporter.task("embedding", plan.tokens, "tokens") as advance:
            summary = carry_out(plan, tasks, engine, progress=lambda _, tokens: advance(tokens))
        return {
            "vectors_made": summary.embedded,
            "vectors_reused": summary.reused,
            "tokens": summary.tokens,
        }

    def _refuse_impossible_index(self, dimension: int) -> None:
        """Fail before hours of embedding if the index that is asked for cannot be built from so few rows."""
        from indexes import check_factory, resolve_spec
        from pipeline.indexing import index_spec

        n_rows = self._chunks.figures["chunks"]
        check_factory(
            resolve_spec(index_spec(self.config.index), n_rows=n_rows, dim=dimension).spec, dimension
        )

    # -- indexes -------------------------------------------------------------------------------------

    def _index(self) -> StageResult:
        from pipeline.indexing import IndexInputs, current_build, publish_build

        started = time.monotonic()
        chunks = self._chunks.record
        wanted = fingerprint(
            {
                "chunks": chunks["sha256"],
                # Titles and metadata lie in a build too: answers show them and filters ask for them.
                "documents": self._documents.record["sha256"],
                "arms": self._model.identities(),
                "index": self.config.index.model_dump(mode="json"),
            }
        )
        build = current_build(self.layout.root)
        if build is not None and build.manifest.application.get("fingerprint") == wanted:
            notes = _arm_notes(self.config)
            return StageResult(
                Stage.INDEX, False, time.monotonic() - started, {"build": build.build_id}, notes
            )
        stores = self._stores()
        n_rows = chunks["figures"]["chunks"]
        inputs = IndexInputs(
            self.layout.chunks, self.layout.documents, stores, self.config.index, self._build_manifest(wanted)
        )
        dim = next(store.dimension for store in stores.values()) or self._model.encoder.dimension
        with self._reporter.task("indexing", n_rows * len(stores), "rows") as advance:
            build, note = publish_build(self.layout.root, inputs, n_rows=n_rows, dim=dim, progress=advance)
        figures = {"build": build.build_id, "rows": n_rows, "dimension": dim}
        notes = (*((note,) if note else ()), *_arm_notes(self.config))
        return StageResult(Stage.INDEX, True, time.monotonic() - started, figures, notes)

    def _build_manifest(self, wanted: str) -> dict[str, Any]:
        return {
            "fingerprint": wanted,
            "model": self.config.model.model_dump(mode="json"),
            "model_folder": str(self._model.folder),
            "model_fingerprint": self._model.fingerprint,
            "arms": {name: arm.model_dump(mode="json") for name, arm in self.config.arms.items()},
            "identities": self._model.identities(),
            "documents": self._documents.figures["documents"],
            "source": self._documents.figures["source"],
        }


def _unchanged(stage: Stage, started: float, figures: Mapping[str, Any]) -> StageResult:
    return StageResult(stage, False, time.monotonic() - started, figures)


def _arm_notes(config: Config) -> tuple[str, ...]:
    if len(config.arms) > 1:
        return ()
    return (
        f"one arm only ({next(iter(config.arms))}), so that queries have nothing to compare; arms in a "
        "file take the place of the default ones: name [arms.plain] with strength = 0.0 there too",
    )


def _context_notes(figures: Mapping[str, Any]) -> tuple[str, ...]:
    n_cut = figures["contexts_cut"]
    if not n_cut:
        return ()
    return (
        f"the context of {n_cut:,} of {figures['chunks']:,} chunks was cut at a word, to half of the "
        f"{figures['max_tokens']} tokens of a chunk; raise chunk.max_tokens, or lower chunk.context",
    )
