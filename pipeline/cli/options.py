"""Options that commands share: those that describe a run, with the configuration they make, and the arms."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pipeline.config import Config, load_config
from pipeline.errors import UsageError

EPILOG = (
    "Exit codes: 0 done; 1 data, model or index unusable; 2 wrong request; "
    "3 done, but records were skipped (see --allow-skipped); 130 interrupted."
)

# In characters; names of files may have 255 bytes.
_RUN_NAME = 60


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What was given on the command line about a run."""

    config_path: Path | None
    corpus: str | None
    model: str | None
    run: str | None
    settings: tuple[str, ...]
    allow_skipped: bool
    as_json: bool
    quiet: bool

    def config(self) -> Config:
        """Lay the options over the configuration file, or over the defaults.

        Raises:
            UsageError: a key is unknown, a value does not fit, or the file cannot be read.
        """
        overrides: dict[str, Any] = dict(override_of(text) for text in self.settings)
        named = {"corpus.source": self.corpus, "model.name": self.model, "run": self.run}
        overrides.update({key: value for key, value in named.items() if value is not None})
        if self.corpus is not None and "run" not in overrides:
            overrides["run"] = f"runs/{run_name(self.corpus, self.config_path)}"
        config = load_config(self.config_path, overrides)
        if self.config_path is None and "corpus.source" not in overrides:
            _refuse_another_corpus(config)
        return config


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that describe a run; they reach it as one `RunOptions`."""

    @wraps(command)
    def with_options(*arguments: Any, **values: Any) -> Any:
        own = {name: values.pop(name) for name in list(values) if name not in RunOptions.__slots__}
        return command(*arguments, RunOptions(**values), **own)

    decorated: Callable[..., Any] = with_options
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def arm_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `arms` and `all_arms`; `chosen_arms` says what they ask for."""
    for option in reversed(_ARM_OPTIONS):
        command = option(command)
    return command


def chosen_arms(existing: Sequence[str], arms: Sequence[str], *, all_arms: bool) -> Sequence[str]:
    """The arms to compare with the first one; what is no arm is refused by the searcher.

    Raises:
        UsageError: some arms are named and all are asked for.
    """
    if arms and all_arms:
        raise UsageError("--arm names some arms and --all-arms asks for all; give one of them")
    return existing[1:] if all_arms else arms or existing[1:2]


_ARM_OPTIONS = (
    click.option(
        "--arm",
        "arms",
        multiple=True,
        help="An arm to compare with the first one; may be given several times.  [default: the second]",
    ),
    click.option("--all-arms", is_flag=True, help="Compare every arm with the first one."),
)

_OPTIONS = (
    click.option(
        "-c",
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        help="A TOML file; see configs/.",
    ),
    click.option(
        "--corpus", help="JSONL or Parquet file, folder of .txt/.md/.html, `datasets` name, or python-docs."
    ),
    click.option("--model", help="Packaged model, local folder, or hub id."),
    click.option(
        "--run", help="The run directory.  [default: the config's; with --corpus, runs/<corpus>[-<config>]]"
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any setting, e.g. chunk.max_tokens=256.",
    ),
    click.option("--allow-skipped", is_flag=True, help="Exit with 0 even if records were skipped."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("-q", "--quiet", is_flag=True, help="No progress bars."),
)


def override_of(text: str) -> tuple[str, Any]:
    """Parse one KEY=VALUE; the value is TOML, or else text.

    Raises:
        UsageError: there is no key or no equals sign.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text!r}: expected KEY=VALUE, such as chunk.max_tokens=256")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _refuse_another_corpus(config: Config) -> None:
    """Refuse to fill a run of another corpus with the built-in one, which nobody asked for."""
    from pipeline.artifacts import RunLayout, read_json

    held = read_json(RunLayout(Path(config.run)).config) or {}
    source = held.get("corpus", {}).get("source", config.corpus.source)
    if source != config.corpus.source:
        raise UsageError(
            f"run {config.run} holds the corpus {source!r}; name it again with --corpus (or with --config), "
            f"since the default would put {config.corpus.source!r} in its place"
        )


def run_name(corpus: str, config: Path | None) -> str:
    """A folder name from a corpus and, if it is not the default, a configuration.

    The ending stays in it, so that docs.jsonl and docs.parquet do not share a run.
    """
    parts = [corpus.rstrip("/").rsplit("/", 1)[-1]]
    if config is not None and config.stem != "default":
        parts.append(config.stem)
    name = "-".join(part for part in parts if part)
    return re.sub(r"[^\w-]+", "-", name)[:_RUN_NAME].strip("-") or "corpus"
