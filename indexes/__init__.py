"""Vectors and ids in, rankings and their differences out.

The package knows vectors, rows, chunk ids and document ids, and nothing of texts or models. `VectorIndex`
holds the vectors of one arm, `Rows` says which chunk stands in which row, `BuildStore` keeps generations of
both, `rank_documents` answers a query, and `compare_rankings` tells what differs between two answers.
"""

from indexes.build import Build, BuildLayout, OpenBuild, open_build
from indexes.comparison import (
    Movement,
    MovementStatus,
    compare_rankings,
    jaccard,
    kendall_tau,
    rank_biased_overlap,
)
from indexes.errors import (
    ImpossibleIndexError,
    IndexesError,
    InvalidIndexError,
    InvalidQueryError,
    InvalidVectorsError,
    NoBuildError,
)
from indexes.manifest import JSON, BuildManifest, FileRecord
from indexes.ranking import RankedDocument, Ranking, rank_documents, tied
from indexes.row_filter import RowFilter
from indexes.rows import Rows, read_rows, write_rows
from indexes.spec import IndexSpec, ResolvedSpec, resolve_spec
from indexes.store import BuildStore
from indexes.vector_index import Hits, VectorIndex, check_factory

__all__ = [
    "JSON",
    "Build",
    "BuildLayout",
    "BuildManifest",
    "BuildStore",
    "FileRecord",
    "Hits",
    "ImpossibleIndexError",
    "IndexSpec",
    "IndexesError",
    "InvalidIndexError",
    "InvalidQueryError",
    "InvalidVectorsError",
    "Movement",
    "MovementStatus",
    "NoBuildError",
    "OpenBuild",
    "RankedDocument",
    "Ranking",
    "ResolvedSpec",
    "RowFilter",
    "Rows",
    "VectorIndex",
    "check_factory",
    "compare_rankings",
    "jaccard",
    "kendall_tau",
    "open_build",
    "rank_biased_overlap",
    "rank_documents",
    "read_rows",
    "resolve_spec",
    "tied",
    "write_rows",
]
