"""PosIR's layout: `corpus`, `queries` and `qrels` as Parquet, answers by character span.

Three arrangements are known: one set (`corpus.parquet`, or `corpus.en.parquet` and so on with a language in
the name), a folder of sets (PosIR's domains, each an index of its own), and a folder of languages above
those. Documents may come in rotations: a column `shift` or `phase` says which, and each is an index of its
own unless all are to compete (`siblings`).

Across languages the documents, spans and qrels are those of the documents' language, the question's text is
that of the other, joined by query id. Where ids differ between languages, the qrels of the question's
language are used instead, as PosIR's own scripts do; spans then count in the translation, unchecked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.artifacts import file_digest, fingerprint
from pipeline.errors import DataError, UsageError
from pipeline.evaluation.datasets.qrels import BEIR_COLUMNS, Qrels, joined
from pipeline.evaluation.datasets.records import LabelledDocument, Question
from pipeline.evaluation.datasets.rows import (
    Row,
    optional_number,
    optional_text,
    parquet_rows,
    span_of,
    text_of,
)

LAYOUT = "posir"
EXPECTED = (
    "posir: corpus.parquet, queries.parquet and qrels.parquet (or qrels/test.parquet), also with a language "
    "in the name (corpus.en.parquet), or folders of such sets, or folders of languages"
)
NOT_TRANSLATED = "questions without a translation"

_ROTATIONS = ("shift", "phase")
_FAMILIES = ("article", "paper")
_GROUPS = ("paragraph_position", "position_group")
_QUERY_COLUMNS = (
    "pos_char_span",
    "pos_char_length",
    "pos_token_length",
    "question_id",
    "answer",
    *_GROUPS,
    *_FAMILIES,
)
_CORPUS_NAME = re.compile(r"corpus(?:\.(?P<language>[\w-]+))?\.parquet")


@dataclass(frozen=True, slots=True)
class PosirFiles:
    """The files of one set.

    Attributes:
        prefix: put before every id, so that sets read together do not collide.
    """

    corpus: Path
    queries: Path
    qrels: Path
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class PosirPart:
    """One set, and the set in the language of the questions where that is another."""

    files: PosirFiles
    asked: PosirFiles | None = None


class PosirSource:
    """One or several sets of this layout, read as one."""

    layout = LAYOUT
    group_names: tuple[str, ...] = ()

    def __init__(self, name: str, parts: Sequence[PosirPart], *, siblings: bool = False) -> None:
        self.name = name
        self._parts = parts
        self._siblings = siblings
        self._left_out: Counter[str] = Counter()

    def documents(self) -> Iterator[LabelledDocument]:
        """Stream the documents of all parts."""
        for part in self._parts:
            prefix = part.files.prefix
            for place, row in parquet_rows(part.files.corpus, ["_id", "text"], [*_ROTATIONS, *_FAMILIES]):
                doc_id = joined(row, prefix, "_id", place)
                family = _first(row, _FAMILIES)
                yield LabelledDocument(
                    doc_id,
                    str(row["text"] or ""),
                    self._corpus_of(row, prefix, place),
                    prefix + family if family else doc_id,
                    place,
                )

    def questions(self) -> Iterator[Question]:
        """Stream the questions of all parts."""
        self._left_out.clear()
        for part in self._parts:
            yield from self._questions_of(part)

    def fingerprint(self) -> str:
        """Hash the files by content."""
        files = [files for part in self._parts for files in (part.files, part.asked) if files is not None]
        digests = [
            [each.prefix, *(file_digest(path) for path in (each.corpus, each.queries, each.qrels))]
            for each in files
        ]
        return fingerprint([self.layout, self._siblings, digests])

    def left_out(self) -> Mapping[str, int]:
        """Questions that the other language lacks."""
        return self._left_out

    def _corpus_of(self, row: Mapping[str, Any], prefix: str, place: str) -> str:
        rotation = next((name for name in _ROTATIONS if row.get(name) is not None), None)
        if self._siblings:
            if rotation is None:
                raise UsageError(
                    f"{place}: protocol 'siblings' needs documents in rotations, but there is no column "
                    f"{' or '.join(_ROTATIONS)}; leave out --protocol"
                )
            return f"{prefix}all rotations"
        return f"{prefix}{rotation} {row[rotation]}" if rotation else f"{prefix}all"

    def _questions_of(self, part: PosirPart) -> Iterator[Question]:
        if part.asked is None:
            yield from _read_questions(part.files, part.files)
            return
        texts = {row["_id"]: row["text"] for _, row in parquet_rows(part.asked.queries, ["_id", "text"])}
        own_ids = {row["_id"] for _, row in parquet_rows(part.files.queries, ["_id"])}
        if texts.keys().isdisjoint(own_ids):
            yield from _read_questions(part.asked, part.files, is_span_elsewhere=True)
            return
        self._left_out[NOT_TRANSLATED] += len(own_ids - texts.keys())
        yield from _read_questions(part.files, part.files, texts=texts)


def find_posir(folder: Path, language: str | None, corpus_language: str | None) -> list[PosirPart]:
    """Find the sets of this layout below a folder; none if it is another layout.

    Raises:
        UsageError: there are several languages and none is chosen, or the chosen one is not there.
        DataError: a corpus stands without its queries or qrels.
    """
    if named := _languages_of_files(folder):
        chosen, documents = _choose(folder, named, language, corpus_language)
        return [_part(folder, chosen, folder, documents)]
    if domains := _sets_below(folder):
        _refuse_language(folder, language or corpus_language)
        return [_part(folder / name, "", folder / name, "", prefix=f"{name}/") for name in domains]
    languages = {path.name: _sets_below(path) for path in _folders(folder)}
    languages = {name: domains for name, domains in languages.items() if domains}
    if not languages:
        return []
    chosen, documents = _choose(folder, sorted(languages), language, corpus_language)
    shared = [name for name in languages[chosen] if name in languages[documents]]
    return [
        _part(folder / chosen / name, "", folder / documents / name, "", prefix=f"{name}/") for name in shared
    ]


def _read_questions(
    files: PosirFiles,
    names: PosirFiles,
    *,
    texts: Mapping[str, str] | None = None,
    is_span_elsewhere: bool = False,
) -> Iterator[Question]:
    qrels = Qrels(_prefixed(parquet_rows(files.qrels, BEIR_COLUMNS), names.prefix))
    seen: set[str] = set()
    for place, row in parquet_rows(files.queries, ["_id", "text"], _QUERY_COLUMNS):
        query_id = joined(row, names.prefix, "_id", place)
        seen.add(query_id)
        if texts is not None and row["_id"] not in texts:
            continue
        family = _first(row, _FAMILIES)
        group = _first(row, _GROUPS)
        yield Question(
            query_id=query_id,
            text=str((row["text"] if texts is None else texts[row["_id"]]) or ""),
            qrels=qrels.of(query_id),
            question_id=names.prefix + (optional_text(row, "question_id") or text_of(row, "_id", place)),
            place=place,
            judged_at=qrels.places(query_id),
            span=span_of(row.get("pos_char_span"), "pos_char_span", place),
            doc_chars=optional_number(row, "pos_char_length", place),
            n_tokens=optional_number(row, "pos_token_length", place),
            group=group,
            answer=optional_text(row, "answer"),
            cluster=names.prefix + family if family else None,
            is_span_elsewhere=is_span_elsewhere,
        )
    qrels.check_queries(seen)


def _prefixed(rows: Iterator[Row], prefix: str) -> Iterator[Row]:
    for place, row in rows:
        ids = {name: joined(row, prefix, name, place) for name in ("query-id", "corpus-id")}
        yield place, {**row, **ids}


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((str(row[name]) for name in names if row.get(name) is not None), None)


def _languages_of_files(folder: Path) -> list[str]:
    matches = (_CORPUS_NAME.fullmatch(path.name) for path in sorted(folder.glob("corpus*.parquet")))
    return [match["language"] or "" for match in matches if match]


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _sets_below(folder: Path) -> list[str]:
    return [path.name for path in _folders(folder) if (path / "corpus.parquet").is_file()]


def _choose(
    folder: Path, found: Sequence[str], language: str | None, corpus_language: str | None
) -> tuple[str, str]:
    """The language of the questions and that of the documents."""
    if list(found) == [""]:
        _refuse_language(folder, language or corpus_language)
        return "", ""
    if language is None and len(found) > 1:
        raise UsageError(f"{folder}: holds several languages ({', '.join(found)}); choose with --language")
    chosen = language or found[0]
    documents = corpus_language or chosen
    for name in (chosen, documents):
        if name not in found:
            raise UsageError(f"{folder}: no language {name!r}; there are {', '.join(found)}")
    return chosen, documents


def _refuse_language(folder: Path, language: str | None) -> None:
    if language is not None:
        raise UsageError(f"{folder}: has no languages to choose from; leave out language {language!r}")


def _part(asked: Path, asked_language: str, documents: Path, language: str, *, prefix: str = "") -> PosirPart:
    files = _files(documents, language, prefix)
    same = (asked, asked_language) == (documents, language)
    return PosirPart(files, None if same else _files(asked, asked_language, prefix))


def _files(folder: Path, language: str, prefix: str) -> PosirFiles:
    ending = f".{language}.parquet" if language else ".parquet"
    qrels = [folder / f"qrels{ending}", folder / "qrels" / "test.parquet"]
    found = next((path for path in qrels if path.is_file()), None)
    queries = folder / f"queries{ending}"
    if not queries.is_file() or found is None:
        present = ", ".join(sorted(path.name for path in folder.iterdir()))
        raise DataError(
            f"{folder}: expected corpus{ending}, {queries.name} and {qrels[0].name} or qrels/test.parquet; "
            f"found {present}"
        )
    return PosirFiles(folder / f"corpus{ending}", queries, found, prefix)
