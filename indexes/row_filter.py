"""Which rows a search may return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexes.errors import InvalidQueryError
from indexes.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class RowFilter:
    """A choice of rows; `mask` is (n_rows,) bool, true where a row may be returned."""

    mask: npt.NDArray[np.bool_]

    @classmethod
    def of_documents(cls, rows: Rows, documents: npt.NDArray[np.bool_]) -> RowFilter:
        """Allow every row of the chosen documents.

        Args:
            rows: the row map.
            documents: (n_documents,) bool, in the order of `rows.doc_ids.dictionary`.
        """
        return cls(documents[rows.document_codes])

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The allowed rows, ascending."""
        return np.flatnonzero(self.mask)

    def check_length(self, n_rows: int) -> None:
        """Refuse a filter that was made for another index.

        Raises:
            InvalidQueryError: it has another number of rows, or is no mask.
        """
        if self.mask.shape != (n_rows,) or self.mask.dtype != np.bool_:
            raise InvalidQueryError(
                f"row filter: expected a mask of shape ({n_rows},), got {self.mask.dtype} of "
                f"{self.mask.shape}; make it for this build"
            )
