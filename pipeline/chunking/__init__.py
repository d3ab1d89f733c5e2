"""Chunking: documents in, chunks of a measured number of tokens out."""

from pipeline.chunking.chunker import Chunker

__all__ = ["Chunker"]
