"""From what an adapter reads to a set that can be measured on: everything checked, chosen and grouped.

Documents are read once here, without being kept. What is refused is named with file and row; what is left out
is counted with its reason.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from pipeline.artifacts import fingerprint
from pipeline.config import EvaluateSettings
from pipeline.errors import DataError
from pipeline.evaluation.datasets.checking import DocumentCheck, Home, relevant_docs
from pipeline.evaluation.datasets.grouping import Grouping, choose_grouping
from pipeline.evaluation.datasets.records import (
    Corpus,
    EvaluationQuery,
    EvaluationSet,
    Question,
    Source,
)
from pipeline.records import Document

NOT_JUDGED = "questions without a relevant document"
BLANK = "blank documents"
BAD = "questions without text, or whose answer does not stand where it should"
NOT_SAMPLED = "questions not in the sample"
GOLD_NOT_KEPT = "questions whose document is not among those kept"
DOCUMENT_NOT_KEPT = "documents not among those kept"

_CHOOSING = {
    "protocol",
    "groups",
    "language",
    "corpus_language",
    "split",
    "sample",
    "limit_documents",
    "seed",
}


def build_set(source: Source, settings: EvaluateSettings) -> EvaluationSet:
    """Read, check and group a data set.

    Raises:
        DataError: duplicate ids, judgements of unknown documents, spans outside their text, and the like.
        UsageError: what is asked for does not fit the set.
    """
    questions, left_out = _questions(source)
    documents = DocumentCheck(questions)
    for document in source.documents():
        documents.check(document)
    documents.finish()
    left_out[BLANK] += documents.n_blank
    questions = _good(questions, documents.problems, settings, left_out)
    questions = _sampled(questions, settings, left_out)
    kept = _kept_documents(documents.homes, questions, settings)
    left_out[DOCUMENT_NOT_KEPT] += len(documents.homes) - len(kept)
    questions = _with_gold_kept(questions, kept, left_out)
    grouping = choose_grouping(source, questions, settings.groups, documents.n_chars)
    queries = tuple(_queries(questions, documents, grouping, left_out))
    if not queries:
        raise DataError(f"{source.name}: no question is left to measure on ({_sentence(left_out)})")
    used = {query.group for query in queries}
    return EvaluationSet(
        name=source.name,
        layout=source.layout,
        protocol=settings.protocol,
        group_names=tuple(name for name in grouping.names if name in used),
        corpora=_corpora(documents.homes, kept),
        queries=queries,
        left_out={reason: count for reason, count in left_out.items() if count},
        fingerprint=fingerprint([source.fingerprint(), settings.model_dump(mode="json", include=_CHOOSING)]),
        read_documents=lambda: _stream(source, kept),
        notes=tuple(f"no question in group {name}" for name in grouping.names if name not in used),
    )


def _questions(source: Source) -> tuple[list[Question], Counter[str]]:
    """The judged questions, and counts of what is left out."""
    questions: list[Question] = []
    places: dict[str, str] = {}
    n_not_judged = 0
    for question in source.questions():
        if question.query_id in places:
            raise DataError(
                f"{question.place}: query id {question.query_id!r} was already used at "
                f"{places[question.query_id]}; ids must be unique"
            )
        places[question.query_id] = question.place
        if any(relevance > 0 for relevance in question.qrels.values()):
            questions.append(question)
        else:
            n_not_judged += 1
    left_out = Counter(source.left_out())
    left_out[NOT_JUDGED] += n_not_judged
    return questions, left_out


def _good(
    questions: list[Question],
    problems: Mapping[str, str],
    settings: EvaluateSettings,
    left_out: Counter[str],
) -> list[Question]:
    """The questions that have no problem; the first one that has stops here, unless they may be skipped."""
    for question in questions:
        if settings.bad_records == "fail" and question.query_id in problems:
            raise DataError(
                f"{problems[question.query_id]} ({len(problems)} such questions); mend it, "
                "or set evaluate.bad_records = 'skip' to leave them out"
            )
    left_out[BAD] += len(problems)
    return [question for question in questions if question.query_id not in problems]


def _sampled(questions: list[Question], settings: EvaluateSettings, left_out: Counter[str]) -> list[Question]:
    """Keep so many questions, each at all its positions, in an order that only the seed decides."""
    if settings.sample is None:
        return questions
    ids = sorted({question.question_id for question in questions}, key=_lot(settings.seed))
    drawn = set(ids[: settings.sample])
    kept = [question for question in questions if question.question_id in drawn]
    left_out[NOT_SAMPLED] += len(questions) - len(kept)
    return kept


def _kept_documents(
    homes: Mapping[str, Home], questions: Iterable[Question], settings: EvaluateSettings
) -> frozenset[str]:
    """Keep so many documents an index: whole families, those of the questions first, by the seed's order."""
    if settings.limit_documents is None:
        return frozenset(homes)
    asked_about = {homes[question.gold_doc].family for question in questions}
    members: dict[str, list[str]] = {}
    for doc_id, home in homes.items():
        members.setdefault(home.family, []).append(doc_id)
    lot = _lot(settings.seed)
    kept: list[str] = []
    sizes: Counter[str] = Counter()
    for family in sorted(members, key=lambda name: (name not in asked_about, lot(name))):
        grown = sizes + Counter(homes[doc_id].corpus for doc_id in members[family])
        if kept and max(grown.values()) > settings.limit_documents:
            break
        sizes = grown
        kept += members[family]
    return frozenset(kept)


def _with_gold_kept(
    questions: list[Question], kept: frozenset[str], left_out: Counter[str]
) -> list[Question]:
    chosen = [question for question in questions if kept.issuperset(relevant_docs(question))]
    left_out[GOLD_NOT_KEPT] += len(questions) - len(chosen)
    return chosen


def _lot(seed: int) -> Callable[[str], bytes]:
    """An order of names that only the seed decides."""
    return lambda name: hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).digest()


def _queries(
    questions: Iterable[Question], documents: DocumentCheck, grouping: Grouping, left_out: Counter[str]
) -> Iterator[EvaluationQuery]:
    for question in questions:
        gold_doc = question.gold_doc
        group = grouping.group_of(question)
        if group is None:
            left_out[grouping.reason] += 1
            continue
        yield EvaluationQuery(
            query_id=question.query_id,
            text=question.text,
            corpus=documents.homes[gold_doc].corpus,
            qrels=question.qrels,
            gold_doc=gold_doc,
            group=group,
            question_id=question.question_id,
            cluster=question.cluster or gold_doc,
            span=question.span,
            doc_chars=question.doc_chars or documents.n_chars[gold_doc],
            n_tokens=question.n_tokens,
        )


def _corpora(homes: Mapping[str, Home], kept: frozenset[str]) -> tuple[Corpus, ...]:
    by_name: dict[str, list[str]] = {}
    for doc_id, home in homes.items():
        if doc_id in kept:
            by_name.setdefault(home.corpus, []).append(doc_id)
    return tuple(Corpus(name, tuple(sorted(ids))) for name, ids in sorted(by_name.items()))


def _stream(source: Source, kept: frozenset[str]) -> Iterator[Document]:
    for document in source.documents():
        if document.doc_id in kept:
            yield Document(document.doc_id, document.text)


def _sentence(left_out: Mapping[str, int]) -> str:
    counts = [f"{count:,} {reason}" for reason, count in left_out.items() if count]
    return ", ".join(counts) or "the set has none"
