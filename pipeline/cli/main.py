"""The command line: parse, call one function, print one report.

Exit codes: 0 done; 1 the data, the model or an index cannot be used; 2 the request is wrong (an option, a
configuration value, the order of commands); 3 done, but some records of the corpus were skipped (0 with
--allow-skipped); 130 interrupted.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.cli.build_commands import builds_command, prune_command, rollback_command
from pipeline.cli.runs import find_run
from pipeline.config import Config, load_config
from pipeline.errors import LastpageError, UsageError

EXIT_SKIPPED = 3
EXIT_INTERRUPTED = 130
# In characters; names of files may have 255 bytes.
_RUN_NAME = 60

Command = TypeVar("Command", bound=Callable[..., Any])

EPILOG = (
    "Exit codes: 0 done; 1 data, model or index unusable; 2 wrong request; "
    "3 done, but records were skipped (see --allow-skipped); 130 interrupted."
)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG
)
@click.version_option(package_name="lastpage", prog_name="lastpage")
def cli() -> None:
    """Find what stands on the last page.

    Embeds a corpus with the plain and the attention-calibrated encoder in one pass, builds two FAISS indexes
    over the same rows, and shows which documents surface because their answer stands late.

    \b
    lastpage index                              the built-in example corpus and model
    lastpage query "When does finally run?"     ask both arms
    lastpage index --corpus notes/              your own texts
    """


def run_options(command: Command) -> Command:
    """Give a command the options that describe a run."""
    options = [
        click.option(
            "-c",
            "--config",
            "config_path",
            type=click.Path(path_type=Path),
            help="A TOML file; see configs/.",
        ),
        click.option(
            "--corpus", help="JSONL or Parquet file, folder of .txt/.md, `datasets` name, or python-docs."
        ),
        click.option("--model", help="Packaged model, local folder, or hub id."),
        click.option("--run", help="The run directory.  [default: from the config, else runs/<corpus>]"),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="Any setting, e.g. chunk.max_tokens=256.",
        ),
        click.option("--allow-skipped", is_flag=True, help="Exit with 0 even if records were skipped."),
        click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
        click.option("-q", "--quiet", is_flag=True, help="No progress bars."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@cli.command("index", epilog=EPILOG)
@run_options
@click.pass_context
def index_command(ctx: click.Context, /, **options: Any) -> None:
    """Run what is missing, to the end: corpus, chunks, vectors of every arm, indexes.

    A second run with nothing changed does no work. A killed run resumes.

    \b
    lastpage index
    lastpage index --corpus notes/ --run runs/notes
    lastpage index --config configs/bge-m3.toml --corpus docs.jsonl --set arms.calibrated.strength=1.0
    """
    _run_stages(ctx, "index", **options)


@cli.command("chunk", epilog=EPILOG)
@run_options
@click.pass_context
def chunk_command(ctx: click.Context, /, **options: Any) -> None:
    """Read the corpus and cut it into chunks.

    \b
    lastpage chunk --corpus notes/ --set chunk.max_tokens=256
    """
    _run_stages(ctx, "chunk", **options)


@cli.command("embed", epilog=EPILOG)
@run_options
@click.pass_context
def embed_command(ctx: click.Context, /, **options: Any) -> None:
    """Embed the chunks that lack a vector in some arm (reads and cuts the corpus first if need be).

    \b
    lastpage embed --corpus notes/ --set embed.tokens_per_batch=32768
    """
    _run_stages(ctx, "embed", **options)


@cli.command("query", epilog=EPILOG)
@click.argument("query")
@click.option("-k", type=int, default=None, help="Documents to report from each arm.  [default: 10]")
@click.option("--depth", type=int, default=None, help="How deep ranks are looked up.  [default: 100]")
@click.option("--arm", help="The arm to compare with the first one.  [default: the second]")
@click.option("--run", help="The run directory.  [default: $LASTPAGE_RUN, else the newest below runs/]")
@click.option("--model", help="Where the model's files are now, if they have moved.")
@click.option(
    "--device", default="auto", show_default=True, help="Where the query is embedded: auto, cpu, cuda."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def query_command(
    query: str,
    k: int | None,
    depth: int | None,
    arm: str | None,
    run: str | None,
    model: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Ask both arms and report what moves between them.

    \b
    lastpage query "When is the finally clause of a generator executed?"
    lastpage query --run runs/notes -k 5 --json "where did we decide on the licence?"
    """
    from pipeline.ab import ABSearcher
    from pipeline.cli import report

    folder, hint = find_run(run)
    defaults = _stored_config(folder).query
    searcher = ABSearcher.open(folder, model=model, device=device)
    result = searcher.search(
        query, k=defaults.k if k is None else k, depth=defaults.depth if depth is None else depth, other=arm
    )
    if as_json:
        report.print_json({"run": str(folder), **result.as_json()})
    else:
        report.print_report(result, folder, hint)


cli.add_command(builds_command)
cli.add_command(rollback_command)
cli.add_command(prune_command)


@cli.command("reembed", epilog=EPILOG)
@run_options
@click.option("--dry-run", is_flag=True, help="Say what would be done, and leave the run as it is.")
@click.pass_context
def reembed_command(ctx: click.Context, /, *, dry_run: bool, **options: Any) -> None:
    """Bring a run in step with its corpus, model and settings: redo what is affected, nothing else.

    The same as `lastpage index`, which prints the same plan first.

    \b
    lastpage reembed --corpus notes/ --dry-run
    lastpage reembed --corpus notes/ --set arms.calibrated.strength=0.7
    """
    if dry_run:
        _dry_run(**options)
    else:
        _run_stages(ctx, "index", **options)


@cli.command("inspect", epilog=EPILOG)
@run_options
@click.option("--no-timing", is_flag=True, help="Don't send a batch through the encoder; no estimated time.")
@click.pass_context
def inspect_command(ctx: click.Context, /, *, no_timing: bool, **options: Any) -> None:
    """Say what `index` would do: documents, tokens, chunks, skipped records, estimated time and disk.

    Embeds nothing but one batch to time it, and writes nothing. Exits as `index` would: with its code if it
    would refuse a record or a setting.

    \b
    lastpage inspect --corpus notes/
    lastpage inspect --corpus docs.jsonl --set chunk.context=title --set index.factory=IVF256,Flat --json
    """
    _inspect(ctx, timing=not no_timing, **options)


def _inspect(
    ctx: click.Context,
    *,
    timing: bool,
    config_path: Path | None,
    corpus: str | None,
    model: str | None,
    run: str | None,
    settings: Sequence[str],
    allow_skipped: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    from pipeline.cli import inspection_report, report
    from pipeline.cli.progress import RichReporter
    from pipeline.inspection import inspect_corpus

    config = _configured(config_path, corpus, model, run, settings)
    with RichReporter(quiet=quiet).task("inspecting", None, "documents") as advance:
        inspection = inspect_corpus(config, timing=timing, progress=advance)
    if as_json:
        report.print_json(inspection.as_json())
    else:
        inspection_report.print_inspection(inspection)
    if inspection.refusals:
        ctx.exit(inspection.refusals[0].exit_code)
    if inspection.skipped and not allow_skipped:
        ctx.exit(EXIT_SKIPPED)


def _dry_run(
    *,
    config_path: Path | None,
    corpus: str | None,
    model: str | None,
    run: str | None,
    settings: Sequence[str],
    allow_skipped: bool,  # noqa: ARG001 - skipped records are for the run itself to report
    as_json: bool,
    quiet: bool,
) -> None:
    from pipeline.cli import report
    from pipeline.cli.progress import RichReporter
    from pipeline.stages import Run

    config = _configured(config_path, corpus, model, run, settings)
    plan = Run(config, RichReporter(quiet=quiet)).dry_run()
    if as_json:
        report.print_json({"run": config.run, "plan": plan.as_json()})
    else:
        click.echo(plan.sentence())


def _run_stages(
    ctx: click.Context,
    last: str,
    *,
    config_path: Path | None,
    corpus: str | None,
    model: str | None,
    run: str | None,
    settings: Sequence[str],
    allow_skipped: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    from pipeline.cli import report
    from pipeline.cli.progress import RichReporter
    from pipeline.stages import Run, Stage

    config = _configured(config_path, corpus, model, run, settings)
    process = Run(config, RichReporter(quiet=quiet))
    results = process.upto(Stage(last))
    if as_json:
        report.print_json(report.run_as_json(Path(config.run), results, process.plan))
    else:
        report.print_run(Path(config.run), results)
    if any(result.figures.get("skipped") for result in results) and not allow_skipped:
        ctx.exit(EXIT_SKIPPED)


def _configured(
    path: Path | None, corpus: str | None, model: str | None, run: str | None, settings: Sequence[str]
) -> Config:
    overrides: dict[str, Any] = dict(_setting(text) for text in settings)
    named = {"corpus.source": corpus, "model.name": model, "run": run}
    overrides.update({key: value for key, value in named.items() if value is not None})
    if corpus is not None and "run" not in overrides:
        overrides["run"] = f"runs/{_run_name(corpus)}"
    return load_config(path, overrides)


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text!r}: expected KEY=VALUE, such as chunk.max_tokens=256")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _run_name(corpus: str) -> str:
    """A folder name from a corpus: its last part without ending, no longer than file systems allow."""
    stem = corpus.rstrip("/").rsplit("/", 1)[-1].split(".", 1)[0] or "corpus"
    return re.sub(r"[^\w-]+", "-", stem)[:_RUN_NAME].strip("-") or "corpus"


def _stored_config(run: Path) -> Config:
    from pipeline.artifacts import RunLayout, read_json

    return Config.model_validate(read_json(RunLayout(run).config) or {})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the documented code."""
    try:
        code = cli.main(args=arguments, prog_name="lastpage", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; run the same command again to go on", err=True)
        code = EXIT_INTERRUPTED
    except LastpageError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except Exception as error:
        code = _index_error_code(error)
        click.echo(f"error: {error}", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _index_error_code(error: Exception) -> int:
    """The exit code of an error of `indexes`, which is imported only now, so that --help answers at once."""
    from indexes import ImpossibleIndexError, IndexesError, InvalidQueryError

    if not isinstance(error, IndexesError):
        raise error
    return 2 if isinstance(error, (ImpossibleIndexError, InvalidQueryError)) else 1
