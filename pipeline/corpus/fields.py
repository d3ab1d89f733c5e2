"""Which field of a record holds what, and what makes a record unusable."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.config import CorpusSettings
from pipeline.errors import DataError
from pipeline.records import Document, Skipped, SkipReason

ID_FIELDS = ("id", "_id", "doc_id", "docid", "document_id")
TEXT_FIELDS = ("text", "content", "contents", "body", "passage")
TITLE_FIELDS = ("title", "name")
_SHOWN = 20


class _UnusableError(Exception):
    """A record cannot become a document."""

    def __init__(self, reason: SkipReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class FieldMap:
    """The names to look for, best first; a name that the user gave is the only candidate."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    titles: tuple[str, ...]
    metadata: tuple[str, ...]
    id_is_required: bool
    title_is_named: bool

    @classmethod
    def from_settings(cls, settings: CorpusSettings) -> FieldMap:
        """Take the user's names, or the usual ones."""
        return cls(
            ids=(settings.id_field,) if settings.id_field else ID_FIELDS,
            texts=(settings.text_field,) if settings.text_field else TEXT_FIELDS,
            titles=(settings.title_field,) if settings.title_field else TITLE_FIELDS,
            metadata=tuple(settings.metadata_fields),
            id_is_required=settings.id_field is not None,
            title_is_named=settings.title_field is not None,
        )

    def needed(self, columns: Iterable[str], place: str) -> list[str]:
        """Pick from the columns of a table those that documents are made of.

        Raises:
            DataError: the text column, or the id column that the user named, is missing, or a needed name
                stands twice.
        """
        found = list(columns)
        text, doc_id = _first(self.texts, found), _first(self.ids, found)
        if text is None or (doc_id is None and self.id_is_required):
            missing = _either(self.texts) if text is None else _either(self.ids)
            raise DataError(f"{place}: expected a column {missing}, found {_listed(found)}")
        wanted = [doc_id, text, _first(self.titles, found), *self.metadata]
        needed = list(dict.fromkeys(name for name in wanted if name in found))
        if twice := [name for name in needed if found.count(name) > 1]:
            raise DataError(f"{place}: several columns are named {twice[0]!r}; rename all but one")
        return needed

    def check_optional(self, columns: Iterable[str], place: str) -> None:
        """Refuse a title or metadata field that the user named and that no part of a table has.

        Raises:
            DataError: none of `columns` is it, which is most likely a slip of the pen.
        """
        found = sorted(columns)
        for name in (*(self.titles if self.title_is_named else ()), *self.metadata):
            if name not in found:
                raise DataError(f"{place}: expected a column {name!r}, found {_listed(found)}")

    def read(self, record: Mapping[str, Any], *, place: str, default_id: str) -> Document | Skipped:
        """Make a document of a record; one without an id field is known by `default_id`."""
        doc_id = ""
        try:
            doc_id = self._doc_id(record, default_id)
            text = self._text(record)
            title = _as_text(record.get(_first(self.titles, record) or "")) or ""
            values = {name: _as_text(record.get(name)) for name in self.metadata}
            metadata = {name: value for name, value in values.items() if value is not None}
            return _checked(Document(doc_id, text, title, metadata))
        except _UnusableError as error:
            return Skipped(place, error.reason, printable(doc_id), error.detail)

    def _doc_id(self, record: Mapping[str, Any], default_id: str) -> str:
        name = _first(self.ids, record)
        if name is None and self.id_is_required:
            raise _malformed(f"expected a field {_either(self.ids)}, found {_listed(record)}")
        value = default_id if name is None else record[name]
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value:
            raise _malformed(f"the id in field {name!r} must be text or an integer, got {_shown(value)}")
        return value

    def _text(self, record: Mapping[str, Any]) -> str:
        name = _first(self.texts, record)
        if name is None:
            raise _malformed(f"expected a field {_either(self.texts)}, found {_listed(record)}")
        value = record[name]
        if value is not None and not isinstance(value, str):
            raise _malformed(f"the text in field {name!r} must be a string, got {_shown(value)}")
        return value or ""


def checked(document: Document, *, place: str) -> Document | Skipped:
    """Pass a document on unless it is blank or cannot be written as UTF-8."""
    try:
        return _checked(document)
    except _UnusableError as error:
        return Skipped(place, error.reason, printable(document.doc_id), error.detail)


def is_blank(text: str) -> bool:
    """Tell whether `text` has no visible character (only Unicode categories Z and C)."""
    return all(unicodedata.category(character)[0] in "ZC" for character in text)


def printable(text: str) -> str:
    """Write lone surrogates as escapes, so that the text can be shown and stored."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _checked(document: Document) -> Document:
    for part in (document.doc_id, document.text, document.title, *document.metadata.values()):
        try:
            part.encode("utf-8")
        except UnicodeEncodeError as error:
            where = f"character {error.start} of {_shown(part[max(0, error.start - 20) :])}"
            raise _UnusableError(
                SkipReason.SURROGATE, f"\\u{ord(part[error.start]):04x} at {where}"
            ) from None
    if is_blank(document.text):
        raise _UnusableError(SkipReason.BLANK, "no visible character")
    return document


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _first(candidates: Iterable[str], present: Iterable[str]) -> str | None:
    return next((name for name in candidates if name in present), None)


def _either(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _listed(names: Iterable[str]) -> str:
    known = [printable(name) for name in names]
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return (", ".join(known[:_SHOWN]) or "none") + more


def _shown(value: Any) -> str:
    text = printable(repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _malformed(detail: str) -> _UnusableError:
    return _UnusableError(SkipReason.MALFORMED, detail)
