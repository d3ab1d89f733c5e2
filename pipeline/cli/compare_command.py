"""The command that compares arms, or two TREC runs, over a query file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli.options import EPILOG, arm_options
from pipeline.errors import UsageError

if TYPE_CHECKING:
    from pipeline.cli.comparison_sources import CompareOptions, Source
    from pipeline.reporting import Reporter


@click.command("compare", epilog=EPILOG)
@click.option(
    "--queries",
    required=True,
    type=click.Path(path_type=Path),
    help="Query file: .jsonl (id, query, perhaps gold) or .tsv (id, query[, doc_id[, start, end]]).",
)
@click.option("--run", help="The run directory.  [default: $LASTPAGE_RUN, else the newest below runs/]")
@arm_options
@click.option(
    "--trec",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="A B",
    help="Compare two TREC run files instead of arms; needs --corpus.",
)
@click.option("--corpus", help="With --trec: the documents, as for `lastpage index --corpus`.")
@click.option("-k", type=click.IntRange(min=1), help="Documents to compare.  [default: the run's, 10]")
@click.option(
    "--depth", type=click.IntRange(min=1), help="How deep ranks are looked up.  [default: the run's, 100]"
)
@click.option("--no-explain", is_flag=True, help="Only rank: don't look for answers and reasons.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the results.  [default: comparisons/<queries>-<hash> in the run directory]",
)
@click.option("--html/--no-html", default=True, help="Write report.html, or not.")
@click.option(
    "--details",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Show both rankings for so many of the most-changed queries in report.html.",
)
@click.option(
    "--diagnosis",
    type=click.Path(path_type=Path),
    help="Also show in report.html what `lastpage diagnose` found: its run directory.",
)
@click.option("--overwrite", is_flag=True, help="Replace another comparison in the folder of --out.")
@click.option("--model", help="Where the model's files are now; with --trec: the model that finds evidence.")
@click.option(
    "--device", default="auto", show_default=True, help="Where texts are embedded: auto, cpu, cuda."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bars.")
def compare_command(**values: Any) -> None:
    """Compare arms over a query file: what surfaces, where its answer stands, and why.

    Writes summary.json, rows.parquet and rows.csv (a row for each query and document), a TREC run file of
    each arm, and report.html, which needs no network.

    \b
    lastpage compare --queries configs/python-docs.queries.jsonl
    lastpage compare --run runs/notes --queries questions.tsv --all-arms -k 5 --out report/
    lastpage compare --trec old.run new.run --corpus docs.jsonl --queries questions.tsv
    """
    from pipeline.ab.queries import read_queries
    from pipeline.cli.comparison_sources import CompareOptions, index_source, trec_source
    from pipeline.cli.progress import RichReporter

    options = CompareOptions(**values)
    reporter = RichReporter(quiet=options.quiet)
    _check_kind(options)
    queries = list(read_queries(options.queries))
    if options.trec is not None and options.corpus is not None:
        source = trec_source(options, options.trec, options.corpus, queries, reporter)
    else:
        source = index_source(options, queries)
    _compare(options, source, reporter)


def _check_kind(options: CompareOptions) -> None:
    if options.trec and not options.corpus:
        raise UsageError("--trec needs --corpus: the documents that the run files rank")
    if options.corpus and not options.trec:
        raise UsageError("--corpus belongs to --trec; an index has documents of its own (--run)")
    if options.trec and (options.run or options.arms or options.all_arms or options.depth):
        raise UsageError("--trec takes two files as they are; leave out --run, --arm, --all-arms and --depth")


def _compare(options: CompareOptions, source: Source, reporter: Reporter) -> None:
    """Compute first, then write: what is interrupted before leaves no folder behind."""
    from pipeline.ab.comparison_files import ComparisonFolder
    from pipeline.ab.totals import total
    from pipeline.artifacts import fingerprint
    from pipeline.cli import comparison_report, report
    from pipeline.diagnostics.section import read_section
    from pipeline.html.comparison_view import comparison_page
    from pipeline.reporting import ticking

    extra = [read_section(options.diagnosis)] if options.diagnosis is not None else []
    default = source.folder.with_name(f"{source.folder.name}-{fingerprint(source.inputs)[:8]}")
    folder = ComparisonFolder(options.out or default)
    folder.check(source.inputs, overwrite=options.overwrite)
    with reporter.task("comparing", source.n_queries, "queries") as advance:
        answers = list(ticking(source.answers(), advance))
    totals = [total(answers, arm) for arm in range(len(answers[0].comparisons))]
    summary = comparison_report.summary(source, options.queries, answers, totals)
    folder.begin(source.inputs)
    folder.write_tables(answers)
    folder.write_runs(answers)
    if options.html:
        page = comparison_page(
            answers,
            totals,
            title=f"A/B comparison: {options.queries.name}",
            subtitle=source.name,
            text_of=source.text_of,
            notes=source.notes,
            n_details=options.details,
            extra=extra,
        )
        folder.write_report(page)
    folder.complete(source.inputs, summary)
    if options.as_json:
        report.print_json({"folder": str(folder.root), **summary})
    else:
        comparison_report.print_comparison(source, answers, totals, folder, has_report=options.html)
