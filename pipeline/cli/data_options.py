"""The options that describe labelled data and what to measure on it, and the configuration they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pipeline.cli.options import override_of, run_name
from pipeline.config import Config, load_config

_DATA_KEYS = (
    "data",
    "protocol",
    "groups",
    "language",
    "corpus_language",
    "k",
    "sample",
    "limit_documents",
    "seed",
    "chunk_tokens",
    "long_documents",
)


@dataclass(frozen=True, slots=True)
class DataOptions:
    """What was given on the command line about labelled data."""

    config_path: Path | None
    data: str | None
    protocol: str | None
    groups: str | None
    language: str | None
    corpus_language: str | None
    model: str | None
    k: int | None
    sample: int | None
    limit_documents: int | None
    seed: int | None
    chunk_tokens: int | None
    long_documents: str | None
    out: str | None
    settings: tuple[str, ...]
    as_json: bool
    quiet: bool

    def config(self, *, command: str) -> Config:
        """Lay the options over the configuration file, or over the defaults.

        The run directory is `--out`, else `runs/<command>-<data>[-<config>]`; that of the file is an index's.

        Raises:
            UsageError: a key is unknown, a value does not fit, or the file cannot be read.
        """
        given = {f"evaluate.{key}": getattr(self, key) for key in _DATA_KEYS}
        given.update({"model.name": self.model, "run": self.out})
        overrides = dict(override_of(text) for text in self.settings)
        overrides.update({key: value for key, value in given.items() if value is not None})
        config = load_config(self.config_path, overrides)
        if "run" in overrides:
            return config
        data = "-".join(
            part
            for part in (config.evaluate.data, config.evaluate.language, config.evaluate.corpus_language)
            if part
        )
        return config.model_copy(
            update={"run": f"runs/{command}-{run_name(data or 'data', self.config_path)}"}
        )


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of labelled data; they reach it as one `DataOptions`."""
    return data_options_without()(command)


def data_options_without(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of labelled data but for some, which it replaces by its own."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_options(*arguments: Any, **values: Any) -> Any:
            # What the command replaces stays among its own values and is not given here.
            taken: dict[str, Any] = {
                name: None if name in names else values.pop(name) for name in DataOptions.__slots__
            }
            return command(*arguments, DataOptions(**taken), **values)

        decorated: Callable[..., Any] = with_options
        for option in reversed([option for name, option in _OPTIONS.items() if name not in names]):
            decorated = option(decorated)
        return decorated

    return decorate


_COUNT = click.IntRange(min=1)
# In the order of the fields of `DataOptions`.
_DECORATORS = (
    click.option(
        "-c", "--config", "config_path", type=click.Path(path_type=Path), help="A TOML file; see configs/."
    ),
    click.option("--data", help="Labelled data: a folder, a file, or a `datasets` name."),
    click.option(
        "--protocol",
        type=click.Choice(["per-shift", "siblings"]),
        help="Rotations of a document: an index for each, or one for all.  [default: per-shift]",
    ),
    click.option(
        "--groups",
        type=click.Choice(["auto", "thirds", "fifths", "twentieths"]),
        help="Position groups.  [default: the set's own, else fifths]",
    ),
    click.option("--language", help="Of a set that has several."),
    click.option("--corpus-language", help="Of the documents, where it is another than the questions'."),
    click.option("--model", help="Packaged model, local folder, or hub id."),
    click.option("-k", "--k", type=_COUNT, help="Depth of nDCG, recall and MRR.  [default: 10]"),
    click.option("--sample", type=_COUNT, help="Measure so many questions only, at all their positions."),
    click.option("--limit-documents", type=_COUNT, help="Keep so many documents an index; easier to search."),
    click.option("--seed", type=click.IntRange(min=0), help="Of samples and statistics.  [default: 0]"),
    click.option("--chunk-tokens", type=_COUNT, help="Cut documents into chunks; rank by the best one."),
    click.option(
        "--long-documents",
        type=click.Choice(["refuse", "truncate", "chunk"]),
        help="What happens to a document that is too long for the model.  [default: truncate, and count]",
    ),
    click.option("--out", help="The run directory.  [default: runs/<command>-<data>[-<config>]]"),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any setting, e.g. arms.calibrated.strength=1.0.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("-q", "--quiet", is_flag=True, help="No progress bars."),
)
_OPTIONS = dict(zip(DataOptions.__slots__, _DECORATORS, strict=True))
