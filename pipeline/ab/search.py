"""Ask both arms of a build the same question."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from indexes import (
    BuildStore,
    Movement,
    NoBuildError,
    OpenBuild,
    RankedDocument,
    Ranking,
    compare_rankings,
    jaccard,
    kendall_tau,
    open_build,
    rank_biased_overlap,
    rank_documents,
)
from pipeline.ab.evidence import Evidence, Passage, find_evidence
from pipeline.ab.results import ABResult, DocumentResult, Hit
from pipeline.artifacts import BuildFiles
from pipeline.config import ModelSettings
from pipeline.errors import DataError, UsageError

if TYPE_CHECKING:
    from pipeline.encoders import Encoder

_GROUPS_IN_MEMORY = 8


class ABSearcher:
    """A build, opened for queries, and the encoder that made it."""

    def __init__(self, build: OpenBuild, encoder: Encoder) -> None:
        self._build = build
        self._encoder = encoder
        self._chunks = ChunkTable(BuildFiles(build.build.path).chunks)

    @classmethod
    def open(cls, run: Path, *, model: str | None = None, device: str = "auto") -> ABSearcher:
        """Open the current build of a run directory.

        Args:
            run: the run directory.
            model: where the model's files are now, if they have moved since; they must be the same files.
            device: where queries are embedded.

        Raises:
            UsageError: nothing has been indexed there yet.
            DataError: the model's files are not those that the index was made with.
            InvalidIndexError: the build is damaged.
        """
        build = _current_build(run)
        settings = ModelSettings.model_validate(build.build.manifest.application["model"])
        return cls(build, _query_encoder(build, settings, model, device))

    @property
    def build_id(self) -> str:
        """The build that answers."""
        return self._build.build.build_id

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms of the build; the first is the reference."""
        return tuple(self._build.arms)

    @property
    def n_documents(self) -> int:
        """Documents in the build."""
        return self._build.rows.n_documents

    def search(self, query: str, *, k: int = 10, depth: int = 100, other: str | None = None) -> ABResult:
        """Rank the documents in the reference arm and in another one, and compare.

        Args:
            query: in words.
            k: documents to report from each arm.
            depth: how deep ranks are looked up; at least k + 1 is used.
            other: the arm to compare with the reference (the first arm); by default the second.

        Raises:
            UsageError: an empty query, k below 1, or an unknown arm.
        """
        reference, other = self._pair(other)
        _check_query(query, k, depth)
        seconds: dict[str, float] = {}
        with _Timed(seconds, "encode"):
            n_tokens = self._encoder.count_query_tokens(query)
            vector = self._encoder.encode_queries([query], truncate=True)
            query_vector = next(iter(vector.values()))[0]
        with _Timed(seconds, "search"):
            depth = max(depth, k + 1)
            rankings = {
                name: rank_documents(self._build.arms[name], self._build.rows, query_vector, depth)
                for name in (reference, other)
            }
        movements = compare_rankings(rankings[reference], rankings[other], k)
        with _Timed(seconds, "explain"):
            rows = [self._chunks.row(_shown(movement).row) for movement in movements]
            passages = [Passage(row["text"], row["start"], row["doc_chars"]) for row in rows]
            evidence = find_evidence(query_vector, passages, self._encoder.encode_windows)
        return ABResult(
            query=query,
            n_tokens=n_tokens,
            truncated=n_tokens > self._encoder.max_length,
            build_id=self.build_id,
            reference_arm=reference,
            other_arm=other,
            k=k,
            depth=depth,
            n_documents=self.n_documents,
            documents=self._documents(movements, rows, evidence),
            jaccard=jaccard(_ids(rankings[reference]), _ids(rankings[other]), k),
            rbo=rank_biased_overlap(_ids(rankings[reference], k), _ids(rankings[other], k)),
            kendall_tau=kendall_tau(_ids(rankings[reference], k), _ids(rankings[other], k)),
            seconds=seconds,
        )

    def _pair(self, other: str | None) -> tuple[str, str]:
        if len(self.arms) < 2:
            raise UsageError(
                f"the build has one arm only ({self.arms[0]}); configure a second one to compare with"
            )
        if other is not None and other not in self.arms[1:]:
            raise UsageError(
                f"no arm {other!r} to compare {self.arms[0]!r} with; there are {', '.join(self.arms[1:])}"
            )
        return self.arms[0], other or self.arms[1]

    def _documents(
        self,
        movements: Sequence[Movement],
        rows: Sequence[dict[str, Any]],
        evidence: Sequence[Evidence | None],
    ) -> tuple[DocumentResult, ...]:
        return tuple(
            DocumentResult(
                doc_id=movement.doc_id,
                title=row["title"],
                doc_chars=row["doc_chars"],
                status=movement.status,
                reference=self._hit(movement.reference),
                other=self._hit(movement.other),
                evidence=found,
            )
            for movement, row, found in zip(movements, rows, evidence, strict=True)
        )

    def _hit(self, ranked: RankedDocument | None) -> Hit | None:
        if ranked is None:
            return None
        row = self._chunks.row(ranked.row)
        return Hit(ranked.rank, ranked.score, row["ordinal"], row["doc_chunks"], row["start"], row["end"])


class ChunkTable:
    """The chunk table of a build, read by row; a few row groups stay in memory."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path, memory_map=True)
        self._starts: list[int] = []
        n_rows = 0
        for group in range(self._file.num_row_groups):
            self._starts.append(n_rows)
            n_rows += self._file.metadata.row_group(group).num_rows
        self._groups: OrderedDict[int, Any] = OrderedDict()

    def row(self, number: int) -> dict[str, Any]:
        """One row of the table as a dictionary."""
        group = bisect_right(self._starts, number) - 1
        if group not in self._groups:
            self._groups[group] = self._file.read_row_group(group)
            if len(self._groups) > _GROUPS_IN_MEMORY:
                self._groups.popitem(last=False)
        self._groups.move_to_end(group)
        row: dict[str, Any] = self._groups[group].slice(number - self._starts[group], 1).to_pylist()[0]
        return row


@dataclass(slots=True)
class _Timed:
    """Notes the wall time of a block under a name."""

    seconds: dict[str, float]
    name: str
    _started: float = field(default=0.0)

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] = time.perf_counter() - self._started


def _current_build(run: Path) -> OpenBuild:
    try:
        return open_build(BuildStore(run).current(), verify=False)
    except NoBuildError as error:
        raise UsageError(f"run {run}: nothing is indexed there yet; run `lastpage index` first") from error


def _query_encoder(build: OpenBuild, settings: ModelSettings, model: str | None, device: str) -> Encoder:
    from pipeline.encoders import Encoder, load_model
    from pipeline.encoders.model_files import find_model, model_fingerprint

    folder = find_model(model or settings.name, settings.revision)
    expected, got = build.build.manifest.application["model_fingerprint"], model_fingerprint(folder)
    if expected != got:
        raise DataError(
            f"the index was made with model {settings.name!r}, files {str(expected)[:12]}…, but {folder} "
            f"holds {got[:12]}…; give --model with the original files, or index again"
        )
    options = settings.model_dump(exclude={"name", "revision"})
    return Encoder(load_model(folder, device=device, **options), {"plain": None})


def _check_query(query: str, k: int, depth: int) -> None:
    if not query.strip():
        raise UsageError("the query is empty; ask in words")
    for name, value in (("k", k), ("depth", depth)):
        if value < 1:
            raise UsageError(f"{name} = {value}: at least 1 document is needed")


def _shown(movement: Movement) -> RankedDocument:
    """The arm that ranks the document higher shows why it is there."""
    places = [place for place in (movement.other, movement.reference) if place is not None]
    return min(places, key=lambda place: place.rank)


def _ids(ranking: Ranking, k: int | None = None) -> tuple[str, ...]:
    return ranking.doc_ids[:k]
