"""The command that asks how fairly a model represents the parts of a long document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli.options import RunOptions, run_name
from pipeline.cli.sweep_command import CommaList
from pipeline.config import Config
from pipeline.errors import UsageError

if TYPE_CHECKING:
    from pipeline.diagnostics.settings import DiagnosisSettings

_EPILOG = "Exit codes: 0 done; 1 data or model unusable; 2 wrong request; 130 interrupted."


@click.command("diagnose", epilog=_EPILOG)
@click.option("--model", help="Packaged model, local folder, or hub id.  [default: the config's]")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Comparable corpus: a folder of corpus.<language>.parquet or .jsonl.",
)
@click.option("--corpus", help="Or your own documents, as for `lastpage index`.  [default: python-docs]")
@click.option(
    "--languages", type=CommaList(str, "L,L", "a language"), help="Languages of --data, e.g. en,de."
)
@click.option("--mixed", is_flag=True, help="Also mix: one segment in one language, the rest in another.")
@click.option("--mixed-at", type=int, help="The place of that segment.  [default: 1]")
@click.option("--segments", "n", type=int, help="Segments of a document, 3 to 6.  [default: 3]")
@click.option(
    "--within",
    type=click.Choice(["document", "corpus"]),
    help="Segments of a set come from one document, or from anywhere.  [default: document]",
)
@click.option("--min-tokens", type=int, help="Of a segment.  [default: 40]")
@click.option("--max-tokens", type=int, help="Of a segment.  [default: what the model takes]")
@click.option("--ratio", type=float, help="Longest to shortest segment of a set, at most.  [default: 2]")
@click.option("--max-sets", type=int, help="Segment sets; more are drawn from.  [default: 100]")
@click.option("--max-orders", type=int, help="Orders of a set; more are sampled evenly.  [default: 24]")
@click.option(
    "--attention-documents", type=int, help="Documents whose attention is summed up.  [default: 100]"
)
@click.option("--seed", type=int, help="Decides every draw.  [default: 0]")
@click.option(
    "--strength",
    "strengths",
    type=CommaList(float, "X,X", "a number above 0 and at most 1"),
    help="Compare plain with these strengths, e.g. 0.5,1.  [default: the config's arms]",
)
@click.option(
    "-c", "--config", "config_path", type=click.Path(path_type=Path), help="A TOML file; see configs/."
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Any setting of the config.")
@click.option("--run", help="The run directory.  [default: runs/diagnose-<model>-<data>]")
@click.option("--dry-run", is_flag=True, help="Only count the documents; embed and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bars.")
def diagnose_command(
    *,
    model: str | None,
    data: Path | None,
    corpus: str | None,
    strengths: list[float] | None,
    config_path: Path | None,
    changes: tuple[str, ...],
    run: str | None,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> None:
    """Measure how fairly a model represents the parts of a long document; no queries or labels needed.

    Documents are made of the same segments in all orders, so that content cannot confound position. Reports
    by place: sigma (document against segment), tau (segment alone against inside), a regression on position,
    and where attention goes, plainly and calibrated. A killed run goes on: run the same command again.

    \b
    lastpage diagnose
    lastpage diagnose --corpus notes/ --within corpus --model BAAI/bge-m3
    lastpage diagnose --data xquad_posq --languages en --strength 0.5,1
    lastpage diagnose --data xquad_posq --languages en,de --mixed --dry-run
    """
    from pipeline.cli import diagnosis_report, report
    from pipeline.cli.progress import RichReporter
    from pipeline.diagnostics.run import Diagnoser

    if data is not None and corpus is not None:
        raise UsageError("--data names a comparable corpus and --corpus your own documents; give one of them")
    source = str(data) if data is not None else corpus
    options = RunOptions(config_path, source, model, run, changes, True, as_json, quiet)
    # A run directory of its own in any case: the usual one holds indexes.
    config = replace(options, run=run or "runs/diagnose").config()
    config = _named(_with_strengths(config, strengths), options)
    settings = _settings(asked)
    reporter = RichReporter(quiet=quiet)
    diagnoser = Diagnoser.prepare(config, settings)
    counts = diagnoser.plan.counts
    if dry_run:
        if as_json:
            report.print_json(asdict(counts))
        else:
            diagnosis_report.print_counts(counts)
        return
    for line in diagnosis_report.counts_in_words(counts):
        reporter.say(line)
    diagnosis = diagnoser.run(reporter)
    if as_json:
        report.print_json({"run": config.run, **diagnosis.as_json()})
    else:
        diagnosis_report.print_diagnosis(diagnosis, Path(config.run))


def _settings(asked: Mapping[str, Any]) -> DiagnosisSettings:
    """Check what was asked for; what was not named keeps its default."""
    from pydantic import ValidationError

    from pipeline.diagnostics.settings import DiagnosisSettings

    values = {name: value for name, value in asked.items() if value is not None}
    try:
        return DiagnosisSettings.model_validate(values)
    except ValidationError as error:
        problems = [
            ": ".join([*map(_option, each["loc"][:1]), each["msg"].removeprefix("Value error, ")])
            for each in error.errors()
        ]
        raise UsageError("; ".join(problems)) from error


def _option(setting: int | str) -> str:
    """The option that a setting is given by."""
    return "--segments" if setting == "n" else f"--{str(setting).replace('_', '-')}"


def _with_strengths(config: Config, strengths: list[float] | None) -> Config:
    """Put arms of the asked strengths in place of the config's, otherwise like its first calibrated one."""
    from pipeline.config import ArmSettings

    if not strengths:
        return config
    like = next((arm for arm in config.arms.values() if arm.strength > 0), ArmSettings())
    if wrong := [strength for strength in strengths if not 0 < strength <= 1]:
        raise UsageError(f"--strength {wrong[0]}: expected a number above 0 (plain) and at most 1 (full)")
    arms = {"plain": ArmSettings(strength=0.0)}
    arms |= {f"strength-{value:g}": like.model_copy(update={"strength": value}) for value in strengths}
    return config.model_copy(update={"arms": arms})


def _named(config: Config, options: RunOptions) -> Config:
    """Name the run directory by model and data, unless it was named."""
    if options.run is not None:
        return config
    source = config.corpus.source if isinstance(config.corpus.source, str) else config.corpus.source[0]
    name = f"{run_name(config.model.name, None)}-{run_name(source, options.config_path)}"
    return config.model_copy(update={"run": f"runs/diagnose-{name}"})
