"""An encoder that also shows its work: contextual parts of a text, and where its pooled rows look.

A part is pooled over the contextual tokens that it has inside the whole text ("late chunking",
arXiv:2409.04701): what is still there of it after the model has read everything else too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding
from torch import Tensor

from pipeline.encoders.attention_rows import AttentionMasses
from pipeline.encoders.batching import token_batches
from pipeline.encoders.calibration import BasketGeometry, Calibration
from pipeline.encoders.encoder import Encoder, Progress, Vectors, check_vectors
from pipeline.errors import DataError

# Character offsets [start, end) of a part in its text.
Part = tuple[int, int]
# The first and one past the last token of a part.
TokenSpan = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Attention:
    """Where the pooled rows of some texts look in one arm; heads that share a key head are averaged.

    Attributes:
        first, last: (texts, layers, head groups), mass of the first and of the last token.
        baskets: (texts, layers, head groups, baskets), mass of the content baskets, NaN where there is none.
        front_loading: (texts, layers, head groups), of the mass between first and last token the share in its
            first third less the share in its last third.
    """

    first: Vectors
    last: Vectors
    baskets: Vectors
    front_loading: Vectors


@dataclass(frozen=True, slots=True)
class Observation:
    """What one pass made of some texts in one arm.

    Attributes:
        vectors: (texts, dimension), as `encode_documents` returns them.
        parts: (texts, parts, dimension), each part pooled over its own contextual tokens.
        attention: of the pooled rows, if it was asked for.
    """

    vectors: Vectors
    parts: Vectors
    attention: Attention | None


class ContextualEncoder(Encoder):
    """An `Encoder` that also returns contextual parts and attention, all arms still in one pass."""

    @property
    def attention_baskets(self) -> BasketGeometry:
        """The baskets that attention is summed up in: those of the first calibrated arm, or the default."""
        calibrated = next((arm for arm in self.arms.values() if arm is not None), Calibration())
        return calibrated.geometry(self.pooling)

    @property
    def fewest_tokens(self) -> int:
        """Texts of fewer tokens, special ones included, are embedded plainly in every arm."""
        geometries = [arm.geometry(self.pooling) for arm in self.arms.values() if arm is not None]
        least = [each.basket_size + each.isolate_first + each.isolate_last for each in geometries]
        return min(least, default=self.max_length + 1)

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a document as it is embedded, with prompt and special tokens."""
        return len(self.tokenizer.encode(self.document_prompt + text).ids)

    def observe(
        self,
        texts: Sequence[str],
        parts: Sequence[Sequence[Part]],
        *,
        attention: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, Observation]:
        """Embed documents and their contextual parts with every arm in one pass.

        A part is the mean of its tokens in the last layer, sent through the same modules behind the pooling
        as a whole text. With mean pooling it is what the text's own vector is a weighted mean of. With CLS
        and last-token pooling no such row exists for a part, so its tokens' mean stands for it.

        Args:
            texts: documents, none longer than the model takes.
            parts: for each text the same number of parts, in characters.
            attention: also sum up where the pooled rows look.
            progress: called after each batch with the texts and tokens that were done.

        Returns:
            For each arm what was observed, row i for text i.

        Raises:
            DataError: a text is too long, a part has no token, or a vector comes out non-finite or zero.
        """
        encodings = self._tokenize(texts, self.document_prompt, truncate=False)
        spans = [self._token_spans(encoding, own) for encoding, own in zip(encodings, parts, strict=True)]
        geometry = self.attention_baskets if attention else None
        collected = _Collected(list(self.arms))
        budget = self.tokens_per_batch // self._model.blocks_at_once(list(self.arms.values()))
        lengths = [len(encoding) for encoding in encodings]
        for batch in token_batches(lengths, budget):
            ids = [encodings[index].ids for index in batch]
            # A text that fits only without its other arms takes a pass for each.
            too_long = len(ids[0]) > budget
            groups = [{name: arm} for name, arm in self.arms.items()] if too_long else [self.arms]
            for group in groups:
                with self._turn:
                    seen = self._observe(ids, [spans[index] for index in batch], group, geometry)
                collected.add(batch, seen)
            if progress is not None:
                progress(len(batch), sum(lengths[index] for index in batch))
        return collected.result()

    def _observe(
        self,
        ids: Sequence[Sequence[int]],
        spans: Sequence[Sequence[TokenSpan]],
        arms: Mapping[str, Calibration | None],
        geometry: BasketGeometry | None,
    ) -> dict[str, Observation]:
        input_ids, attention_mask = self._padded(ids)
        skip = self._prompt_tokens(self.document_prompt)
        seen = self._model.observe(
            input_ids, attention_mask, list(arms.values()), skip_pooling=skip, attention=geometry
        )
        weights = _mean_over_spans(spans, input_ids.shape[1]).to(input_ids.device)
        observations = {}
        for number, name in enumerate(arms):
            rows = torch.bmm(weights, seen.rows[number].float()).to(seen.rows[number].dtype)
            pooled = self._finish(torch.cat([seen.pooled[number], rows.flatten(0, 1)])).cpu().numpy()
            n_texts = len(ids)
            observations[name] = Observation(
                pooled[:n_texts],
                pooled[n_texts:].reshape(n_texts, weights.shape[1], -1),
                None if seen.attention is None else _attention_of_arm(seen.attention, number),
            )
        return observations

    def _token_spans(self, encoding: Encoding, parts: Sequence[Part]) -> list[TokenSpan]:
        """Find the tokens that overlap each part, through the tokenizer's own offsets."""
        shift = len(self.document_prompt)
        offsets = np.array(encoding.offsets).reshape(-1, 2) - shift
        content = ~np.array(encoding.special_tokens_mask, dtype=bool)
        spans = []
        for start, end in parts:
            inside = np.flatnonzero(content & (offsets[:, 0] < end) & (offsets[:, 1] > start))
            if not inside.size:
                raise DataError(f"the part at characters {start} to {end} of a text has no token of its own")
            spans.append((int(inside[0]), int(inside[-1]) + 1))
        return spans


class _Collected:
    """Puts the observations of batches in the order of the texts."""

    def __init__(self, arms: Sequence[str]) -> None:
        self._order: dict[str, list[int]] = {name: [] for name in arms}
        self._parts: dict[str, list[Observation]] = {name: [] for name in arms}

    def add(self, batch: Sequence[int], observations: Mapping[str, Observation]) -> None:
        for name, observation in observations.items():
            self._order[name].extend(batch)
            self._parts[name].append(observation)

    def result(self) -> dict[str, Observation]:
        return {name: self._joined(name) for name in self._parts}

    def _joined(self, name: str) -> Observation:
        order = np.argsort(self._order[name], kind="stable")
        seen = self._parts[name]
        vectors = np.concatenate([observation.vectors for observation in seen])[order]
        parts = np.concatenate([observation.parts for observation in seen])[order]
        check_vectors(vectors, name)
        check_vectors(parts.reshape(-1, parts.shape[2]), name)
        attention = [observation.attention for observation in seen if observation.attention is not None]
        return Observation(
            vectors,
            parts,
            _join_attention(attention, order) if attention else None,
        )


def _join_attention(batches: Sequence[Attention], order: NDArray[np.intp]) -> Attention:
    most = max(batch.baskets.shape[3] for batch in batches)
    baskets = [widened(batch.baskets, most) for batch in batches]
    return Attention(
        np.concatenate([batch.first for batch in batches])[order],
        np.concatenate([batch.last for batch in batches])[order],
        np.concatenate(baskets)[order],
        np.concatenate([batch.front_loading for batch in batches])[order],
    )


def widened(baskets: Vectors, n_baskets: int) -> Vectors:
    """Pad the last dimension with NaN: baskets that these texts do not have."""
    missing = [(0, 0)] * (baskets.ndim - 1)
    return np.pad(baskets, [*missing, (0, n_baskets - baskets.shape[-1])], constant_values=np.nan)


def _mean_over_spans(spans: Sequence[Sequence[TokenSpan]], length: int) -> Tensor:
    """(batch, parts, length): weights that average the tokens of each span."""
    bounds = torch.tensor(spans)[..., None]
    positions = torch.arange(length)
    inside = (positions >= bounds[:, :, 0]) & (positions < bounds[:, :, 1])
    return inside / inside.sum(dim=-1, keepdim=True)


def _attention_of_arm(masses: AttentionMasses, number: int) -> Attention:
    return Attention(
        **{field.name: getattr(masses, field.name)[number].cpu().numpy() for field in fields(Attention)}
    )
