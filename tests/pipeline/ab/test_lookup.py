"""Chunks and documents of a build, by row and by id."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import tables
from pipeline.ab.lookup import Tables
from pipeline.errors import DataError
from tests.pipeline.ab.planted_build import planted_build

DOCUMENTS = {f"doc-{n}": [f"Part {part} of {n}." for part in range(1 + n % 3)] for n in range(30)}


@pytest.fixture
def build_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    # Two rows a group: more groups than stay in memory.
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 2)
    return Tables(planted_build(tmp_path / "run", DOCUMENTS))


def test_every_row_is_found_again_after_others(build_tables: Tables) -> None:
    expected = [(doc_id, n, text) for doc_id, chunks in DOCUMENTS.items() for n, text in enumerate(chunks)]
    for order in (range(len(expected)), reversed(range(len(expected)))):
        for row in order:
            chunk = build_tables.chunk(row)
            assert (chunk.doc_id, chunk.ordinal, chunk.text) == expected[row]


def test_a_document_s_rows_and_offsets_belong_together(build_tables: Tables) -> None:
    for doc_id, chunks in DOCUMENTS.items():
        document = build_tables.document(doc_id)
        found = [build_tables.chunk(row) for row in build_tables.rows_of(doc_id)]
        assert [chunk.text for chunk in found] == chunks
        assert [document.text[chunk.start : chunk.end] for chunk in found] == chunks
        assert {chunk.n_chunks for chunk in found} == {len(chunks)}


def test_unknown_documents_are_refused_by_name(build_tables: Tables) -> None:
    for ask in (build_tables.document, build_tables.rows_of):
        with pytest.raises(DataError, match="has no document 'doc-99'"):
            ask("doc-99")
