"""From settings to a corpus: what each source is decides how it is read."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from pipeline.config import CorpusSettings
from pipeline.corpus import builtin
from pipeline.corpus.corpus import Corpus
from pipeline.corpus.fields import FieldMap
from pipeline.corpus.files import COMPRESSIONS, Listing, SourceFile, list_files
from pipeline.corpus.source import FileSource, Kind, Reading, Source
from pipeline.errors import DataError, UsageError

_SUFFIXES: dict[Kind, frozenset[str]] = {
    "jsonl": frozenset({".jsonl", ".ndjson", ".json"}),
    "parquet": frozenset({".parquet"}),
    "folder": frozenset({".txt", ".md", ".html", ".htm"}),
}
_KNOWN_SUFFIXES = frozenset(COMPRESSIONS).union(*_SUFFIXES.values())
_HUB_NAME = re.compile(r"(?P<owner>\w[\w.-]*)/\w[\w.-]*", re.ASCII)


def open_corpus(settings: CorpusSettings) -> Corpus:
    """Find the sources of a corpus and look at their columns; no document is read yet.

    The name `python-docs` always means the built-in corpus; write `./python-docs` for a path of that name.
    What is no path here but looks like `owner/name` is a dataset of the Hugging Face hub.

    Raises:
        DataError: a source is missing, unreadable or lacks a column.
        UsageError: the encoding is unknown or there is no source.
    """
    names = [settings.source] if isinstance(settings.source, str) else settings.source
    if not names or not all(name.strip() for name in names):
        raise UsageError("corpus.source is empty: name a file, a folder, a glob, a URL or 'python-docs'")
    _codec(settings.encoding)
    return Corpus(tuple(_open_source(name, settings) for name in names), settings)


def _open_source(name: str, settings: CorpusSettings) -> Source:
    if name == builtin.NAME and settings.format == "auto":
        return builtin.PythonDocs()
    if settings.format == "dataset":
        return _open_dataset(name, settings)
    if settings.format == "auto" and looks_like_hub_name(name):
        return _open_from_hub(name, settings)
    listing = list_files(name)
    if settings.format == "auto" and _is_saved_dataset(listing):
        return _open_dataset(name, settings)
    kind = _detect(listing, name) if settings.format == "auto" else settings.format
    chosen = [file for file in listing.files if listing.is_single or _kind(file) == kind]
    others = [file for file in listing.files if not listing.is_single and _kind(file) != kind]
    return FileSource(name, kind, tuple(chosen), tuple(others), _reader(kind, chosen, name, settings))


def _open_dataset(name: str, settings: CorpusSettings) -> Source:
    from pipeline.corpus.dataset import DatasetSource

    return DatasetSource(name, settings)


def looks_like_hub_name(name: str) -> bool:
    """Tell whether a name can hardly be a path: nothing is here, not even the folder that it would be in."""
    match = _HUB_NAME.fullmatch(name)
    if match is None or PurePosixPath(name.lower()).suffix in _KNOWN_SUFFIXES:
        return False
    return not Path(match["owner"]).exists()


def _open_from_hub(name: str, settings: CorpusSettings) -> Source:
    try:
        return _open_dataset(name, settings)
    except DataError as error:
        raise DataError(
            f"{name}: no such file or folder, so it was taken for a dataset of the Hugging Face hub; {error}"
        ) from error


def _is_saved_dataset(listing: Listing) -> bool:
    names = {file.name for file in listing.files}
    return not listing.is_single and (
        {"dataset_info.json", "state.json"} <= names or "dataset_dict.json" in names
    )


def _detect(listing: Listing, source: str) -> Kind:
    """Decide by the suffixes; `.json` counts for a lone file only, since it lies about in many folders."""
    kinds = {_kind(file) for file in listing.files if listing.is_single or _suffix(file) != ".json"} - {None}
    if len(kinds) > 1:
        found = " and ".join(sorted(str(kind) for kind in kinds))
        raise DataError(
            f"{source}: holds files of several formats ({found}); set corpus.format to one of them"
        )
    if listing.is_single and not kinds:
        known = ", ".join(sorted(suffix for suffixes in _SUFFIXES.values() for suffix in suffixes))
        raise DataError(f"{source}: expected a file ending in one of {known}; else set corpus.format")
    return next(iter(kinds), None) or "folder"


def _kind(file: SourceFile) -> Kind | None:
    return next((kind for kind, suffixes in _SUFFIXES.items() if _suffix(file) in suffixes), None)


def _suffix(file: SourceFile) -> str:
    """The last suffix; for a compressed file, which only JSON Lines may be, the one before."""
    path = PurePosixPath(file.name.lower())
    if path.suffix not in COMPRESSIONS:
        return path.suffix
    inner = PurePosixPath(path.stem).suffix
    return inner if inner in _SUFFIXES["jsonl"] else path.suffix


def _reader(
    kind: Kind, files: Iterable[SourceFile], source: str, settings: CorpusSettings
) -> Callable[[SourceFile], Iterator[Reading]]:
    fields = FieldMap.from_settings(settings)
    if kind == "parquet":
        from pipeline.corpus.parquet import check_columns, read_parquet

        check_columns(files, fields, source)
        return partial(read_parquet, fields=fields)
    if kind == "jsonl":
        from pipeline.corpus.jsonl import read_jsonl

        return partial(read_jsonl, fields=fields, encoding=_codec(settings.encoding))
    from pipeline.corpus.text_files import read_text_file

    return partial(read_text_file, encoding=_codec(settings.encoding))


def _codec(encoding: str) -> str:
    """Check that the encoding exists; UTF-8 may start with a byte-order mark, which is no text."""
    try:
        "".encode(encoding)
    except LookupError:
        raise UsageError(f"corpus.encoding = {encoding!r}: no such encoding; try utf-8 or latin-1") from None
    return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
