"""A comparison over many queries: what each arm answers to each query, and where its gold documents stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.ab.gold import GoldSpan
from pipeline.ab.queries import Query
from pipeline.ab.results import ABResult, ArmResult
from pipeline.ab.search import ABSearcher

# Queries are embedded so many at a time.
QUERIES_PER_BATCH = 32

Scored = tuple[str, float]


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """What the arms answer to one query.

    Attributes:
        query: with its gold.
        comparisons: the reference with each other arm, in the build's order.
        rankings: each arm's documents with their scores, best first, as deep as was asked.
        gold_position: where the answer of the first gold span stands in its chunk, from 0 to 1; in its
            document, where nothing was cut into chunks. None where the query file does not say.
    """

    query: Query
    comparisons: tuple[ABResult, ...]
    rankings: Mapping[str, tuple[Scored, ...]]
    gold_position: float | None = None

    def gold_rank(self, arm: str) -> int | None:
        """The best rank of a gold document in one arm; None below the depth that was looked at."""
        gold = {gold.doc_id for gold in self.query.gold}
        ranked = enumerate(self.rankings[arm], 1)
        return next((rank for rank, (doc_id, _) in ranked if doc_id in gold), None)


def compare_queries(
    searcher: ABSearcher,
    queries: Sequence[Query],
    *,
    k: int,
    depth: int,
    others: Sequence[str] | None = None,
    explain: bool = True,
) -> Iterator[QueryAnswer]:
    """Ask the reference arm and the others each query; queries are embedded in batches.

    Args:
        searcher: an open build.
        queries: as read; their gold is checked by `check_gold`.
        k: documents to compare.
        depth: how deep rankings are kept; at least k + 1 is used.
        others: the arms to compare with the reference; by default all.
        explain: find evidence and say why documents moved.
    """
    for first in range(0, len(queries), QUERIES_PER_BATCH):
        batch = queries[first : first + QUERIES_PER_BATCH]
        for query, encoded in zip(batch, searcher.encode([query.text for query in batch]), strict=True):
            gold = gold_spans(query)
            result = searcher.search_arms(
                encoded, k=k, depth=depth, others=others, explain=explain, gold=gold
            )
            arms = (searcher.arms[0], *(comparison.other_arm for comparison in result.comparisons))
            deep = result.comparisons[0].depth
            rankings = {arm: _scored(searcher.rank(encoded, arm=arm, k=deep)) for arm in arms}
            position = searcher.gold_position(gold[0]) if gold else None
            yield QueryAnswer(query, result.comparisons, rankings, position)


def gold_spans(query: Query) -> list[GoldSpan]:
    """The gold of a query that says where the answer stands."""
    return [
        GoldSpan(gold.doc_id, gold.start, gold.end)
        for gold in query.gold
        if gold.start is not None and gold.end is not None
    ]


def _scored(result: ArmResult) -> tuple[Scored, ...]:
    return tuple((document.doc_id, document.hit.score) for document in result.documents)
