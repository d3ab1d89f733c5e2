"""BEIR's and TREC's layouts, with answer spans where there are any.

BEIR: `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`), `qrels/<split>.tsv`. As BEIR
has it, a document is its title, a space, and its text. TREC: `collection.tsv` (id, text) or `corpus.jsonl`,
`queries.tsv` or `topics.tsv` (id, text), and `qrels*.txt` or `qrels*.tsv` of four columns.

`spans.tsv` beside them (query-id, corpus-id, start, end; characters of the text without its title) says where
the answers stand; without it nothing is known of positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from pipeline.artifacts import file_digest, fingerprint
from pipeline.errors import DataError, UsageError
from pipeline.evaluation.datasets.qrels import BEIR_COLUMNS, TREC_COLUMNS, Qrels, text_qrels
from pipeline.evaluation.datasets.records import LabelledDocument, Question, Span
from pipeline.evaluation.datasets.rows import Row, jsonl_rows, span_of, table_rows, text_of

BEIR = "beir"
TREC = "trec"
EXPECTED = {
    BEIR: "beir: corpus.jsonl, queries.jsonl and qrels/test.tsv (spans.tsv if spans are known)",
    TREC: "trec: collection.tsv or corpus.jsonl, queries.tsv or topics.tsv, and qrels.txt of four columns",
}
_SPAN_COLUMNS = ("query-id", "corpus-id", "start", "end")
_CORPUS = "all"


@dataclass(frozen=True, slots=True)
class TextFiles:
    """The files of a set."""

    corpus: Path
    queries: Path
    qrels: Path
    spans: Path | None


class TextSource:
    """A set in either layout."""

    group_names: tuple[str, ...] = ()

    def __init__(self, name: str, layout: str, files: TextFiles) -> None:
        self.name = name
        self.layout = layout
        self._files = files

    def documents(self) -> Iterator[LabelledDocument]:
        """Stream the documents."""
        for place, row in _id_and_text(self._files.corpus):
            doc_id = text_of(row, "_id", place)
            yield LabelledDocument(doc_id, _title(row) + str(row["text"] or ""), _CORPUS, doc_id, place)

    def questions(self) -> Iterator[Question]:
        """Stream the questions; those without judgements have empty qrels."""
        columns = BEIR_COLUMNS if self.layout == BEIR else TREC_COLUMNS
        qrels = Qrels(text_qrels(self._files.qrels, columns))
        spans = self._spans()
        seen: set[str] = set()
        for place, row in _id_and_text(self._files.queries):
            query_id = text_of(row, "_id", place)
            seen.add(query_id)
            question = Question(
                query_id=query_id,
                text=str(row["text"] or ""),
                qrels=qrels.of(query_id),
                question_id=query_id,
                place=place,
                judged_at=qrels.places(query_id),
            )
            span = spans.get((query_id, question.gold_doc)) if question.qrels else None
            yield question if span is None else replace(question, span=span[0], span_at=span[1])
        qrels.check_queries(seen)

    def fingerprint(self) -> str:
        """Hash the files by content."""
        paths = [getattr(self._files, field.name) for field in fields(self._files)]
        return fingerprint([self.layout, [path and file_digest(path) for path in paths]])

    def left_out(self) -> Mapping[str, int]:
        """Nothing."""
        return {}

    def _spans(self) -> dict[tuple[str, str], tuple[Span, str]]:
        """The spans, moved by what stands before the text (the title), and where each was read."""
        if self._files.spans is None:
            return {}
        spans: dict[tuple[str, str], tuple[Span, str]] = {}
        for place, row in table_rows(self._files.spans, _SPAN_COLUMNS):
            if row["query-id"] == "query-id":
                continue
            span = span_of([row["start"], row["end"]], "span", place)
            if span is not None:
                spans[row["query-id"], row["corpus-id"]] = span, place
        wanted = {doc_id for _, doc_id in spans}
        shifts = {
            row["_id"]: len(_title(row))
            for _, row in _id_and_text(self._files.corpus)
            if row["_id"] in wanted
        }
        return {
            (query_id, doc_id): ((start + shifts.get(doc_id, 0), end + shifts.get(doc_id, 0)), place)
            for (query_id, doc_id), ((start, end), place) in spans.items()
        }


def find_beir(folder: Path, split: str | None) -> TextFiles | None:
    """Find BEIR's files in a folder; None if it is another layout.

    Raises:
        UsageError: there are qrels of several splits and none is chosen.
    """
    corpus, queries = folder / "corpus.jsonl", folder / "queries.jsonl"
    if not corpus.is_file() or not queries.is_file():
        return None
    splits = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if not splits:
        return None
    chosen = split or ("test" if "test" in splits else next(iter(splits)) if len(splits) == 1 else None)
    if chosen not in splits:
        raise UsageError(f"{folder}: choose the qrels with evaluate.split: one of {', '.join(splits)}")
    return TextFiles(corpus, queries, splits[chosen], _spans_beside(folder))


def find_trec(folder: Path) -> TextFiles | None:
    """Find TREC's files in a folder; None if it is another layout.

    Raises:
        DataError: there are several files of one kind.
    """
    corpus = _only(folder, "collection.tsv", "corpus.tsv", "corpus.jsonl")
    queries = _only(folder, "queries*.tsv", "topics*.tsv", "topics*.txt")
    qrels = _only(folder, "qrels*.txt", "qrels*.tsv", "*.qrels")
    if corpus is None or queries is None or qrels is None:
        return None
    return TextFiles(corpus, queries, qrels, _spans_beside(folder))


def _only(folder: Path, *patterns: str) -> Path | None:
    found = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(f"{folder}: several files could be meant ({names}); leave one of them there")
    return found[0] if found else None


def _spans_beside(folder: Path) -> Path | None:
    path = folder / "spans.tsv"
    return path if path.is_file() else None


def _id_and_text(path: Path) -> Iterator[Row]:
    if path.suffix == ".jsonl":
        return jsonl_rows(path, ["_id", "text"])
    return table_rows(path, ["_id", "text"])


def _title(row: Mapping[str, object]) -> str:
    title = row.get("title")
    return f"{title} " if title else ""
