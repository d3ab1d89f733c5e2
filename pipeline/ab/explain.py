"""Explain what moved: find the evidence, turn the chunk around, embed it plainly, judge; in two batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from indexes import Movement, OpenBuild, RankedDocument, Ranking, compare_rankings
from pipeline.ab.counterfactual import evidence_first, evidence_last
from pipeline.ab.embedder import EncodedQuery, QueryEmbedder
from pipeline.ab.evidence import Evidence, Passage, Question, find_evidence
from pipeline.ab.gold import GoldSpans, chunk_with_gold, span_in_chunk
from pipeline.ab.lookup import StoredChunk, Tables
from pipeline.ab.moves import Move
from pipeline.ab.results import higher
from pipeline.ab.verdict import Case, Direction, Explanation, Outcome, Untested, counterfactual_rank, judge
from pipeline.ab.windows import Span
from pipeline.config import ArmSettings, ExplainSettings
from pipeline.records import embedded_text


@dataclass(frozen=True, slots=True)
class Asked:
    """One comparison to explain: the reference with one other arm."""

    arm: str
    k: int
    reference: Ranking
    other: Ranking
    movements: Sequence[Movement]

    @classmethod
    def of(cls, arm: str, k: int, reference: Ranking, other: Ranking) -> Asked:
        """Compare two rankings at k."""
        return cls(arm, k, reference, other, compare_rankings(reference, other, k))

    def shown(self, movement: Movement) -> RankedDocument:
        """The place of a document in the arm that ranks it higher."""
        return higher(movement.other, movement.reference)


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out about one comparison, by doc_id."""

    evidence: Mapping[str, Evidence | None]
    explanations: Mapping[str, Explanation]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where evidence is sought: a chunk, the answer in it if known, and whether it is the chunk found."""

    chunk: StoredChunk
    gold: Span | None
    is_shown: bool = True

    @property
    def passage(self) -> Passage:
        return Passage(self.chunk.text, self.chunk.start, self.chunk.doc_chars, self.gold)


@dataclass(frozen=True, slots=True)
class _Test:
    """A document to be judged, with its chunk's text turned around, or why that cannot be tested."""

    case: Case
    row: int
    text: str | Untested


class Explainer:
    """Explains the movements of queries to one build."""

    def __init__(
        self, build: OpenBuild, tables: Tables, embedder: QueryEmbedder, settings: ExplainSettings
    ) -> None:
        from pipeline.embedding.loading import as_calibration

        self._build = build
        self._tables = tables
        self._embedder = embedder
        self._settings = settings
        self._reference_arm = next(iter(build.arms))
        arms: Any = build.build.manifest.application["arms"]
        self._reference = as_calibration(ArmSettings.model_validate(arms[self._reference_arm]))

    def explain(self, query: EncodedQuery, asked: Sequence[Asked], gold: GoldSpans) -> list[Findings]:
        """Find the evidence of every document shown, and the reason of every one that moved."""
        rows = {one.shown(movement).row for one in asked for movement in one.movements}
        places = {row: self._place(row, gold) for row in sorted(rows)}
        evidence = self._evidence(query, places)
        tests = [list(self._tests(one, places, evidence)) for one in asked]
        outcomes = self._outcomes(query, [test for own in tests for test in own])
        return [
            Findings(
                {m.doc_id: evidence[one.shown(m).row] for m in one.movements},
                {test.case.doc_id: self._judge(query, one, test, outcomes) for test in own},
            )
            for one, own in zip(asked, tests, strict=True)
        ]

    def _place(self, row: int, gold: GoldSpans) -> _Place:
        chunk = self._tables.chunk(row)
        spans = gold.get(chunk.doc_id)
        if not spans:
            return _Place(chunk, None)
        inside = span_in_chunk(chunk, spans)
        if inside is not None:
            return _Place(chunk, inside)
        holder = chunk_with_gold(self._tables, chunk.doc_id, spans)
        return _Place(holder, span_in_chunk(holder, spans), is_shown=False)

    def _evidence(self, query: EncodedQuery, places: Mapping[int, _Place]) -> dict[int, Evidence | None]:
        found = find_evidence(
            Question(query.text, query.vector),
            [place.passage for place in places.values()],
            self._embedder.windows,
            lexical_weight=self._settings.lexical_weight,
            n_sentences=self._settings.sentences,
        )
        return dict(zip(places, found, strict=True))

    def _tests(
        self, asked: Asked, places: Mapping[int, _Place], evidence: Mapping[int, Evidence | None]
    ) -> Iterator[_Test]:
        for movement in asked.movements:
            move = Move.of(movement)
            row = asked.shown(movement).row
            found, place = evidence[row], places[row]
            if move is None or found is None:
                continue
            case = Case(
                doc_id=movement.doc_id,
                arm=self._reference_arm,
                direction=move.direction,
                k=asked.k,
                reference_rank=movement.reference.rank if movement.reference else None,
                other_rank=movement.other.rank if movement.other else None,
                position=found.position_in_chunk,
            )
            text = _turned(place.chunk, found, move.direction) if place.is_shown else Untested.OTHER_CHUNK
            yield _Test(case, row, text)

    def _outcomes(self, query: EncodedQuery, tests: Sequence[_Test]) -> dict[str, float | Untested]:
        """The reference arm's score of each text that is to be tested."""
        texts = list(dict.fromkeys(test.text for test in tests if not isinstance(test.text, Untested)))
        fitting = [text for text, fits in zip(texts, self._embedder.fit(texts), strict=True) if fits]
        scores = self._embedder.documents(fitting, self._reference) @ query.vector
        return {**dict.fromkeys(texts, Untested.TOO_LONG), **dict(zip(fitting, scores.tolist(), strict=True))}

    def _judge(
        self, query: EncodedQuery, asked: Asked, test: _Test, outcomes: Mapping[str, float | Untested]
    ) -> Explanation:
        after = test.text if isinstance(test.text, Untested) else outcomes[test.text]
        if isinstance(after, Untested):
            return judge(test.case, after, self._settings)
        siblings = self._reference_scores(query, test.case.doc_id)
        before = siblings.pop(test.row)
        best = max([after, *siblings.values()])
        ties_lose = test.case.direction is Direction.UP
        rank = counterfactual_rank(best, test.case.doc_id, asked.reference, ties_lose=ties_lose)
        return judge(test.case, Outcome(before, after, rank), self._settings)

    def _reference_scores(self, query: EncodedQuery, doc_id: str) -> dict[int, float]:
        """The reference arm's scores of all chunks of a document, by row."""
        rows = self._tables.rows_of(doc_id)
        scores = self._build.arms[self._reference_arm].scores(np.array(rows), query.vector)
        return dict(zip(rows, scores.tolist(), strict=True))


def _turned(chunk: StoredChunk, evidence: Evidence, direction: Direction) -> str | Untested:
    """The chunk turned around, as it would be embedded."""
    span = evidence.start - chunk.start, evidence.end - chunk.start
    turn = evidence_first if direction is Direction.UP else evidence_last
    text = turn(chunk.text, span)
    return Untested.NOTHING_MOVES if text == chunk.text else embedded_text(chunk.context, text)
