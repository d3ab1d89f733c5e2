"""`lastpage evaluate`: retrieval by answer position, with and without calibration."""

from __future__ import annotations

import click

from pipeline.cli.data_options import DataOptions, data_options

EPILOG = (
    "Exit codes: 0 done; 1 data or model unusable; 2 wrong request; 130 interrupted (run it again to go on)."
)


@click.command("evaluate", epilog=EPILOG)
@data_options
@click.option("--no-bm25", is_flag=True, help="Leave out the BM25 row, which cannot see position.")
def evaluate_command(options: DataOptions, *, no_bm25: bool) -> None:
    """Measure retrieval by where the answer stands, for every arm.

    Prints nDCG@10 for each position group with its interval, the harmonic mean over groups, the Position
    Sensitivity Index beside what chance alone gives, and how each further arm differs from the first. Vectors
    are kept in the run directory: run it again, and nothing is embedded. Earlier results there of other
    settings are kept, too, in earlier/.

    \b
    lastpage evaluate --data questions/
    lastpage evaluate --data questions/ --language en --set arms.calibrated.strength=1.0
    lastpage evaluate --data squad/ --sample 1000 --limit-documents 500
    lastpage evaluate -c configs/papers/qwen3-embedding-0.6b.toml --data NovaSearch/FineWeb-PosQ
    """
    from pipeline.cli import evaluation_report, report
    from pipeline.cli.progress import RichReporter
    from pipeline.evaluation.evaluate import evaluate

    config = options.config(command="evaluate")
    if no_bm25:
        config = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"bm25": False})})
    evaluation = evaluate(config, RichReporter(quiet=options.quiet))
    if options.as_json:
        report.print_json(evaluation_report.evaluation_as_json(config.run, evaluation))
    else:
        evaluation_report.print_evaluation(config, evaluation)
