"""Reading a corpus in one call, as the tests do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.config import CorpusSettings
from pipeline.corpus import Corpus, open_corpus
from pipeline.records import Document, Skipped


def corpus(source: Path | str | list[str], **values: Any) -> Corpus:
    name = source if isinstance(source, list) else str(source)
    return open_corpus(CorpusSettings(source=name, **values))


def read(source: Path | str | list[str], **values: Any) -> tuple[list[Document], list[Skipped]]:
    items = list(corpus(source, **values).read())
    documents = [item for item in items if isinstance(item, Document)]
    return documents, [item for item in items if isinstance(item, Skipped)]


def texts(source: Path | str | list[str], **values: Any) -> dict[str, str]:
    return {document.doc_id: document.text for document in read(source, **values)[0]}
