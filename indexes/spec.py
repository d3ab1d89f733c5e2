"""Which kind of FAISS index to build, and whether these vectors allow it.

Nothing here needs FAISS or a vector: a request that cannot be met is refused before anything is embedded.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from indexes.errors import ImpossibleIndexError

AUTO = "auto"
FLAT = "Flat"
AUTO_IVF_MIN_ROWS = 200_000
DEFAULT_EF_SEARCH = 64

# The factories whose needs are known before any vector is seen. FAISS understands many more; those are left
# to it, and refused by `VectorIndex` if they cannot serve.
_FACTORY = re.compile(
    r"(?:IVF(?P<n_lists>[1-9]\d{0,6}),)?"
    r"(?:Flat|SQ8|SQfp16|PQ(?P<n_subspaces>[1-9]\d{0,4})(?:x(?P<code_bits>[48]))?)"
    r"|HNSW(?P<n_links>[2-9]|[1-9]\d{1,3})(?:,(?:Flat|SQ8|SQfp16))?",
    re.ASCII,
)


_LISTS = re.compile(r"\bIVF(?P<n_lists>[1-9]\d{0,6})\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A kind of index, by its FAISS factory string, and how thoroughly it is searched.

    Any factory string of FAISS will do whose index has the inner product and can give its vectors back.
    `factory` may be "auto": exact search for few rows, inverted lists for many. `nprobe` is the number of
    inverted lists that a query visits (default: a sixteenth of them); `ef_search` is the length of the
    candidate list in a graph, which is never shorter than the number of hits asked for.

    Raises:
        ImpossibleIndexError: no factory at all, or a search setting that the factory does not have.
    """

    factory: str = FLAT
    nprobe: int | None = None
    ef_search: int | None = None

    def __post_init__(self) -> None:
        if not self.factory.isascii() or not self.factory.isprintable() or not self.factory.strip():
            raise ImpossibleIndexError(f"index factory {self.factory!r}: expected a FAISS factory string")
        self._check_setting(
            "nprobe", self.nprobe, needs="IVF", applies=self.is_auto or self.n_lists is not None
        )
        self._check_setting("ef_search", self.ef_search, needs="HNSW", applies=self.is_graph)
        if self.nprobe is not None and self.n_lists is not None and self.nprobe > self.n_lists:
            raise ImpossibleIndexError(
                f"nprobe = {self.nprobe} exceeds the {self.n_lists} lists of {self.factory}"
            )

    def _check_setting(self, name: str, value: int | None, *, needs: str, applies: bool) -> None:
        if value is None:
            return
        if not applies:
            raise ImpossibleIndexError(
                f"{name} = {value} needs an {needs} factory, got {self.factory!r}; leave it out"
            )
        if value < 1:
            raise ImpossibleIndexError(f"{name} must be at least 1, got {value}")

    @property
    def is_auto(self) -> bool:
        """Whether the kind is still to be chosen by the number of rows."""
        return self.factory == AUTO

    @property
    def is_known(self) -> bool:
        """Whether its needs can be told from its name; otherwise only FAISS can tell."""
        return self.is_auto or _FACTORY.fullmatch(self.factory) is not None

    @property
    def is_graph(self) -> bool:
        """Whether the index is an HNSW graph."""
        return self._number("n_links") is not None

    @property
    def n_lists(self) -> int | None:
        """The number of inverted lists; None without any."""
        return self._number("n_lists")

    @property
    def n_subspaces(self) -> int | None:
        """The number of parts that product quantisation cuts a vector into; None without it."""
        return self._number("n_subspaces")

    @property
    def n_centroids(self) -> int | None:
        """The number of centroids that product quantisation trains for each part; None without it."""
        return None if self.n_subspaces is None else 1 << (self._number("code_bits") or 8)

    @property
    def n_probes(self) -> int | None:
        """The number of inverted lists that a query visits; None without any."""
        return None if self.n_lists is None else self.nprobe or max(1, self.n_lists // 16)

    @property
    def is_trained(self) -> bool:
        """Whether vectors are looked at before the first one is added: lists, centroids or value ranges."""
        return not self.is_known or any(part in self.factory for part in ("IVF", "PQ", "SQ8"))

    def _number(self, group: str) -> int | None:
        match = _FACTORY.fullmatch(self.factory) or _LISTS.search(self.factory)
        digits = match.groupdict().get(group) if match else None
        return None if digits is None else int(digits)


@dataclass(frozen=True, slots=True)
class ResolvedSpec:
    """The kind of index that is really built, and a sentence for the user where that was not his wording."""

    spec: IndexSpec
    note: str = ""


def resolve_spec(spec: IndexSpec, *, n_rows: int, dim: int) -> ResolvedSpec:
    """Settle what is built from `n_rows` vectors of dimension `dim`; call it before embedding them.

    Zero rows give an empty flat index, whatever was asked for.

    Raises:
        ImpossibleIndexError: the factory needs more vectors, or another dimension.
    """
    if n_rows == 0:
        note = "" if spec.factory == FLAT else f"no rows: an empty {FLAT} index stands in for {spec.factory}"
        return ResolvedSpec(IndexSpec(), note)
    if spec.is_auto:
        return _automatic(spec, n_rows)
    _check_trainable(spec, n_rows, dim)
    return ResolvedSpec(spec)


def _automatic(spec: IndexSpec, n_rows: int) -> ResolvedSpec:
    if n_rows < AUTO_IVF_MIN_ROWS:
        return ResolvedSpec(
            IndexSpec(),
            f"automatic choice: {FLAT}, since {n_rows} rows are below the {AUTO_IVF_MIN_ROWS} for IVF",
        )
    # 4 * sqrt(n), the lower end of https://github.com/facebookresearch/faiss/wiki/Guidelines-to-choose-an-index
    n_lists = 1 << round(math.log2(4 * math.sqrt(n_rows)))
    nprobe = None if spec.nprobe is None else min(spec.nprobe, n_lists)
    chosen = IndexSpec(f"IVF{n_lists},{FLAT}", nprobe=nprobe)
    return ResolvedSpec(
        chosen, f"automatic choice: {chosen.factory}, visiting {chosen.n_probes} lists, for {n_rows} rows"
    )


def _check_trainable(spec: IndexSpec, n_rows: int, dim: int) -> None:
    if spec.n_subspaces is not None and dim % spec.n_subspaces:
        raise ImpossibleIndexError(
            f"{spec.factory} cuts vectors into {spec.n_subspaces} equal parts, but the dimension is {dim}; "
            f"choose a divisor of {dim}"
        )
    for needed, what in ((spec.n_lists, "inverted lists"), (spec.n_centroids, "centroids")):
        if needed is not None and needed > n_rows:
            raise ImpossibleIndexError(
                f"{spec.factory} trains {needed} {what} and needs as many vectors, but there are {n_rows}; "
                f"use '{AUTO}' or '{FLAT}'"
            )
