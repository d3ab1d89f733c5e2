"""Two TREC runs from elsewhere, compared over a corpus: without an index, with an encoder only for evidence.

A document is one chunk here. Where a document stands is known from the runs alone, so there is no verdict:
the systems that made them cannot be asked again with the evidence moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from indexes import Movement, RankedDocument, Ranking, compare_rankings
from pipeline.ab.comparing import QueryAnswer, gold_spans
from pipeline.ab.evidence import Passage, Question, Vectors, find_evidence
from pipeline.ab.queries import Query
from pipeline.ab.results import ABResult, DocumentResult, Hit, overlap
from pipeline.ab.run_pair import RunPair

if TYPE_CHECKING:
    from pipeline.ab.embedder import EncodedQuery, QueryEmbedder

_NOTHING = Ranking((), exhausted=True)


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


def _compare(
    pair: RunPair, query: Query, reference: Ranking, other: Ranking, encoded: EncodedQuery | None
) -> ABResult:
    movements = compare_rankings(reference, other, pair.k)
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
        seconds={},
        **overlap(reference, other, pair.k),
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
