"""The errors of the package: one base, few leaves.

Every message says what is wrong, where, and what to do; numbers come in pairs (expected and got).
"""

from __future__ import annotations


class IndexesError(Exception):
    """Base of every error that this package raises on purpose."""


class InvalidVectorsError(IndexesError):
    """Vectors cannot be indexed: wrong shape or type, a row that is not finite, a zero vector."""


class InvalidQueryError(IndexesError):
    """A question cannot be answered: wrong dimension, a query that is not finite, a depth below 1."""


class ImpossibleIndexError(IndexesError):
    """The requested kind of index does not exist or cannot be built from these vectors."""


class InvalidIndexError(IndexesError):
    """A stored artefact is missing, damaged, foreign, or does not belong to its neighbours."""


class NoBuildError(IndexesError):
    """Nothing has been published yet, or the named build does not exist."""
