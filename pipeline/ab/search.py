"""Ask several arms of a build the same question."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from indexes import OpenBuild, Ranking, RowFilter, rank_documents
from pipeline.ab.assembling import Assembler
from pipeline.ab.embedder import EncodedQuery, QueryEmbedder, VectorCache
from pipeline.ab.explain import Asked, Explainer, Findings
from pipeline.ab.gold import GoldSpan, checked_gold, chunk_with_gold
from pipeline.ab.lookup import StoredDocument, Tables
from pipeline.ab.opening import explain_settings, open_run_build, query_encoder
from pipeline.ab.results import ABResult, ArmResult, ArmsResult
from pipeline.config import ExplainSettings
from pipeline.errors import UsageError

if TYPE_CHECKING:
    from pipeline.encoders import Encoder


class ABSearcher:
    """A build, opened for queries, and the encoder that made it. Any number of threads may ask.

    Attributes:
        encoder, cache: may be handed to another searcher, over another build of the same model.
        settings: how movements are explained.
    """

    def __init__(
        self,
        build: OpenBuild,
        encoder: Encoder,
        settings: ExplainSettings | None = None,
        *,
        cache: VectorCache | None = None,
    ) -> None:
        """See `from_parts`."""
        self.settings = settings or ExplainSettings()
        self.encoder = encoder
        self.cache = cache or VectorCache(self.settings.cache_mb * 2**20)
        self._build = build
        self._tables = Tables(build)
        self._embedder = QueryEmbedder(encoder, self.cache)
        self._assembler = Assembler(build, self._tables)
        self._explainer = Explainer(build, self._tables, self._embedder, self.settings)

    @classmethod
    def open(
        cls,
        run: Path,
        *,
        model: str | None = None,
        device: str = "auto",
        build_id: str | None = None,
        settings: ExplainSettings | None = None,
    ) -> ABSearcher:
        """Open a build of a run directory.

        Args:
            run: the run directory.
            model: where the model's files are now, if they have moved since; they must be the same files.
            device: where texts are embedded.
            build_id: which build; by default the current one.
            settings: of the explanations; by default the run's.

        Raises:
            UsageError: nothing has been indexed there yet.
            DataError: the model's files are not those that the index was made with.
            InvalidIndexError: the build is damaged.
            NoBuildError: there is no build of that name.
        """
        build = open_run_build(run, build_id)
        encoder = query_encoder(build, model=model, device=device)
        return cls(build, encoder, settings or explain_settings(run))

    @classmethod
    def from_parts(
        cls,
        build: OpenBuild,
        encoder: Encoder,
        settings: ExplainSettings | None = None,
        *,
        cache: VectorCache | None = None,
    ) -> ABSearcher:
        """Put a searcher together from its parts.

        Args:
            build: the build.
            encoder: the model that made it, with any arms; several searchers may share it.
            settings: of the explanations; by default the defaults.
            cache: vectors of sentences, shared by searchers with the same encoder; by default a new one.
        """
        return cls(build, encoder, settings, cache=cache)

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

    def document(self, doc_id: str) -> StoredDocument:
        """One document, whole.

        Raises:
            DataError: the build has no such document.
        """
        return self._tables.document(doc_id)

    def gold_position(self, gold: GoldSpan) -> float:
        """Where in its chunk the middle of a known answer stands: 0 is the beginning, 1 the end.

        Raises:
            DataError: the build has no such document, or no chunk at that place.
        """
        chunk = chunk_with_gold(self._tables, gold.doc_id, [gold])
        return ((max(gold.start, chunk.start) + min(gold.end, chunk.end)) / 2 - chunk.start) / len(chunk.text)

    def encode(self, queries: Sequence[str]) -> list[EncodedQuery]:
        """Embed questions in one batch.

        Raises:
            UsageError: an empty question.
        """
        return self._embedder.queries(queries)

    def search(
        self,
        query: str | EncodedQuery,
        *,
        k: int = 10,
        depth: int = 100,
        other: str | None = None,
        explain: bool = True,
        gold: Sequence[GoldSpan] | None = None,
        allowed: RowFilter | None = None,
    ) -> ABResult:
        """Rank the documents in the reference arm and in another one, compare, and explain what moved.

        Args:
            query: in words, or encoded before.
            k: documents to report from each arm.
            depth: how deep ranks are looked up; at least k + 1 is used.
            other: the arm to compare with the reference (the first arm); by default the second.
            explain: find evidence and reasons; without it nothing but the query is embedded.
            gold: where the answer stands in some documents; replaces the estimate there.
            allowed: the rows that may be found.

        Raises:
            UsageError: an empty query, k or depth below 1, or an unknown arm.
            DataError: gold spans that do not fit the build.
        """
        others = None if other is None else [other]
        result = self.search_arms(
            query,
            k=k,
            depth=depth,
            others=others or self.arms[1:2],
            explain=explain,
            gold=gold,
            allowed=allowed,
        )
        return result.comparisons[0]

    def search_arms(
        self,
        query: str | EncodedQuery,
        *,
        k: int = 10,
        depth: int = 100,
        others: Sequence[str] | None = None,
        explain: bool = True,
        gold: Sequence[GoldSpan] | None = None,
        allowed: RowFilter | None = None,
    ) -> ArmsResult:
        """Compare the reference with several arms, by default all; each query and window is embedded once.

        The other arguments and errors are those of `search`.
        """
        others = self._others(others)
        _check_counts(k=k, depth=depth)
        known = checked_gold(gold, self._tables)
        encoded = self._encoded(query)
        seconds = {"encode": encoded.seconds}
        depth = max(depth, k + 1)
        with _timed(seconds, "search"):
            rankings = {arm: self._ranking(arm, encoded, depth, allowed) for arm in (self.arms[0], *others)}
            asked = [Asked.of(arm, k, rankings[self.arms[0]], rankings[arm]) for arm in others]
        findings: Sequence[Findings | None] = [None] * len(asked)
        if explain:
            with _timed(seconds, "explain"):
                findings = self._explainer.explain(encoded, asked, known)
        return ArmsResult(
            tuple(
                self._assembler.comparison(encoded, one, found, depth=depth, seconds=seconds)
                for one, found in zip(asked, findings, strict=True)
            )
        )

    def rank(
        self, query: str | EncodedQuery, *, arm: str, k: int = 10, allowed: RowFilter | None = None
    ) -> ArmResult:
        """Ask one arm alone.

        Raises:
            UsageError: an empty query, k below 1, or an unknown arm.
        """
        if arm not in self.arms:
            raise UsageError(f"no arm {arm!r}; there are {', '.join(self.arms)}")
        _check_counts(k=k)
        encoded = self._encoded(query)
        seconds = {"encode": encoded.seconds}
        with _timed(seconds, "search"):
            ranking = self._ranking(arm, encoded, k, allowed)
        return self._assembler.ranked(encoded, ranking, arm=arm, k=k, seconds=seconds)

    def _others(self, others: Sequence[str] | None) -> tuple[str, ...]:
        if len(self.arms) < 2:
            raise UsageError(
                f"the build has one arm only ({self.arms[0]}); configure a second one to compare with"
            )
        chosen = tuple(dict.fromkeys(self.arms[1:] if others is None else others))
        unknown = [arm for arm in chosen if arm not in self.arms[1:]]
        if unknown or not chosen:
            raise UsageError(
                f"no arm {', '.join(map(repr, unknown))} to compare {self.arms[0]!r} with; there are "
                f"{', '.join(self.arms[1:])}"
            )
        return tuple(arm for arm in self.arms if arm in chosen)

    def _encoded(self, query: str | EncodedQuery) -> EncodedQuery:
        return query if isinstance(query, EncodedQuery) else self._embedder.queries([query])[0]

    def _ranking(self, arm: str, query: EncodedQuery, depth: int, allowed: RowFilter | None) -> Ranking:
        return rank_documents(self._build.arms[arm], self._build.rows, query.vector, depth, allowed=allowed)


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise UsageError(f"{name} = {value}: at least 1 document is needed")


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Note the wall time of a block under a name."""
    started = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started
