"""Checks of documents and questions, as they stream by; what is refused is named with file and row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.errors import DataError
from pipeline.evaluation.datasets.records import LabelledDocument, Question


@dataclass(frozen=True, slots=True)
class Home:
    """Where a document belongs."""

    corpus: str
    family: str


@dataclass(slots=True)
class DocumentCheck:
    """Checks documents as they stream by; keeps their ids, and the lengths of gold documents."""

    questions: Iterable[Question]
    homes: dict[str, Home] = field(default_factory=dict)
    n_chars: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    n_blank: int = 0
    _waiting: dict[str, list[Question]] = field(default_factory=dict)
    _judged: dict[str, Question] = field(default_factory=dict)
    _answering: dict[str, Question] = field(default_factory=dict)
    _blank: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for question in self.questions:
            self._waiting.setdefault(question.gold_doc, []).append(question)
            for doc_id in question.qrels:
                self._judged.setdefault(doc_id, question)
            for doc_id in relevant_docs(question):
                self._answering.setdefault(doc_id, question)

    def check(self, document: LabelledDocument) -> None:
        """Check one document, and the spans of the questions about it."""
        doc_id = document.doc_id
        if doc_id in self.homes or doc_id in self._blank:
            raise DataError(f"{document.place}: document id {doc_id!r} occurs twice; ids must be unique")
        if not document.text.strip():
            self._refuse_blank_answer(document)
            self._blank.add(doc_id)
            self.n_blank += 1
            return
        _refuse_surrogates(document)
        self.homes[doc_id] = Home(document.corpus, document.family)
        for question in self._waiting.get(doc_id, ()):
            self.n_chars[doc_id] = len(document.text)
            place = question.place
            problem = _text_problem(question)
            if problem is None:
                place = question.span_at or question.place
                problem = _span_problem(question, document)
            if problem is not None:
                self.problems[question.query_id] = f"{place}: {problem}"

    def finish(self) -> None:
        """Check that no judged document is missing, and that no question has relevant ones in two indexes."""
        for doc_id, question in self._judged.items():
            if doc_id not in self.homes and doc_id not in self._blank:
                missing = sum(doc_id not in self.homes for doc_id in self._judged)
                raise DataError(
                    f"{question.judged_at.get(doc_id, question.place)}: the qrels of query "
                    f"{question.query_id!r} name the document {doc_id!r}, which is not among the "
                    f"{len(self.homes):,} documents ({missing} such documents); corpus and qrels must "
                    "belong together"
                )
        for question in self.questions:
            corpora = {self.homes[doc_id].corpus for doc_id in relevant_docs(question)}
            if len(corpora) > 1:
                raise DataError(
                    f"{question.place}: query {question.query_id!r} has relevant documents in several "
                    f"indexes ({', '.join(sorted(corpora))}); each rotation needs a query of its own"
                )

    def _refuse_blank_answer(self, document: LabelledDocument) -> None:
        if question := self._answering.get(document.doc_id):
            raise DataError(
                f"{document.place}: document {document.doc_id!r} is blank, but query "
                f"{question.query_id!r} is to be answered by it"
            )


def relevant_docs(question: Question) -> list[str]:
    """The documents that answer a question."""
    return [doc_id for doc_id, relevance in question.qrels.items() if relevance > 0]


def _refuse_surrogates(document: LabelledDocument) -> None:
    if _has_surrogate(document.text):
        raise DataError(
            f"{document.place}: document {document.doc_id!r} has half a character (a lone surrogate); mend "
            "the text"
        )


def _has_surrogate(text: str) -> bool:
    """Whether a text cannot be written as UTF-8; JSON's escapes can hold one."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _text_problem(question: Question) -> str | None:
    """Say what is wrong with the text of a question, if anything."""
    if not question.text.strip():
        return f"query {question.query_id!r} has no text"
    if _has_surrogate(question.text):
        return f"query {question.query_id!r} has half a character (a lone surrogate)"
    return None


def _span_problem(question: Question, document: LabelledDocument) -> str | None:
    """Say what is wrong with the span of a question, if anything."""
    if question.span is None or question.is_span_elsewhere:
        return None
    start, end = question.span
    if end > len(document.text):
        return (
            f"the span [{start}, {end}] of query {question.query_id!r} lies outside of document "
            f"{document.doc_id!r}, which has {len(document.text):,} characters"
        )
    if question.answer is not None and document.text[start:end] != question.answer:
        return (
            f"characters {start} to {end} of document {document.doc_id!r} are "
            f"{document.text[start:end][:40]!r}, but the answer is {question.answer[:40]!r}; offsets must "
            "count Unicode code points"
        )
    return None
