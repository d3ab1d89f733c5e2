"""Two TREC runs, checked against the queries and the corpus that they belong to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from indexes import Ranking
from pipeline.ab.queries import Query
from pipeline.ab.trec import TrecRun, as_word
from pipeline.errors import DataError
from pipeline.records import Document, Skipped

_NAMED = 5


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs, checked against queries and corpus.

    A run's ids may stand as they are, or as `as_word` writes them; where one could be both, as they are.

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
            DataError: a run names a query or a document that is not there, or one by two names.
        """
        named = {name for _, run in runs for name in run.rankings}
        query_ids: dict[str, str] = {}
        for query in queries:
            _learn(query_ids, named, query.query_id)
        for path, run in runs:
            _refuse_unknown(path, "queries", "query file", run.rankings.keys() - query_ids.keys())
        documents, doc_ids, n_documents = _read_corpus(runs, queries, corpus, k)
        reference, other = (
            _renamed(path, run, query_ids, doc_ids)
            for (path, _), run in zip(runs, _named_apart(runs), strict=True)
        )
        answered = reference.rankings.keys() | other.rankings.keys()
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


def _read_corpus(
    runs: tuple[tuple[Path, TrecRun], ...],
    queries: Sequence[Query],
    corpus: Iterable[Document | Skipped],
    k: int,
) -> tuple[dict[str, Document], dict[str, str], int]:
    """The documents that are shown, the id behind each name in the runs, and how many documents there are."""
    first, second = (run.doc_ids for _, run in runs)
    named = first | second
    shown = {gold.doc_id for query in queries for gold in query.gold}
    for _, run in runs:
        shown.update(doc_id for ranking in run.rankings.values() for doc_id in _highest(ranking, k))
    documents: dict[str, Document] = {}
    known: dict[str, str] = {}
    n_documents = 0
    for document in corpus:
        if isinstance(document, Document):
            n_documents += 1
            _learn(known, named, document.doc_id)
            if document.doc_id in shown or as_word(document.doc_id) in shown:
                documents[document.doc_id] = document
    for (path, _), names in zip(runs, (first, second), strict=True):
        _refuse_unknown(path, "documents", "corpus", names - known.keys())
    return documents, known, n_documents


def _highest(ranking: Ranking, k: int) -> Iterator[str]:
    """The top k with what ties there: under other ids, equal scores may stand in another order."""
    last = ranking.documents[:k][-1].score
    return (document.doc_id for document in ranking if document.score >= last)


def _learn(known: dict[str, str], named: Collection[str], own: str) -> None:
    """Note which of the names in the runs an id stands behind; an id that is written as it is goes first."""
    if own in named:
        known[own] = own
    if (word := as_word(own)) in named:
        known.setdefault(word, own)


def _renamed(path: Path, run: TrecRun, queries: Mapping[str, str], documents: Mapping[str, str]) -> TrecRun:
    if all(name == own for names in (queries, documents) for name, own in names.items()):
        return run
    try:
        return run.renamed(queries, documents)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


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
