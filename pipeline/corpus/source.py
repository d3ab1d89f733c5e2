"""What every kind of source offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from pipeline.artifacts import fingerprint
from pipeline.corpus.files import SourceFile
from pipeline.records import Document, Skipped, SkipReason

Kind = Literal["jsonl", "parquet", "folder"]
# The place where a record stands, as shown to the user, and the record.
Reading = tuple[str, Document | Skipped]


class Source(Protocol):
    """One of the places that a corpus is read from."""

    def describe(self) -> str:
        """Say in a few words what is read."""
        ...

    def fingerprint(self) -> str:
        """Hash the content, never where it lies or when it was written."""
        ...

    def read(self) -> Iterator[Reading]:
        """Stream the records in a fixed order."""
        ...


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of one kind, and the other files that lie among them."""

    name: str
    kind: Kind
    files: tuple[SourceFile, ...]
    others: tuple[SourceFile, ...]
    read_file: Callable[[SourceFile], Iterator[Reading]]

    def describe(self) -> str:
        """Say how many files of which kind are read."""
        n = len(self.files)
        what = "text" if self.kind == "folder" else self.kind
        return f"{n} {what} file{'' if n == 1 else 's'} from {self.name}"

    def fingerprint(self) -> str:
        """Hash the content of the files under their names relative to the source."""
        digests = [(file.name, file.digest()) for file in self.files]
        return fingerprint([self.kind, digests, [file.name for file in self.others]])

    def read(self) -> Iterator[Reading]:
        """Stream the records file by file; files of another kind are reported first."""
        for file in self.others:
            yield file.place, Skipped(file.place, SkipReason.UNSUPPORTED, file.name)
        for file in self.files:
            yield from self.read_file(file)
