"""Where a comparison's answers come from: the arms of an index, or two TREC run files over a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.artifacts import RunLayout, file_digest, read_json
from pipeline.cli.options import chosen_arms
from pipeline.cli.runs import find_run
from pipeline.config import Config, CorpusSettings, ModelSettings
from pipeline.reporting import Reporter, ticking

if TYPE_CHECKING:
    from pipeline.ab.comparing import QueryAnswer
    from pipeline.ab.embedder import QueryEmbedder
    from pipeline.ab.queries import Query

# Part of a comparison's identity: raise it whenever the same inputs would give other files.
_VERSION = 2
_TEXTS_IN_MEMORY = 512
_FOLDER = "comparisons"
_CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What was given on the command line."""

    queries: Path
    run: str | None
    arms: tuple[str, ...]
    all_arms: bool
    trec: tuple[Path, Path] | None
    corpus: str | None
    k: int | None
    depth: int | None
    no_explain: bool
    out: Path | None
    html: bool
    details: int
    diagnosis: Path | None
    overwrite: bool
    model: str | None
    device: str
    as_json: bool
    quiet: bool


@dataclass(frozen=True, slots=True)
class Source:
    """A comparison that is ready to be computed.

    Attributes:
        name: what is compared, in words.
        inputs: what decides the result.
        folder: where it goes by default; a part of the inputs' fingerprint is put at its end.
        answers: computes them, one query after the other.
        n_queries: how many there will be.
        text_of: the text of a document by its id.
        notes: what a reader should know.
    """

    name: str
    inputs: Mapping[str, Any]
    folder: Path
    answers: Callable[[], Iterator[QueryAnswer]]
    n_queries: int
    text_of: Callable[[str], str]
    notes: tuple[str, ...] = ()


def index_source(options: CompareOptions, queries: Sequence[Query]) -> Source:
    """The arms of a run's current build.

    Raises:
        DataError: the gold of a query does not fit the indexed documents.
    """
    from pipeline.ab.comparing import compare_queries
    from pipeline.ab.queries import check_gold
    from pipeline.ab.search import ABSearcher

    folder, _ = find_run(options.run)
    usual = Config.model_validate(read_json(RunLayout(folder).config) or {}).query
    k, depth = options.k or usual.k, options.depth or usual.depth
    searcher = ABSearcher.open(folder, model=options.model, device=options.device)
    others = chosen_arms(searcher.arms, options.arms, all_arms=options.all_arms)

    @lru_cache(_TEXTS_IN_MEMORY)
    def text_of(doc_id: str) -> str:
        return searcher.document(doc_id).text

    check_gold(queries, text_of)
    inputs = {
        "version": _VERSION,
        "build": searcher.build_id,
        "queries": file_digest(options.queries),
        "arms": [searcher.arms[0], *others],
        "k": k,
        "depth": depth,
        "explain": searcher.settings.model_dump() if not options.no_explain else None,
    }
    return Source(
        name=f"{folder}, build {searcher.build_id}",
        inputs=inputs,
        folder=folder / _FOLDER / options.queries.stem,
        answers=lambda: compare_queries(
            searcher, queries, k=k, depth=depth, others=others, explain=not options.no_explain
        ),
        n_queries=len(queries),
        text_of=text_of,
        notes=("Asked for without evidence and verdicts (--no-explain).",) if options.no_explain else (),
    )


def trec_source(
    options: CompareOptions,
    runs: tuple[Path, Path],
    corpus: str,
    queries: Sequence[Query],
    reporter: Reporter,
) -> Source:
    """Two run files over a corpus; with a model, the evidence in each document.

    Raises:
        DataError: a run file, the corpus or the gold of a query does not fit the others.
    """
    from pipeline.ab.queries import check_gold
    from pipeline.ab.run_comparing import compare_runs
    from pipeline.ab.run_pair import RunPair
    from pipeline.ab.trec import read_run
    from pipeline.corpus import open_corpus

    k = options.k or Config().query.k
    first, second = ((path, read_run(path)) for path in runs)
    documents = open_corpus(CorpusSettings(source=corpus))
    with reporter.task("reading documents", None, "documents") as advance:
        pair = RunPair.of((first, second), queries, ticking(documents.read(), advance), k=k)
    check_gold(pair.queries, pair.text_of)
    embedder = _embedder(options.model, options.device) if options.model else None
    inputs = {
        "version": _VERSION,
        "runs": [file_digest(path) for path in runs],
        "queries": file_digest(options.queries),
        "corpus": documents.fingerprint(),
        "k": k,
        "model": options.model,
    }
    return Source(
        name=f"{runs[0]} and {runs[1]}, over {corpus}",
        inputs=inputs,
        folder=Path("runs") / _FOLDER / f"{runs[0].stem}-{runs[1].stem}",
        answers=lambda: compare_runs(pair, embedder),
        n_queries=len(pair.queries),
        text_of=pair.text_of,
        notes=(*pair.notes, _why_no_verdict(options.model)),
    )


def _embedder(model: str, device: str) -> QueryEmbedder:
    from pipeline.ab.embedder import QueryEmbedder, VectorCache
    from pipeline.embedding.loading import model_options
    from pipeline.encoders import Encoder, load_model
    from pipeline.encoders.model_files import find_model

    options = model_options(ModelSettings(name=model, max_length=None))
    encoder = Encoder(load_model(find_model(model), device=device, **options), {"plain": None})
    return QueryEmbedder(encoder, VectorCache(_CACHE_BYTES))


def _why_no_verdict(model: str | None) -> str:
    evidence = (
        f"The evidence is estimated with the model {model}, over whole documents."
        if model
        else "Without a model (--model) there is no evidence, but for gold answers."
    )
    return (
        "These rankings come from run files: why a document moved cannot be tested, since the systems that "
        f"made them are not here. A document counts as one chunk. {evidence}"
    )
