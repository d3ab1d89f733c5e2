"""Chunking: documents in, chunks of a measured number of tokens out."""

from pipeline.chunking.chunker import Chunker

__all__ = ["RULES", "Chunker"]

# Part of what chunks are made from: raised when the same settings cut the same text otherwise.
RULES = 2
