"""The command that asks both arms."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.cli.options import EPILOG, arm_options, chosen_arms
from pipeline.cli.runs import find_run
from pipeline.config import Config, QuerySettings


@click.command("query", epilog=EPILOG)
@click.argument("query")
@click.option("-k", type=int, help="Documents to report from each arm.  [default: the run's, 10]")
@click.option("--depth", type=int, help="How deep ranks are looked up.  [default: the run's, 100]")
@arm_options
@click.option("--no-explain", is_flag=True, help="Only rank: don't look for answers and reasons.")
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
    arms: tuple[str, ...],
    all_arms: bool,
    no_explain: bool,
    run: str | None,
    model: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Ask both arms, and report what moves between them and why.

    \b
    lastpage query "When is the finally clause of a generator executed?"
    lastpage query --run runs/notes -k 5 --json "where did we decide on the licence?"
    """
    from pipeline.ab import ABSearcher
    from pipeline.cli import report

    folder, hint = find_run(run)
    usual = _settings_of(folder)
    searcher = ABSearcher.open(folder, model=model, device=device)
    result = searcher.search_arms(
        query,
        k=usual.k if k is None else k,
        depth=usual.depth if depth is None else depth,
        others=chosen_arms(searcher.arms, arms, all_arms=all_arms),
        explain=not no_explain,
    )
    if as_json:
        comparisons = [comparison.as_json() for comparison in result.comparisons]
        several = {"comparisons": comparisons} if len(arms) > 1 or all_arms else comparisons[0]
        report.print_json({"run": str(folder), **several})
    else:
        report.print_report(result.comparisons, folder, hint)


def _settings_of(run: Path) -> QuerySettings:
    from pipeline.artifacts import RunLayout, read_json

    return Config.model_validate(read_json(RunLayout(run).config) or {}).query
