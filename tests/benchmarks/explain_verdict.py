"""Whether `late answer` and `early answer` are true, on documents whose parts stand in every order.

    .venv/bin/python -m tests.benchmarks.explain_quality verdict ../shared/data

`--vectors FOLDER` keeps the documents' vectors for another run, `--rows FOLDER` the single verdicts.

Each document comes in three rotations of its three parts, and each rotation has an index of its own. XQuAD:
three consecutive paragraphs of each article, from the first, second or third on, in indexes of their own.
COVID-QA: windows cut into thirds at sentences, up to 300 of them. All fit 512 tokens.

Of a document that holds the answer and surfaced in the calibrated arm at k, `late answer` is true if its
rotation with the answer's part first would have been in the top k of the plain arm, all other documents being
as they are. Of one that was pushed out, `early answer` is true if its rotation with the answer's part last
would not.

The product's own code finds the evidence, turns the chunk around and judges; gold spans are not shown to it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from statsmodels.stats.proportion import proportion_confint

from indexes import MovementStatus, Ranking, compare_rankings, rank_documents
from pipeline.ab import ABSearcher, Evidence, Explanation, VectorCache, Verdict
from pipeline.ab.embedder import EncodedQuery
from pipeline.ab.explain import Asked
from pipeline.ab.verdict import counterfactual_rank
from pipeline.ab.windows import sentence_spans
from pipeline.config import ArmSettings
from pipeline.embedding.loading import as_calibration
from pipeline.encoders import Encoder
from tests.benchmarks import xquad_three
from tests.benchmarks.build_from_vectors import publish, row_of
from tests.benchmarks.explain_quality import half_of

ARMS = {
    "plain": ArmSettings(strength=0.0),
    "strength-0.5": ArmSettings(),
    "strength-1": ArmSettings(strength=1.0),
}
KS = (1, 3)
PARTS = 3
MOST_TOKENS = 510
MOST_DOCUMENTS = 300
BREAK = "\n\n"

Row = dict[str, Any]
Vectors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Rotated:
    """Documents in three rotations, and questions with the part that holds their answer.

    Attributes:
        corpus: rows with `_id` (ending in -s0, -s1, -s2), `text`, `shift`, and `first`, which index it is in.
        queries: rows with `question_id`, `text`, `gold_doc`, `shift`, `paragraph_position`.
    """

    name: str
    corpus: list[Row]
    queries: list[Row]


def xquad() -> Rotated:
    """English XQuAD: three paragraphs. The builder of this set knows where the data lie."""
    with tempfile.TemporaryDirectory() as folder:
        xquad_three.build(Path(folder))
        corpus, queries = (
            pq.read_table(Path(folder) / f"{name}.en.parquet").to_pylist() for name in ("corpus", "queries")
        )
    return Rotated("xquad, 3 paragraphs", corpus, queries)


def covidqa(data: Path, encoder: Encoder) -> Rotated:
    """COVID-QA: windows in thirds."""
    folder = data / "covidqa_phase_w300"
    texts = {row["_id"]: row for row in pq.read_table(folder / "corpus.parquet").to_pylist()}
    questions: dict[str, list[Row]] = {}
    for row in pq.read_table(folder / "queries.parquet").to_pylist():
        if texts[row["gold_doc"]]["phase"] == 0:
            questions.setdefault(row["gold_doc"], []).append(row)
    corpus: list[Row] = []
    queries: list[Row] = []
    for doc_id in sorted(questions, key=lambda doc_id: hashlib.sha256(doc_id.encode()).hexdigest()):
        rotations = _thirds(doc_id, texts[doc_id]["text"])
        if not rotations or any(
            len(encoder.tokenizer.encode(row["text"]).ids) > MOST_TOKENS for row in rotations
        ):
            continue
        corpus += rotations
        queries += [query for row in rotations for query in _questions(row, questions[doc_id])]
        if len(corpus) >= PARTS * MOST_DOCUMENTS:
            break
    return Rotated("covidqa, thirds", corpus, queries)


def _thirds(doc_id: str, text: str) -> list[Row]:
    """The rotations of a text in three parts that begin at sentences; none for a text of few sentences."""
    starts = [start for start, _ in sentence_spans(text)]
    if len(starts) < 2 * PARTS:
        return []
    first = len(text) - len(text.lstrip())
    aims = (len(text) / 3, 2 * len(text) / 3)
    cuts = [first, *(min(starts[1:], key=lambda start: abs(start - aim)) for aim in aims), len(text)]
    if len(set(cuts)) < PARTS + 1:
        return []
    spans = list(pairwise(cuts))
    return [
        {
            "_id": f"{doc_id}-s{shift}",
            "text": BREAK.join(text[slice(*spans[part])].rstrip() for part in order),
            "shift": shift,
            "first": 0,
            "spans": spans,
            "order": order,
        }
        for shift in range(PARTS)
        for order in [[(shift + place) % PARTS for place in range(PARTS)]]
    ]


def _questions(document: Row, questions: Sequence[Row]) -> Iterator[Row]:
    for query in questions:
        start, end = query["pos_char_span"]
        holders = [part for part, span in enumerate(document["spans"]) if span[0] <= start and end <= span[1]]
        if holders:
            yield {
                "question_id": query["question_id"],
                "text": query["text"],
                "gold_doc": document["_id"],
                "shift": document["shift"],
                "paragraph_position": document["order"].index(holders[0]),
            }


# -- asking --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A gold document that entered or left the top k, what was said of it, and what is true.

    Attributes:
        place: which part holds the answer.
        position: of the evidence in the chunk.
        shift: what turning the chunk around changed in its plain score; None without a test.
        lead: by how much it then stands above the k-th of the other documents.
    """

    arm: str
    k: int
    half: str
    status: MovementStatus
    place: int
    verdict: Verdict
    position: float
    truth: bool
    shift: float | None
    lead: float | None


def judged(rotated: Rotated, vectors: Vectors, encoder: Encoder, root: Path) -> Iterator[Judged]:
    """Ask every question in every index, and judge what moved."""
    rows = row_of([row["_id"] for row in rotated.corpus])
    cache = VectorCache(2**30)
    groups = sorted({(row["first"], row["shift"]) for row in rotated.corpus})
    for group in groups:
        own = [row for row in rotated.corpus if (row["first"], row["shift"]) == group]
        places = [rows[row["_id"]] for row in own]
        build = publish(
            root,
            {row["_id"]: row["text"] for row in own},
            {arm: vectors[arm][places] for arm in ARMS},
            ARMS,
        )
        searcher = ABSearcher.from_parts(build, encoder, cache=cache)
        held = {row["_id"] for row in own}
        queries = [query for query in rotated.queries if query["gold_doc"] in held]
        for query, encoded in zip(
            queries, searcher.encode([query["text"] for query in queries]), strict=True
        ):
            rankings = {
                arm: rank_documents(index, build.rows, encoded.vector, len(own))
                for arm, index in build.arms.items()
            }
            first, last = (
                vectors["plain"][rows[f"{query['gold_doc'][:-1]}{_shift(query, place)}"]] @ encoded.vector
                for place in (0, PARTS - 1)
            )
            yield from _judged_one(searcher, query, encoded, rankings, float(first), float(last))


def _shift(query: Row, place: int) -> int:
    """The shift at which the answer's part stands at a place."""
    return (int(query["shift"]) + int(query["paragraph_position"]) - place) % PARTS


def _judged_one(
    searcher: ABSearcher,
    query: Row,
    encoded: EncodedQuery,
    rankings: Mapping[str, Ranking],
    first: float,
    last: float,
) -> Iterator[Judged]:
    plain, doc_id = rankings["plain"], query["gold_doc"]
    for arm in list(ARMS)[1:]:
        for k in KS:
            movements = [m for m in compare_rankings(plain, rankings[arm], k) if m.doc_id == doc_id]
            for movement in movements:
                if movement.status not in (MovementStatus.ENTERED, MovementStatus.LEFT):
                    continue
                asked = Asked(arm, k, plain, rankings[arm], [movement])
                (findings,) = searcher._explainer.explain(encoded, [asked], {})
                evidence, explanation = findings.evidence[doc_id], findings.explanations[doc_id]
                yield _record(query, asked, evidence, explanation, first, last)


def _record(
    query: Row,
    asked: Asked,
    evidence: Evidence | None,
    explanation: Explanation,
    first: float,
    last: float,
) -> Judged:
    (movement,) = asked.movements
    entered = movement.status is MovementStatus.ENTERED
    score = first if entered else last
    rank = counterfactual_rank(score, movement.doc_id, asked.reference, ties_lose=entered)
    assert rank is not None
    assert evidence is not None
    before, after = explanation.reference_score, explanation.counterfactual_score
    others = [document.score for document in asked.reference if document.doc_id != movement.doc_id]
    return Judged(
        asked.arm,
        asked.k,
        half_of(query["question_id"].split("-p")[0]),
        movement.status,
        query["paragraph_position"],
        explanation.verdict,
        evidence.position_in_chunk,
        (rank <= asked.k) == entered,
        None if after is None or before is None else after - before,
        None if after is None else after - others[asked.k - 1],
    )


# -- figures -------------------------------------------------------------------------------------------


def measure_verdict(data: Path, kept: Path | None = None, rows: Path | None = None) -> None:
    """Print, for each set, arm, k and half, precision and recall of `late answer` and `early answer`.

    Args:
        data: where the sets lie.
        kept: a folder that keeps the documents' vectors for another run.
        rows: a folder for the single verdicts, one JSON line each.
    """
    encoder = Encoder.load(
        "all-MiniLM-L6-v2", {name: as_calibration(arm) for name, arm in ARMS.items()}, max_length=512
    )
    for rotated in (xquad(), covidqa(data, encoder)):
        vectors = _vectors(rotated, encoder, kept)
        with tempfile.TemporaryDirectory() as folder:
            found = list(judged(rotated, vectors, encoder, Path(folder)))
        if rows is not None:
            lines = "".join(json.dumps(asdict(one)) + "\n" for one in found)
            (rows / f"{rotated.name.split(',')[0]}.jsonl").write_text(lines, encoding="utf-8")
        print(
            f"\n{rotated.name}: {len(rotated.corpus)} documents, {len(rotated.queries)} questions with places"
        )
        _print_table(found, MovementStatus.ENTERED, Verdict.LATE_ANSWER)
        _print_table(found, MovementStatus.LEFT, Verdict.EARLY_ANSWER)


def _vectors(rotated: Rotated, encoder: Encoder, kept: Path | None) -> Vectors:
    """Embed the corpus in all arms, or read what an earlier run kept."""
    texts = [row["text"] for row in rotated.corpus]
    key = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = kept / f"{key}.npz" if kept is not None else None
    if path is not None and path.exists():
        return dict(np.load(path))
    vectors = encoder.encode_documents(texts)
    if path is not None:
        np.savez(path, **vectors)
    return vectors


def _print_table(found: Sequence[Judged], status: MovementStatus, called: Verdict) -> None:
    heading = f"{called.value}: precision"
    print(f"{'arm':<14}{'k':>2} {'half':<5}{status.value:>8}{'true':>6}  {heading:<34}recall")
    for arm in list(ARMS)[1:]:
        for k in KS:
            for half in ("A", "B", "AB"):
                own = [
                    one
                    for one in found
                    if one.arm == arm and one.k == k and one.half in half and one.status is status
                ]
                precision, recall = _rates(own, lambda one: one.verdict is called)
                print(
                    f"{arm:<14}{k:>2} {half:<5}{len(own):>8}{sum(one.truth for one in own):>6}  "
                    f"{precision:<34}{recall}"
                )
    _print_position_alone(found, status)
    verdicts = [one.verdict for one in found if one.status is status]
    print("  " + ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in Verdict))


def _print_position_alone(found: Sequence[Judged], status: MovementStatus) -> None:
    """What the evidence's position would say without any test: in the last third, or in the first."""
    late = status is MovementStatus.ENTERED
    for arm in list(ARMS)[1:]:
        for k in KS:
            own = [one for one in found if one.arm == arm and one.k == k and one.status is status]
            rates = _rates(own, lambda one: one.position >= 2 / 3 if late else one.position <= 1 / 3)
            print(f"{arm:<14}{k:>2} position alone      {rates[0]:<34}{rates[1]}")


def _rates(found: Sequence[Judged], called: Callable[[Judged], bool]) -> tuple[str, str]:
    right = sum(called(one) and one.truth for one in found)
    return _rate(right, sum(map(called, found))), _rate(right, sum(one.truth for one in found))


def _rate(part: int, whole: int) -> str:
    """A share with its 95 % interval (Wilson)."""
    if not whole:
        return "-"
    low, high = proportion_confint(part, whole, method="wilson")
    return f"{part / whole:.2f} [{low:.2f}, {high:.2f}] ({part}/{whole})"
