"""FineWeb-PosQ: questions written for the beginning, the middle or the end of a passage.

A row has `question`, `content` and `span_class`; a question that belongs to several classes counts in each,
as in the papers. Rows without a question only add their passage to the index. Equal passages are one
document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.artifacts import fingerprint
from pipeline.errors import DataError
from pipeline.evaluation.datasets.contents import content_id, distinct_documents
from pipeline.evaluation.datasets.records import LabelledDocument, Question
from pipeline.evaluation.datasets.rows import text_of
from pipeline.evaluation.datasets.squad import RowReader

LAYOUT = "fineweb"
EXPECTED = "fineweb: rows with question, content and span_class (beginning, middle, end)"
COLUMNS = ("question", "content", "span_class")
GROUPS = ("beginning", "middle", "end")
# The first release called two of them otherwise.
_CLASSES = {**{name: name for name in GROUPS}, "before": "beginning", "after": "end"}


class FinewebSource:
    """FineWeb-PosQ from rows."""

    layout = LAYOUT
    group_names: tuple[str, ...] = GROUPS

    def __init__(self, name: str, reader: RowReader) -> None:
        self.name = name
        self._reader = reader

    def documents(self) -> Iterator[LabelledDocument]:
        """Stream the distinct passages, each where it comes first."""
        return distinct_documents(self._reader.rows(), "content")

    def questions(self) -> Iterator[Question]:
        """Stream each question once for every class that it belongs to."""
        for number, (place, row) in enumerate(self._reader.rows(), 1):
            if not row.get("question"):
                continue
            gold_doc = content_id(text_of(row, "content", place))
            for group in _classes(row, place):
                yield Question(
                    query_id=f"q{number}-{group}",
                    text=str(row["question"]),
                    qrels={gold_doc: 1},
                    question_id=f"q{number}",
                    place=place,
                    group=group,
                )

    def fingerprint(self) -> str:
        """Hash the rows by content."""
        return fingerprint([self.layout, self._reader.digest()])

    def left_out(self) -> Mapping[str, int]:
        """Nothing."""
        return {}


def _classes(row: Mapping[str, Any], place: str) -> list[str]:
    value = row.get("span_class")
    names = [value] if isinstance(value, str) else list(value or [])
    unknown = [name for name in names if name not in _CLASSES]
    if unknown or not names:
        raise DataError(f"{place}: span_class is {value!r}; expected some of {', '.join(GROUPS)}")
    return list(dict.fromkeys(_CLASSES[name] for name in names))
