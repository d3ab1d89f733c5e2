"""What people see of a sweep and of a tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.cli.evaluation_report import print_earlier
from pipeline.cli.report import console, shown, size
from pipeline.config import Config
from pipeline.evaluation.grid import arm_name
from pipeline.evaluation.proposing import Advice, Proposal
from pipeline.evaluation.statistics import Difference, GroupSummary
from pipeline.evaluation.sweep import Row, SweepResult
from pipeline.evaluation.sweep_figures import Written
from pipeline.evaluation.tune import TuneResult

_ROWS_SHOWN = 30
_NONE = "\N{EN DASH}"


def sweep_as_json(result: SweepResult, written: Written) -> dict[str, Any]:
    """The result, times and figures, for machines."""
    timings = {name: asdict(timing) for name, timing in result.timings.items()}
    return {**result.as_json(), "timings": timings, **_files_as_json(written)}


def tune_as_json(result: TuneResult, written: Written) -> dict[str, Any]:
    """The proposals and all that they rest on, for machines."""
    return {**result.as_json(), **_files_as_json(written)}


def _files_as_json(written: Written) -> dict[str, Any]:
    earlier = str(written.earlier) if written.earlier is not None else None
    return {"figures": [str(path) for path in written.figures], "earlier": earlier}


def print_sweep(config: Config, result: SweepResult, written: Written) -> None:
    """Print one row a setting, the frontier marked."""
    out = console()
    out.print(f"data    {shown(result.data)}, {result.n_queries:,} questions; model {config.model.name}")
    _print_rows(out, config, result)
    n_different = sum(not row.same_as_plain for row in result.rows)
    if n_different > 2:
        out.print(
            f"the best of {n_different:,} settings on {result.n_queries:,} questions is best partly by "
            "luck: measure it again on questions that did not choose it",
            style="dim",
        )
    if cut := [row for row in result.rows if row.n_cut]:
        out.print(
            f"note: {cut[0].n_cut:,} of {cut[0].cost.n_documents:,} documents are cut at the model's limit "
            "where they are one vector; truncation passes for position bias there (see `lastpage evaluate`)",
            style="yellow",
        )
    _print_files(out, config, written)


def print_tune(config: Config, result: TuneResult, written: Written) -> None:
    """Print what the corpus is, the settings as measured, and the proposals with their reasons."""
    out, survey = console(), result.survey
    out.print(f"corpus  {shown(survey.source)}; model {config.model.name}")
    out.print(
        f"asked   {len(survey.passages):,} passages, {result.sweep.n_queries:,} pseudo-queries of "
        f"{result.n_words} words each"
    )
    for reason, count in survey.left_out.items():
        out.print(f"        {count:,} {reason} were left out")
    for reason, count in survey.skipped.items():
        out.print(f"skipped {count:,} records: {reason}", style="yellow")
    for budget, cost in survey.sizes.items():
        out.print(
            f"index   {_budget(budget)}: {cost.n_vectors:,} vectors, {cost.vectors_per_document:.1f} a "
            f"document, {size(cost.index_bytes)}"
        )
    _print_rows(out, config, result.sweep)
    for proposal in result.proposals:
        _print_proposal(out, proposal)
    out.print(
        "\nPseudo-queries show differences between positions and settings, not how well your users' "
        "questions are answered.",
        style="dim",
    )
    _print_files(out, config, written)


def _print_rows(out: Console, config: Config, result: SweepResult) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("setting", no_wrap=True)
    timed = bool(result.timings)
    headings = [*result.rows[0].summary.names, "harm. mean", "gain", "PSI", "chance", "p", "vectors/doc"]
    for heading in [*headings, *(["embed x", "query ms"] if timed else [])]:
        table.add_column(heading, justify="right", no_wrap=True)
    different = [row for row in result.rows if not row.same_as_plain]
    chosen = _rows_shown(different, config)
    for row in chosen:
        table.add_row(*_cells(row, timed=timed), style="bold" if row.on_frontier else "")
    out.print()
    out.print(table)
    out.print(
        "* no other setting is better in harmonic mean, PSI and vectors at once; "
        f"gain over {result.reference}, ~ where its 95 % interval holds 0",
        style="dim",
    )
    if len(different) > len(chosen):
        out.print(f"  … {len(different) - len(chosen):,} more; all with --json and in sweep.parquet")
    for note in [*_idle_note(result), *result.notes]:
        out.print(f"note: {shown(note)}", style="yellow")


def _rows_shown(rows: Sequence[Row], config: Config) -> list[Row]:
    """The best rows, and wherever they stand those of plain and of what is configured."""
    configured = {arm_name(arm) for arm in config.arms.values()}
    return [
        row
        for place, row in enumerate(rows)
        if place < _ROWS_SHOWN or row.setting.is_plain or row.setting.arm in configured
    ]


def _idle_note(result: SweepResult) -> list[str]:
    """One sentence about the settings that only repeat plain, if there are any."""
    baskets: dict[int | None, set[int]] = {}
    idle = [row.setting for row in result.rows if row.same_as_plain]
    for setting in idle:
        baskets.setdefault(setting.chunk_tokens, set()).add(setting.calibration.basket_size)
    if not idle:
        return []
    parts = [
        f"{_budget(budget)}: baskets of {', '.join(map(str, sorted(sizes)))} tokens"
        for budget, sizes in baskets.items()
    ]
    return [
        f"{len(idle):,} settings do nothing and have no row, since no text fills a second basket: they "
        f"make the vectors of plain ({'; '.join(parts)})"
    ]


def _cells(row: Row, *, timed: bool) -> list[str]:
    summary = row.summary
    cells = [
        f"{'* ' if row.on_frontier else '  '}{row.setting.name}",
        *(f"{mean.value:.3f}" for mean in summary.means),
        f"{summary.harmonic_mean.value:.4f}",
        _gain(row.gain.harmonic_mean) if row.gain is not None else "",
        *_psi(summary),
        f"{row.cost.vectors_per_document:.2f}",
    ]
    if timed and row.timing is not None:
        cells += [f"{row.timing.embed_ratio:.2f}", f"{row.timing.query_ms:.2f}"]
    return cells


def _psi(summary: GroupSummary) -> tuple[str, str, str]:
    """PSI, chance and p; there are none where positions are not known."""
    if len(summary.names) < 2:
        return _NONE, _NONE, _NONE
    test = summary.psi_test
    return f"{summary.psi.value:.3f}", f"{test.chance:.3f}", _p_value(test.p_value)


def _gain(difference: Difference) -> str:
    sure = difference.low > 0 or difference.high < 0
    return f"{'' if sure else '~'}{difference.value:+.4f}"


def _p_value(value: float) -> str:
    return "<.001" if value < 0.001 else f"{value:.3f}"


def _print_proposal(out: Console, proposal: Proposal) -> None:
    out.print()
    out.print(f"{proposal.question}: {_advice(proposal)}", style="bold", markup=False)
    out.print(f"  {proposal.why}")
    now, expected = proposal.reference, proposal.summary
    if proposal.gain is None:
        out.print(f"  harmonic mean {now.harmonic_mean.value:.3f}, PSI {now.psi.value:.3f}")
        return
    for name, before, after, gain in (
        ("harmonic mean", now.harmonic_mean, expected.harmonic_mean, proposal.gain.harmonic_mean),
        ("PSI", now.psi, expected.psi, proposal.gain.psi),
    ):
        out.print(
            f"  {name}: {before.value:.3f} now, {after.value:.3f} with {proposal.setting.name}; "
            f"{gain.value:+.3f}, 95 % interval {gain.low:+.3f} to {gain.high:+.3f}"
        )
    if proposal.advice is not Advice.LEAVE:
        out.print(f"  set it: {_options(proposal)}")


def _advice(proposal: Proposal) -> str:
    if proposal.advice is Advice.LEAVE:
        return str(proposal.advice)
    return f"{proposal.advice}: {proposal.setting.name}"


def _options(proposal: Proposal) -> str:
    """The options of `lastpage index` that make the proposed setting."""
    setting, arm = proposal.setting, proposal.setting.calibration
    options = []
    if not setting.is_plain:
        layers = f"'\"{arm.layers}\"'" if isinstance(arm.layers, str) else f"{arm.layers}"
        values = {"strength": f"{arm.strength:g}", "basket_size": f"{arm.basket_size}", "layers": layers}
        if arm.first_mass != "equal":
            values.update(first_mass=f"{arm.first_mass}", last_mass=f"{arm.last_mass}")
        options += [f"--set arms.calibrated.{name}={value}" for name, value in values.items()]
    if setting.chunk_tokens is not None:
        options.append(f"--set chunk.max_tokens={setting.chunk_tokens}")
    return " ".join(options)


def _budget(budget: int | None) -> str:
    return "chunks as long as the model takes" if budget is None else f"chunks of at most {budget:,} tokens"


def _print_files(out: Console, config: Config, written: Written) -> None:
    names = ", ".join(sorted({path.stem for path in written.figures}))
    out.print(f"\nrun directory: {config.run} (sweep.json, sweep.parquet; plots/: {names})")
    print_earlier(out, written.earlier)
