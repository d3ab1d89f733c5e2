"""One evaluation: data and model in, tables by answer position out, everything kept in the run directory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.ab.trec import write_run
from pipeline.artifacts import EvaluationFiles, RunLayout, run_lock, write_json
from pipeline.config import Config
from pipeline.errors import UsageError
from pipeline.evaluation.bm25 import bm25_scorer
from pipeline.evaluation.datasets import EvaluationSet, load_evaluation_set
from pipeline.evaluation.earlier import as_read, read_earlier, set_aside
from pipeline.evaluation.metrics import QueryScores, score_run
from pipeline.evaluation.results import BM25, Cost, DataFacts, EvaluationResult
from pipeline.evaluation.scoring import Tables, count_truncation, is_gold_cut, warnings_of
from pipeline.evaluation.search import DEPTH, Rankings, dense_scorer, rank_all
from pipeline.evaluation.vectors import EmbeddedSet, embed_set, have_same_vectors
from pipeline.reporting import Reporter
from pipeline.run_model import RunModel
from pipeline.tables import table_writer

_PACKAGES = ("lastpage", "numpy", "torch", "transformers", "tokenizers", "bm25s", "pytrec-eval-terrier")
_SCORES_SCHEMA = pa.schema(
    [
        ("system", pa.string()),
        ("query_id", pa.large_string()),
        ("question_id", pa.large_string()),
        ("cluster", pa.large_string()),
        ("corpus", pa.string()),
        ("gold_doc", pa.large_string()),
        ("group", pa.string()),
        ("position", pa.float64()),
        ("gold_cut", pa.bool_()),
        ("ndcg", pa.float64()),
        ("recall", pa.float64()),
        ("mrr", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation and what it took this time, which differs from run to run.

    Attributes:
        made: vectors that were embedded, by arm, and `queries`.
        tokens: sent through the encoder for documents.
        embed_seconds: that embedding took.
        score_seconds: that search, measures and statistics took.
        earlier: where earlier results of other settings now lie; None if there were none.
    """

    result: EvaluationResult
    made: Mapping[str, int]
    tokens: int
    embed_seconds: float
    score_seconds: float
    earlier: Path | None = None


def evaluate(config: Config, reporter: Reporter) -> Evaluation:
    """Measure retrieval by answer position for every arm of a configuration, and for BM25.

    Raises:
        DataError: the data, the model or a stored vector cannot be used.
        UsageError: the settings do not fit the data or the model.
    """
    if BM25 in config.arms:
        raise UsageError(f"arm name {BM25!r} is taken by the lexical row; choose another")
    with reporter.task("reading data", None, "sets") as advance:
        data = load_evaluation_set(config.evaluate)
        advance(1)
    layout = evaluation_layout(config)
    model = RunModel(config, reporter)
    with run_lock(layout):
        embedded = embed_set(data, config, layout, reporter, model=model)
        write_json(layout.config, config.model_dump(mode="json"))
        started = time.monotonic()
        made_from = provenance(data, config, model)
        earlier = _set_aside_others(EvaluationFiles(layout.root), made_from)
        scores = dict(_score_systems(data, embedded, config, layout, reporter))
        result = _result(data, embedded, config, made_from, scores, reporter)
        _write_scores(data, embedded, scores, layout)
        write_json(EvaluationFiles(layout.root).results, result.as_json())
    seconds = time.monotonic() - started
    return Evaluation(result, embedded.made, embedded.tokens, embedded.seconds, seconds, earlier)


def evaluation_layout(config: Config) -> RunLayout:
    """The run directory of an evaluation.

    Raises:
        UsageError: an index lies there, whose chunks would be replaced.
    """
    layout = RunLayout(Path(config.run))
    if layout.documents.exists():
        raise UsageError(f"run {config.run} holds an index; choose another directory with --out")
    return layout


def score_arm(data: EvaluationSet, embedded: EmbeddedSet, arm: str, *, k: int) -> QueryScores:
    """Measure each query with one arm."""
    return score_rankings(data, _rank_arm(data, embedded, arm, depth=k), k=k)


def score_rankings(data: EvaluationSet, rankings: Rankings, *, k: int) -> QueryScores:
    """Measure each query of a ranking."""
    qrels = {query.query_id: query.qrels for query in data.queries}
    return score_run(rankings.run(k), qrels, query_ids=list(qrels), k=k)


def _rank_arm(data: EvaluationSet, embedded: EmbeddedSet, arm: str, *, depth: int) -> Rankings:
    scorer = dense_scorer(data, embedded.rows, embedded.documents(arm), embedded.queries)
    return rank_all(data, scorer, depth=depth)


def _score_systems(
    data: EvaluationSet, embedded: EmbeddedSet, config: Config, layout: RunLayout, reporter: Reporter
) -> Iterator[tuple[str, QueryScores]]:
    k = config.evaluate.k
    depth = max(k, DEPTH)
    systems = [*config.arms, *([BM25] if config.evaluate.bm25 else [])]
    _forget_rankings(EvaluationFiles(layout.root))
    with reporter.task("searching", len(systems), "systems") as advance:
        for system in systems:
            if system == BM25:
                rankings = rank_all(data, bm25_scorer(data), depth=depth)
            else:
                rankings = _rank_arm(data, embedded, system, depth=depth)
            write_run(EvaluationFiles(layout.root).run(system), system, rankings.lists())
            yield system, score_rankings(data, rankings, k=k)
            advance(1)


def _set_aside_others(files: EvaluationFiles, made_from: Mapping[str, Any]) -> Path | None:
    """Keep the results that lie there, unless they were made from the same and are made again."""
    if read_earlier(files.results).get("provenance") == as_read(made_from):
        return None
    return set_aside(files.root, [files.run("any").parent, files.scores, files.results])


def _forget_rankings(files: EvaluationFiles) -> None:
    """Remove the rankings that are made again, and what an evaluation that was killed left."""
    one = files.run("any")
    for path in one.parent.glob(f"*{one.suffix}"):
        path.unlink()


def _result(
    data: EvaluationSet,
    embedded: EmbeddedSet,
    config: Config,
    made_from: Mapping[str, Any],
    scores: Mapping[str, QueryScores],
    reporter: Reporter,
) -> EvaluationResult:
    tables = Tables.of(data, config.evaluate, embedded.lengths)
    truncation = count_truncation(data, embedded.lengths)
    first, *others = config.arms
    with reporter.task("statistics", len(scores) + len(others), "tables") as advance:
        systems = []
        for name, of_system in scores.items():
            systems.append(tables.system(name, of_system))
            advance(1)
        comparisons = []
        for name in others:
            comparisons.append(tables.comparison(name, scores[name], first, scores[first]))
            advance(1)
    return EvaluationResult(
        data=_facts(data, tables),
        k=config.evaluate.k,
        systems=tuple(systems),
        comparisons=tuple(comparisons),
        truncation=truncation,
        documents=embedded.counts,
        cost=Cost(embedded.rows.n_rows, len(embedded.rows.doc_ids), embedded.dimension),
        warnings=(
            *warnings_of(data, tables, truncation, embedded.counts),
            *_idle_arms(embedded, config),
        ),
        provenance=made_from,
    )


def _idle_arms(embedded: EmbeddedSet, config: Config) -> Iterator[str]:
    """Name the arms that embed just like the first, and why."""
    first, *others = config.arms
    longest = embedded.counts["longest_chunk"]
    for name in others:
        if not have_same_vectors(embedded.stores[name], embedded.stores[first], embedded.keys):
            continue
        strength, basket = config.arms[name].strength, config.arms[name].basket_size
        if config.arms[first].strength == strength == 0.0:
            reason = "both are plain, with strength 0"
        elif config.arms[first].strength == 0.0:
            reason = (
                f"no text fills a second basket: the longest has {longest:,} tokens, special ones included, "
                f"and a basket {basket:,}"
            )
        else:
            reason = "their settings come to the same here"
        yield f"arm {name!r} does nothing: it makes the vectors of {first!r} ({reason})"


def _facts(data: EvaluationSet, tables: Tables) -> DataFacts:
    return DataFacts(
        name=data.name,
        layout=data.layout,
        protocol=data.protocol,
        n_queries=len(data.queries),
        n_documents=data.n_documents,
        n_indexes=len(data.corpora),
        group_names=data.group_names,
        n_clusters=tables.design.n_clusters,
        is_paired=tables.design.is_paired,
        left_out=data.left_out,
        fingerprint=data.fingerprint,
    )


def provenance(data: EvaluationSet, config: Config, model: RunModel) -> dict[str, Any]:
    """What figures were made from: data and model by content, settings, seed and versions."""
    return {
        "data": data.fingerprint,
        "model": model.fingerprint,
        "identities": model.identities(),
        "seed": config.evaluate.seed,
        "versions": {package: _version(package) for package in _PACKAGES},
        "settings": config.model_dump(mode="json", include={"chunk", "model", "arms", "evaluate"}),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _write_scores(
    data: EvaluationSet, embedded: EmbeddedSet, scores: Mapping[str, QueryScores], layout: RunLayout
) -> None:
    with table_writer(EvaluationFiles(layout.root).scores, _SCORES_SCHEMA) as rows:
        for system, of_system in scores.items():
            for number, query in enumerate(data.queries):
                row = {
                    "system": system,
                    "query_id": query.query_id,
                    "question_id": query.question_id,
                    "cluster": query.cluster,
                    "corpus": query.corpus,
                    "gold_doc": query.gold_doc,
                    "group": query.group,
                    "position": query.position,
                    "gold_cut": is_gold_cut(query, embedded.lengths),
                    "ndcg": float(of_system.ndcg[number]),
                    "recall": float(of_system.recall[number]),
                    "mrr": float(of_system.mrr[number]),
                }
                rows.add(row, n_characters=len(query.query_id) + len(query.gold_doc))
