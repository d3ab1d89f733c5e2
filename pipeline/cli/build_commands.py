"""The commands about builds: list, roll back, prune."""

from __future__ import annotations

from dataclasses import asdict

import click

from pipeline.cli.runs import find_run

_EPILOG = "Exit codes: 0 done; 1 a build is damaged; 2 wrong request."

_run_option = click.option(
    "--run", help="The run directory.  [default: $LASTPAGE_RUN, else the newest below runs/]"
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.command("builds", epilog=_EPILOG)
@_run_option
@_json_option
def builds_command(run: str | None, as_json: bool) -> None:
    """List the builds of a run directory, oldest first; * serves now.

    \b
    lastpage builds
    lastpage builds --run runs/notes --json
    """
    from pipeline.cli import report, run_report
    from pipeline.housekeeping import list_builds

    folder, hint = find_run(run)
    builds = list_builds(folder)
    if as_json:
        report.print_json({"run": str(folder), "builds": [asdict(build) for build in builds]})
    else:
        run_report.print_builds(folder, builds, hint)


@click.command("rollback", epilog=_EPILOG)
@click.argument("build_id")
@_run_option
@_json_option
def rollback_command(build_id: str, run: str | None, as_json: bool) -> None:
    """Let an earlier build serve again. The next `lastpage index` builds what the config asks for.

    \b
    lastpage rollback BUILD_ID        (an id that `lastpage builds` lists)
    """
    from pipeline.cli import report
    from pipeline.housekeeping import roll_back

    folder, _ = find_run(run)
    build = roll_back(folder, build_id)
    if as_json:
        report.print_json({"run": str(folder), "build": asdict(build)})
    else:
        click.echo(f"{folder}: build {build.build_id} serves now")


@click.command("prune", epilog=_EPILOG)
@click.option(
    "--keep",
    type=int,
    default=1,
    show_default=True,
    help="Newest builds to keep; the current one always stays.",
)
@_run_option
@_json_option
def prune_command(keep: int, run: str | None, as_json: bool) -> None:
    """Free space: remove old builds, and the vectors that neither a kept build nor the run needs.

    \b
    lastpage prune
    lastpage prune --run runs/notes --keep 3
    """
    from pipeline.cli import report
    from pipeline.housekeeping import prune

    folder, _ = find_run(run)
    pruned = prune(folder, keep)
    if as_json:
        report.print_json({"run": str(folder), **asdict(pruned)})
    else:
        click.echo(
            f"{folder}: {len(pruned.builds)} builds and {pruned.shards} shards removed, "
            f"{report.size(pruned.n_bytes)} freed"
        )
