"""Query files: JSON Lines or tab-separated, with or without gold documents and the spans of their answers.

A JSON Lines record has an id (`query_id`, `id` or `_id`), the query (`query` or `text`), and gold in one of
two forms: `gold`, a document id, or a list of ids or of objects with `doc_id` and perhaps `start` and `end`;
or `doc_id` (perhaps with `start`, `end` and `answer`) in the record itself. A tab-separated line is
`id, query[, doc_id[, start, end]]`; a first line that names the columns (`id`, `query`) is passed over.
Offsets count characters in the document's text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.corpus.fields import is_blank
from pipeline.errors import DataError, LastpageError, UsageError

ID_FIELDS = ("query_id", "id", "_id")
TEXT_FIELDS = ("query", "text")
_JSON_SUFFIXES = frozenset({".jsonl", ".ndjson", ".json"})
_TSV_SUFFIXES = frozenset({".tsv", ".tab"})
_ID_NAMES = frozenset({"id", "_id", "qid", "query_id", "query-id"})
_QUERY_NAMES = frozenset({"query", "text", "question"})
_TSV_FORM = "expected id<TAB>query[<TAB>doc_id[<TAB>start<TAB>end]]"
_OFFSET_DIGITS = 18
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Gold:
    """A document that answers a query, and where, if that is known.

    Attributes:
        start, end: character offsets of the answer in the document; both or neither.
        answer: its text, if the file has it: a check that the document is still the same.
    """

    doc_id: str
    start: int | None = None
    end: int | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A line of a query file; `place` is `file:line`."""

    query_id: str
    text: str
    gold: tuple[Gold, ...] = ()
    place: str = ""


def read_queries(path: Path) -> Iterator[Query]:
    """Stream the queries of a file; blank lines and byte-order marks are passed over.

    Raises:
        UsageError: the file's ending is not that of a known form.
        DataError: there is no such file or no query in it, a line cannot be read, a query is empty, or an id
            stands twice; with file and line.
    """
    parse = _parser(path)
    places: dict[str, str] = {}
    for number, (place, line) in enumerate(read_lines(path)):
        if number == 0 and _is_header(path, line):
            continue
        query = parse(line, place)
        if is_blank(query.text):
            raise DataError(f"{place}: query {query.query_id!r} is empty; ask in words or remove the line")
        if (earlier := places.setdefault(query.query_id, place)) != place:
            raise DataError(
                f"{place}: query id {_shown(query.query_id)} stands already at {earlier}; "
                "give every query its own"
            )
        yield query
    if not places:
        raise DataError(f"{path}: there is no query in this file")


def check_gold(queries: Iterable[Query], text_of: Callable[[str], str]) -> None:
    """Check that gold documents exist and that spans lie in their texts.

    Args:
        queries: as read.
        text_of: a document's stored text by its id; raises a `LastpageError` for an unknown one.

    Raises:
        DataError: at the first query whose gold does not fit, by file and line.
    """
    for query in queries:
        for gold in query.gold:
            try:
                text = text_of(gold.doc_id)
            except LastpageError:
                raise DataError(
                    f"{query.place}: gold document {_shown(gold.doc_id)} of query {_shown(query.query_id)} "
                    "is not among the documents; check the id, or is the query file of another corpus?"
                ) from None
            _check_span(gold, text, query.place)


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Stream the lines of a UTF-8 file that are not blank, each with its place.

    Raises:
        DataError: there is no such file, or a line is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                place = f"{path}:{number}"
                line = _decoded(raw, place).removeprefix("\ufeff").rstrip("\r\n")
                if line.strip():
                    yield place, line
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}); check its path") from error


def _parser(path: Path) -> Callable[[str, str], Query]:
    suffix = path.suffix.lower()
    if suffix in _JSON_SUFFIXES:
        return _from_json
    if suffix in _TSV_SUFFIXES:
        return _from_tsv
    known = ", ".join(sorted(_JSON_SUFFIXES | _TSV_SUFFIXES))
    raise UsageError(f"{path}: the form of a query file is known by its ending; expected one of {known}")


def _is_header(path: Path, line: str) -> bool:
    """Whether a tab-separated line names the columns instead of filling them."""
    names = [cell.strip().lower() for cell in line.split("\t")]
    is_table = path.suffix.lower() in _TSV_SUFFIXES and len(names) > 1
    return is_table and names[0] in _ID_NAMES and names[1] in _QUERY_NAMES


def _decoded(raw: bytes, place: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8 (byte {raw[error.start]:#04x} at {error.start})") from None


def _from_tsv(line: str, place: str) -> Query:
    query_id, *cells = line.split("\t")
    if not query_id or len(cells) not in (1, 2, 4):
        raise DataError(f"{place}: {_TSV_FORM}, got {len(cells) + 1} columns and the id {_shown(query_id)}")
    text, *gold = cells
    if not gold:
        return Query(query_id, text, (), place)
    doc_id, *span = gold
    start, end = (_offset(cell, place) for cell in span) if span else (None, None)
    return Query(query_id, text, (_gold(doc_id, start, end, None, place),), place)


def _offset(cell: str, place: str) -> int:
    # `int` alone would also take " 1_0" and digits of other scripts, and fail on thousands of digits.
    if not (cell.isascii() and cell.isdigit() and len(cell) <= _OFFSET_DIGITS):
        raise DataError(f"{place}: an offset must be a whole number from 0, got {_shown(cell)}")
    return int(cell)


def _from_json(line: str, place: str) -> Query:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON: {error}") from None
    if not isinstance(record, dict):
        raise DataError(f"{place}: expected a JSON object on each line, got {type(record).__name__}")
    query_id = _text_field(record, ID_FIELDS, place, numbers=True)
    return Query(query_id, _text_field(record, TEXT_FIELDS, place), _gold_of(record, place), place)


def _text_field(
    record: Mapping[str, Any], names: tuple[str, ...], place: str, *, numbers: bool = False
) -> str:
    name = next((name for name in names if name in record), None)
    if name is None:
        expected = " or ".join(map(repr, names))
        raise DataError(f"{place}: expected a field {expected}, found {_shown(', '.join(record))}")
    value = record[name]
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or (numbers and not value):
        raise DataError(f"{place}: field {name!r} must be text, got {_shown(value)}")
    return _storable(value, place)


def _gold_of(record: Mapping[str, Any], place: str) -> tuple[Gold, ...]:
    if "gold" in record and "doc_id" in record:
        raise DataError(f"{place}: gold stands both in 'gold' and in 'doc_id'; keep one of them")
    listed = record.get("gold", [record] if "doc_id" in record else [])
    if isinstance(listed, str):
        listed = [listed]
    if not isinstance(listed, list):
        raise DataError(f"{place}: 'gold' must be a list of ids or objects, got {_shown(listed)}")
    return tuple(dict.fromkeys(_gold_entry(entry, place) for entry in listed))


def _gold_entry(entry: Any, place: str) -> Gold:
    if isinstance(entry, str):
        return _gold(entry, None, None, None, place)
    if not isinstance(entry, dict):
        raise DataError(f"{place}: gold must be ids or objects with a doc_id, got {_shown(entry)}")
    doc_id, answer = entry.get("doc_id"), entry.get("answer")
    start, end = entry.get("start"), entry.get("end")
    for name, value, kind in (("start", start, int), ("end", end, int), ("answer", answer, str)):
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise DataError(f"{place}: {name!r} of gold must be of type {kind.__name__}, got {_shown(value)}")
    return _gold(doc_id, start, end, answer, place)


def _gold(doc_id: Any, start: int | None, end: int | None, answer: str | None, place: str) -> Gold:
    if not isinstance(doc_id, str) or not doc_id:
        raise DataError(f"{place}: the doc_id of gold must be text, got {_shown(doc_id)}")
    if (start is None) is not (end is None):
        raise DataError(f"{place}: a gold span needs both start and end, got {start} and {end}")
    if start is not None and end is not None and not 0 <= start < end:
        raise DataError(f"{place}: a gold span needs 0 <= start < end, got {start} and {end}")
    return Gold(_storable(doc_id, place), start, end, answer)


def _check_span(gold: Gold, text: str, place: str) -> None:
    if gold.end is None:
        return
    name = _shown(gold.doc_id)
    if gold.end > len(text):
        raise DataError(
            f"{place}: the gold span {gold.start}-{gold.end} ends after document {name}, which has "
            f"{len(text)} characters; offsets count characters of the indexed text"
        )
    if gold.answer is not None and (found := text[gold.start : gold.end]) != gold.answer:
        raise DataError(
            f"{place}: document {name} has {_shown(found)} at {gold.start}-{gold.end}, not the answer "
            f"{_shown(gold.answer)}: the corpus is not the one that the queries were written for"
        )


def _storable(text: str, place: str) -> str:
    """Refuse lone surrogates, which JSON can express and no file can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{place}: a lone surrogate \\u{ord(text[error.start]):04x} is no character"
        ) from None
    return text


def _shown(value: Any) -> str:
    text = ascii(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
