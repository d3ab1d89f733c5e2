"""A labelled set from a corpus that has no labels: queries drawn from known places of its own passages.

Passages are a random sample of the chunks that `lastpage index` would make. Each is cut into as many blocks
of whole sentences as there are position groups, and stands in the set once for each rotation of its blocks,
so that every block visits every position. Sentences of each block give queries: their rarest words, in their
order. A query seeks its passage among the whole sample in the same rotation. So all positions have the same
queries against the same contents, and what differs between groups is position alone.

What such queries show: whether this model, on texts like these, finds what stands late as well as what stands
early, and what a setting changes about that. What they do not show: how well real questions are answered. The
words of a query stand in its passage literally, which those of a real question often do not; so levels cannot
be compared with those of real questions, only differences between positions and between settings can.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate

import numpy as np

from pipeline.ab.windows import sentence_spans
from pipeline.artifacts import fingerprint
from pipeline.evaluation.datasets.positions import part_names
from pipeline.evaluation.datasets.records import Corpus, EvaluationQuery, EvaluationSet
from pipeline.records import Chunk, Document
from pipeline.scripts import UNSPACED

# Scripts without spaces are taken two characters at a time.
_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W{UNSPACED}]+")
# A sentence with fewer distinct words says too little to be found by some of them.
MIN_WORDS = 8
QUERIES_PER_BLOCK = 2
_BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a passage, and the sentences in it that give queries."""

    text: str
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Passage:
    """A sampled chunk, cut into blocks."""

    passage_id: str
    blocks: tuple[Block, ...]

    def rotated(self, shift: int) -> str:
        """The text that begins with block `shift`."""
        texts = [block.text for block in self.blocks]
        return _BETWEEN.join(texts[shift:] + texts[:shift])

    def rotations(self) -> list[str]:
        """All texts, by shift."""
        return [self.rotated(shift) for shift in range(len(self.blocks))]


def sample_chunks(chunks: Iterable[Chunk], n: int, *, seed: int) -> tuple[list[Chunk], int]:
    """Draw n chunks of a stream, each as likely as any other, in its order; also say how many there were."""
    generator = np.random.default_rng(seed)
    kept: list[tuple[int, Chunk]] = []
    n_seen = 0
    for chunk in chunks:
        place = n_seen if n_seen < n else int(generator.integers(n_seen + 1))
        if len(kept) < n:
            kept.append((n_seen, chunk))
        elif place < n:
            kept[place] = (n_seen, chunk)
        n_seen += 1
    return [chunk for _, chunk in sorted(kept, key=lambda item: item[0])], n_seen


def cut_passage(chunk: Chunk, n_blocks: int, *, seed: int) -> Passage | None:
    """Cut a chunk into blocks of about equal length; None if a block has no sentence that could be asked."""
    spans = sentence_spans(chunk.text)
    generator = np.random.default_rng([seed, *chunk.chunk_id.encode("utf-8", "surrogatepass")])
    blocks = []
    for start, end in _shares([end - start for start, end in spans], n_blocks):
        sentences = [chunk.text[first:last] for first, last in spans[start:end]]
        fit = [sentence for sentence in sentences if len(set(words(sentence))) >= MIN_WORDS]
        if not fit:
            return None
        chosen = sorted(generator.permutation(len(fit))[:QUERIES_PER_BLOCK])
        text = chunk.text[spans[start][0] : spans[end - 1][1]]
        blocks.append(Block(text, tuple(fit[number] for number in chosen)))
    return Passage(chunk.chunk_id, tuple(blocks)) if blocks else None


def words(text: str) -> list[str]:
    """The words of a text, lower case."""
    return [word.lower() for word in _WORD.findall(text)]


def make_query(sentence: str, frequency: Counter[str], n_words: int) -> str:
    """Keep the `n_words` rarest words of a sentence, each once, in their order; of equally rare the first."""
    distinct = list(dict.fromkeys(words(sentence)))
    rarest = sorted(range(len(distinct)), key=lambda place: (frequency[distinct[place]], place))
    return " ".join(distinct[place] for place in sorted(rarest[:n_words]))


def pseudo_set(passages: Sequence[Passage], *, name: str, n_words: int) -> EvaluationSet:
    """Make the set: one index a rotation, one query a sentence and rotation.

    Args:
        passages: all with the same number of blocks.
        name: of the set, for reports.
        n_words: of a query; the fewer, the harder it is.
    """
    n_blocks = len(passages[0].blocks)
    groups = part_names(n_blocks)
    frequency = _frequency(passages)
    corpora = tuple(
        Corpus(f"rotation {shift}", tuple(sorted(_doc_id(passage, shift) for passage in passages)))
        for shift in range(n_blocks)
    )
    queries = tuple(
        _query(passage, block, number, shift, groups, make_query(sentence, frequency, n_words))
        for passage in passages
        for block, own in enumerate(passage.blocks)
        for number, sentence in enumerate(own.sentences)
        for shift in range(n_blocks)
    )
    return EvaluationSet(
        name=name,
        layout="pseudo",
        protocol="per-shift",
        group_names=groups,
        corpora=corpora,
        queries=queries,
        left_out={},
        fingerprint=fingerprint([[asdict(passage) for passage in passages], n_words]),
        read_documents=lambda: _documents(passages),
    )


def _shares(lengths: Sequence[int], n_blocks: int) -> list[tuple[int, int]]:
    """Cut a sequence into runs of about equal length; [] if there are too few to fill every run."""
    total = sum(lengths)
    ends = accumulate(lengths)
    middles = [end - length / 2 for end, length in zip(ends, lengths, strict=True)]
    numbers = [int(n_blocks * middle / total) for middle in middles] if total else []
    if sorted(set(numbers)) != list(range(n_blocks)):
        return []
    starts = [numbers.index(number) for number in range(n_blocks)]
    return list(zip(starts, [*starts[1:], len(lengths)], strict=True))


def _frequency(passages: Sequence[Passage]) -> Counter[str]:
    """In how many passages each word stands."""
    texts = (_BETWEEN.join(block.text for block in passage.blocks) for passage in passages)
    return Counter(word for text in texts for word in set(words(text)))


def _doc_id(passage: Passage, shift: int) -> str:
    return f"{passage.passage_id}/rotation {shift}"


def _documents(passages: Sequence[Passage]) -> Iterator[Document]:
    for passage in passages:
        for shift, text in enumerate(passage.rotations()):
            yield Document(_doc_id(passage, shift), text)


def _query(
    passage: Passage, block: int, number: int, shift: int, groups: Sequence[str], text: str
) -> EvaluationQuery:
    question_id = f"{passage.passage_id}/block {block}/{number}"
    gold_doc, document = _doc_id(passage, shift), passage.rotated(shift)
    start = document.index(passage.blocks[block].sentences[number])
    return EvaluationQuery(
        query_id=f"{question_id}/rotation {shift}",
        text=text,
        corpus=f"rotation {shift}",
        qrels={gold_doc: 1},
        gold_doc=gold_doc,
        group=groups[(block - shift) % len(groups)],
        question_id=question_id,
        cluster=passage.passage_id,
        span=(start, start + len(passage.blocks[block].sentences[number])),
        doc_chars=len(document),
        n_tokens=None,
    )
