"""A corpus as `tune` looks at it: how many vectors each chunk budget makes, and a sample of passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.chunking import Chunker
from pipeline.chunking.meter import TokenMeter
from pipeline.config import ChunkSettings, Config
from pipeline.corpus import open_corpus
from pipeline.errors import DataError
from pipeline.evaluation.grid import only_plain
from pipeline.evaluation.pseudo_queries import Passage, cut_passage, sample_chunks
from pipeline.evaluation.results import Cost
from pipeline.records import Chunk, Document, Skipped
from pipeline.reporting import Reporter
from pipeline.run_model import RunModel

N_POSITIONS = 3
MIN_PASSAGES = 40
# What a tokenizer may count for the blank lines between the blocks of a passage.
_RESERVE = 4 * N_POSITIONS
_NO_SENTENCES = "passages with a third that has no sentence of eight words"
_TOO_LONG = "passages longer than the model takes once their blocks change places"


@dataclass(frozen=True, slots=True)
class Survey:
    """A corpus and the passages drawn from it.

    Attributes:
        source: what was read.
        sizes: of the whole corpus, by chunk budget.
        passages: the sample.
        left_out: sampled passages that could not be used, by reason.
        skipped: records of the corpus that were left out, by reason.
    """

    source: str
    sizes: Mapping[int | None, Cost]
    passages: tuple[Passage, ...]
    left_out: Mapping[str, int]
    skipped: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return {
            "source": self.source,
            "passages": len(self.passages),
            "left_out": dict(self.left_out),
            "skipped": dict(self.skipped),
            "sizes": [
                {
                    "chunk_tokens": budget,
                    "documents": size.n_documents,
                    "vectors": size.n_vectors,
                    "vectors_per_document": size.vectors_per_document,
                    "index_bytes": size.index_bytes,
                }
                for budget, size in self.sizes.items()
            ],
        }


def survey_corpus(
    config: Config, budgets: Sequence[int | None], reporter: Reporter, *, n_passages: int
) -> Survey:
    """Read the corpus once for each chunk budget, count its vectors, and draw passages.

    Args:
        config: corpus, chunks and model.
        budgets: most tokens of a chunk, None for as many as the model takes; passages have the first.
        reporter: shows progress.
        n_passages: how many to draw.

    Raises:
        DataError: the corpus cannot be used, or gives fewer than 40 passages to ask about.
    """
    reading = _Reading(config, reporter)
    sizes = {budget: reading.size(budget) for budget in budgets}
    sampled, n_chunks = sample_chunks(
        reading.chunks(budgets[0], reserve=_RESERVE), n_passages, seed=config.evaluate.seed
    )
    passages, left_out = reading.usable(sampled)
    if len(passages) < MIN_PASSAGES:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "none left out"
        raise DataError(
            f"{reading.source}: only {len(passages)} of {n_chunks} chunks can be asked about, but at least "
            f"{MIN_PASSAGES} are needed to tell position from noise ({reasons}); give a larger corpus"
        )
    return Survey(reading.source, sizes, tuple(passages), dict(left_out), dict(reading.skipped))


class _Reading:
    """Reads the corpus again for each purpose; nothing of it is kept."""

    def __init__(self, config: Config, reporter: Reporter) -> None:
        self._config = config
        self._reporter = reporter
        self._encoder = RunModel(only_plain(config), reporter).encoder
        self._corpus = open_corpus(config.corpus)
        self.source = self._corpus.describe()
        self.skipped: Counter[str] = Counter()
        self._n_documents = 0

    def size(self, budget: int | None) -> Cost:
        """Count the vectors that a chunk budget makes of the corpus."""
        n_vectors = sum(1 for _ in self.chunks(budget))
        return Cost(n_vectors, self._n_documents, self._encoder.dimension)

    def chunks(self, budget: int | None, *, reserve: int = 0) -> Iterator[Chunk]:
        """Stream the chunks of the corpus; with a reserve, without context and with room for more tokens."""
        settings = self._config.chunk.model_copy(update={"max_tokens": budget})
        chunker = self._chunker(settings)
        if reserve:
            # Passages change places, so that a context from elsewhere in the document would be wrong.
            room = max(1, chunker.max_tokens - reserve)
            chunker = self._chunker(settings.model_copy(update={"max_tokens": room, "context": "none"}))
        self._n_documents, self.skipped = 0, Counter()
        with self._reporter.task("reading", None, "documents") as advance:
            for _, chunks in chunker.stream(self._documents()):
                self._n_documents += 1
                advance(1)
                yield from chunks

    def usable(self, sampled: Sequence[Chunk]) -> tuple[list[Passage], Counter[str]]:
        """Cut the sampled chunks into blocks; count those that cannot be, by reason."""
        left_out: Counter[str] = Counter()
        meter = TokenMeter(self._encoder.tokenizer, self._encoder.document_prompt)
        passages = []
        for chunk in sampled:
            passage = cut_passage(chunk, N_POSITIONS, seed=self._config.evaluate.seed)
            if passage is None:
                left_out[_NO_SENTENCES] += 1
            elif max(meter.count(passage.rotations())) > self._encoder.max_length:
                left_out[_TOO_LONG] += 1
            else:
                passages.append(passage)
        return passages, left_out

    def _chunker(self, settings: ChunkSettings) -> Chunker:
        encoder = self._encoder
        return Chunker(
            encoder.tokenizer, settings, max_length=encoder.max_length, prompt=encoder.document_prompt
        )

    def _documents(self) -> Iterator[Document]:
        for item in self._corpus.read():
            if isinstance(item, Skipped):
                self.skipped[str(item.reason)] += 1
            else:
                yield item
