"""Documents for a diagnosis: a corpus in one language, or a comparable one in several (parallel ids)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pipeline.config import CorpusSettings
from pipeline.corpus import open_corpus
from pipeline.errors import DataError, UsageError
from pipeline.records import Document

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")
# A comparable corpus is one file a language: corpus.en.parquet, corpus.de.jsonl, …
_CORPUS_FILE = re.compile(r"corpus(?:\.(?P<language>[\w-]+))?\.(?:parquet|jsonl)")


class LeftOut(StrEnum):
    """Why something of the corpus is in no document of the diagnosis."""

    UNREADABLE = "records that could not be read"
    NO_TRANSLATION = "documents that some language lacks"
    NOT_PARALLEL = "documents whose paragraphs differ in number between languages"
    REPEATED = "paragraphs that occurred before"
    TOO_SHORT = "paragraphs shorter than the minimum"
    TOO_LONG = "paragraphs longer than the maximum"
    LEFT_OVER = "paragraphs with no others of like length that fit with them"
    NOT_DRAWN = "sets beyond the limit"
    TOO_LONG_TOGETHER = "sets that, joined in some order, exceed what the model takes"


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph in every language.

    Attributes:
        paragraph_id: the document's id (without its language) and the paragraph's number.
        doc_id: of its document, without the language.
        texts: by language.
    """

    paragraph_id: str
    doc_id: str
    texts: Mapping[str, str]


def read_paragraphs(
    settings: CorpusSettings, languages: Sequence[str], left_out: Counter[LeftOut]
) -> Iterator[Paragraph]:
    """Read a corpus and cut it at blank lines; a text that occurred before is left out.

    Args:
        settings: the corpus; with languages its source is a folder of `corpus.<language>.parquet` (or
            `.jsonl`) files.
        languages: to take; empty for a corpus in one language (the language is then `""`).
        left_out: counts what is left out, by reason.

    Raises:
        DataError: a source cannot be read.
        UsageError: the folder lacks a language, or holds several and none was named.
    """
    seen: set[str] = set()
    for paragraph in _cut(_documents(settings, languages, left_out), left_out):
        first = next(iter(paragraph.texts.values()))
        if first in seen:
            left_out[LeftOut.REPEATED] += 1
            continue
        seen.add(first)
        yield paragraph


def _documents(
    settings: CorpusSettings, languages: Sequence[str], left_out: Counter[LeftOut]
) -> Iterator[tuple[str, dict[str, Document]]]:
    """Yield the id and the document in each language, in the order of the first language."""
    by_language = {
        language: {_shared_id(doc.doc_id, language): doc for doc in _read(source, left_out)}
        for language, source in _sources(settings, languages).items()
    }
    everywhere = set.intersection(*(set(documents) for documents in by_language.values()))
    anywhere = set.union(*(set(documents) for documents in by_language.values()))
    left_out[LeftOut.NO_TRANSLATION] += len(anywhere - everywhere)
    if not everywhere:
        raise DataError(
            f"no document id is shared by the languages {', '.join(by_language)}: expected ids that are "
            "equal, or equal but for the language's code in them (x-en-1 and x-de-1)"
        )
    for doc_id in next(iter(by_language.values())):
        if doc_id in everywhere:
            yield doc_id, {language: documents[doc_id] for language, documents in by_language.items()}


def _sources(settings: CorpusSettings, languages: Sequence[str]) -> dict[str, CorpusSettings]:
    found = corpus_files(settings.source)
    if not languages and set(found) - {""}:
        raise UsageError(
            f"{settings.source}: holds the languages {', '.join(sorted(found))}; choose with --languages"
        )
    if not languages:
        return {"": settings.model_copy(update={"source": found[""]}) if found else settings}
    if missing := [language for language in languages if language not in found]:
        there = ", ".join(sorted(found)) or "none"
        raise UsageError(
            f"{settings.source}: no file corpus.{missing[0]}.parquet or .jsonl in it; "
            f"languages there: {there}"
        )
    return {language: settings.model_copy(update={"source": found[language]}) for language in languages}


def corpus_files(source: str | list[str]) -> dict[str, str]:
    """Find the files of a comparable corpus by language (`""` for a plain `corpus.parquet`); may be none."""
    if not isinstance(source, str) or not Path(source).is_dir():
        return {}
    matches = ((_CORPUS_FILE.fullmatch(path.name), path) for path in sorted(Path(source).iterdir()))
    return {match["language"] or "": str(path) for match, path in matches if match}


def _read(settings: CorpusSettings, left_out: Counter[LeftOut]) -> Iterator[Document]:
    for item in open_corpus(settings).read():
        if isinstance(item, Document):
            yield item
        else:
            left_out[LeftOut.UNREADABLE] += 1


def _shared_id(doc_id: str, language: str) -> str:
    """Take the language's code out of an id: xquad-en-a000 and xquad-de-a000 are one document."""
    if not language:
        return doc_id
    return re.sub(rf"(?<![^\W_]){re.escape(language)}(?![^\W_])", "*", doc_id, count=1)


def _cut(
    documents: Iterable[tuple[str, dict[str, Document]]], left_out: Counter[LeftOut]
) -> Iterator[Paragraph]:
    for doc_id, by_language in documents:
        cut = {language: paragraphs_of(document.text) for language, document in by_language.items()}
        if len({len(paragraphs) for paragraphs in cut.values()}) > 1:
            left_out[LeftOut.NOT_PARALLEL] += 1
            continue
        for number, texts in enumerate(zip(*cut.values(), strict=True)):
            yield Paragraph(f"{doc_id}#{number}", doc_id, dict(zip(cut, texts, strict=True)))


def paragraphs_of(text: str) -> list[str]:
    """Cut a text at its blank lines."""
    return [part for part in (part.strip() for part in _BLANK_LINE.split(text)) if part]
