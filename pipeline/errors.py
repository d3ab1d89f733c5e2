"""The errors of the application: one base, one leaf per exit code.

Every message says what is wrong, where, and what to do; numbers come in pairs (expected and got).
"""

from __future__ import annotations


class LastpageError(Exception):
    """Base of every error that a user can cause and mend; `exit_code` is the command's exit code."""

    exit_code = 1


class DataError(LastpageError):
    """The input cannot be used as it is: a corpus, a model, a shard or a build (exit code 1)."""


class UsageError(LastpageError):
    """The request itself is wrong: an option, a setting, or the order of commands (exit code 2)."""

    exit_code = 2


class NonFiniteVectorsError(DataError):
    """Some texts got vectors that are not finite, or zero: they could never be found (exit code 1)."""

    def __init__(self, arm: str, texts: list[str], rows: list[int]) -> None:
        """Name the arm and up to five texts; `rows` are their places in the call that embedded them."""
        super().__init__(
            f"arm {arm!r}: {len(rows)} texts get a vector not finite or zero ({', '.join(texts[:5])}); "
            "nothing of their batch was kept. Check the model's weights, or a precision that it can take"
        )
        self.arm = arm
        self.rows = rows
