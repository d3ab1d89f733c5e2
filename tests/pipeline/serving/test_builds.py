"""Builds come and go while questions are asked: in this process, step by step."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indexes import BuildStore
from pipeline.ab.embedder import EncodedQuery
from pipeline.config import ServeSettings
from pipeline.serving.problems import Problem
from pipeline.serving.schema import Asking, QueryRequest
from pipeline.serving.service import SearchService
from tests.conftest import save_tiny_model
from tests.pipeline.serving.servers import documents, index

QUERY = "the answer is blue"
Test = Callable[[SearchService], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    run = tmp_path_factory.mktemp("first") / "run"
    index(run, model, documents(0))
    return run


@pytest.fixture
def changing(first: Path, tmp_path: Path) -> Path:
    """A run of its own, to be changed."""
    return Path(shutil.copytree(first, tmp_path / "run"))


def serve(run: Path, test: Test, *, model: str | None = None, **settings: Any) -> None:
    async def run_test() -> None:
        service = SearchService(run, ServeSettings(**settings), model=model, device="cpu")
        try:
            await test(service)
        finally:
            service.close()

    asyncio.run(run_test())


async def generation(service: SearchService) -> str:
    answer = await service.query(QUERY, Asking(k=3))
    (found,) = {document.doc_id[:2] for document in answer.comparisons[0].documents}
    assert answer.build_id == service.builds.current.build_id
    return found


def test_a_new_build_is_taken_with_the_same_encoder(changing: Path, model: Path) -> None:
    async def test(service: SearchService) -> None:
        encoder, cache = service.builds.current.model.encoder, service.builds.current.searcher.cache
        assert await generation(service) == "g0"
        second = index(changing, model, documents(1))
        assert await generation(service) == "g0"
        await service.builds.refresh()
        assert await generation(service) == "g1"
        assert service.builds.current.build_id == second
        assert service.builds.current.model.encoder is encoder
        assert service.builds.current.searcher.cache is cache

    serve(changing, test)


def test_a_request_keeps_its_build_to_the_end_even_if_it_is_pruned(changing: Path, model: Path) -> None:
    async def test(service: SearchService) -> None:
        with service.builds.lease() as old:
            index(changing, model, documents(1))
            await service.builds.refresh()
            assert BuildStore(changing).prune(1) == (old.build_id,)
            assert old.searcher.search(QUERY, k=3).documents[0].doc_id.startswith("g0")
            assert old.searcher.document("g0-03").text
            assert old.filters.fields == ("year", "lang")
            answer = await service._answer(old, Asking(filters={"year": 2003}), QUERY)
            assert answer.build_id == old.build_id

    serve(changing, test)


def test_a_build_of_another_model_brings_its_encoder(changing: Path, tmp_path: Path) -> None:
    other = save_tiny_model(tmp_path / "other", seed=8, width=64)

    async def test(service: SearchService) -> None:
        old = service.builds.current
        with service.builds.lease():
            index(changing, other, documents(1))
            await service.builds.refresh()
            assert service.builds.current.model.encoder.dimension == 64
            assert await generation(service) == "g1"
            # The old one still embeds for the request that holds it.
            assert (await service._answer(old, Asking(), QUERY)).build_id == old.build_id
        old.model.encoder.thread._thread.join(10)
        assert not old.model.encoder.thread._thread.is_alive()
        assert await generation(service) == "g1"

    serve(changing, test)


def test_a_model_that_an_older_build_is_asked_with_embeds_to_the_end(
    changing: Path, model: Path, tmp_path: Path
) -> None:
    other = save_tiny_model(tmp_path / "other", seed=8, width=64)

    async def test(service: SearchService) -> None:
        old = service.builds.current
        thread = old.model.encoder.thread._thread
        with service.builds.lease():
            index(changing, model, documents(1))
            await service.builds.refresh()
            assert service.builds.current.model is old.model
            index(changing, other, documents(2))
            await service.builds.refresh()
            assert service.builds.current.model is not old.model
            answer = await service._answer(old, Asking(), QUERY)
            assert answer.comparisons[0].documents[0].doc_id.startswith("g0")
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()

    serve(changing, test, timeout_seconds=10)


def test_a_build_of_another_model_is_taken_though_the_first_one_had_moved(
    changing: Path, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moved = Path(shutil.copytree(model, tmp_path / "moved"))
    other = save_tiny_model(tmp_path / "other", seed=8, width=64)

    async def test(service: SearchService) -> None:
        assert await generation(service) == "g0"
        assert not caplog.records
        new = index(changing, other, documents(1))
        await service.builds.refresh()
        assert await generation(service) == "g1"
        (warning,) = (record for record in caplog.records if record.levelname == "WARNING")
        assert warning.message == f"--model {moved} does not fit build {new}; using {other}"
        # With neither at hand, it is said what is wrong with the one that was named.
        index(changing, save_tiny_model(tmp_path / "third", seed=9), documents(2))
        shutil.rmtree(tmp_path / "third")
        await service.builds.refresh()
        assert service.builds.failed is not None
        assert f"but {moved} holds" in service.builds.failed.error
        assert await generation(service) == "g1"

    serve(changing, test, model=str(moved))


def test_a_query_is_measured_as_it_was_felt_however_many_were_embedded_with_it(first: Path) -> None:
    async def test(service: SearchService) -> None:
        served = service.builds.current
        embed = served.batcher._encode

        def slowly(texts: Sequence[str]) -> list[EncodedQuery]:
            time.sleep(0.4)
            one = embed(texts)
            assert len(one) == 4
            return [replace(query, seconds=0.1, batch_seconds=0.4) for query in one]

        served.batcher._encode = slowly
        asked = [service.query(f"{QUERY} {i}", Asking(arm="plain")) for i in range(4)]
        answers = await asyncio.gather(*asked)
        assert [answer.seconds["encode"] for answer in answers] == [0.1] * 4
        steps = {
            line.split('"')[1]: float(line.split()[-1])
            for line in service.metrics.text().decode().splitlines()
            if line.startswith("lastpage_step_seconds_sum")
        }
        assert steps["encode"] == pytest.approx(4 * 0.4)
        assert steps["wait"] < 4 * 0.2

    serve(first, test, encode_wait_ms=1000)


def test_a_build_that_cannot_be_opened_leaves_the_old_one(changing: Path, model: Path) -> None:
    async def test(service: SearchService) -> None:
        old = service.builds.current.build_id
        new = index(changing, model, documents(1))
        rows = changing / "builds" / new / "rows.parquet"
        kept = rows.read_bytes()
        rows.write_bytes(kept[:100])
        for _ in range(3):
            await service.builds.refresh()
        assert await generation(service) == "g0"
        assert service.builds.failed is not None
        assert service.builds.failed.build_id == new
        assert "rows.parquet" in service.builds.failed.error
        assert b"lastpage_builds_failed_total 1.0" in service.metrics.text()
        BuildStore(changing).rollback(old)
        await service.builds.refresh()
        assert service.builds.failed is None

    serve(changing, test)


def test_a_damaged_pointer_is_reported_once_and_mends(changing: Path) -> None:
    async def test(service: SearchService) -> None:
        pointer = changing / "current"
        good = pointer.read_text()
        pointer.write_text("nonsense")
        for _ in range(3):
            await service.builds.refresh()
        assert service.builds.failed is not None
        assert b"lastpage_builds_failed_total 1.0" in service.metrics.text()
        assert await generation(service) == "g0"
        pointer.write_text(good)
        await service.builds.refresh()
        assert service.builds.failed is None

    serve(changing, test)


def test_a_query_that_takes_too_long_is_given_up(first: Path) -> None:
    async def test(service: SearchService) -> None:
        with pytest.raises(Problem) as raised:
            await service.query(QUERY, Asking())
        assert (raised.value.status, raised.value.code) == (504, "timeout")

    serve(first, test, timeout_seconds=1e-6)


def test_a_full_queue_refuses_and_recovers(first: Path) -> None:
    async def test(service: SearchService) -> None:
        asked = [service.query(QUERY, QueryRequest(query=QUERY, explain=i % 2 == 0)) for i in range(8)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        refused = [result for result in results if isinstance(result, Problem)]
        # The first explanation and three plain ones are let in; then there is no place for anyone.
        assert len(refused) == 4
        for problem in refused:
            assert (problem.status, problem.code) == (429, "queue_full")
            assert problem.headers == {"Retry-After": "1"}
        assert await generation(service) == "g0"
        text = service.metrics.text()
        assert b'lastpage_refused_total{kind="explanations"} 2.0' in text
        assert b'lastpage_refused_total{kind="requests"} 2.0' in text

    serve(first, test, max_queue=4, max_explain_queue=1)
