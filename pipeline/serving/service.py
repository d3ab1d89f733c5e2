"""Answers questions: leases a build, embeds in batches, searches and explains on threads, within limits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.ab.embedder import EncodedQuery
from pipeline.ab.lookup import StoredDocument
from pipeline.ab.results import ABResult, ArmResult
from pipeline.config import ServeSettings
from pipeline.encoders.encoder import Vectors
from pipeline.errors import DataError
from pipeline.serving.admission import Admission
from pipeline.serving.builds import BuildKeeper, ServedBuild
from pipeline.serving.metrics import Metrics
from pipeline.serving.problems import Problem
from pipeline.serving.schema import Asking, EmbedRequest
from pipeline.serving.work import Pool, few_at_a_time, within

# Questions of one batch that are at work at once; those of other clients come in between.
_BATCH_WIDTH = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question got: the ranking of one arm, or comparisons with the reference."""

    build_id: str
    ranking: ArmResult | None = None
    comparisons: tuple[ABResult, ...] = ()

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time by step; of encode the question's share of its batch."""
        return self.ranking.seconds if self.ranking is not None else self.comparisons[0].seconds


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Texts as one arm embeds them: `vectors` is (n, dimension)."""

    build_id: str
    vectors: Vectors
    n_tokens: int


class SearchService:
    """Everything that the endpoints and the page ask. Its coroutines belong to one event loop."""

    def __init__(
        self, run: Path, settings: ServeSettings, *, model: str | None = None, device: str = "auto"
    ) -> None:
        """Open the current build of a run; the arguments and errors are those of `BuildKeeper`."""
        self.settings = settings
        self.metrics = Metrics()
        self.is_draining = False
        self._requests = Admission("requests", settings.max_queue, self.metrics)
        # Slow work has queues and threads of its own: what fills them leaves plain searches alone.
        self._explanations = Admission("explanations", settings.max_explain_queue, self.metrics)
        self._embeddings = Admission("embeddings", settings.max_explain_queue, self.metrics)
        pool = partial(Pool, timeout_seconds=settings.timeout_seconds)
        self._searching = pool("search", settings.search_threads)
        self._explaining = pool("explain", settings.explain_threads)
        self._embedding = pool("embed", settings.explain_threads)
        self.builds = BuildKeeper(
            run,
            settings,
            self.metrics,
            n_under_way=lambda: self._requests.n_admitted,
            model=model,
            device=device,
        )

    async def query(self, question: str, asking: Asking) -> Answer:
        """Answer one question.

        Raises:
            Problem: it does not fit, asks for too much, or the service cannot answer in time.
        """
        with self._leased(asking) as served:
            return await self._answer(served, asking, question)

    async def batch(self, questions: Sequence[str], asking: Asking) -> list[Answer]:
        """Answer several questions by one build, a few at a time.

        Raises:
            Problem: as for one question; one that fails fails the batch.
        """
        self._check_number(len(questions), "queries")
        with self._leased(asking) as served:
            jobs = [partial(self._answer, served, asking, question) for question in questions]
            return await few_at_a_time(jobs, 1 if asking.is_explained else _BATCH_WIDTH)

    async def embed(self, request: EmbedRequest) -> Embedded:
        """Embed texts as one arm does.

        Raises:
            Problem: an unknown arm, too many texts, or one that is longer than the model takes.
        """
        self._check_number(len(request.texts), "input")
        with self._requests.admit(), self._embeddings.admit(), self.builds.lease() as served:
            check_arms(served, [request.model])
            started = time.perf_counter()
            embedded = await self._embedding.run(partial(_embed, served, request))
            self.metrics.observe_steps({"embed": time.perf_counter() - started})
            return embedded

    async def document(self, doc_id: str) -> tuple[str, StoredDocument]:
        """One document, and the build that it is from.

        Raises:
            Problem: there is no such document (404).
        """
        with self._requests.admit(), self.builds.lease() as served:
            return served.build_id, await self._searching.run(partial(_document, served, doc_id))

    async def comparison(
        self, served: ServedBuild, question: str, asking: Asking
    ) -> tuple[Answer, dict[str, StoredDocument]]:
        """Answer one question by a build that is leased, with the documents that the comparisons name.

        Raises:
            Problem: as for `query`.
        """
        with self._admitted(served, asking):
            answer = await self._answer(served, asking, question)
            named = {document.doc_id for result in answer.comparisons for document in result.documents}

            def documents() -> dict[str, StoredDocument]:
                return {doc_id: served.searcher.document(doc_id) for doc_id in named}

            return answer, await self._searching.run(documents)

    async def metadata_fields(self, served: ServedBuild) -> tuple[str, ...]:
        """The fields that filters can name; the first call reads the metadata of a build."""
        return await self._searching.run(lambda: served.filters.fields)

    def close(self) -> None:
        """End the threads when what they are at is done."""
        for pool in (self._searching, self._explaining, self._embedding):
            pool.close()
        self.builds.close()

    @contextmanager
    def _leased(self, asking: Asking) -> Iterator[ServedBuild]:
        """Hold the build that serves now, and a place in the queue."""
        with self.builds.lease() as served, self._admitted(served, asking):
            yield served

    @contextmanager
    def _admitted(self, served: ServedBuild, asking: Asking) -> Iterator[None]:
        """Check what is asked, and hold a place in the queue, and one among the explanations."""
        self._check_limits(asking)
        check_arms(served, [arm for arm in (asking.arm, *(asking.arms or ())) if arm is not None])
        explaining = self._explanations.admit() if asking.is_explained else nullcontext()
        with self._requests.admit(), explaining:
            yield

    async def _answer(self, served: ServedBuild, asking: Asking, question: str) -> Answer:
        timeout = self.settings.timeout_seconds
        started = time.monotonic()
        until = started + timeout
        encoding = served.batcher.submit(question, self._count_tokens(served, question))
        encoded = await within(encoding, until, timeout_seconds=timeout)
        waited = max(0.0, time.monotonic() - started - encoded.batch_seconds)
        pool = self._explaining if asking.is_explained else self._searching
        answer = await pool.run(partial(_search, served, asking, encoded), until=until)
        # Who asks waits for the whole batch, not for a share of it.
        felt = {"wait": waited, "encode": encoded.batch_seconds}
        self.metrics.observe_steps(answer.seconds | felt)
        return answer

    def _count_tokens(self, served: ServedBuild, question: str) -> int:
        n_tokens = served.model.encoder.count_query_tokens(question)
        limit = self.settings.max_query_tokens
        if n_tokens > limit:
            raise Problem(
                422, "query_too_long", f"the query has {n_tokens} tokens; at most {limit} are taken"
            )
        return n_tokens

    def _check_limits(self, asking: Asking) -> None:
        limits = {"k": (asking.k, self.settings.max_k), "depth": (asking.depth, self.settings.max_depth)}
        for name, (value, limit) in limits.items():
            if value > limit:
                raise Problem(422, "too_much", f"{name} = {value}; at most {limit} is answered")

    def _check_number(self, number: int, name: str) -> None:
        limit = self.settings.max_batch
        if number > limit:
            raise Problem(422, "too_much", f"{name}: {number} texts; at most {limit} are taken at once")


def check_arms(served: ServedBuild, arms: Sequence[str]) -> None:
    """Refuse arms that the build does not have.

    Raises:
        Problem: by name (422).
    """
    known = served.searcher.arms
    if unknown := [arm for arm in arms if arm not in known]:
        raise Problem(422, "unknown_arm", f"no arm {unknown[0]!r}; there are {', '.join(known)}")


def _search(served: ServedBuild, asking: Asking, question: EncodedQuery) -> Answer:
    """Search one arm, or compare; on a thread."""
    searcher = served.searcher
    allowed = served.filters.allow(asking.conditions()) if asking.filters else None
    if asking.arm is not None:
        ranking = searcher.rank(question, arm=asking.arm, k=asking.k, allowed=allowed)
        return Answer(served.build_id, ranking=ranking)
    others = [arm for arm in asking.arms or searcher.arms[:2] if arm != searcher.arms[0]]
    result = searcher.search_arms(
        question, k=asking.k, depth=asking.depth, others=others, explain=asking.explain, allowed=allowed
    )
    return Answer(served.build_id, comparisons=result.comparisons)


def _embed(served: ServedBuild, request: EmbedRequest) -> Embedded:
    """Embed as documents, or plainly as queries; on a thread."""
    encoder = served.model.encoder
    if request.dimensions not in (None, encoder.dimension):
        message = f"dimensions = {request.dimensions}, but the model has {encoder.dimension}"
        raise Problem(422, "invalid_request", message)
    is_query = request.input_type == "query"
    prompt = encoder.query_prompt if is_query else encoder.document_prompt
    calibration = None if is_query else served.calibrations[request.model]
    encodings = encoder.tokenizer.encode_batch([prompt + text for text in request.texts])
    longest = max(map(len, encodings))
    if longest > encoder.max_length:
        message = f"a text has {longest} tokens; the model takes {encoder.max_length}"
        raise Problem(422, "text_too_long", message)
    vectors = encoder.encode(request.texts, {"asked": calibration}, prompt=prompt)["asked"]
    return Embedded(served.build_id, vectors, sum(map(len, encodings)))


def _document(served: ServedBuild, doc_id: str) -> StoredDocument:
    try:
        return served.searcher.document(doc_id)
    except DataError as error:
        raise Problem(404, "unknown_document", str(error)) from None
