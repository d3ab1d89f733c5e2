"""SQuAD 2.0 as SQuAD-PosQ: the question's group is where its answer starts in the paragraph.

The documents are the distinct paragraphs, those of unanswerable questions included, of all files together
(the papers use train and dev). Questions without an answer are left out and counted; of several answers the
first counts. Read from the published JSON files or from rows as the `datasets` library has them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pipeline.artifacts import fingerprint
from pipeline.errors import DataError
from pipeline.evaluation.datasets.contents import content_id, distinct_documents
from pipeline.evaluation.datasets.positions import SQUAD_GROUPS, squad_group
from pipeline.evaluation.datasets.records import LabelledDocument, Question
from pipeline.evaluation.datasets.rows import Row, require, source_file, text_of, whole_number

LAYOUT = "squad"
EXPECTED = (
    "squad: SQuAD 2.0 JSON files ({'data': [{'paragraphs': …}]}), or rows with id, context, question, answers"
)
COLUMNS = ("id", "context", "question", "answers")
UNANSWERABLE = "unanswerable questions"


class RowReader(Protocol):
    """Rows that can be read as often as needed."""

    def rows(self) -> Iterator[Row]:
        """Stream places and rows."""

    def digest(self) -> str:
        """Hash the content."""


class SquadSource:
    """SQuAD-PosQ from rows."""

    layout = LAYOUT
    group_names: tuple[str, ...] = SQUAD_GROUPS

    def __init__(self, name: str, reader: RowReader) -> None:
        self.name = name
        self._reader = reader
        self._left_out: Counter[str] = Counter()

    def documents(self) -> Iterator[LabelledDocument]:
        """Stream the distinct paragraphs, each where it comes first."""
        return distinct_documents(self._reader.rows(), "context")

    def questions(self) -> Iterator[Question]:
        """Stream the questions that have an answer."""
        self._left_out.clear()
        for place, row in self._reader.rows():
            if row.get("question") is None:  # a paragraph nobody asks about
                continue
            answer = _first_answer(row, place)
            if answer is None:
                self._left_out[UNANSWERABLE] += 1
                continue
            text, start = answer
            query_id = text_of(row, "id", place)
            yield Question(
                query_id=query_id,
                text=str(row["question"]),
                qrels={content_id(text_of(row, "context", place)): 1},
                question_id=query_id,
                place=place,
                span=(start, start + len(text)),
                group=squad_group(start),
                answer=text,
            )

    def fingerprint(self) -> str:
        """Hash the rows by content."""
        return fingerprint([self.layout, self._reader.digest()])

    def left_out(self) -> Mapping[str, int]:
        """Questions without an answer."""
        return self._left_out


class SquadFiles:
    """The published JSON files as rows."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def rows(self) -> Iterator[Row]:
        """Stream one row a question; a paragraph without any comes as a row without question."""
        for path in self._files:
            for title, number, paragraph in _paragraphs(path):
                place = f"{path} article {title!r}, paragraph {number}"
                context = paragraph.get("context")
                questions = paragraph.get("qas") or [{"question": None}]
                for question in questions:
                    yield f"{place}, question {question.get('id')!r}", {**question, "context": context}

    def digest(self) -> str:
        """Hash the files by content."""
        return fingerprint([source_file(path).digest() for path in self._files])


def is_squad_file(path: Path) -> bool:
    """Tell whether a JSON file starts like SQuAD: an object with `data`, within its first characters."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            head = file.read(200)
    except (OSError, UnicodeDecodeError):
        return False
    return head.lstrip().startswith("{") and '"data"' in head


def _paragraphs(path: Path) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from error
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise DataError(f"{path}: expected an object with a list 'data', as SQuAD 2.0 has it")
    for article in articles:
        require(["paragraphs"], list(article), f"{path} article {article.get('title')!r}")
        for number, paragraph in enumerate(article["paragraphs"], 1):
            yield str(article.get("title")), number, paragraph


def _first_answer(row: Mapping[str, Any], place: str) -> tuple[str, int] | None:
    """The first answer and where it starts; both the published form and that of `datasets` are known."""
    answers = row.get("answers")
    if not answers or row.get("is_impossible"):
        return None
    if isinstance(answers, Mapping):
        require(["text", "answer_start"], list(answers), f"{place}: answers")
        answers = [
            {"text": text, "answer_start": start}
            for text, start in zip(answers["text"], answers["answer_start"], strict=True)
        ]
    if not answers:
        return None
    return text_of(answers[0], "text", place), whole_number(answers[0].get("answer_start"), "start", place)
