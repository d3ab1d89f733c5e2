"""One FAISS index over the vectors of one arm; the only module that imports FAISS.

The metric is always the inner product and higher is better. A row is the place of a vector in the order of
adding, from 0, and is also its FAISS id.

Every hit is scored again in float64 from the vector as it is stored (decoded, if the storage is compressed),
because FAISS's own sums depend on its code path: equal vectors thus have equal scores, always. Building a
graph with several threads is not reproducible; every other kind is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss as _faiss
import numpy as np
import numpy.typing as npt

from indexes.errors import ImpossibleIndexError, InvalidIndexError, InvalidQueryError, InvalidVectorsError
from indexes.files import replacing
from indexes.row_filter import RowFilter
from indexes.spec import DEFAULT_EF_SEARCH, IndexSpec, resolve_spec

faiss: Any = _faiss  # the type stubs that come with FAISS lack half of its names

FloatArray = npt.NDArray[np.float32]
RowArray = npt.NDArray[np.int64]

_TRAINING_ROWS_PER_CENTROID = 256  # k-means in FAISS looks at no more
_RESCORED_AT_ONCE = 8192
_BLOCK_ROWS = 65_536
_ROWS_SCORED_OUTRIGHT = 4096  # a filter that allows no more is scored row by row, whatever the index
_IO_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """The rows found for one query, by descending score, equal scores by ascending row.

    `rows` is (n_hits,) int64 and `scores` is (n_hits,) float32; n_hits may be less than was asked for.
    """

    rows: RowArray
    scores: FloatArray

    def __len__(self) -> int:
        return len(self.rows)


class VectorIndex:
    """A searchable set of vectors; make one with `build` or `load`. It never changes afterwards."""

    metric = "inner_product"

    def __init__(self, index: Any) -> None:
        self._index = index
        if (lists := _inverted_lists(index)) is not None:
            lists.make_direct_map()  # without it rows in inverted lists cannot be read back for scoring

    @classmethod
    def build(cls, vectors: FloatArray | Iterable[FloatArray], *, dim: int, spec: IndexSpec) -> VectorIndex:
        """Index vectors, given as one (n, dim) array or as blocks of shape (n_i, dim).

        Blocks are read once and added one by one, unless the factory is "auto" or is trained: then they are
        read up to three times (count, training sample, adding). Pass a list of memory-mapped arrays for that;
        a generator, which gives its blocks only once, is held in memory.

        Raises:
            InvalidVectorsError: a block of another shape or type, a row that is not finite, a zero vector.
            ImpossibleIndexError: the factory needs more vectors, or another dimension.
        """
        blocks = _split(vectors) if isinstance(vectors, np.ndarray) else vectors
        sample = None
        if spec.is_auto or spec.is_trained:
            blocks = list(blocks) if iter(blocks) is blocks else blocks
            n_rows = sum(len(block) for block in _checked_blocks(blocks, dim))
            spec = resolve_spec(spec, n_rows=n_rows, dim=dim).spec
            sample = _training_sample(_checked_blocks(blocks, dim), n_rows, spec) if spec.is_trained else None
        index = _untrained_index(spec, dim)
        if sample is not None:
            index.train(sample)
        for block in _checked_blocks(blocks, dim):
            index.add(block)
        built = cls(index)
        if reason := _why_unreadable(index):
            raise ImpossibleIndexError(f"index factory {spec.factory!r}: {reason}; choose another")
        return built

    @classmethod
    def load(cls, path: Path) -> VectorIndex:
        """Read an index that `save` wrote.

        Raises:
            InvalidIndexError: the file is missing, damaged, no FAISS index, or not one of ours.
        """
        index = _read(path)
        if index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise InvalidIndexError(
                f"{path}: expected the metric {faiss.METRIC_INNER_PRODUCT} (inner product), "
                f"got {index.metric_type}; build it again"
            )
        loaded = cls(index)
        if reason := _why_unreadable(index):
            raise InvalidIndexError(f"{path}: holds a {type(index).__name__}: {reason}; build it again")
        return loaded

    def save(self, path: Path) -> None:
        """Write the index to `path`, which is replaced only when the new file is complete on the disk."""
        with replacing(path) as temporary, temporary.open("wb") as file:
            # FAISS's own file writer ignores a full disk on closing; a Python file raises OSError.
            faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write, _IO_BYTES))

    @property
    def n_rows(self) -> int:
        """The number of vectors."""
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return int(self._index.d)

    def search(self, query: FloatArray, depth: int, *, allowed: RowFilter | None = None) -> Hits:
        """Return the best rows for a query of shape (dim,), at most `depth` of them.

        Fewer come back where the index holds fewer, or where an approximate index visits fewer. Which of
        several rows with equal scores are inside `depth` is up to FAISS; `rank_documents` looks past such a
        border.

        `allowed` restricts the search itself, so that `depth` allowed rows are found, not what is left of
        `depth` rows. A narrow filter is exact on every index; a wide one as exact as the index is without it.

        Raises:
            InvalidQueryError: a depth below 1, a query of another dimension, not finite, or zero, or a filter
                for another number of rows.
        """
        vector = _checked_query(query, self.dim)
        depth = check_count("depth", depth)
        if allowed is None:
            rows = self._nearest(vector, depth, params=self._search_parameters(depth))
        else:
            allowed.check_length(self.n_rows)
            rows = self._nearest_allowed(vector, depth, allowed)
        scores = self._scores(rows, vector)
        order = np.lexsort((rows, -scores))[:depth]
        return Hits(rows[order], scores[order])

    def scores(self, rows: RowArray, query: FloatArray) -> FloatArray:
        """Return the scores (n,) float32 of rows (n,) that are known already, equal to those of a search.

        Raises:
            InvalidQueryError: a row that the index does not hold, or a query that cannot be searched.
        """
        vector = _checked_query(query, self.dim)
        outside = rows[(rows < 0) | (rows >= self.n_rows)]
        if outside.size:  # FAISS would read past its end
            raise InvalidQueryError(f"there is no row {outside[0]}: the index holds {self.n_rows} rows")
        return self._scores(rows, vector)

    def _nearest(self, vector: FloatArray, depth: int, *, params: Any) -> RowArray:
        if (depth := min(depth, self.n_rows)) == 0:
            return np.empty(0, np.int64)
        _, found = self._index.search(vector[np.newaxis], depth, params=params)
        rows: RowArray = found[0][found[0] >= 0]  # FAISS fills up with -1
        return rows

    def _nearest_allowed(self, vector: FloatArray, depth: int, allowed: RowFilter) -> RowArray:
        """Return the nearest allowed rows, or all of them where scoring every one is as good."""
        rows = allowed.rows
        if len(rows) <= max(depth, _ROWS_SCORED_OUTRIGHT):
            return rows
        params = self._search_parameters(depth, allowed, one_in=-(-self.n_rows // len(rows)))
        return rows if params is None else self._nearest(vector, depth, params=params)

    def _search_parameters(self, depth: int, allowed: RowFilter | None = None, one_in: int = 1) -> Any:
        """Return per-query parameters, so that concurrent searches never change the shared index.

        None stands for the index's own, or, with a filter, for a kind that FAISS cannot filter. A graph
        walks past rows that are not allowed: its candidate list grows as `one_in` of them is.
        """
        index = self._index
        selector = {} if allowed is None else {"sel": _selector(allowed)}
        if isinstance(index, faiss.IndexHNSW):
            longest = min(self.n_rows, max(index.hnsw.efSearch, depth) * one_in)
            return faiss.SearchParametersHNSW(efSearch=longest, **selector)
        if allowed is None:
            return None
        lists = _inverted_lists(index)
        if lists is not None and isinstance(index, faiss.IndexIVF | faiss.IndexPreTransform):
            return faiss.SearchParametersIVF(nprobe=lists.nprobe, **selector)
        if isinstance(index, faiss.IndexFlat | faiss.IndexScalarQuantizer):
            return faiss.SearchParameters(**selector)
        return None

    def _scores(self, rows: RowArray, query: FloatArray) -> FloatArray:
        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), _RESCORED_AT_ONCE):
            part = slice(start, start + _RESCORED_AT_ONCE)
            vectors = self._index.reconstruct_batch(rows[part]).astype(np.float64)
            scores[part] = (vectors * query).sum(axis=1)
        return scores


def check_count(name: str, value: int) -> int:
    """Return `value` if it is a whole number of at least 1.

    Raises:
        InvalidQueryError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidQueryError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _split(vectors: FloatArray) -> list[FloatArray]:
    """Return views of `vectors`, so that checking a huge array needs little memory."""
    return [vectors[start : start + _BLOCK_ROWS] for start in range(0, max(1, len(vectors)), _BLOCK_ROWS)]


def check_factory(spec: IndexSpec, dim: int) -> None:
    """Ask FAISS whether it knows a factory; call it before embedding.

    Raises:
        ImpossibleIndexError: it does not, or only with another metric.
    """
    if not spec.is_auto:
        _untrained_index(spec, dim)


def _untrained_index(spec: IndexSpec, dim: int) -> Any:
    try:
        index = faiss.index_factory(dim, spec.factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise ImpossibleIndexError(
            f"index factory {spec.factory!r}: FAISS cannot build it for {dim} dimensions ({_reason(error)})"
        ) from error
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ImpossibleIndexError(
            f"index factory {spec.factory!r}: FAISS builds it without the inner product; choose another"
        )
    if (lists := _inverted_lists(index)) is not None and spec.n_probes is not None:
        lists.nprobe = spec.n_probes
    if spec.is_graph:
        index.hnsw.efSearch = spec.ef_search or DEFAULT_EF_SEARCH
    return index


def _selector(allowed: RowFilter) -> Any:
    return faiss.IDSelectorBitmap(np.packbits(allowed.mask, bitorder="little"))


def _inverted_lists(index: Any) -> Any:
    """The inverted lists of an index, also behind a transformation of its vectors; None without any."""
    return faiss.try_extract_index_ivf(index)


def _why_unreadable(index: Any) -> str:
    """Say why vectors cannot be read back from an index, which scoring needs; "" if they can."""
    if index.ntotal == 0:
        return ""
    try:
        index.reconstruct_batch(np.zeros(1, np.int64))
    except RuntimeError as error:
        return f"its vectors cannot be read back ({_reason(error)})"
    return ""


def _reason(error: Exception) -> str:
    return str(error).rsplit("Error: ", maxsplit=1)[-1]


def _training_sample(blocks: Iterable[FloatArray], n_rows: int, spec: IndexSpec) -> FloatArray:
    """Draw the rows (n_sample, dim) to train on, evenly from all blocks and the same ones each time."""
    limit = _TRAINING_ROWS_PER_CENTROID * max(spec.n_lists or 0, spec.n_centroids or 0, 256)
    chosen = np.sort(np.random.default_rng(0).choice(n_rows, min(n_rows, limit), replace=False))
    parts = []
    start = 0
    for block in blocks:
        first, last = np.searchsorted(chosen, (start, start + len(block)))
        parts.append(block[chosen[first:last] - start])
        start += len(block)
    return np.concatenate(parts)


def _checked_blocks(blocks: Iterable[FloatArray], dim: int) -> Iterator[FloatArray]:
    """Yield each block as a C-contiguous (n_i, dim) float32 array of finite, non-zero rows."""
    start = 0
    for block in blocks:
        if block.ndim != 2 or block.shape[1] != dim or block.dtype.kind != "f":
            raise InvalidVectorsError(
                f"vectors from row {start} on: expected floats of shape (n, {dim}), "
                f"got {block.dtype} of {block.shape}"
            )
        vectors = np.ascontiguousarray(block, dtype=np.float32)
        _refuse_rows(np.flatnonzero(~np.isfinite(vectors).all(axis=1)) + start, "not finite")
        _refuse_rows(np.flatnonzero(~vectors.any(axis=1)) + start, "a zero vector")
        yield vectors
        start += len(vectors)


def _refuse_rows(rows: npt.NDArray[np.intp], what: str) -> None:
    if rows.size:
        raise InvalidVectorsError(
            f"row {rows[0]} is {what} ({rows.size} such rows in its block); embed it again"
        )


def _checked_query(query: FloatArray, dim: int) -> FloatArray:
    vector = np.asarray(query)
    if vector.shape != (dim,) or vector.dtype.kind != "f":
        raise InvalidQueryError(
            f"query: expected floats of shape ({dim},), got {vector.dtype} of {vector.shape}; "
            "encode it with the model that the index was built with"
        )
    vector = np.ascontiguousarray(vector, dtype=np.float32)
    if not np.isfinite(vector).all():
        raise InvalidQueryError(
            "query: the vector is not finite, so nothing can be ranked by it; encode it again"
        )
    if not vector.any():
        raise InvalidQueryError("query: the vector is zero, so nothing can be ranked by it; encode it again")
    return vector


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return faiss.read_index(faiss.PyCallbackIOReader(file.read, _IO_BYTES))
    except FileNotFoundError as error:
        raise InvalidIndexError(f"{path}: the index file is missing; build it again") from error
    except (RuntimeError, MemoryError) as error:
        raise InvalidIndexError(
            f"{path}: not a readable FAISS index ({_reason(error)}); build it again"
        ) from error
