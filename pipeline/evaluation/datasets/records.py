"""What an evaluation knows of its data: questions, where their answers stand, and independent indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.evaluation.datasets.positions import relative_position
from pipeline.records import Document

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LabelledDocument:
    """A document as an adapter reads it.

    Attributes:
        corpus: the index it belongs to; documents of different indexes never compete.
        family: what it shares with others (an article, a paper); by default itself.
        place: where it was read, for messages.
    """

    doc_id: str
    text: str
    corpus: str
    family: str
    place: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question as an adapter reads it.

    Attributes:
        qrels: relevance by doc_id, as the set says.
        question_id: the same for the same question asked with its answer at another place.
        span: characters of the answer in the gold document, end exclusive; None if not known.
        doc_chars: length of the gold document as the set says; None if it doesn't.
        n_tokens: the same in tokens, of whatever tokenizer the set was made with.
        group: the set's own position group, if it has any.
        answer: the text that `span` must hold; None where the set has none.
        cluster: an article or paper that it shares with others; None for its gold document.
        place: where it was read, for messages.
        judged_at: where each judgement of `qrels` was read, if that is another place.
        span_at: where `span` was read, if that is another place.
        is_span_elsewhere: the span counts in another document than the gold one (its translation).
    """

    query_id: str
    text: str
    qrels: Mapping[str, int]
    question_id: str
    place: str
    judged_at: Mapping[str, str] = field(default_factory=dict)
    span: Span | None = None
    doc_chars: int | None = None
    n_tokens: int | None = None
    group: str | None = None
    answer: str | None = None
    cluster: str | None = None
    span_at: str | None = None
    is_span_elsewhere: bool = False

    @property
    def gold_doc(self) -> str:
        """The most relevant document; of several, the first by id."""
        return min(self.qrels, key=lambda doc_id: (-self.qrels[doc_id], doc_id))


class Source(Protocol):
    """A data set in one layout, read as a stream as often as needed.

    Attributes:
        name: of the set, for reports.
        layout: which layout it has.
        group_names: the set's own position groups in order; empty if it has none.
    """

    name: str
    layout: str
    group_names: tuple[str, ...]

    def documents(self) -> Iterator[LabelledDocument]:
        """Stream the documents of all indexes."""

    def questions(self) -> Iterator[Question]:
        """Stream the questions."""

    def fingerprint(self) -> str:
        """Hash the files by content."""

    def left_out(self) -> Mapping[str, int]:
        """What the last reading left out, by reason."""


@dataclass(frozen=True, slots=True)
class EvaluationQuery:
    """A question of a checked set.

    Attributes:
        corpus: name of the index that is searched.
        qrels: relevance by doc_id; at least one above 0.
        gold_doc: the document that `span` and `doc_chars` are about.
        group: position group.
        question_id: pairs the same question over positions.
        cluster: what is independent of all other clusters: a document, an article, a paper.
        n_tokens: of the gold document, as the set says; None if it doesn't.
    """

    query_id: str
    text: str
    corpus: str
    qrels: Mapping[str, int]
    gold_doc: str
    group: str
    question_id: str
    cluster: str
    span: Span | None
    doc_chars: int
    n_tokens: int | None

    @property
    def position(self) -> float | None:
        """Where the middle of the answer stands, from 0 (the beginning) to 1 (the end)."""
        return None if self.span is None else relative_position(self.span, self.doc_chars)


@dataclass(frozen=True, slots=True)
class Corpus:
    """One independent index: its name and its documents' ids, ascending."""

    name: str
    doc_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Checked data, ready to be measured on.

    Attributes:
        name: of the set.
        layout: of the files.
        protocol: how rotations of one document are treated: `per-shift` or `siblings`.
        group_names: the position groups that hold questions, in order.
        corpora: independent indexes.
        queries: in the order of the set.
        left_out: what is not measured, by reason.
        fingerprint: of the data's content and of what was chosen from it.
        read_documents: streams the documents of all indexes.
        notes: sentences for the user.
    """

    name: str
    layout: str
    protocol: str
    group_names: tuple[str, ...]
    corpora: tuple[Corpus, ...]
    queries: tuple[EvaluationQuery, ...]
    left_out: Mapping[str, int]
    fingerprint: str
    read_documents: Callable[[], Iterator[Document]] = field(repr=False)
    notes: Sequence[str] = ()

    def documents(self) -> Iterator[Document]:
        """Stream the documents of all indexes, in the order of the files; ids are unique over all."""
        return self.read_documents()

    @property
    def n_documents(self) -> int:
        """How many documents all indexes hold."""
        return sum(len(corpus.doc_ids) for corpus in self.corpora)

    @property
    def has_positions(self) -> bool:
        """Whether more than one position group is known."""
        return len(self.group_names) > 1
