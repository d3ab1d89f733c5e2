"""Which documents a diagnosis is made of, counted before any of them is embedded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

from pipeline.config import CorpusSettings
from pipeline.diagnostics.measuring import DocumentEncoder
from pipeline.diagnostics.permutations import (
    LanguagePair,
    PermutedDocument,
    documents_of,
    language_pairs,
    orders_of_sets,
)
from pipeline.diagnostics.results import Counts
from pipeline.diagnostics.segments import SegmentSet, TokenRoom, check_enough, make_sets
from pipeline.diagnostics.settings import DiagnosisSettings
from pipeline.diagnostics.sources import LeftOut, read_paragraphs


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """The documents, and their number in words of the design."""

    documents: tuple[PermutedDocument, ...]
    pairs: tuple[LanguagePair, ...]
    counts: Counts

    @property
    def sets(self) -> list[str]:
        """The segment set of each document."""
        return [document.set_id for document in self.documents]

    def rows_of(self, pair: LanguagePair) -> list[int]:
        """Which documents are of a language pair."""
        return [number for number, document in enumerate(self.documents) if document.pair == pair]


def plan_documents(
    encoder: DocumentEncoder, corpus: CorpusSettings, settings: DiagnosisSettings
) -> DocumentPlan:
    """Read the corpus, group its paragraphs and put them into orders; nothing is embedded or truncated.

    Raises:
        DataError: the corpus cannot be read, or fewer than two sets come out of it.
        UsageError: a language is not there.
    """
    left_out: Counter[LeftOut] = Counter()
    room = TokenRoom.of(encoder.count_tokens, encoder.max_length)
    paragraphs = read_paragraphs(corpus, settings.languages, left_out)
    sets = make_sets(paragraphs, settings, count_tokens=encoder.count_tokens, room=room, left_out=left_out)
    pairs = language_pairs(settings.languages, mixed=settings.mixed)
    fitting, lengths = _documents(encoder, sets, pairs, settings)
    left_out[LeftOut.TOO_LONG_TOGETHER] += len(sets) - len(fitting)
    check_enough(len(fitting), settings, left_out)
    documents = tuple(document for own in fitting for document in own)
    return DocumentPlan(
        documents,
        tuple(pairs),
        Counts(
            sets=len(fitting),
            orders=len(fitting[0]) // len(pairs),
            all_orders=factorial(settings.n),
            pairs=tuple(pair.label for pair in pairs),
            documents=len(documents),
            tokens=sum(lengths),
            longest=max(lengths),
            max_length=encoder.max_length,
            left_out={str(reason): count for reason, count in left_out.items() if count},
        ),
    )


def _documents(
    encoder: DocumentEncoder,
    sets: Sequence[SegmentSet],
    pairs: Sequence[LanguagePair],
    settings: DiagnosisSettings,
) -> tuple[list[list[PermutedDocument]], list[int]]:
    """The documents of each set that fits the model in every order, and their tokens."""
    orders = orders_of_sets(len(sets), settings.n, settings.max_orders, settings.seed)
    fitting, lengths = [], []
    for segment_set, own_orders in zip(sets, orders, strict=True):
        documents = documents_of(segment_set, own_orders, pairs, mixed_at=settings.mixed_at)
        tokens = [encoder.count_tokens(document.text) for document in documents]
        if max(tokens) <= encoder.max_length:
            fitting.append(documents)
            lengths.extend(tokens)
    return fitting, lengths
