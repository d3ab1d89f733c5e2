"""Load a model folder through sentence-transformers' own loader and read what decides its vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from pipeline.encoders.attention import ATTENTION_NAME
from pipeline.encoders.calibration import Pooling
from pipeline.encoders.gte import loadable
from pipeline.errors import DataError, UsageError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

_AFTER_POOLING = {"Dense", "Normalize", "LayerNorm", "Dropout"}
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A sentence-transformers model, taken apart.

    Attributes:
        transformer: the encoder or decoder.
        tokenizer: the fast tokenizer, without truncation and padding.
        pooling: which rows become the embedding.
        include_prompt: whether mean pooling counts the prompt's tokens.
        after_pooling: the modules behind the pooling (Dense, Normalize), in order.
        max_length: tokens that the model takes, special tokens and prompt included.
        query_prompt, document_prompt: what stands before each text.
        truncate_dim: leading dimensions that are kept, None for all.
        normalize: whether vectors are brought to unit length at the end.
    """

    transformer: PreTrainedModel
    tokenizer: Tokenizer
    pooling: Pooling
    include_prompt: bool
    after_pooling: tuple[nn.Module, ...]
    max_length: int
    query_prompt: str
    document_prompt: str
    truncate_dim: int | None
    normalize: bool


def load_model(
    folder: Path,
    *,
    device: str = "auto",
    dtype: str = "float32",
    max_length: int | None = None,
    truncate_dim: int | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a model folder; the keyword arguments override what stands in it.

    Raises:
        DataError: the folder is no usable model, or one that cannot be calibrated sensibly.
        UsageError: an override that the model cannot meet.
    """
    model = _sentence_transformer(folder, device, dtype, trust_remote_code)
    taken = take_apart(model, folder, max_length=max_length, truncate_dim=truncate_dim)
    return replace(
        taken,
        query_prompt=taken.query_prompt if query_prompt is None else query_prompt,
        document_prompt=taken.document_prompt if document_prompt is None else document_prompt,
    )


def take_apart(
    model: SentenceTransformer,
    folder: Path,
    *,
    max_length: int | None = None,
    truncate_dim: int | None = None,
) -> LoadedModel:
    """Read from a loaded model what decides its vectors; `folder` names it in messages.

    Raises:
        DataError: it has a part that is not supported, or cannot be calibrated sensibly.
        UsageError: an override that the model cannot meet.
    """
    modules = list(model)
    transformer = _transformer_of(modules[0], folder)
    pooling, include_prompt = _pooling_of(modules[1] if len(modules) > 1 else None, folder)
    usual, most = _limits(model, transformer)
    prompts = {name: prompt or "" for name, prompt in (model.prompts or {}).items()}
    return LoadedModel(
        transformer=transformer,
        tokenizer=_tokenizer_of(model, folder),
        pooling=pooling,
        include_prompt=include_prompt,
        after_pooling=_after_pooling(modules[2:], folder),
        max_length=_checked_length(max_length or usual, most, folder),
        query_prompt=prompts.get("query", ""),
        document_prompt=_document_prompt(prompts),
        truncate_dim=_checked_dim(truncate_dim or model.truncate_dim, model, folder),
        normalize=model.similarity_fn_name != "dot",
    )


def pick_device(device: str) -> str:
    """Resolve `auto` to CUDA where there is one, else the CPU.

    Raises:
        UsageError: torch does not know the device, or this machine does not have it.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"device = {device!r}: not usable on this machine ({reason}); choose 'auto' or 'cpu'"
        ) from error
    return device


def _sentence_transformer(
    folder: Path, device: str, dtype: str, trust_remote_code: bool
) -> SentenceTransformer:
    usable_device = pick_device(device)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with loadable(folder) as path:
            return SentenceTransformer(
                str(path),
                device=usable_device,
                trust_remote_code=trust_remote_code,
                model_kwargs={"attn_implementation": ATTENTION_NAME, "dtype": DTYPES[dtype]},
            ).eval()
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError) as error:
        raise DataError(f"model {folder}: cannot be loaded: {error}") from error


def _transformer_of(module: nn.Module, folder: Path) -> PreTrainedModel:
    transformer = getattr(module, "auto_model", None)
    if not isinstance(transformer, PreTrainedModel):
        raise DataError(
            f"model {folder}: its first module is {type(module).__name__}, expected a Transformer"
        )
    # T5 loads as its encoder already; other encoder-decoders have none that stands alone.
    if transformer.config.is_encoder_decoder and hasattr(transformer, "decoder"):
        raise DataError(
            f"model {folder}: an encoder with a decoder ({type(transformer).__name__}) is not supported"
        )
    return transformer


def _pooling_of(module: nn.Module | None, folder: Path) -> tuple[Pooling, bool]:
    if not isinstance(module, PoolingModule):
        kind = type(module).__name__ if module is not None else "nothing"
        raise DataError(f"model {folder}: its second module is {kind}, expected Pooling")
    try:
        pooling = Pooling(module.pooling_mode)
    except ValueError:
        known = ", ".join(mode.value for mode in Pooling)
        raise DataError(
            f"model {folder}: pooling {module.pooling_mode!r} cannot be calibrated sensibly; "
            f"supported are {known}"
        ) from None
    if pooling is Pooling.CLS and not module.include_prompt:
        raise DataError(
            f"model {folder}: CLS pooling without the prompt would pool an ordinary token; not supported"
        )
    return pooling, bool(module.include_prompt)


def _after_pooling(modules: list[nn.Module], folder: Path) -> tuple[nn.Module, ...]:
    for module in modules:
        if type(module).__name__ not in _AFTER_POOLING:
            raise DataError(
                f"model {folder}: module {type(module).__name__} behind the pooling is not supported; "
                f"supported are {', '.join(sorted(_AFTER_POOLING))}"
            )
    return tuple(modules)


def _tokenizer_of(model: SentenceTransformer, folder: Path) -> Tokenizer:
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise DataError(
            f"model {folder}: it has no fast tokenizer (tokenizer.json), which exact offsets need"
        )
    tokenizer = Tokenizer.from_str(backend.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _limits(model: SentenceTransformer, transformer: PreTrainedModel) -> tuple[int, int]:
    """The length that the folder asks for, and the most that the model has positions for.

    all-MiniLM-L6-v2, say, asks for 256 of its 512 positions; a user may want them all.
    """
    positions = getattr(transformer.config.get_text_config(), "max_position_embeddings", None)
    most = int(positions) - _first_position(transformer) if positions else int(model.max_seq_length or 0)
    asked = model.max_seq_length
    return min(int(asked), most) if asked else most, most


def _first_position(transformer: PreTrainedModel) -> int:
    """RoBERTa and its kin count positions from `padding_idx + 1`, all others from 0."""
    tables = [module for name, module in transformer.named_modules() if name.endswith("position_embeddings")]
    padded = [getattr(table, "padding_idx", None) for table in tables]
    return max((int(index) + 1 for index in padded if index is not None), default=0)


def _checked_length(asked: int, most: int, folder: Path) -> int:
    if asked > most:
        raise UsageError(
            f"max_length = {asked}: the model {folder} has {most} positions; choose at most {most}"
        )
    return asked


def _checked_dim(asked: int | None, model: SentenceTransformer, folder: Path) -> int | None:
    dimension = _full_dimension(model)
    if asked is not None and asked > dimension:
        raise UsageError(f"model.truncate_dim = {asked}: the model {folder.name} has {dimension} dimensions")
    return asked


def _full_dimension(model: SentenceTransformer) -> int:
    truncated, model.truncate_dim = model.truncate_dim, None
    dimension = model.get_embedding_dimension()
    model.truncate_dim = truncated
    return int(dimension or 0)


def _document_prompt(prompts: Mapping[str, str]) -> str:
    return next((prompts[name] for name in _DOCUMENT_PROMPTS if prompts.get(name)), "")
