"""A corpus: its sources one after the other, under one policy for bad records and one set of ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from pipeline.artifacts import fingerprint
from pipeline.config import CorpusSettings
from pipeline.corpus.source import Reading, Source
from pipeline.errors import DataError
from pipeline.records import Document, Skipped, SkipReason

# Part of every fingerprint: raise it whenever the same source would be read into other documents.
_READER_VERSION = 2
# What stops a run, unless it is told to skip.
BAD_RECORDS = frozenset({SkipReason.MALFORMED, SkipReason.SURROGATE})


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents from one or several sources; reading streams, and can be done again."""

    sources: tuple[Source, ...]
    settings: CorpusSettings

    def describe(self) -> str:
        """Say in a few words what is read."""
        return "; ".join(source.describe() for source in self.sources)

    def fingerprint(self) -> str:
        """Hash the content of the sources and the settings that decide what is made of it, never a path."""
        settings = self.settings.model_dump(exclude={"source", "format"})
        return fingerprint([_READER_VERSION, settings, [source.fingerprint() for source in self.sources]])

    def read(self) -> Iterator[Document | Skipped]:
        """Stream the documents and, by name and reason, what is left out.

        Raises:
            DataError: a record is bad and the policy is to fail, two documents have the same id, or there is
                no document at all.
        """
        # Hashes, not ids: a million take well under 100 MB, and a clash of hashes is looked into.
        seen: set[int] = set()
        left_out: Counter[SkipReason] = Counter()
        for n_before, (place, item) in enumerate(self._readings()):
            if isinstance(item, Skipped):
                self._apply_policy(item)
                left_out[item.reason] += 1
            else:
                if (key := hash(item.doc_id)) in seen:
                    self._refuse_duplicate(item.doc_id, place, n_before)
                seen.add(key)
            yield item
        if not seen:
            raise DataError(self._nothing_read(left_out))

    def _readings(self) -> Iterator[Reading]:
        for source in self.sources:
            yield from source.read()

    def _apply_policy(self, skipped: Skipped) -> None:
        if self.settings.bad_records == "fail" and skipped.reason in BAD_RECORDS:
            name = f" (document {skipped.doc_id[:80]!r})" if skipped.doc_id else ""
            raise DataError(
                f"{skipped.place}{name}: {skipped.reason}: {skipped.detail}; mend it, or set "
                "corpus.bad_records = 'skip' to leave such records out"
            )

    def _nothing_read(self, left_out: Counter[SkipReason]) -> str:
        reasons = ", ".join(f"{n} {reason}" for reason, n in left_out.items()) or "nothing"
        return (
            f"{self.describe()}: there is no document (left out: {reasons}); "
            "check corpus.source and the names of the fields"
        )

    def _refuse_duplicate(self, doc_id: str, place: str, n_before: int) -> None:
        """Read again what came before, to name the first place of the id too."""
        for earlier, item in islice(self._readings(), n_before):
            if isinstance(item, Document) and item.doc_id == doc_id:
                raise DataError(
                    f"the document id {doc_id[:80]!r} stands twice: at {earlier} and at {place}; "
                    "give every document its own"
                )
