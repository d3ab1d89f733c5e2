"""The endpoints for programs: check, ask the service, answer in JSON with the build's id."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from pipeline.serving.builds import ServedBuild
from pipeline.serving.problems import RESPONSES, ProblemBody
from pipeline.serving.schema import (
    BatchAnswer,
    BatchRequest,
    BuildsAnswer,
    DocumentAnswer,
    EmbedAnswer,
    EmbedRequest,
    Health,
    QueryAnswer,
    QueryRequest,
    Readiness,
)
from pipeline.serving.service import Answer, Embedded, SearchService

_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": Readiness, "description": "Shutting down: send requests elsewhere."}
}
_NO_DOCUMENT: dict[int | str, dict[str, Any]] = {
    404: {"model": ProblemBody, "description": "The build has no such document."}
}
_GET_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: RESPONSES[status] for status in (401, 413, 422, 429, 500, 504)
}


class JSONAnswer(Response):
    """Strict JSON from plain values."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Write it; a number that is not finite would be a fault of ours."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")


def api_routes(service: SearchService) -> APIRouter:
    """The endpoints over one service."""
    router = APIRouter()
    _add_queries(router, service)
    _add_lookups(router, service)
    _add_operations(router, service)
    return router


def _add_queries(router: APIRouter, service: SearchService) -> None:
    @router.post("/v1/query", response_model=QueryAnswer, responses=RESPONSES, summary="Ask one question")
    async def query(request: Request, asked: QueryRequest) -> Response:
        """Compare arms with the reference arm, or, with `arm`, search by that arm alone."""
        answer = await service.query(asked.query, asked)
        _note(request, service, [asked.query], build_id=answer.build_id, seconds_by_step=answer.seconds)
        return JSONAnswer(answer_json(answer))

    @router.post(
        "/v1/query/batch", response_model=BatchAnswer, responses=RESPONSES, summary="Ask several questions"
    )
    async def batch(request: Request, asked: BatchRequest) -> Response:
        """Ask several questions in the same way; one build answers them all."""
        answers = await service.batch(asked.queries, asked)
        build_id = answers[0].build_id
        _note(request, service, asked.queries, build_id=build_id)
        return JSONAnswer({"build_id": build_id, "answers": [answer_json(answer) for answer in answers]})

    @router.post(
        "/v1/embed", response_model=EmbedAnswer, responses=RESPONSES, summary="Embed texts as an arm does"
    )
    async def embed(request: Request, asked: EmbedRequest) -> Response:
        """Take the request of OpenAI's embeddings endpoint; `model` is the name of an arm."""
        embedded = await service.embed(asked)
        _note(request, service, [], build_id=embedded.build_id, n_texts=len(asked.texts))
        return JSONAnswer(_embed_json(asked, embedded))


def _add_lookups(router: APIRouter, service: SearchService) -> None:
    @router.get(
        "/v1/documents/{doc_id:path}",
        response_model=DocumentAnswer,
        responses={**_GET_RESPONSES, **_NO_DOCUMENT},
        summary="Get one document",
    )
    async def document(request: Request, doc_id: str) -> Response:
        """Get a document whole, by its id; slashes in it may stand as they are or percent-encoded."""
        build_id, found = await service.document(doc_id)
        _note(request, service, [], build_id=build_id)
        return JSONAnswer({"build_id": build_id, "document": asdict(found)})

    @router.get(
        "/v1/builds", response_model=BuildsAnswer, responses=_GET_RESPONSES, summary="See what serves"
    )
    async def builds(request: Request) -> Response:
        """Describe the build that serves, and list the others."""
        with service.builds.lease() as served:
            current = _describe(served, await service.metadata_fields(served))
        _note(request, service, [], build_id=served.build_id)
        available = list(service.builds.build_ids())
        return JSONAnswer({"current": current, "available": available, "failed": _failed(service)})


def _add_operations(router: APIRouter, service: SearchService) -> None:
    @router.get("/healthz", response_model=Health, summary="Does the process live?")
    async def healthz() -> Response:
        """Answer as long as the process does."""
        return JSONAnswer({"status": "ok"})

    @router.get("/readyz", response_model=Readiness, responses=_NOT_READY, summary="May requests come?")
    async def readyz() -> Response:
        """Say which build serves, and fail while shutting down."""
        draining = service.is_draining
        state = {
            "status": "draining" if draining else "ready",
            "build_id": service.builds.current.build_id,
            "failed": _failed(service),
        }
        return JSONAnswer(state, 503 if draining else 200)

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **{status: _GET_RESPONSES[status] for status in (401, 500)},
        },
        summary="Metrics for Prometheus",
    )
    async def metrics() -> Response:
        """Give all metrics in Prometheus' text format."""
        return Response(service.metrics.text(), media_type=service.metrics.content_type)


def answer_json(answer: Answer) -> dict[str, Any]:
    """One answer as plain values."""
    return {
        "build_id": answer.build_id,
        "ranking": asdict(answer.ranking) if answer.ranking is not None else None,
        "comparisons": [result.as_json() for result in answer.comparisons],
    }


def _describe(served: ServedBuild, metadata_fields: Sequence[str]) -> dict[str, Any]:
    """What a client may want to know about a build."""
    application, manifest = served.application, served.manifest
    return {
        "build_id": served.build_id,
        "arms": application["arms"],
        "model": application["model"],
        "model_fingerprint": application["model_fingerprint"],
        "fingerprint": application["fingerprint"],
        "source": application["source"],
        "n_documents": served.searcher.n_documents,
        "n_chunks": manifest.n_rows,
        "dimension": manifest.dim,
        "metadata_fields": list(metadata_fields),
    }


def _embed_json(asked: EmbedRequest, embedded: Embedded) -> dict[str, Any]:
    is_base64 = asked.encoding_format == "base64"
    vectors = [
        base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") if is_base64 else vector.tolist()
        for vector in embedded.vectors
    ]
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ],
        "model": asked.model,
        "usage": {"prompt_tokens": embedded.n_tokens, "total_tokens": embedded.n_tokens},
        "build_id": embedded.build_id,
    }


def _failed(service: SearchService) -> dict[str, str] | None:
    failed = service.builds.failed
    return None if failed is None else {"build_id": failed.build_id, "error": failed.error}


def _note(request: Request, service: SearchService, queries: Sequence[str], **notes: Any) -> None:
    """Add to the request's line in the log; the queries' text only where that is wanted."""
    if service.settings.log_queries and queries:
        notes["queries"] = list(queries)
    request.state.log.update(notes)
