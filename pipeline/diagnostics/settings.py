"""What a diagnosis is asked to do."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline.config import Settings


class DiagnosisSettings(Settings):
    """Which documents are made, and how many.

    Attributes:
        n: segments of a document.
        languages: of a comparable corpus; empty for a corpus in one language.
        mixed: also documents of which one segment is in another language than the rest.
        mixed_at: the place of that segment, counted from 1.
        within: whether the segments of a set come from one document or from anywhere in the corpus.
        min_tokens, max_tokens: bounds of a segment, without special tokens; None is what the model takes.
        ratio: the longest segment of a set may have so many times the tokens of its shortest.
        max_sets: segment sets; more are drawn from by the seed.
        max_orders: orders of a set; where there are more, a balanced part of them is taken.
        attention_documents: documents whose attention is summed up.
        seed: decides every draw.
    """

    n: int = Field(default=3, ge=3, le=6)
    languages: tuple[str, ...] = ()
    mixed: bool = False
    mixed_at: int = Field(default=1, ge=1)
    within: Literal["document", "corpus"] = "document"
    min_tokens: int = Field(default=40, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    ratio: float = Field(default=2.0, ge=1.0)
    max_sets: int = Field(default=100, ge=2)
    max_orders: int = Field(default=24, ge=1)
    attention_documents: int = Field(default=100, ge=0)
    seed: int = 0

    @model_validator(mode="after")
    def _fits_together(self) -> DiagnosisSettings:
        if self.mixed and len(set(self.languages)) < 2:
            raise ValueError("mixed documents need two languages or more; name them with --languages en,de")
        if len(set(self.languages)) != len(self.languages):
            raise ValueError(f"languages = {', '.join(self.languages)}: one of them stands twice")
        if self.mixed_at > self.n:
            raise ValueError(f"mixed_at = {self.mixed_at}, but a document has {self.n} segments")
        if self.max_orders < self.n:
            raise ValueError(
                f"max_orders = {self.max_orders}: a balanced part has at least n = {self.n} orders, so that "
                "every segment stands at every place"
            )
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise ValueError(f"max_tokens = {self.max_tokens} is below min_tokens = {self.min_tokens}")
        return self
