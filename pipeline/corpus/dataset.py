"""Datasets of the `datasets` library: folders written by `save_to_disk`, and names on the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from pipeline.artifacts import fingerprint
from pipeline.config import CorpusSettings
from pipeline.corpus.fields import FieldMap
from pipeline.corpus.source import Reading
from pipeline.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


class DatasetSource:
    """The rows of one split; hub datasets are streamed, only the columns needed are read.

    Raises:
        DataError: there is no such dataset, split or text column, or it is out of reach.
    """

    def __init__(self, name: str, settings: CorpusSettings) -> None:
        self._name = name
        self._split = settings.split
        self._fields = FieldMap.from_settings(settings)
        try:
            dataset, self._digest = _open(name, settings)
            columns = list(dataset.column_names or next(iter(dataset), {}))
        except (OSError, ValueError, ImportError) as error:
            raise DataError(_explain(name, error)) from error
        self._fields.check_optional(columns, name)
        self._rows = dataset.select_columns(self._fields.needed(columns, name))

    def describe(self) -> str:
        """Name the dataset and its split."""
        return f"split {self._split} of the dataset {self._name}"

    def fingerprint(self) -> str:
        """Hash what the library identifies the dataset's content by."""
        return fingerprint([self._digest, self._split])

    def read(self) -> Iterator[Reading]:
        """Stream the rows; one without an id is known as `<split>:<row>`.

        Raises:
            DataError: the connection is lost, or a text is not UTF-8.
        """
        try:
            for number, record in enumerate(self._rows, 1):
                place = f"{self._name}[{self._split}] row {number}"
                yield place, self._fields.read(record, place=place, default_id=f"{self._split}:{number}")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(_explain(self._name, error)) from error


def read_records(
    name: str, *, split: str | None = None, config_name: str | None = None
) -> tuple[list[str], Iterator[tuple[str, dict[str, Any]]], str]:
    """Open a saved or hub dataset as columns, places and rows, and what identifies its content.

    Args:
        name: a folder of `save_to_disk`, or a name on the hub.
        split: one split; by default all, one after the other.
        config_name: of a hub dataset that has several.

    Raises:
        DataError: there is no such dataset or split, or it is out of reach.
    """
    try:
        splits = [split] if split else _split_names(name, config_name)
        opened = {
            part: _open(name, CorpusSettings(source=name, split=part, config_name=config_name))
            for part in splits
        }
        columns = list(
            dict.fromkeys(
                chain.from_iterable(rows.column_names or next(iter(rows), {}) for rows, _ in opened.values())
            )
        )
    except (OSError, ValueError, ImportError) as error:
        raise DataError(_explain(name, error, check="its name and split")) from error
    digest = fingerprint([[part, digest] for part, (_, digest) in opened.items()])
    return columns, _rows(name, {part: rows for part, (rows, _) in opened.items()}), digest


def _rows(name: str, opened: Mapping[str, Dataset | IterableDataset]) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        for part, rows in opened.items():
            for number, record in enumerate(rows, 1):
                yield f"{name}[{part}] row {number}", dict(record)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(_explain(name, error)) from error


def _split_names(name: str, config_name: str | None) -> list[str]:
    import datasets

    if not is_saved(name):
        return list(datasets.get_dataset_split_names(name, config_name))
    saved = datasets.load_from_disk(name)
    # A lone saved split has no name that matters: `_open` returns it whatever it is asked for.
    return list(saved) if isinstance(saved, datasets.DatasetDict) else ["train"]


def _open(name: str, settings: CorpusSettings) -> tuple[Dataset | IterableDataset, str]:
    """Return the split and what identifies its content."""
    import datasets

    if not is_saved(name):
        builder = datasets.load_dataset_builder(name, settings.config_name)
        rows = builder.as_streaming_dataset(settings.split)
        return rows, f"{builder.hash} {builder.config.name}"
    saved = datasets.load_from_disk(name)
    if isinstance(saved, datasets.DatasetDict):
        if settings.split not in saved:
            raise DataError(
                f"{name}: no split {settings.split!r}; set corpus.split to one of {', '.join(saved)}"
            )
        saved = saved[settings.split]
    return saved, cast(str, saved._fingerprint)


def is_saved(source: str) -> bool:
    """Tell whether a path is a folder that `save_to_disk` wrote."""
    from fsspec.core import url_to_fs

    filesystem, path = url_to_fs(source)
    return any(filesystem.isfile(f"{path}/{name}") for name in ("state.json", "dataset_dict.json"))


def _explain(
    name: str, error: Exception, *, check: str = "its name, corpus.split and corpus.config_name"
) -> str:
    advice = f"check {check}"
    if isinstance(error, ConnectionError):
        advice = "the hub is out of reach and the dataset is not cached; go online, or use a saved folder"
    return f"{name}: the dataset cannot be read ({error}); {advice}"
