"""The command line: parse, call one function, print one report.

Exit codes: 0 done; 1 the data, the model or an index cannot be used; 2 the request is wrong (an option, a
configuration value, the order of commands); 3 done, but some records of the corpus were skipped (0 with
--allow-skipped); 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from pipeline.cli.build_commands import builds_command, prune_command, rollback_command
from pipeline.cli.compare_command import compare_command
from pipeline.cli.diagnose_command import diagnose_command
from pipeline.cli.evaluate_command import evaluate_command
from pipeline.cli.options import EPILOG
from pipeline.cli.query_command import query_command
from pipeline.cli.run_commands import (
    chunk_command,
    embed_command,
    index_command,
    inspect_command,
    reembed_command,
)
from pipeline.cli.serve_command import serve_command
from pipeline.cli.sweep_command import sweep_command, tune_command
from pipeline.errors import LastpageError

EXIT_INTERRUPTED = 130


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
    lastpage compare --queries questions.tsv    compare them over many questions
    lastpage index --corpus notes/              your own texts
    """


for command in (
    index_command,
    query_command,
    serve_command,
    compare_command,
    inspect_command,
    diagnose_command,
    evaluate_command,
    sweep_command,
    tune_command,
    reembed_command,
    chunk_command,
    embed_command,
    builds_command,
    rollback_command,
    prune_command,
):
    cli.add_command(command)


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
    except Exception as error:
        code = _exit_code(error)
        click.echo(f"error: {error}", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _exit_code(error: Exception) -> int:
    """The exit code of an error that users can mend; what is our own fault is raised again."""
    # Imported only now, so that --help answers at once.
    from indexes import ImpossibleIndexError, IndexesError, InvalidQueryError

    if isinstance(error, LastpageError):
        return error.exit_code
    if isinstance(error, (ImpossibleIndexError, InvalidQueryError)):
        return 2
    # An OSError is the machine's: a full disk, a missing permission. Its text names the file.
    if isinstance(error, (IndexesError, OSError)):
        return 1
    raise error
