"""From a path or a name to a checked set: what lies there decides which adapter reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.config import EvaluateSettings
from pipeline.corpus.dataset import is_saved
from pipeline.corpus.opening import looks_like_hub_name
from pipeline.errors import DataError, UsageError
from pipeline.evaluation.datasets import fineweb, posir, squad, text_sets
from pipeline.evaluation.datasets.building import build_set
from pipeline.evaluation.datasets.contents import DatasetRows, FileRows
from pipeline.evaluation.datasets.records import EvaluationSet, Source

_EXPECTED = (posir.EXPECTED, squad.EXPECTED, fineweb.EXPECTED, *text_sets.EXPECTED.values())
_ROW_SUFFIXES = {".parquet", ".jsonl", ".ndjson"}
_NAMES_SHOWN = 8


def load_evaluation_set(settings: EvaluateSettings) -> EvaluationSet:
    """Find, read, check and group the labelled data that the settings name.

    Raises:
        UsageError: no data is named, or what is asked for does not fit it.
        DataError: the data is of no known layout, or cannot be used; the message names file and row.
    """
    if settings.data is None:
        raise UsageError("no labelled data is named; give --data (a folder, a file, or a `datasets` name)")
    return build_set(open_source(settings.data, settings), settings)


def open_source(data: str, settings: EvaluateSettings) -> Source:
    """Find the adapter for a path or name.

    Raises:
        DataError: nothing of a known layout is there; the message says what was found and expected.
    """
    path = Path(data).expanduser()
    if not path.exists():
        return _from_hub(data, settings)
    if path.is_dir() and is_saved(path.as_posix()):
        rows = DatasetRows(path.as_posix(), settings.split)
        return _from_rows(path.name, rows, settings, data)
    if path.is_dir():
        return _from_folder(path, settings)
    if path.suffix in _ROW_SUFFIXES:
        return _from_rows(path.stem, FileRows(path), settings, data)
    if squad.is_squad_file(path) and settings.layout in ("auto", squad.LAYOUT):
        return squad.SquadSource(path.stem, squad.SquadFiles([path]))
    raise _unknown(data, f"the file {path.name}", settings.layout)


def _from_folder(folder: Path, settings: EvaluateSettings) -> Source:
    finders: dict[str, Callable[[], Source | None]] = {
        posir.LAYOUT: lambda: _posir(folder, settings),
        squad.LAYOUT: lambda: _squad(folder),
        text_sets.BEIR: lambda: _text(
            folder, text_sets.BEIR, text_sets.find_beir(folder, settings.split), settings
        ),
        text_sets.TREC: lambda: _text(folder, text_sets.TREC, text_sets.find_trec(folder), settings),
    }
    for layout, find in finders.items():
        if settings.layout in ("auto", layout) and (source := find()) is not None:
            return source
    names = sorted(path.name + ("/" if path.is_dir() else "") for path in folder.iterdir())
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    raise _unknown(str(folder), shown or "an empty folder", settings.layout)


def _posir(folder: Path, settings: EvaluateSettings) -> Source | None:
    parts = posir.find_posir(folder, settings.language, settings.corpus_language)
    if not parts:
        return None
    languages = [name for name in (settings.language, settings.corpus_language) if name]
    name = "-".join([folder.resolve().name, *languages])
    return posir.PosirSource(name, parts, siblings=settings.protocol == "siblings")


def _squad(folder: Path) -> Source | None:
    files = [path for path in sorted(folder.glob("*.json")) if squad.is_squad_file(path)]
    return squad.SquadSource(folder.resolve().name, squad.SquadFiles(files)) if files else None


def _text(
    folder: Path, layout: str, files: text_sets.TextFiles | None, settings: EvaluateSettings
) -> Source | None:
    if files is None:
        return None
    _refuse_siblings(settings, layout)
    return text_sets.TextSource(folder.resolve().name, layout, files)


def _from_rows(name: str, rows: FileRows | DatasetRows, settings: EvaluateSettings, data: str) -> Source:
    columns = set(rows.columns())
    _refuse_siblings(settings, "rows")
    if settings.layout in ("auto", squad.LAYOUT) and columns.issuperset(squad.COLUMNS):
        return squad.SquadSource(name, rows)
    if settings.layout in ("auto", fineweb.LAYOUT) and columns.issuperset(fineweb.COLUMNS):
        return fineweb.FinewebSource(name, rows)
    raise _unknown(data, f"rows with {', '.join(sorted(columns)) or 'no columns'}", settings.layout)


def _from_hub(data: str, settings: EvaluateSettings) -> Source:
    if not looks_like_hub_name(data):
        raise DataError(f"{data}: no such file or folder, and not a `datasets` name (owner/name)")
    try:
        rows = DatasetRows(data, settings.split)
    except DataError as error:
        raise DataError(
            f"{data}: no such file or folder, so it was taken for a dataset of the Hugging Face hub; {error}"
        ) from error
    return _from_rows(data.rsplit("/", 1)[-1], rows, settings, data)


def _refuse_siblings(settings: EvaluateSettings, layout: str) -> None:
    if settings.protocol == "siblings":
        raise UsageError(
            f"protocol 'siblings' needs documents in rotations (columns shift or phase), and data of layout "
            f"{layout} has none; leave out --protocol"
        )


def _unknown(data: str, found: str, layout: str) -> DataError:
    expected = [line for line in _EXPECTED if layout == "auto" or line.startswith(f"{layout}:")]
    lines = "\n".join(f"  {line}" for line in expected)
    return DataError(f"{data}: no labelled data of a known layout; found {found}; expected one of\n{lines}")
