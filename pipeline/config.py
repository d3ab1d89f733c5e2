"""Settings of a run: TOML in, validated values out.

The defaults here are those of `configs/default.toml` (a test compares them), so that the command works
without any file.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.errors import UsageError

SpecialTokenMass = Literal["equal", "original"] | float
LayerSelection = Literal["last", "all"] | float | int | list[int]
ContextKind = Literal["none", "title", "headings"]


class Settings(BaseModel):
    """Base of all sections: unknown keys are errors, values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class CorpusSettings(Settings):
    """Where the documents come from and which fields hold what."""

    source: str | list[str] = "python-docs"
    format: Literal["auto", "jsonl", "parquet", "folder", "dataset"] = "auto"
    id_field: str | None = None
    text_field: str | None = None
    title_field: str | None = None
    metadata_fields: list[str] = []
    split: str = "train"
    config_name: str | None = None
    encoding: str = "utf-8"
    bad_records: Literal["fail", "skip"] = "fail"


class ChunkSettings(Settings):
    """How documents are cut; sizes are tokens of the model's own tokenizer."""

    strategy: Literal["sentences", "markdown", "tokens"] = "sentences"
    max_tokens: int | None = Field(default=None, ge=1)
    overlap_tokens: int = Field(default=0, ge=0)
    context: ContextKind = "none"

    @model_validator(mode="after")
    def _overlap_leaves_room(self) -> ChunkSettings:
        if self.max_tokens is not None and self.overlap_tokens >= self.max_tokens:
            raise ValueError(
                f"overlap_tokens = {self.overlap_tokens} must be smaller than max_tokens = {self.max_tokens}"
            )
        return self


class ModelSettings(Settings):
    """The encoder: which weights, at which precision, and what overrides the model folder."""

    name: str = "all-MiniLM-L6-v2"
    revision: str | None = None
    trust_remote_code: bool = False
    max_length: int | None = Field(default=512, ge=1)
    truncate_dim: int | None = Field(default=None, ge=1)
    query_prompt: str | None = None
    document_prompt: str | None = None
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


class ArmSettings(Settings):
    """One arm: how its attention is calibrated; strength 0 is the plain model."""

    strength: float = Field(default=0.5, ge=0.0, le=1.0)
    basket_size: int = Field(default=128, ge=1)
    layers: LayerSelection = 0.5
    isolate_first: bool | None = None
    isolate_last: bool | None = None
    first_mass: SpecialTokenMass = "equal"
    last_mass: SpecialTokenMass = "equal"


class EmbedSettings(Settings):
    """How texts go through the encoder; nothing here changes a vector."""

    engine: Literal["local", "ray"] = "local"
    workers: int = Field(default=1, ge=1)
    device: str = "auto"
    tokens_per_batch: int = Field(default=8192, ge=1)
    shard_size: int = Field(default=256, ge=1)


class IndexSettings(Settings):
    """The FAISS index of each arm; the metric is always the inner product."""

    factory: str = "Flat"
    nprobe: int | None = Field(default=None, ge=1)
    ef_search: int | None = Field(default=None, ge=1)


class QuerySettings(Settings):
    """What an A/B report shows."""

    k: int = Field(default=10, ge=1)
    depth: int = Field(default=100, ge=1)


class EvaluateSettings(Settings):
    """What `evaluate` measures: on which labelled data, by which protocol, how surely."""

    data: str | None = None
    layout: Literal["auto", "posir", "squad", "fineweb", "beir", "trec"] = "auto"
    protocol: Literal["per-shift", "siblings"] = "per-shift"
    groups: Literal["auto", "thirds", "fifths", "twentieths"] = "auto"
    language: str | None = None
    corpus_language: str | None = None
    split: str | None = None
    k: int = Field(default=10, ge=1)
    sample: int | None = Field(default=None, ge=1)
    limit_documents: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    rounds: int = Field(default=10_000, ge=100)
    long_documents: Literal["refuse", "truncate", "chunk"] = "truncate"
    chunk_tokens: int | None = Field(default=None, ge=1)
    bm25: bool = True
    bad_records: Literal["fail", "skip"] = "fail"


class ExplainSettings(Settings):
    """How a moved document is explained; what the thresholds mean is written in pipeline/ab/verdict.py."""

    lexical_weight: float = Field(default=0.7, ge=0.0)
    sentences: int = Field(default=8, ge=0)
    late_from: float = Field(default=0.3, ge=0.0, le=1.0)
    least_shift: float = Field(default=0.01, ge=0.0)
    cache_mb: int = Field(default=64, ge=0)


class ServeSettings(Settings):
    """How `serve` answers, and what it refuses before any work is done."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65_535)
    examples: str | None = None
    max_body_kb: int = Field(default=1024, ge=1)
    max_query_tokens: int = Field(default=1024, ge=1)
    max_k: int = Field(default=100, ge=1)
    max_depth: int = Field(default=1000, ge=1)
    max_batch: int = Field(default=64, ge=1)
    max_queue: int = Field(default=64, ge=1)
    max_explain_queue: int = Field(default=16, ge=1)
    timeout_seconds: float = Field(default=30.0, gt=0.0)
    search_threads: int = Field(default=4, ge=1)
    explain_threads: int = Field(default=2, ge=1)
    encode_wait_ms: float = Field(default=2.0, ge=0.0)
    encode_tokens: int = Field(default=512, ge=1)
    poll_seconds: float = Field(default=1.0, gt=0.0)
    drain_seconds: float = Field(default=1.0, ge=0.0)
    log_queries: bool = False


def _default_arms() -> dict[str, ArmSettings]:
    return {"plain": ArmSettings(strength=0.0), "calibrated": ArmSettings()}


class Config(Settings):
    """A whole run. The first arm is the one that the others are compared with."""

    run: str = "runs/python-docs"
    corpus: CorpusSettings = CorpusSettings()
    chunk: ChunkSettings = ChunkSettings()
    model: ModelSettings = ModelSettings()
    arms: dict[str, ArmSettings] = Field(default_factory=_default_arms, min_length=1)
    embed: EmbedSettings = EmbedSettings()
    index: IndexSettings = IndexSettings()
    query: QuerySettings = QuerySettings()
    explain: ExplainSettings = ExplainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    serve: ServeSettings = ServeSettings()

    @field_validator("arms")
    @classmethod
    def _names_are_words(cls, arms: dict[str, ArmSettings]) -> dict[str, ArmSettings]:
        for name in arms:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
                raise ValueError(f"arm name {name!r}: use 1 to 64 letters, digits, '_', '-' or '.'")
        return arms


def load_config(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a TOML file and lay `overrides` (dotted keys, such as `chunk.max_tokens`) over it.

    Raises:
        UsageError: the file is missing or not TOML, a key is unknown (the nearest one is named), or a
            value does not fit.
    """
    values = _read_toml(path) if path is not None else {}
    if any(key.startswith("arms.") for key in overrides or {}):
        # An option changes one arm; it must not take the place of the arms that nobody mentioned.
        values.setdefault("arms", {name: arm.model_dump() for name, arm in _default_arms().items()})
    for dotted, value in (overrides or {}).items():
        _refuse_mistyped_arm(dotted, list(values.get("arms", {})))
        _set(values, dotted, value)
    where = str(path) if path is not None else "the options"
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UsageError(_explain(error, where)) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such configuration file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the configuration cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error


def _set(values: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise UsageError(f"{dotted}: {parent!r} is a value, not a section")
    values[last] = value


def _refuse_mistyped_arm(dotted: str, arms: Sequence[str]) -> None:
    """Refuse an option for an arm that is there but for a typing error; another number is another arm."""
    section, _, rest = dotted.partition(".")
    name = rest.partition(".")[0]
    if section != "arms" or name in arms:
        return
    close = difflib.get_close_matches(name, arms, n=1, cutoff=0.8)
    if close and _letters(close[0]) != _letters(name):
        raise UsageError(
            f"{dotted}: no arm {name!r}; did you mean {close[0]!r}? For a further arm of that name, write "
            f"[arms.{name}] into a configuration file"
        )


def _letters(name: str) -> str:
    return re.sub(r"[\d._-]+", "", name)


def _explain(error: ValidationError, where: str) -> str:
    lines = [f"{where}: the configuration does not fit:"]
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(f"  {key}: unknown key{_nearest(problem['loc'])}")
        else:
            lines.append(
                f"  {key}: {problem['msg'].removeprefix('Value error, ')} (got {problem['input']!r})"
            )
    return "\n".join(lines)


def _nearest(location: tuple[int | str, ...]) -> str:
    """Name the known key closest to the unknown one, searching its own section first."""
    fields = _fields_at(location[:-1])
    close = difflib.get_close_matches(str(location[-1]), fields, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys: {', '.join(fields)}"


def _fields_at(section: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Config
    for part in section:
        if model is Config and part == "arms":
            return list(ArmSettings.model_fields)
        annotation = model.model_fields[str(part)].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return list(model.model_fields)
