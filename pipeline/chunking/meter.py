"""Lengths in tokens, counted as a text is embedded: with prompt and special tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenizers import Tokenizer

from pipeline.errors import UsageError

_GLANCE = 64
_CHARACTERS_PER_PART = 65_536


class TokenMeter:
    """Counts tokens with a copy of the model's tokenizer that neither truncates nor pads."""

    def __init__(self, tokenizer: Tokenizer, prompt: str = "") -> None:
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self._prompt = prompt
        self.n_special: int = self.tokenizer.num_special_tokens_to_add(False)
        self.n_prompt = self.count([""])[0] - self.n_special if prompt else 0

    @property
    def overhead(self) -> int:
        """Tokens that every chunk carries besides its own: special tokens and prompt."""
        return self.n_special + self.n_prompt

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, its context included, as it is embedded."""
        encodings = self.tokenizer.encode_batch_fast([self._prompt + text for text in texts])
        return [len(encoding) for encoding in encodings]

    def count_own(self, text: str) -> int:
        """Count the tokens of a text of any length by itself, part by part so that memory stays bounded."""
        parts = (self.tokenizer.encode(part, add_special_tokens=False) for part in _parts(text))
        return sum(map(len, parts))

    def has_tokens(self, text: str) -> bool:
        """Tell whether `text` has any token of its own; mostly its first characters tell."""
        parts = (text[:_GLANCE], text)
        return any(len(self.tokenizer.encode(part, add_special_tokens=False)) > 0 for part in parts)


def _parts(text: str) -> Iterator[str]:
    """Cut a text at spaces, which begin the next part as tokenizers want it."""
    start = 0
    while start < len(text):
        end = start + _CHARACTERS_PER_PART
        space = text.rfind(" ", start + 1, end) if end < len(text) else -1
        end = space if space > 0 else end
        yield text[start:end]
        start = end


class Budget:
    """How many tokens a chunk may have, and how to say that something does not fit.

    Attributes:
        max_tokens: of the chunk and its context.
        max_context: of the context, so that at least half is left to the chunk.
        overlap: tokens that neighbours share.
        limit: of the chunk as it is embedded, with prompt and special tokens.

    Raises:
        UsageError: prompt and special tokens leave no room, `max_tokens` is more than the room, or the
            overlap is not smaller than the budget.
    """

    def __init__(self, meter: TokenMeter, *, max_length: int, max_tokens: int | None, overlap: int) -> None:
        room = max_length - meter.overhead
        taken = f"{meter.n_special} special tokens and {meter.n_prompt} tokens of the prompt"
        if room < 1:
            raise UsageError(f"the model takes {max_length} tokens, and {taken} leave no room for text")
        self.max_tokens = room if max_tokens is None else max_tokens
        if not 1 <= self.max_tokens <= room:
            raise UsageError(
                f"chunk.max_tokens = {max_tokens} must be between 1 and {room}: "
                f"the model takes {max_length} tokens, less {taken}"
            )
        if not 0 <= overlap < self.max_tokens:
            raise UsageError(
                f"chunk.overlap_tokens = {overlap} must be smaller than chunk.max_tokens = {self.max_tokens}"
            )
        self.overlap = overlap
        self.limit = self.max_tokens + meter.overhead
        self.max_context = self.max_tokens // 2

    def refusal(self, text: str, n_tokens: int, context: str = "") -> UsageError:
        """Say that `text`, which cannot be divided further, needs more than the budget."""
        needed = n_tokens - self.limit + self.max_tokens
        return UsageError(
            f"chunk.max_tokens = {self.max_tokens} is too small: {text[:40]!r} cannot be divided "
            f"and takes {needed} tokens{' with its context' if context else ''}"
        )
