"""Calibrated `encode` for somebody who has a SentenceTransformer: one line.

from sentence_transformers import SentenceTransformer
from pipeline.encoders.wrapper import calibrate

model = calibrate(SentenceTransformer("all-MiniLM-L6-v2"))
documents = model.encode_document(["a long text …", "another …"], normalize_embeddings=True)
query = model.encode_query("where is the answer?", normalize_embeddings=True)
scores = documents @ query
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.encoders.architecture import refuse_by_name
from pipeline.encoders.attention import ATTENTION_NAME
from pipeline.encoders.calibration import Calibration
from pipeline.encoders.encoder import Encoder
from pipeline.encoders.loading import take_apart
from pipeline.errors import UsageError

Embeddings = NDArray[Any] | Tensor


class EncodeOptions(TypedDict, total=False):
    """The options of `encode`, `encode_query` and `encode_document`, named as in sentence-transformers.

    Attributes:
        prompt: what stands before each text; goes before `prompt_name`.
        prompt_name: one of the model's prompts.
        batch_size: texts of full length in a batch, 32 by default; of shorter texts, as many more.
        convert_to_tensor: return a tensor on the model's device instead of a numpy array.
        normalize_embeddings: bring each vector to unit length.
        truncate: cut texts that are too long instead of refusing them.
    """

    prompt: str | None
    prompt_name: str | None
    batch_size: int
    convert_to_tensor: bool
    normalize_embeddings: bool
    truncate: bool


def calibrate(
    model: SentenceTransformer, calibration: Calibration | None = None, *, calibrate_queries: bool = False
) -> CalibratedSentenceTransformer:
    """Wrap a model so that its embeddings are calibrated.

    The weights are shared, not copied. The model itself attends through SDPA from here on and otherwise
    stays as it is: its own `encode` remains plain.

    Args:
        model: any model whose architecture and pooling can be calibrated.
        calibration: how; by default baskets of 128 tokens, strength 0.5, the last half of the layers.
        calibrate_queries: whether `encode_query` is calibrated too; queries are short and plain by default.

    Raises:
        DataError: the model cannot be calibrated.
        UsageError: the calibration does not fit the model.
    """
    return CalibratedSentenceTransformer(model, calibration or Calibration(), calibrate_queries)


class CalibratedSentenceTransformer:
    """`encode`, `encode_query` and `encode_document` as sentence-transformers has them, calibrated."""

    def __init__(self, model: SentenceTransformer, calibration: Calibration, calibrate_queries: bool) -> None:
        self.model = model
        self.calibration = calibration
        self._of_queries = calibration if calibrate_queries else None
        loaded = take_apart(model, Path(model.model_card_data.base_model or "SentenceTransformer"))
        refuse_by_name(loaded.transformer)
        loaded.transformer.set_attn_implementation(ATTENTION_NAME)
        self._encoder = Encoder(replace(loaded, normalize=False), {"calibrated": calibration})

    def encode(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Embeddings:
        """Embed a text, (dimension,), or several, (len(inputs), dimension), calibrated, without a role."""
        default = self._named_prompt(self.model.default_prompt_name)
        return self._embed(inputs, self.calibration, default, options)

    def encode_document(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Embeddings:
        """Embed documents calibrated, with the model's prompt for documents."""
        return self._embed(inputs, self.calibration, self._encoder.document_prompt, options)

    def encode_query(self, inputs: str | Sequence[str], **options: Unpack[EncodeOptions]) -> Embeddings:
        """Embed queries, calibrated only if asked for, with the model's prompt for queries."""
        return self._embed(inputs, self._of_queries, self._encoder.query_prompt, options)

    def _embed(
        self,
        inputs: str | Sequence[str],
        arm: Calibration | None,
        default_prompt: str,
        options: EncodeOptions,
    ) -> Embeddings:
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        name = options.get("prompt_name")
        prompt = options.get("prompt")
        if prompt is None:
            prompt = default_prompt if name is None else self._named_prompt(name)
        self._encoder.tokens_per_batch = options.get("batch_size", 32) * self._encoder.max_length
        vectors = self._encoder.encode(
            texts, {"": arm}, prompt=prompt, truncate=options.get("truncate", False)
        )[""]
        return self._finish(torch.from_numpy(vectors), isinstance(inputs, str), options)

    def _finish(self, vectors: Tensor, single: bool, options: EncodeOptions) -> Embeddings:
        if options.get("normalize_embeddings", False):
            vectors = normalize(vectors, dim=1)
        if single:
            vectors = vectors[0]
        return vectors.to(self.model.device) if options.get("convert_to_tensor", False) else vectors.numpy()

    def _named_prompt(self, name: str | None) -> str:
        if name is None:
            return ""
        if name not in self.model.prompts:
            raise UsageError(f"no prompt {name!r}; the model has {', '.join(self.model.prompts)}")
        return self.model.prompts[name] or ""
