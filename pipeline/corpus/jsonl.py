"""JSON Lines: one object a line, plain or compressed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa

from pipeline.corpus.fields import FieldMap
from pipeline.corpus.files import COMPRESSIONS, SourceFile
from pipeline.corpus.source import Reading
from pipeline.errors import DataError
from pipeline.records import Skipped, SkipReason


def read_jsonl(file: SourceFile, *, fields: FieldMap, encoding: str) -> Iterator[Reading]:
    """Stream the records of a file; blank lines are ignored, unusable ones come back as `Skipped`.

    A record without an id is known as `<file name>:<line>`.

    Raises:
        DataError: the file cannot be read to its end.
    """
    for number, place, record in read_objects(file, encoding):
        if isinstance(record, str):
            yield place, Skipped(place, SkipReason.MALFORMED, detail=record)
        else:
            yield place, fields.read(record, place=place, default_id=f"{file.name}:{number}")


def read_objects(
    file: SourceFile, encoding: str = "utf-8-sig"
) -> Iterator[tuple[int, str, dict[str, Any] | str]]:
    """Stream line number, place and object of each line; one without comes as a sentence that says why.

    Raises:
        DataError: the file cannot be read to its end.
    """
    for number, line in enumerate(_lines(file, encoding), 1):
        # Files that were joined leave their byte-order marks inside.
        content = line.removeprefix("\ufeff")
        if content.strip():
            yield number, f"{file.place}:{number}", _parse(content)


def _lines(file: SourceFile, encoding: str) -> Iterator[str]:
    """Decode line by line; bytes that do not decode become lone surrogates, so that only a line is lost."""
    try:
        with file.open() as raw, _decompressed(raw, file.name) as stream:
            yield from io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="\n")
    except (OSError, UnicodeError) as error:
        raise DataError(f"{file.place}: the file cannot be read to its end: {error}") from error


def _decompressed(raw: BinaryIO, name: str) -> BinaryIO:
    codec = COMPRESSIONS.get(PurePosixPath(name.lower()).suffix)
    return io.BufferedReader(pa.input_stream(raw, compression=codec)) if codec else raw


def _parse(line: str) -> dict[str, Any] | str:
    """Parse a line into an object, or say what is wrong with it."""
    try:
        line.encode("utf-8")
        record = json.loads(line)
    except UnicodeEncodeError as error:
        return f"byte {ord(line[error.start]) - 0xDC00:#04x} at character {error.start} does not decode"
    except (ValueError, RecursionError) as error:
        return f"not valid JSON: {error}"
    if not isinstance(record, dict):
        return f"expected a JSON object on each line, got {type(record).__name__}"
    return record
