"""The commands that make a run, wholly or up to a stage, or say what making it would mean."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.cli.options import EPILOG, RunOptions, run_options

EXIT_SKIPPED = 3


@click.command("index", epilog=EPILOG)
@click.pass_context
@run_options
def index_command(ctx: click.Context, options: RunOptions) -> None:
    """Run what is missing, to the end: corpus, chunks, vectors of every arm, indexes.

    A second run with nothing changed does no work. A killed run resumes.

    \b
    lastpage index
    lastpage index --corpus notes/ --run runs/notes
    lastpage index --config configs/bge-m3.toml --corpus docs.jsonl --set arms.calibrated.strength=1.0
    """
    _run_stages(ctx, "index", options)


@click.command("chunk", epilog=EPILOG)
@click.pass_context
@run_options
def chunk_command(ctx: click.Context, options: RunOptions) -> None:
    """Read the corpus and cut it into chunks.

    \b
    lastpage chunk --corpus notes/ --set chunk.max_tokens=256
    """
    _run_stages(ctx, "chunk", options)


@click.command("embed", epilog=EPILOG)
@click.pass_context
@run_options
def embed_command(ctx: click.Context, options: RunOptions) -> None:
    """Embed the chunks that lack a vector in some arm (reads and cuts the corpus first if need be).

    \b
    lastpage embed --corpus notes/ --set embed.tokens_per_batch=32768
    lastpage embed --corpus notes/ --set embed.workers=4
    """
    _run_stages(ctx, "embed", options)


@click.command("reembed", epilog=EPILOG)
@click.pass_context
@run_options
@click.option("--dry-run", is_flag=True, help="Say what would be done, and leave the run as it is.")
def reembed_command(ctx: click.Context, options: RunOptions, *, dry_run: bool) -> None:
    """Bring a run in step with its corpus, model and settings: redo what is affected, nothing else.

    The same as `lastpage index`, which prints the same plan first.

    \b
    lastpage reembed --corpus notes/ --dry-run
    lastpage reembed --corpus notes/ --set arms.calibrated.strength=0.7
    """
    if dry_run:
        _print_plan(options)
    else:
        _run_stages(ctx, "index", options)


@click.command("inspect", epilog=EPILOG)
@click.pass_context
@run_options
@click.option("--no-timing", is_flag=True, help="Don't send a batch through the encoder; no estimated time.")
def inspect_command(ctx: click.Context, options: RunOptions, *, no_timing: bool) -> None:
    """Say what `index` would do: documents, tokens, chunks, skipped records, estimated time and disk.

    Embeds nothing but one batch to time it, and writes nothing. Exits as `index` would: with its code if it
    would refuse a record or a setting.

    \b
    lastpage inspect --corpus notes/
    lastpage inspect --corpus docs.jsonl --set chunk.context=title --set index.factory=IVF256,Flat --json
    """
    from pipeline.cli import inspection_report, report
    from pipeline.cli.progress import RichReporter
    from pipeline.inspection import inspect_corpus

    with RichReporter(quiet=options.quiet).task("inspecting", None, "documents") as advance:
        inspection = inspect_corpus(options.config(), timing=not no_timing, progress=advance)
    if options.as_json:
        report.print_json(inspection.as_json())
    else:
        inspection_report.print_inspection(inspection)
    if inspection.refusals:
        ctx.exit(inspection.refusals[0].exit_code)
    if inspection.skipped and not options.allow_skipped:
        ctx.exit(EXIT_SKIPPED)


def _print_plan(options: RunOptions) -> None:
    from pipeline.cli import report
    from pipeline.cli.progress import RichReporter
    from pipeline.stages import Run

    config = options.config()
    plan = Run(config, RichReporter(quiet=options.quiet)).dry_run()
    if options.as_json:
        report.print_json({"run": config.run, "plan": plan.as_json()})
    else:
        click.echo(plan.sentence())


def _run_stages(ctx: click.Context, last: str, options: RunOptions) -> None:
    from pipeline.cli import report, run_report
    from pipeline.cli.progress import RichReporter
    from pipeline.stages import Run, Stage

    config = options.config()
    run = Run(config, RichReporter(quiet=options.quiet))
    results = run.upto(Stage(last))
    if options.as_json:
        report.print_json(run_report.run_as_json(Path(config.run), results, run.plan))
    else:
        run_report.print_run(Path(config.run), results)
    if any(result.figures.get("skipped") for result in results) and not options.allow_skipped:
        ctx.exit(EXIT_SKIPPED)
