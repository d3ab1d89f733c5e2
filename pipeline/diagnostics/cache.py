"""Results kept by what they were made from: a killed run goes on where it stopped."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.artifacts import atomic_path, fingerprint

Arrays = dict[str, NDArray[Any]]

# Raise it whenever the same texts would give other arrays.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ArrayCache:
    """A folder of arrays, each file named by the hash of all that decides its content.

    Attributes:
        folder: where the files lie.
        identity: hash of the model and its arms.
        say: told of a damaged file, which is then made again.
    """

    folder: Path
    identity: str
    say: Callable[[str], None]

    def get(self, key: Any, compute: Callable[[], Arrays]) -> Arrays:
        """Return what was stored under `key`, or compute and store it."""
        path = self.folder / f"{fingerprint([_FORMAT, self.identity, key])[:32]}.npz"
        stored = self._read(path)
        if stored is not None:
            return stored
        arrays = compute()
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        return arrays

    def _read(self, path: Path) -> Arrays | None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                return dict(stored)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            self.say(f"{path}: damaged; made again")
            return None
