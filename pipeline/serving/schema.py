"""What clients send and get, as OpenAPI shows it. The parts of an answer are those of `pipeline.ab`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from pipeline.ab.filters import Condition, InRange, OneOf
from pipeline.ab.lookup import StoredDocument
from pipeline.ab.results import ABResult, ArmResult

# Far above any question; what a model reads of it is limited in tokens.
MAX_QUERY_CHARACTERS = 8192

Text = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, pattern=r"\S")]
Scalar = bool | int | FiniteFloat | str


class Request(BaseModel):
    """Base of what clients send: nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Range(Request):
    """Numbers between bounds, each of which may be left out."""

    gt: FiniteFloat | None = Field(default=None, description="Greater than.")
    gte: FiniteFloat | None = Field(default=None, description="At least.")
    lt: FiniteFloat | None = Field(default=None, description="Less than.")
    lte: FiniteFloat | None = Field(default=None, description="At most.")

    def condition(self) -> Condition:
        """The same for the searcher."""
        return InRange(self.gt, self.gte, self.lt, self.lte)


class Asking(Request):
    """How to ask: the settings of one query or of a batch."""

    k: int = Field(default=10, ge=1, description="Documents to report from each arm.")
    depth: int = Field(default=100, ge=1, description="How deep ranks are looked up in a comparison.")
    arm: str | None = Field(
        default=None,
        description="Ask this arm alone: one search, no comparison. Cannot stand together with `arms`.",
    )
    arms: list[str] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Compare these arms with the reference arm, the build's first. By default its second.",
    )
    filters: dict[str, Scalar | list[Scalar] | Range] = Field(
        default={},
        max_length=16,
        description="Metadata conditions, all of which must hold: a value, a list of values, or a range.",
    )
    explain: bool = Field(
        default=True, description="Find the evidence, and why documents moved. Not with `arm`."
    )

    @model_validator(mode="after")
    def _one_way_to_ask(self) -> Asking:
        if self.arm is not None and self.arms is not None:
            raise ValueError("give either arm (one arm alone) or arms (a comparison)")
        return self

    @property
    def is_explained(self) -> bool:
        """Whether anything is explained; one arm alone moves nothing."""
        return self.explain and self.arm is None

    def conditions(self) -> dict[str, Condition]:
        """The filters for the searcher."""
        return {name: _condition(value) for name, value in self.filters.items()}


class QueryRequest(Asking):
    """One question."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query": "When is the finally clause of a generator executed?", "k": 5},
                {"query": "When is the finally clause executed?", "arm": "calibrated", "k": 5},
            ]
        }
    )

    query: Text


class BatchRequest(Asking):
    """Several questions, asked in the same way."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"queries": ["When does finally run?", "What is a slice?"], "arm": "calibrated", "k": 3}
            ]
        }
    )

    queries: list[Text] = Field(min_length=1)
    explain: bool = Field(default=False, description="As for one query, but off by default.")


class EmbedRequest(Request):
    """The request of OpenAI's embeddings endpoint; `model` names an arm."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "calibrated", "input": "A text to embed."}]}
    )

    model: str = Field(description="The arm.")
    input: Text | Annotated[list[Text], Field(min_length=1)] = Field(description="A text, or several.")
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="Numbers, or base64 of little-endian float32."
    )
    dimensions: int | None = Field(default=None, ge=1, description="If given, must be the model's.")
    input_type: Literal["document", "query"] = Field(
        default="document", description="An extension: queries have another prompt and are never calibrated."
    )
    user: str | None = Field(default=None, description="Accepted and not used.")

    @property
    def texts(self) -> list[str]:
        """The texts, even if it is one."""
        return [self.input] if isinstance(self.input, str) else self.input


class QueryAnswer(BaseModel):
    """The answer to one question, from one build."""

    build_id: str
    ranking: ArmResult | None = Field(description="Of one arm alone, if `arm` was asked.")
    comparisons: list[ABResult] = Field(description="With the reference arm, one for each other arm.")


class BatchAnswer(BaseModel):
    """The answers in the order of the questions, all from one build."""

    build_id: str
    answers: list[QueryAnswer]


class Embedding(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that were embedded, special tokens and prompt included."""

    prompt_tokens: int
    total_tokens: int


class EmbedAnswer(BaseModel):
    """The answer of OpenAI's embeddings endpoint, and the build whose arm it was."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage
    build_id: str


class DocumentAnswer(BaseModel):
    """One document, whole, as the build stores it."""

    build_id: str
    document: StoredDocument


class BuildState(BaseModel):
    """The build that serves."""

    build_id: str
    arms: dict[str, dict[str, Any]]
    model: dict[str, Any]
    model_fingerprint: str
    fingerprint: str = Field(description="Of everything that decided the build.")
    source: str
    n_documents: int
    n_chunks: int
    dimension: int
    metadata_fields: list[str]


class FailedState(BaseModel):
    """A newer build that could not be taken into service."""

    build_id: str
    error: str


class BuildsAnswer(BaseModel):
    """The build that serves, and which others there are, oldest first."""

    current: BuildState
    available: list[str]
    failed: FailedState | None


class Health(BaseModel):
    """The process lives."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether requests should be sent here."""

    status: Literal["ready", "draining"]
    build_id: str
    failed: FailedState | None = Field(description="Why a newer build does not serve.")


def _condition(value: Scalar | list[Scalar] | Range) -> Condition:
    if isinstance(value, Range):
        return value.condition()
    return OneOf(tuple(value) if isinstance(value, list) else (value,))
