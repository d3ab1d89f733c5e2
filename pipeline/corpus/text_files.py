"""Text, Markdown and HTML files: one document each, known by its path below the source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from pipeline.corpus.fields import checked, printable
from pipeline.corpus.files import SourceFile
from pipeline.corpus.source import Reading
from pipeline.markdown import headings
from pipeline.records import Document, Skipped, SkipReason


def read_text_file(file: SourceFile, *, encoding: str) -> Iterator[Reading]:
    """Read one file; what cannot be opened or decoded comes back as `Skipped`, never with bytes dropped."""
    yield file.place, _read(file, encoding)


def _read(file: SourceFile, encoding: str) -> Document | Skipped:
    name = printable(file.name)
    if name != file.name:
        return Skipped(file.place, SkipReason.UNDECODABLE, name, "the file's name is not UTF-8")
    try:
        with file.open() as raw:
            text = raw.read().decode(encoding)
    except UnicodeDecodeError as error:
        detail = f"byte {error.start} is not {error.encoding}; name another encoding with corpus.encoding"
        return Skipped(file.place, SkipReason.UNDECODABLE, name, detail)
    except OSError as error:
        return Skipped(file.place, SkipReason.UNREADABLE, name, str(error))
    title, text = _title_and_text(file.name, text)
    return checked(Document(file.name, text, title), place=file.place)


def _title_and_text(name: str, text: str) -> tuple[str, str]:
    path = PurePosixPath(name)
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        from pipeline.corpus.html import extract

        title, text = extract(text)
        return title or path.stem, text
    first = next(headings(text), None) if suffix == ".md" else None
    return first.text if first else path.stem, text
