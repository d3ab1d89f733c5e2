"""What a run would take, told without embedding it and without writing a file.

The corpus is read and cut as `index` would; lengths are counted as they stream by. The time is estimated from
one real batch through the encoder.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from indexes import ImpossibleIndexError, check_factory, resolve_spec
from pipeline.chunking import Chunker
from pipeline.chunking.table import ChunkSummary, content_key
from pipeline.config import Config, CorpusSettings, IndexSettings
from pipeline.corpus import BAD_RECORDS, open_corpus
from pipeline.corpus.table import CorpusSummary
from pipeline.embedding.loading import load_encoder
from pipeline.encoders.model_files import find_model
from pipeline.errors import DataError, UsageError
from pipeline.indexing import index_spec
from pipeline.lengths import LengthCounter, Lengths
from pipeline.records import Chunk, Document, Skipped
from pipeline.skips import SkipTally

if TYPE_CHECKING:
    from pipeline.encoders import Encoder

_TOKENS_TO_TIME = 2000
_BYTES_PER_NUMBER = 4
# A shard names each vector by 64 hexadecimal digits; Parquet adds their length and its own.
_BYTES_PER_KEY = 72
_BARS = 8
_DOCUMENT_EDGES = tuple(2**power for power in range(4, 48))
_EXACT = "Flat"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why `index` would stop, in its own words, and its exit code."""

    message: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Disk:
    """Estimated bytes.

    Attributes:
        vectors: the shards of all arms.
        indexes: the indexes of all arms in one build, as if they were exact.
        is_exact: whether they are (`Flat`), so that `indexes` holds.
    """

    vectors: int
    indexes: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    """A corpus as `index` would take it.

    Attributes:
        source: what is read.
        characters: of all documents.
        documents: lengths of the documents' texts by themselves.
        chunks: lengths of the chunks as they are embedded: with context, prompt and special tokens.
        max_tokens: the budget of a chunk.
        contexts_cut: chunks whose context does not stand whole before them.
        skipped: records left out, by reason.
        skipped_records: the first of them.
        distinct_texts: what is embedded; equal chunks are embedded once.
        tokens_to_embed: of the distinct texts.
        arms: their names.
        dimension: of the vectors.
        factory: the kind of index that would be built.
        tokens_per_second: through the encoder with all arms; None if it was not timed.
        disk: what the vectors and indexes would take.
        refusals: why `index` would stop.
    """

    source: str
    characters: int
    documents: Lengths
    chunks: Lengths
    max_tokens: int
    contexts_cut: int
    skipped: Mapping[str, int]
    skipped_records: Sequence[Mapping[str, str]]
    distinct_texts: int
    tokens_to_embed: int
    arms: Sequence[str]
    dimension: int
    factory: str
    tokens_per_second: float | None
    disk: Disk
    refusals: tuple[Refusal, ...]

    @property
    def seconds(self) -> float | None:
        """Estimated time to embed everything; None if the encoder was not timed."""
        return self.tokens_to_embed / self.tokens_per_second if self.tokens_per_second else None

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return {**asdict(self), "seconds": self.seconds}


def inspect_corpus(
    config: Config, *, timing: bool = True, progress: Callable[[int], None] | None = None
) -> Inspection:
    """Read and cut the corpus, and estimate what embedding it takes.

    Args:
        config: as for `index`.
        timing: send one batch through the encoder to estimate the time.
        progress: called with the number of documents done.

    Raises:
        DataError: the corpus or the model cannot be used.
        UsageError: a setting does not fit the model.
    """
    encoder = load_encoder(config, find_model(config.model.name, config.model.revision))
    chunker = Chunker(
        encoder.tokenizer, config.chunk, max_length=encoder.max_length, prompt=encoder.document_prompt
    )
    # Bad records are all counted here, even where the first would stop `index`.
    corpus = open_corpus(config.corpus.model_copy(update={"bad_records": "skip"}))
    survey = _Survey(chunker)
    for document, chunks in chunker.stream(survey.documents_of(corpus.read())):
        survey.add(document, chunks)
        if progress is not None:
            progress(1)
    rate = _tokens_per_second(encoder, survey.sample) if timing else None
    return _summed_up(config, corpus.describe(), survey, encoder, rate)


def _summed_up(
    config: Config, source: str, survey: _Survey, encoder: Encoder, rate: float | None
) -> Inspection:
    n_rows, dim = survey.cut.n_chunks, encoder.dimension
    factory, refusals = _index_to_build(config.index, n_rows, dim)
    n_texts, n_tokens = survey.distinct()
    skipped, skipped_records = survey.skipped()
    return Inspection(
        source=source,
        characters=survey.read.n_characters,
        documents=survey.documents.result(),
        chunks=survey.chunks.result(),
        max_tokens=survey.max_tokens,
        contexts_cut=survey.cut.n_contexts_cut,
        skipped=skipped,
        skipped_records=skipped_records,
        distinct_texts=n_texts,
        tokens_to_embed=n_tokens,
        arms=tuple(config.arms),
        dimension=dim,
        factory=factory,
        tokens_per_second=rate,
        disk=_disk(n_texts=n_texts, n_rows=n_rows, dim=dim, n_arms=len(config.arms), factory=factory),
        refusals=(*_bad_records(config.corpus, survey.read.tally), *refusals),
    )


class _Survey:
    """Counts what streams by: 12 bytes are kept of each chunk, and the texts of the batch to time."""

    def __init__(self, chunker: Chunker) -> None:
        self._chunker = chunker
        self.max_tokens = chunker.max_tokens
        self.read = CorpusSummary()
        self.cut = ChunkSummary()
        self.documents = LengthCounter(_DOCUMENT_EDGES)
        self.chunks = LengthCounter(sorted({-(-chunker.limit * bar // _BARS) for bar in range(1, _BARS + 1)}))
        self.sample: list[str] = []
        self._sampled = 0
        self._keys = array("Q")
        self._n_tokens = array("I")

    def documents_of(self, items: Iterable[Document | Skipped]) -> Iterator[Document]:
        """Pass the documents on; count them and what is left out."""
        for item in items:
            self.read.add(item)
            if isinstance(item, Document):
                yield item

    def add(self, document: Document, chunks: Sequence[Chunk]) -> None:
        """Count one document and its chunks."""
        self.cut.add(document, chunks)
        if chunks:
            self.documents.add(self._chunker.count_tokens(document.text))
        for chunk in chunks:
            if self._sampled < _TOKENS_TO_TIME:
                self.sample.append(chunk.embedded_text)
                self._sampled += chunk.n_tokens
            self.chunks.add(chunk.n_tokens)
            self._keys.append(int(content_key(chunk.embedded_text)[:16], 16))
            self._n_tokens.append(chunk.n_tokens)

    def distinct(self) -> tuple[int, int]:
        """How many chunks differ as embedded, and their tokens: equal ones are embedded once."""
        _, firsts = np.unique(np.asarray(self._keys), return_index=True)
        return len(firsts), int(np.asarray(self._n_tokens)[firsts].sum())

    def skipped(self) -> tuple[dict[str, int], list[dict[str, str]]]:
        """What reading and cutting leave out: counts by reason, and the first by name."""
        tallies = (self.read.tally, self.cut.tally)
        counts = self.read.tally.counts + self.cut.tally.counts
        examples = [skipped.as_json() for tally in tallies for skipped in tally.examples]
        return {str(reason): count for reason, count in counts.items()}, examples


def _tokens_per_second(encoder: Encoder, texts: Sequence[str]) -> float | None:
    """Time one batch through all arms; None if there is no text."""
    n_tokens = 0

    def count(_: int, tokens: int) -> None:
        nonlocal n_tokens
        n_tokens += tokens

    started = time.perf_counter()
    encoder.encode_documents(texts, progress=count)
    return n_tokens / (time.perf_counter() - started) if n_tokens else None


def _bad_records(settings: CorpusSettings, tally: SkipTally) -> Iterator[Refusal]:
    bad = {reason: count for reason, count in tally.counts.items() if reason in BAD_RECORDS}
    if bad and settings.bad_records == "fail":
        counts = ", ".join(f"{count:,} {reason}" for reason, count in bad.items())
        first = next(skipped.place for skipped in tally.examples if skipped.reason in bad)
        yield Refusal(
            f"bad records ({counts}), the first at {first}; mend them, or set "
            "corpus.bad_records = 'skip' to leave them out",
            DataError.exit_code,
        )


def _index_to_build(settings: IndexSettings, n_rows: int, dim: int) -> tuple[str, list[Refusal]]:
    """The factory that would be built, and why it cannot be."""
    try:
        spec = resolve_spec(index_spec(settings), n_rows=n_rows, dim=dim).spec
        check_factory(spec, dim)
    except ImpossibleIndexError as error:
        return settings.factory, [Refusal(str(error), UsageError.exit_code)]
    return spec.factory, []


def _disk(*, n_texts: int, n_rows: int, dim: int, n_arms: int, factory: str) -> Disk:
    n_bytes = dim * _BYTES_PER_NUMBER
    return Disk(
        vectors=n_arms * n_texts * (n_bytes + _BYTES_PER_KEY),
        indexes=n_arms * n_rows * n_bytes,
        is_exact=factory == _EXACT,
    )
