"""Two TREC runs from elsewhere, compared over a corpus: without an index, with an encoder only for evidence.

A document is one chunk here. Where a document stands is known from the runs alone, so there is no verdict:
the systems that made them cannot be asked again with the evidence moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from indexes import (
    Movement,
    RankedDocument,
    Ranking,
    compare_rankings,
    jaccard,
    kendall_tau,
    rank_biased_overlap,
)
from pipeline.ab.comparing import QueryAnswer, gold_spans
from pipeline.ab.evidence import Passage, Question, Vectors, find_evidence
from pipeline.ab.queries import Query
from pipeline.ab.results import ABResult, DocumentResult, Hit
from pipeline.ab.trec import TrecRun
from pipeline.errors import DataError
from pipeline.records import Document, Skipped

if TYPE_CHECKING:
    from pipeline.ab.embedder import EncodedQuery, QueryEmbedder

_NAMED = 5
_NOTHING = Ranking((), exhausted=True)


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs, checked against queries and corpus.

    Attributes:
        reference, other: the runs; their names differ.
        queries: those that at least one of the runs answers.
        documents: the corpus as far as the comparison shows it, by id.
        n_documents: in the whole corpus.
        k: documents compared.
        notes: what a reader should know: queries without an answer, ranks that contradict scores.
    """

    reference: TrecRun
    other: TrecRun
    queries: tuple[Query, ...]
    documents: Mapping[str, Document]
    n_documents: int
    k: int
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        runs: tuple[tuple[Path, TrecRun], tuple[Path, TrecRun]],
        queries: Sequence[Query],
        corpus: Iterable[Document | Skipped],
        *,
        k: int,
    ) -> RunPair:
        """Check two runs, each with its path; the corpus is read once and kept only as far as it is needed.

        Raises:
            DataError: a run names a query or a document that is not there.
        """
        (_, reference), (_, other) = runs
        asked = {query.query_id for query in queries}
        for path, run in runs:
            _refuse_unknown(path, "queries", "query file", run.rankings.keys() - asked)
        documents, n_documents = _read_corpus(runs, queries, corpus, k)
        answered = reference.rankings.keys() | other.rankings.keys()
        reference, other = _named_apart(runs)
        return cls(
            reference,
            other,
            tuple(query for query in queries if query.query_id in answered),
            documents,
            n_documents,
            k,
            tuple(_notes((reference, other), queries)),
        )

    def text_of(self, doc_id: str) -> str:
        """The text of a document that the comparison shows.

        Raises:
            DataError: the corpus has no such document.
        """
        if doc_id not in self.documents:
            raise DataError(f"the corpus has no document {doc_id!r}")
        return self.documents[doc_id].text


def compare_runs(pair: RunPair, embedder: QueryEmbedder | None = None) -> Iterator[QueryAnswer]:
    """Compare two runs query by query; with an embedder, find the evidence in each document."""
    for query in pair.queries:
        reference, other = (
            run.rankings.get(query.query_id, _NOTHING) for run in (pair.reference, pair.other)
        )
        encoded = embedder.queries([query.text])[0] if embedder else None
        result = _compare(pair, query, reference, other, encoded)
        yield QueryAnswer(
            query,
            (_with_evidence(result, query, pair, encoded, embedder),),
            {
                run.name: tuple((document.doc_id, document.score) for document in ranking)
                for run, ranking in ((pair.reference, reference), (pair.other, other))
            },
            _gold_position(query, pair),
        )


def _read_corpus(
    runs: tuple[tuple[Path, TrecRun], ...],
    queries: Sequence[Query],
    corpus: Iterable[Document | Skipped],
    k: int,
) -> tuple[dict[str, Document], int]:
    """The documents that are shown, and how many there are; every one that a run names must be there."""
    shown = {gold.doc_id for query in queries for gold in query.gold}
    missing = [{doc_id for ranking in run.rankings.values() for doc_id in ranking.doc_ids} for _, run in runs]
    for _, run in runs:
        shown.update(doc_id for ranking in run.rankings.values() for doc_id in ranking.doc_ids[:k])
    documents, n_documents = {}, 0
    for document in corpus:
        if isinstance(document, Document):
            n_documents += 1
            for named in missing:
                named.discard(document.doc_id)
            if document.doc_id in shown:
                documents[document.doc_id] = document
    for (path, _), named in zip(runs, missing, strict=True):
        _refuse_unknown(path, "documents", "corpus", named)
    return documents, n_documents


def _refuse_unknown(path: Path, kind: str, where: str, names: Iterable[str]) -> None:
    unknown = sorted(names)
    if unknown:
        listed = ", ".join(map(repr, unknown[:_NAMED])) + (", …" if len(unknown) > _NAMED else "")
        raise DataError(f"{path}: {len(unknown)} {kind} of the run are not in the {where}: {listed}")


def _named_apart(runs: tuple[tuple[Path, TrecRun], tuple[Path, TrecRun]]) -> tuple[TrecRun, TrecRun]:
    """The runs under their tags; under their files' names where the tags are equal, else as A and B."""
    (first_path, first), (second_path, second) = runs
    names = [(first.name, second.name), (first_path.stem, second_path.stem), ("A", "B")]
    a, b = next(pair for pair in names if pair[0] != pair[1])
    return replace(first, name=a), replace(second, name=b)


def _notes(runs: tuple[TrecRun, TrecRun], queries: Sequence[Query]) -> Iterator[str]:
    n_queries = len(queries)
    answered = runs[0].rankings.keys() | runs[1].rankings.keys()
    empty = [query.query_id for query in queries if query.query_id not in answered]
    if empty:
        yield (
            f"neither run has a document for {len(empty)} of {n_queries} queries, which are left out; the "
            f"first is {empty[0]}"
        )
    for run in runs:
        lacking = sorted(answered - run.rankings.keys())
        if lacking:
            first = lacking[0]
            yield f"{run.name} has no document for {len(lacking)} of {n_queries} queries, such as {first}"
        if run.n_reordered:
            yield (
                f"{run.name}: in {run.n_reordered} of {n_queries} queries the rank column contradicts the "
                "scores; ordered by score, equal scores by document id"
            )


def _compare(
    pair: RunPair, query: Query, reference: Ranking, other: Ranking, encoded: EncodedQuery | None
) -> ABResult:
    movements = compare_rankings(reference, other, pair.k)
    first, second = reference.doc_ids, other.doc_ids
    return ABResult(
        query=query.text,
        n_tokens=encoded.n_tokens if encoded else 0,
        truncated=encoded.truncated if encoded else False,
        build_id="",
        reference_arm=pair.reference.name,
        other_arm=pair.other.name,
        k=pair.k,
        depth=max(pair.reference.n_documents, pair.other.n_documents),
        n_documents=pair.n_documents,
        documents=tuple(_document(movement, pair) for movement in movements),
        jaccard=jaccard(first, second, pair.k),
        rbo=rank_biased_overlap(first[: pair.k], second[: pair.k]),
        kendall_tau=kendall_tau(first[: pair.k], second[: pair.k]),
        seconds={},
    )


def _document(movement: Movement, pair: RunPair) -> DocumentResult:
    document = pair.documents[movement.doc_id]
    n_chars = len(document.text)
    return DocumentResult(
        doc_id=movement.doc_id,
        title=document.title,
        doc_chars=n_chars,
        status=movement.status,
        reference=_hit(movement.reference, n_chars),
        other=_hit(movement.other, n_chars),
        evidence=None,
    )


def _hit(ranked: RankedDocument | None, n_chars: int) -> Hit | None:
    return Hit(ranked.rank, ranked.score, 0, 1, 0, n_chars) if ranked else None


def _with_evidence(
    result: ABResult,
    query: Query,
    pair: RunPair,
    encoded: EncodedQuery | None,
    embedder: QueryEmbedder | None,
) -> ABResult:
    """Find the evidence in each document; without an encoder, only where the query file places it."""
    spans = {gold.doc_id: (gold.start, gold.end) for gold in reversed(gold_spans(query))}
    sought = [document for document in result.documents if embedder is not None or document.doc_id in spans]
    passages = [
        Passage(pair.text_of(document.doc_id), 0, document.doc_chars, spans.get(document.doc_id))
        for document in sought
    ]
    # Without an encoder nothing is alike: the score of a known answer is then the words that it shares.
    vector = encoded.vector if encoded is not None else np.zeros(1, np.float32)
    embed = embedder.windows if embedder is not None else _no_vectors
    found = find_evidence(Question(query.text, vector), passages, embed)
    evidence = {document.doc_id: one for document, one in zip(sought, found, strict=True)}
    documents = (replace(document, evidence=evidence.get(document.doc_id)) for document in result.documents)
    return replace(result, documents=tuple(documents))


def _no_vectors(texts: Sequence[str]) -> Vectors:
    return np.zeros((len(texts), 1), np.float32)


def _gold_position(query: Query, pair: RunPair) -> float | None:
    spans = gold_spans(query)
    if not spans:
        return None
    return (spans[0].start + spans[0].end) / 2 / len(pair.text_of(spans[0].doc_id))
