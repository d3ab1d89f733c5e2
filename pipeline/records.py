"""The records that the stages hand to each other.

Ids are text and are never used as paths. `start` and `end` are always character offsets (Unicode code
points) into the stored text of a document, so that `document.text[start:end]` is the chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Document:
    """One document of the corpus, as it is stored: offsets everywhere refer to this `text`."""

    doc_id: str
    text: str
    title: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


class SkipReason(StrEnum):
    """Why something that the user offered as a document is not in the corpus."""

    BLANK = "blank"
    MALFORMED = "malformed"
    UNDECODABLE = "undecodable"
    SURROGATE = "lone surrogate"
    UNSUPPORTED = "unsupported file type"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that was left out, with the place it stood at (`file:line`, a file, or a row)."""

    place: str
    reason: SkipReason
    doc_id: str = ""
    detail: str = ""

    def as_json(self) -> dict[str, str]:
        """Plain values for machines."""
        return {name: str(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A contiguous part of a document: `text == document.text[start:end]`.

    Attributes:
        n_tokens: of the chunk as it is embedded: with context, prompt and special tokens.
        context: what is put before it when it is embedded; no part of the document's text at that place.
        context_is_cut: whether the context was too long to stand there whole.
    """

    doc_id: str
    ordinal: int
    start: int
    end: int
    text: str
    n_tokens: int
    context: str = ""
    context_is_cut: bool = False

    @property
    def embedded_text(self) -> str:
        """What is embedded, but for the model's prompt."""
        return embedded_text(self.context, self.text)

    @property
    def chunk_id(self) -> str:
        """The chunk's id: its document's id and its place among the chunks of that document."""
        return f"{self.doc_id}#{self.ordinal}"


def embedded_text(context: str, text: str) -> str:
    """Put a chunk's context before it, a blank line between them."""
    return f"{context}\n\n{text}" if context else text
