"""Judgements, collected by query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import DataError
from pipeline.evaluation.datasets.rows import Row, table_rows, text_of, whole_number

BEIR_COLUMNS = ("query-id", "corpus-id", "score")
TREC_COLUMNS = ("query-id", "iteration", "corpus-id", "score")


class Qrels:
    """The relevance of documents by query, and where each judgement was read.

    Raises:
        DataError: a judgement is given twice, or its score is no whole number.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._relevance: dict[str, dict[str, int]] = {}
        self._places: dict[str, dict[str, str]] = {}
        for place, row in rows:
            query_id, doc_id = text_of(row, "query-id", place), text_of(row, "corpus-id", place)
            judged = self._relevance.setdefault(query_id, {})
            if doc_id in judged:
                raise DataError(f"{place}: query {query_id!r} and document {doc_id!r} are judged twice")
            judged[doc_id] = whole_number(row.get("score"), "score", place)
            self._places.setdefault(query_id, {})[doc_id] = place

    def of(self, query_id: str) -> Mapping[str, int]:
        """The relevance by doc_id; empty for a query without judgements."""
        return self._relevance.get(query_id, {})

    def places(self, query_id: str) -> Mapping[str, str]:
        """Where the judgements of a query were read, by doc_id."""
        return self._places.get(query_id, {})

    def check_queries(self, query_ids: set[str]) -> None:
        """Refuse judgements of queries that are not there.

        Raises:
            DataError: the first such judgement, with its place.
        """
        unknown = [query_id for query_id in self._relevance if query_id not in query_ids]
        if unknown:
            query_id = unknown[0]
            place = next(iter(self.places(query_id).values()))
            raise DataError(
                f"{place}: the qrels name the query {query_id!r}, which is not among the {len(query_ids):,} "
                f"queries ({len(unknown)} such queries); queries and qrels must belong together"
            )


def text_qrels(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Stream judgements of a text table: BEIR's with its heading, or TREC's without."""
    separator = "\t" if columns == BEIR_COLUMNS else None
    for place, row in table_rows(path, columns, separator=separator):
        if row["query-id"] != "query-id":
            yield place, row


def joined(row: Mapping[str, Any], prefix: str, name: str, place: str) -> str:
    """An id that stays unique where several sets are read as one."""
    return prefix + text_of(row, name, place)
