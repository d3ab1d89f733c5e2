"""Put results together: rankings, what was found out about them, and what the tables say of each document."""

from __future__ import annotations

from collections.abc import Mapping

from indexes import Movement, OpenBuild, RankedDocument, Ranking
from pipeline.ab.embedder import EncodedQuery
from pipeline.ab.explain import Asked, Findings
from pipeline.ab.lookup import Tables
from pipeline.ab.results import ABResult, ArmResult, DocumentResult, Hit, RankedHit, overlap


class Assembler:
    """Makes the results of one build."""

    def __init__(self, build: OpenBuild, tables: Tables) -> None:
        self._build_id = build.build.build_id
        self._reference_arm = next(iter(build.arms))
        self._n_documents = build.rows.n_documents
        self._tables = tables

    def comparison(
        self,
        query: EncodedQuery,
        asked: Asked,
        findings: Findings | None,
        *,
        depth: int,
        seconds: Mapping[str, float],
    ) -> ABResult:
        """The result of comparing two arms; without findings nothing is explained."""
        return ABResult(
            query=query.text,
            n_tokens=query.n_tokens,
            truncated=query.truncated,
            build_id=self._build_id,
            reference_arm=self._reference_arm,
            other_arm=asked.arm,
            k=asked.k,
            depth=depth,
            n_documents=self._n_documents,
            documents=tuple(self._document(asked, movement, findings) for movement in asked.movements),
            seconds=dict(seconds),
            **overlap(asked.reference, asked.other, asked.k),
        )

    def ranked(
        self, query: EncodedQuery, ranking: Ranking, *, arm: str, k: int, seconds: Mapping[str, float]
    ) -> ArmResult:
        """The result of asking one arm alone."""
        return ArmResult(
            query=query.text,
            n_tokens=query.n_tokens,
            truncated=query.truncated,
            build_id=self._build_id,
            arm=arm,
            k=k,
            n_documents=self._n_documents,
            documents=tuple(self._ranked_hit(document) for document in ranking),
            seconds=dict(seconds),
        )

    def _document(self, asked: Asked, movement: Movement, findings: Findings | None) -> DocumentResult:
        chunk = self._tables.chunk(asked.shown(movement).row)
        return DocumentResult(
            doc_id=movement.doc_id,
            title=chunk.title,
            doc_chars=chunk.doc_chars,
            status=movement.status,
            reference=self._hit(movement.reference) if movement.reference else None,
            other=self._hit(movement.other) if movement.other else None,
            evidence=findings.evidence.get(movement.doc_id) if findings else None,
            explanation=findings.explanations.get(movement.doc_id) if findings else None,
        )

    def _hit(self, ranked: RankedDocument) -> Hit:
        chunk = self._tables.chunk(ranked.row)
        return Hit(ranked.rank, ranked.score, chunk.ordinal, chunk.n_chunks, chunk.start, chunk.end)

    def _ranked_hit(self, ranked: RankedDocument) -> RankedHit:
        chunk = self._tables.chunk(ranked.row)
        return RankedHit(ranked.doc_id, chunk.title, chunk.doc_chars, self._hit(ranked), chunk.text)
