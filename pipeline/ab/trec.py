"""TREC run files: `query_id Q0 doc_id rank score tag`, read and written.

Reading orders by descending score, as trec_eval does, and not by the rank column; equal scores stand by
ascending doc_id, as everywhere here (trec_eval: descending). The columns are separated by white space:
ids and tags that hold any, or a percent sign, are written percent-encoded. Reading leaves them as they stand,
since other programs write percent signs that mean themselves: who knows the ids tells which is which.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

from indexes import RankedDocument, Ranking
from pipeline.ab.queries import read_lines
from pipeline.artifacts import atomic_path
from pipeline.errors import DataError

_FORM = "expected 'query_id Q0 doc_id rank score tag'"


@dataclass(frozen=True, slots=True)
class TrecRun:
    """The rankings of one system.

    Attributes:
        name: its tag; the file's stem where tags differ.
        rankings: by query id; `row` counts the documents of the ranking from 0 and means nothing else.
        n_reordered: queries whose rank column contradicts the scores.
        n_documents: of the longest ranking.
    """

    name: str
    rankings: Mapping[str, Ranking]
    n_reordered: int

    @property
    def n_documents(self) -> int:
        """Documents in the longest ranking."""
        return max((len(ranking) for ranking in self.rankings.values()), default=0)

    @property
    def doc_ids(self) -> set[str]:
        """All documents that it names."""
        return {doc_id for ranking in self.rankings.values() for doc_id in ranking.doc_ids}

    def renamed(self, queries: Mapping[str, str], documents: Mapping[str, str]) -> TrecRun:
        """The same run under other ids, which are given for each of its own.

        Raises:
            DataError: two ids of the run become one.
        """
        _refuse_merging("queries", self.rankings, queries)
        rankings = {}
        for query_id, ranking in self.rankings.items():
            _refuse_merging("documents", ranking.doc_ids, documents)
            scores = {documents[document.doc_id]: document.score for document in ranking}
            rankings[queries[query_id]] = _ranking(scores)
        return replace(self, rankings=rankings)


def read_run(path: Path) -> TrecRun:
    """Read a run file and order each ranking by score.

    Raises:
        DataError: a line does not fit, a score is not finite, a document stands twice for a query, or the
            file holds no line; with file and line.
    """
    scores: dict[str, dict[str, float]] = {}
    ranks: dict[str, dict[str, int]] = {}
    tags: set[str] = set()
    for place, line in read_lines(path):
        query_id, doc_id, rank, score, tag = _parse(line, place)
        if doc_id in scores.setdefault(query_id, {}):
            raise DataError(f"{place}: document {doc_id!r} stands twice for query {query_id!r}")
        scores[query_id][doc_id] = score
        ranks.setdefault(query_id, {})[doc_id] = rank
        tags.add(tag)
    if not scores:
        raise DataError(f"{path}: there is no line in this run file")
    rankings = {query_id: _ranking(of_query) for query_id, of_query in scores.items()}
    n_reordered = sum(_contradicts(scores[query_id], ranks[query_id]) for query_id in scores)
    return TrecRun(tags.pop() if len(tags) == 1 else path.stem, rankings, n_reordered)


def write_run(path: Path, tag: str, rankings: Iterable[tuple[str, Iterable[tuple[str, float]]]]) -> None:
    """Write a run file atomically.

    Args:
        path: the file.
        tag: the name of the system.
        rankings: query ids, each with its documents and scores, best first.
    """
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for query_id, documents in rankings:
            file.writelines(_lines(as_word(query_id), documents, as_word(tag)))


def _lines(query_id: str, documents: Iterable[tuple[str, float]], tag: str) -> Iterator[str]:
    for rank, (doc_id, score) in enumerate(documents, 1):
        yield f"{query_id} Q0 {as_word(doc_id)} {rank} {score!r} {tag}\n"


def as_word(name: str) -> str:
    """An id or a tag as one column: white space and the percent sign are percent-encoded, as in URLs."""
    return re.sub(r"[\s%]", lambda found: quote(found[0], safe=""), name)


def _refuse_merging(kind: str, own: Iterable[str], names: Mapping[str, str]) -> None:
    first: dict[str, str] = {}
    for name in own:
        if (same := first.setdefault(names[name], name)) != name:
            raise DataError(
                f"{kind} {same!r} and {name!r} of the run are both {names[name]!r}, once as it is and once "
                "percent-encoded: give ids without percent signs"
            )


def _parse(line: str, place: str) -> tuple[str, str, int, float, str]:
    columns = line.split()
    if len(columns) != 6:
        raise DataError(f"{place}: {_FORM}, got {len(columns)} columns")
    query_id, _, doc_id, rank, score, tag = columns
    try:
        value = float(score)
        number = int(rank)
    except ValueError:
        raise DataError(
            f"{place}: {_FORM} with numbers as rank and score, got {rank!r} and {score!r}"
        ) from None
    if not math.isfinite(value):
        raise DataError(f"{place}: the score of document {doc_id!r} is {score}; scores must be finite")
    return query_id, doc_id, number, value, tag


def _ranking(scores: Mapping[str, float]) -> Ranking:
    """All there is to know: a run file cannot say what stood below its end."""
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    documents = tuple(
        RankedDocument(doc_id, rank, score, rank - 1) for rank, (doc_id, score) in enumerate(ordered, 1)
    )
    return Ranking(documents, exhausted=True)


def _contradicts(scores: Mapping[str, float], ranks: Mapping[str, int]) -> bool:
    """Whether a document has a worse rank in the file than one of a lower score; ties may be in any order."""
    ordered = sorted(scores, key=lambda doc_id: (-scores[doc_id], ranks[doc_id]))
    return any(ranks[first] > ranks[second] for first, second in pairwise(ordered))
