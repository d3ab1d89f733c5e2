"""Conditions on metadata become rows."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from indexes import BuildLayout, BuildStore, IndexSpec, OpenBuild, Rows, VectorIndex, open_build, write_rows
from pipeline.ab.filters import Condition, InRange, MetadataFilter, OneOf, UnknownFieldError
from pipeline.artifacts import BuildFiles
from pipeline.corpus.table import write_documents
from pipeline.errors import UsageError
from pipeline.records import Document

DOCUMENTS = [
    Document("old", "text", "", {"year": "1999", "lang": "en", "open": "true"}),
    Document("without chunks", "text", "", {"year": "2001"}),
    Document("new", "text", "", {"year": "2020.0", "lang": "de", "open": "false"}),
    Document("undated", "text", "", {"year": "about 2020", "lang": "en"}),
    Document("bare", "text"),
]
# The row of each chunk's document; "new" comes before "old", against the order of the documents.
ROWS = ["new", "old", "old", "undated", "bare"]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> OpenBuild:
    def write(folder: Path) -> None:
        layout = BuildLayout(folder)
        write_rows(layout.rows, Rows.from_ids([f"{i}" for i in range(len(ROWS))], ROWS))
        vectors = np.eye(len(ROWS), 5, dtype=np.float32)
        VectorIndex.build(vectors, dim=5, spec=IndexSpec()).save(layout.arm_index("plain"))
        write_documents(DOCUMENTS, BuildFiles(folder).documents)

    store = BuildStore(tmp_path_factory.mktemp("run"))
    return open_build(store.publish(write, arms=["plain"], n_rows=len(ROWS), dim=5, manifest={}))


@pytest.mark.parametrize(
    ("conditions", "rows"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"lang": OneOf(("en",))}, [1, 2, 3]),
        ({"lang": OneOf(("en", "de"))}, [0, 1, 2, 3]),
        ({"lang": OneOf(("fr",))}, []),
        ({"lang": OneOf(())}, []),
        ({"year": OneOf((2020,))}, [0]),
        ({"year": OneOf(("2020",))}, []),
        ({"year": OneOf((1999.0, "about 2020"))}, [1, 2, 3]),
        ({"open": OneOf((True,))}, [1, 2]),
        ({"year": InRange(gte=1999, lt=2020)}, [1, 2]),
        ({"year": InRange(gt=1999)}, [0]),
        ({"year": InRange(lte=2020)}, [0, 1, 2]),
        ({"year": InRange()}, [0, 1, 2]),
        ({"year": InRange(gte=1999), "lang": OneOf(("de",))}, [0]),
    ],
)
def test_the_rows_of_the_documents_that_meet_every_condition(
    build: OpenBuild, conditions: dict[str, Condition], rows: list[int]
) -> None:
    assert MetadataFilter(build).allow(conditions).rows.tolist() == rows


def test_unknown_fields_are_refused_by_name(build: OpenBuild) -> None:
    with pytest.raises(UnknownFieldError, match="no metadata field 'yaer'; there are: year, lang, open"):
        MetadataFilter(build).allow({"yaer": OneOf((2020,))})


def test_a_range_needs_numbers(build: OpenBuild) -> None:
    with pytest.raises(UsageError, match="'lang' holds no number, such as 'en'"):
        MetadataFilter(build).allow({"lang": InRange(gte=1)})


def test_the_files_of_a_build_may_go_while_it_answers(build: OpenBuild, tmp_path: Path) -> None:
    filters = MetadataFilter(build)
    path = BuildFiles(build.build.path).documents
    kept = path.read_bytes()
    path.unlink()
    try:
        assert filters.fields == ("year", "lang", "open")
    finally:
        path.write_bytes(kept)


def test_threads_that_come_first_at_once_read_once(build: OpenBuild, monkeypatch: pytest.MonkeyPatch) -> None:
    read = pq.ParquetFile.iter_batches
    n_reads = 0

    def slow(file: pq.ParquetFile, **options: Any) -> Any:
        nonlocal n_reads
        n_reads += 1
        time.sleep(0.1)
        return read(file, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", slow)
    filters = MetadataFilter(build)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: filters.fields, range(4)))
    assert found == [("year", "lang", "open")] * 4
    assert n_reads == 1
