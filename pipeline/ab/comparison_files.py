"""What a comparison leaves in a folder: one row a query and document, TREC run files, and a summary.

All file names are here. The summary is written first, to say whose the folder is, and last, when it
is complete.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.ab.comparing import QueryAnswer
from pipeline.ab.moves import change, third_of
from pipeline.ab.results import ABResult, DocumentResult, Hit
from pipeline.ab.trec import write_run
from pipeline.artifacts import atomic_path, fingerprint, read_json, write_json
from pipeline.errors import UsageError
from pipeline.tables import table_writer

_KIND = "lastpage comparison"
_RUN_SUFFIX = ".trec"

_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("query_id", "query", "reference_arm", "other_arm")),
        ("change", pa.float64()),
        *((name, pa.string()) for name in ("doc_id", "title", "status")),
        *((f"{arm}_{name}", pa.int64()) for arm in ("reference", "other") for name in ("rank", "chunk")),
        *((f"{arm}_score", pa.float64()) for arm in ("reference", "other")),
        ("rank_change", pa.int64()),
        ("is_gold", pa.bool_()),
        ("evidence_start", pa.int64()),
        ("evidence_end", pa.int64()),
        ("evidence", pa.string()),
        ("evidence_source", pa.string()),
        ("evidence_score", pa.float64()),
        ("confidence", pa.float64()),
        ("position_in_chunk", pa.float64()),
        ("position_in_document", pa.float64()),
        ("third", pa.string()),
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("counterfactual_score", pa.float64()),
        ("counterfactual_rank", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class ComparisonFolder:
    """The paths of a comparison's files."""

    root: Path

    @property
    def summary(self) -> Path:
        """Settings and totals."""
        return self.root / "summary.json"

    @property
    def rows(self) -> Path:
        """One row a query, other arm and document."""
        return self.root / "rows.parquet"

    @property
    def rows_csv(self) -> Path:
        """The same as text."""
        return self.root / "rows.csv"

    @property
    def report(self) -> Path:
        """The page to look at."""
        return self.root / "report.html"

    def run(self, arm: str) -> Path:
        """The ranking of one arm as a TREC run file; the tag of a run from elsewhere could be any word."""
        return self.root / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', arm)}{_RUN_SUFFIX}"

    def check(self, inputs: Mapping[str, Any], *, overwrite: bool) -> None:
        """Make sure that nothing else lies here, before long work begins.

        Args:
            inputs: what decides the comparison's content.
            overwrite: replace another comparison (never other files).

        Raises:
            UsageError: the folder holds something else.
        """
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.root}: this is a file; name a folder for the comparison")
        held = read_json(self.summary) or {}
        is_ours = held.get("kind") == _KIND
        is_same = is_ours and held.get("inputs_fingerprint") == fingerprint(inputs)
        if not (is_same or (is_ours and overwrite)) and self.root.is_dir() and any(self.root.iterdir()):
            what = "another comparison: give --overwrite" if is_ours else "other files: empty it"
            raise UsageError(f"{self.root}: the folder holds {what}, or name another one with --out")

    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Say whose folder this is, so that a killed comparison can be repeated; drop files of an earlier."""
        self._write_summary(inputs, {"complete": False})
        for path in (self.rows, self.rows_csv, self.report, *self.root.glob(f"*{_RUN_SUFFIX}")):
            path.unlink(missing_ok=True)

    def write_tables(self, answers: Sequence[QueryAnswer]) -> None:
        """Write the rows as Parquet and as CSV."""
        with table_writer(self.rows, _SCHEMA) as writer:
            for row in rows(answers):
                writer.add(row, n_characters=sum(len(row[name] or "") for name in ("query", "evidence")))
        with (
            atomic_path(self.rows_csv) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            table = csv.DictWriter(file, _SCHEMA.names, lineterminator="\n")
            table.writeheader()
            table.writerows(rows(answers))

    def write_runs(self, answers: Sequence[QueryAnswer]) -> None:
        """Write one TREC run file an arm."""
        for arm in answers[0].rankings:
            write_run(
                self.run(arm), arm, ((answer.query.query_id, answer.rankings[arm]) for answer in answers)
            )

    def write_report(self, page: str) -> None:
        """Write the page to look at."""
        with atomic_path(self.report) as temporary:
            temporary.write_text(page, encoding="utf-8")

    def complete(self, inputs: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """Write the summary, which says that everything is there."""
        self._write_summary(inputs, {"complete": True, **summary})

    def _write_summary(self, inputs: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        head = {"kind": _KIND, "inputs": inputs, "inputs_fingerprint": fingerprint(inputs)}
        write_json(self.summary, {**head, **summary})


def rows(answers: Sequence[QueryAnswer]) -> Iterator[dict[str, Any]]:
    """One row a query, other arm and document of either top k."""
    for answer in answers:
        for result in answer.comparisons:
            for document in result.documents:
                yield _row(answer, result, document)


def _row(answer: QueryAnswer, result: ABResult, document: DocumentResult) -> dict[str, Any]:
    third = third_of(document)
    return {
        "query_id": answer.query.query_id,
        "query": answer.query.text,
        "reference_arm": result.reference_arm,
        "other_arm": result.other_arm,
        "change": change(result),
        "doc_id": document.doc_id,
        "title": document.title,
        "status": document.status.value,
        **_hit("reference", document.reference),
        **_hit("other", document.other),
        "rank_change": document.rank_change,
        "is_gold": any(gold.doc_id == document.doc_id for gold in answer.query.gold),
        **_evidence(document),
        "third": third.value if third else None,
        **_explanation(document),
    }


def _hit(arm: str, hit: Hit | None) -> dict[str, Any]:
    return {
        f"{arm}_rank": hit.rank if hit else None,
        f"{arm}_score": hit.score if hit else None,
        f"{arm}_chunk": hit.ordinal if hit else None,
    }


def _evidence(document: DocumentResult) -> dict[str, Any]:
    found = document.evidence
    return {
        "evidence_start": found.start if found else None,
        "evidence_end": found.end if found else None,
        "evidence": found.text if found else None,
        "evidence_source": found.source.value if found else None,
        "evidence_score": found.score if found else None,
        "confidence": found.confidence if found else None,
        "position_in_chunk": found.position_in_chunk if found else None,
        "position_in_document": found.position_in_document if found else None,
    }


def _explanation(document: DocumentResult) -> dict[str, Any]:
    why = document.explanation
    return {
        "verdict": why.verdict.value if why else None,
        "reason": why.reason if why else None,
        "counterfactual_score": why.counterfactual_score if why else None,
        "counterfactual_rank": why.counterfactual_rank if why else None,
    }
