"""The public encoder: texts in, one array of vectors an arm out, all arms in one pass.

from pipeline.encoders import Calibration, Encoder

encoder = Encoder.load("all-MiniLM-L6-v2", arms={"plain": None, "calibrated": Calibration()})
documents = encoder.encode_documents(["a long text …", "another …"])
queries = encoder.encode_queries(["where is the answer?"])
scores = queries["plain"] @ documents["calibrated"].T
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.encoders.batching import token_batches
from pipeline.encoders.calibrated_model import CalibratedModel, as_arm
from pipeline.encoders.calibration import Calibration, Pooling
from pipeline.encoders.loading import LoadedModel, load_model
from pipeline.encoders.model_files import find_model
from pipeline.errors import DataError, NonFiniteVectorsError, UsageError

Vectors = NDArray[np.float32]
Progress = Callable[[int, int], None]


class Encoder:
    """Embed texts plainly and calibrated.

    Attributes:
        arms: the calibration of each named arm; None is plain.
        dimension: of the vectors.
        max_length: tokens of the longest text, special tokens and prompt included.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        arms: Mapping[str, Calibration | None] | None = None,
        *,
        tokens_per_batch: int = 8192,
    ) -> None:
        """Wrap a loaded model and prove that every arm does what it says.

        Args:
            loaded: from `load_model`.
            arms: named calibrations; by default `plain` and `calibrated` (`Calibration()`).
            tokens_per_batch: the most tokens of a forward pass, padding and arms included; only a single
                text that is longer than that exceeds it.

        Raises:
            DataError: the model cannot be calibrated.
            UsageError: a calibration does not fit the model.
        """
        chosen = {"plain": None, "calibrated": Calibration()} if arms is None else dict(arms)
        self.arms: dict[str, Calibration | None] = {name: as_arm(arm) for name, arm in chosen.items()}
        self.max_length = loaded.max_length
        self.tokens_per_batch = tokens_per_batch
        self._loaded = loaded
        self._model = CalibratedModel(loaded.transformer, loaded.pooling)
        # A pass's plan lies on the model while it runs, so that one thread at a time may embed.
        self._turn = Lock()
        self._check_baskets()
        self._model.prove(list(self.arms.values()))
        self.dimension = int(self._embed([self._some_ids()], [None])[0].shape[1])

    @classmethod
    def load(
        cls,
        model: str,
        arms: Mapping[str, Calibration | None] | None = None,
        *,
        revision: str | None = None,
        tokens_per_batch: int = 8192,
        **options: Any,
    ) -> Encoder:
        """Load a packaged model, a local folder or a hub id; `options` are those of `load_model`."""
        loaded = load_model(find_model(model, revision), **options)
        return cls(loaded, arms, tokens_per_batch=tokens_per_batch)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer, without truncation and padding."""
        return self._loaded.tokenizer

    @property
    def document_prompt(self) -> str:
        """What stands before each document."""
        return self._loaded.document_prompt

    @property
    def query_prompt(self) -> str:
        """What stands before each query."""
        return self._loaded.query_prompt

    @property
    def pooling(self) -> Pooling:
        """Which rows become the embedding."""
        return self._loaded.pooling

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return self._model.n_layers

    def count_query_tokens(self, query: str) -> int:
        """Count the tokens of a query as it is embedded, before any truncation."""
        return len(self.tokenizer.encode(self.query_prompt + query).ids)

    def encode(
        self,
        texts: Sequence[str],
        arms: Mapping[str, Calibration | None],
        *,
        prompt: str = "",
        truncate: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, Vectors]:
        """Embed texts with any calibrations, all in one pass; the other methods choose prompt and arms.

        Raises:
            DataError: a text is too long and not to be truncated, or a vector comes out non-finite or zero.
        """
        calibrations = list(arms.values())
        encodings = self._tokenize(texts, prompt, truncate)
        lengths = [len(encoding) for encoding in encodings]
        out = {name: np.empty((len(texts), self.dimension), dtype=np.float32) for name in arms}
        budget = self.tokens_per_batch // self._model.blocks_at_once(calibrations)
        skip_pooling = self._prompt_tokens(prompt)
        for batch in token_batches(lengths, budget):
            ids = [encodings[index].ids for index in batch]
            with self._turn:
                if len(ids[0]) > budget:  # a text that fits only without its other arms takes a pass for each
                    vectors = [self._embed(ids, [arm], skip_pooling)[0] for arm in calibrations]
                else:
                    vectors = self._embed(ids, calibrations, skip_pooling)
            for name, of_arm in zip(arms, vectors, strict=True):
                out[name][batch] = of_arm
            if progress is not None:
                progress(len(batch), sum(lengths[index] for index in batch))
        for name, of_arm in out.items():
            check_vectors(of_arm, name)
        return out

    def encode_documents(
        self, texts: Sequence[str], arms: Sequence[str] | None = None, *, progress: Progress | None = None
    ) -> dict[str, Vectors]:
        """Embed documents with every arm in one pass.

        Args:
            texts: any number, in any order.
            arms: names of arms, by default all.
            progress: called after each batch with the texts and tokens that were done.

        Returns:
            For each arm (len(texts), dimension) float32, row i for text i.

        Raises:
            DataError: a text is longer than `max_length` tokens (nothing is ever cut here), or a vector
                comes out non-finite or zero.
        """
        chosen = {name: self._arm(name) for name in (self.arms if arms is None else arms)}
        return self.encode(texts, chosen, prompt=self.document_prompt, progress=progress)

    def encode_queries(
        self, texts: Sequence[str], *, calibrate: bool = False, truncate: bool = False
    ) -> dict[str, Vectors]:
        """Embed queries, by default plainly in every arm.

        Args:
            texts: the queries, without prompt.
            calibrate: embed the queries of each arm with that arm's calibration.
            truncate: cut a query that is too long instead of refusing it.

        Returns:
            For each arm (len(texts), dimension) float32; arms that are embedded alike share one array.
        """
        if calibrate:
            return self.encode(texts, self.arms, prompt=self.query_prompt, truncate=truncate)
        plain = self.encode(texts, {"plain": None}, prompt=self.query_prompt, truncate=truncate)["plain"]
        return dict.fromkeys(self.arms, plain)

    def encode_windows(self, texts: Sequence[str]) -> Vectors:
        """Embed parts of documents plainly, as documents: what evidence is compared with."""
        return self.encode(texts, {"plain": None}, prompt=self.document_prompt)["plain"]

    def _arm(self, name: str) -> Calibration | None:
        if name not in self.arms:
            raise UsageError(f"no arm {name!r}; there are {', '.join(self.arms)}")
        return self.arms[name]

    def _tokenize(self, texts: Sequence[str], prompt: str, truncate: bool) -> list[Encoding]:
        tokenizer = self._cutting_tokenizer if truncate else self.tokenizer
        encodings: list[Encoding] = tokenizer.encode_batch([prompt + text for text in texts])
        for index, encoding in enumerate(encodings):
            if len(encoding) > self.max_length:
                raise DataError(
                    f"text {index} has {len(encoding)} tokens with prompt and special tokens, but the model "
                    f"takes {self.max_length}; cut it into chunks (nothing is truncated silently)"
                )
        return encodings

    @cached_property
    def _cutting_tokenizer(self) -> Tokenizer:
        """The tokenizer with truncation; copying it takes longer than embedding a question."""
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        tokenizer.enable_truncation(self.max_length)
        return tokenizer

    def _prompt_tokens(self, prompt: str) -> int:
        """Leading tokens that mean pooling leaves out: the prompt with the special tokens before it."""
        if self._loaded.include_prompt or not prompt:
            return 0
        encoding = self.tokenizer.encode(prompt)
        return len(encoding) - encoding.special_tokens_mask[::-1].index(0)

    def _embed(
        self, ids: Sequence[Sequence[int]], arms: Sequence[Calibration | None], skip_pooling: int = 0
    ) -> list[Vectors]:
        input_ids, attention_mask = self._padded(ids)
        pooled = self._model.embed(input_ids, attention_mask, arms, skip_pooling=skip_pooling)
        return [self._finish(vectors).cpu().numpy() for vectors in pooled]

    def _padded(self, ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Pad on the right: positions then count from 0 in every text, whatever its batch."""
        longest = max(len(text) for text in ids)
        padding = self._loaded.transformer.config.get_text_config().pad_token_id or 0
        input_ids = torch.tensor([[*text, *[padding] * (longest - len(text))] for text in ids])
        lengths = torch.tensor([len(text) for text in ids])
        attention_mask = (torch.arange(longest) < lengths[:, None]).long()
        return input_ids.to(self._model.device), attention_mask.to(self._model.device)

    @torch.inference_mode()
    def _finish(self, pooled: Tensor) -> Tensor:
        """Apply the modules behind the pooling, then truncation, then the unit length."""
        features: dict[str, Any] = {"sentence_embedding": pooled}
        for module in self._loaded.after_pooling:
            features = module(features)
        vectors = features["sentence_embedding"].float()
        vectors = vectors[:, : self._loaded.truncate_dim]
        return normalize(vectors, dim=1) if self._loaded.normalize else vectors

    def _some_ids(self) -> list[int]:
        return list(self.tokenizer.encode(self.document_prompt + "a").ids)

    def _check_baskets(self) -> None:
        """Refuse a basket that no text can fill twice over: the calibration would silently do nothing."""
        content = self.max_length - len(self.tokenizer.encode("").ids)
        for name, arm in self.arms.items():
            if arm is not None and arm.basket_size >= content:
                raise UsageError(
                    f"arm {name!r}: basket_size = {arm.basket_size}, but a text has at most {content} tokens "
                    f"besides special ones (max_length {self.max_length}), so that it would never fill more "
                    "than one basket and nothing would be calibrated; choose a smaller basket"
                )


def check_vectors(vectors: Vectors, arm: str) -> None:
    """Refuse vectors, (texts, dimension), of which one is not finite or zero; name arm and texts."""
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1) | ~vectors.any(axis=1))
    if broken.size:
        rows = [int(row) for row in broken]
        raise NonFiniteVectorsError(arm, [f"text {row}" for row in rows], rows)
