"""`lastpage sweep` and `lastpage tune`: which setting is right, with labels and without."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pipeline.cli.data_options import DataOptions, data_options_without
from pipeline.cli.options import EPILOG, RunOptions, run_options
from pipeline.config import Config, LayerSelection, SpecialTokenMass
from pipeline.errors import UsageError

if TYPE_CHECKING:
    from pipeline.artifacts import RunLayout
    from pipeline.evaluation.grid import Grid

EXIT_SKIPPED = 3
_COUNT = "a whole number from 1"
_SHARE = "a number from 0 to 1"
_LAYERS = "last, all, a fraction such as 0.5 counted from the last layer, or a number of final layers"
_EPILOG = (
    "Exit codes: 0 done; 1 data or model unusable; 2 wrong request; 130 interrupted (run it again to go on)."
)


class CommaList(click.ParamType):  # type: ignore[type-arg]
    """Values with commas between them, each read by a function."""

    def __init__(self, read: Callable[[str], Any], name: str, expected: str) -> None:
        self._read = read
        self.name = name
        self._expected = expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """Read every value, or say which one does not fit."""
        values = []
        for text in str(value).split(","):
            try:
                values.append(self._read(text.strip()))
            except ValueError:
                self.fail(f"{text.strip()!r}: expected {self._expected}", param, ctx)
        # By their text, because 1 (the last layer) equals 1.0 (all layers).
        return list({repr(value): value for value in values}.values())


def _basket(text: str) -> int:
    return _at_least_one(int(text))


def _strength(text: str) -> float:
    return _share(float(text))


def _layers(text: str) -> LayerSelection:
    if text in ("last", "all"):
        return text  # type: ignore[return-value]
    return _at_least_one(int(text)) if text.isdecimal() else _share(float(text))


def _mass(text: str) -> SpecialTokenMass:
    return text if text in ("equal", "original") else _share(float(text))  # type: ignore[return-value]


def _budget(text: str) -> int | None:
    return None if text == "none" else _at_least_one(int(text))


def _at_least_one(number: int) -> int:
    if number < 1:
        raise ValueError
    return number


def _share(number: float) -> float:
    if not 0.0 <= number <= 1.0:
        raise ValueError
    return number


def _grid_options(chunk_tokens: str, chunk_help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that span a grid; `chunk_tokens` is the default of the chunk budgets."""
    options = (
        click.option(
            "--basket", "baskets", type=CommaList(_basket, "N,N", _COUNT), default="32,64,128",
            show_default=True, help="Content tokens in a basket.",
        ),
        click.option(
            "--strength", "strengths", type=CommaList(_strength, "X,X", _SHARE), default="0.25,0.5,1",
            show_default=True, help="From 0 (plain) to 1 (full).",
        ),
        click.option(
            "--layers", type=CommaList(_layers, "L,L", _LAYERS), default="last,0.5,all", show_default=True,
            help="last, all, a fraction counted from the last layer, or how many final layers.",
        ),
        click.option(
            "--mass", "masses", type=CommaList(_mass, "M,M", f"equal, original or {_SHARE}"), default="equal",
            show_default=True,
            help="Attention of isolated special tokens: equal, original or a share; none with mean pooling.",
        ),
        click.option(
            "--chunk-tokens", type=CommaList(_budget, "N,N", f"none or {_COUNT}"), default=chunk_tokens,
            show_default=True, help=chunk_help,
        ),
    )  # fmt: skip

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_timing_option = click.option("--no-timing", is_flag=True, help="Don't time embedding and search.")


@click.command("sweep", epilog=_EPILOG)
@data_options_without("chunk_tokens")
@_grid_options("none", "Chunk budgets, the largest first; none is as many as the model takes.")
@_timing_option
def sweep_command(options: DataOptions, *, no_timing: bool, **dimensions: Any) -> None:
    """Measure a grid of settings on labelled data: basket, strength, layers, chunk budget.

    Prints the settings by harmonic mean over positions, with PSI and what chance gives, marks those that no
    other beats in quality, fairness and number of vectors, and draws them. Settings share every pass that can
    be shared; vectors are kept, so that a killed sweep goes on and a larger one embeds only what is new.

    The best of many settings on few questions is best partly by luck: measure the chosen one again, on
    questions that did not choose it. Earlier results of other settings are kept in earlier/.

    \b
    lastpage sweep --data questions/
    lastpage sweep --data questions/ --basket 128 --strength 0.5,1 --layers last,0.5
    lastpage sweep --data questions/ --basket 32 --layers last --chunk-tokens none,254,126
    """
    from pipeline.artifacts import SweepFiles, run_lock
    from pipeline.cli import report, sweep_report
    from pipeline.cli.progress import RichReporter
    from pipeline.evaluation.datasets import load_evaluation_set
    from pipeline.evaluation.grid import Grid
    from pipeline.evaluation.sweep import run_sweep
    from pipeline.evaluation.sweep_figures import write_sweep

    config = options.config(command="sweep")
    layout = _layout(config)
    data = load_evaluation_set(config.evaluate)
    reporter = RichReporter(quiet=options.quiet)
    with run_lock(layout):
        result = run_sweep(data, config, Grid(**dimensions), layout, reporter, timing=not no_timing)
        written = write_sweep(result, SweepFiles(layout.root))
    if options.as_json:
        report.print_json({"run": config.run, **sweep_report.sweep_as_json(result, written)})
    else:
        sweep_report.print_sweep(config, result, written)


@click.command("tune", epilog=EPILOG)
@click.pass_context
@run_options
@_grid_options("none,254,126", "Chunk budgets, the largest first; none is chunk.max_tokens.")
@click.option("--max-vectors", type=click.FloatRange(min=0, min_open=True), help="Per document, at most.")
@click.option("--max-bytes", help="Of an exact index of the corpus, at most, such as 200MB.")
@click.option(
    "--passages", type=click.IntRange(min=40), default=300, show_default=True, help="How many to ask about."
)
@click.option("--timing", is_flag=True, help="Time embedding and search as well.")
def tune_command(
    ctx: click.Context,
    options: RunOptions,
    *,
    max_vectors: float | None,
    max_bytes: str | None,
    passages: int,
    timing: bool,
    **dimensions: Any,
) -> None:
    """Propose a setting for your own corpus, without labels.

    Draws passages of the corpus, cuts each into three blocks, and lets every block stand first, in the middle
    and last. Queries are the rarest words of single sentences; the passage they come from must be found among
    all. A setting is chosen on one half of the passages, its effect estimated on the other, and proposed only
    if the interval there supports it; otherwise the advice is to leave things as they are.

    What this shows: whether your model finds what stands late in your texts as well as what stands early, and
    what calibration or smaller chunks change about it. What it cannot show: how well your users' questions
    are answered; the words of these queries stand in the texts literally. Where you have real questions,
    `lastpage sweep` knows better.

    Everything is kept in runs/tune-<corpus>, or in --run: a killed tuning goes on where it stopped.

    \b
    lastpage tune --corpus notes/
    lastpage tune --corpus docs.jsonl --max-vectors 2
    lastpage tune --corpus docs.jsonl --max-bytes 200MB --basket 128 --layers last,0.5
    """
    from pipeline.artifacts import SweepFiles, run_lock
    from pipeline.cli import report, sweep_report
    from pipeline.cli.progress import RichReporter
    from pipeline.evaluation.grid import Grid
    from pipeline.evaluation.pseudo_corpus import survey_corpus
    from pipeline.evaluation.sweep_figures import write_sweep
    from pipeline.evaluation.tune import Limits, tune

    config = _tune_config(options)
    layout = _layout(config)
    source = ctx.get_parameter_source("chunk_tokens")
    asked_for = source is not ParameterSource.DEFAULT
    grid = _configured_first(Grid(**dimensions), config, were_asked_for=asked_for)
    limits = Limits(max_vectors, _bytes(max_bytes) if max_bytes is not None else None)
    reporter = RichReporter(quiet=options.quiet)
    with run_lock(layout):
        survey = survey_corpus(config, grid.chunk_tokens, reporter, n_passages=passages)
        result = tune(survey, config, grid, layout, reporter, limits=limits, timing=timing)
        written = write_sweep(result.sweep, SweepFiles(layout.root), tuning=result.as_json())
    if options.as_json:
        report.print_json({"run": config.run, **sweep_report.tune_as_json(result, written)})
    else:
        sweep_report.print_tune(config, result, written)
    if survey.skipped and not options.allow_skipped:
        ctx.exit(EXIT_SKIPPED)


def _tune_config(options: RunOptions) -> Config:
    """The configuration with a run directory of its own: a tuning has other chunks than the index."""
    config = options.config()
    if options.run is not None:
        return config
    run = Path(config.run)
    return config.model_copy(update={"run": (run.parent / f"tune-{run.name}").as_posix()})


def _configured_first(grid: Grid, config: Config, *, were_asked_for: bool) -> Grid:
    """Put the configured budget, which is what is done now, before smaller ones; `none` stands for it.

    Raises:
        UsageError: a larger one was asked for.
    """
    own = config.chunk.max_tokens
    others = [budget for budget in grid.chunk_tokens if budget is not None]
    larger = [budget for budget in others if own is not None and budget > own]
    if larger and were_asked_for:
        raise UsageError(
            f"--chunk-tokens {larger[0]} is more than chunk.max_tokens = {own}, which is what is done now; "
            "raise that, or leave the larger budget out"
        )
    smaller = [budget for budget in others if budget not in larger]
    return replace(grid, chunk_tokens=tuple(dict.fromkeys([own, *smaller])))


def _layout(config: Config) -> RunLayout:
    """The run directory, unless it holds an index, whose chunks would be overwritten.

    Raises:
        UsageError: it does.
    """
    from pipeline.artifacts import RunLayout

    if (Path(config.run) / "current").exists():
        raise UsageError(f"run {config.run} holds an index; name another directory for what is measured")
    return RunLayout(Path(config.run))


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _bytes(text: str) -> int:
    """Read a size such as 200MB.

    Raises:
        UsageError: it is none.
    """
    match = re.fullmatch(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?)B?\s*", text.upper(), re.ASCII)
    if match is None:
        raise UsageError(f"--max-bytes {text!r}: expected a size such as 200MB")
    return int(float(match["number"]) * _UNITS[match["unit"]])
