"""A diagnosis as a section of the self-contained HTML page, and as a page of its own."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from markupsafe import Markup

from pipeline.artifacts import DiagnosisFiles, atomic_path, read_json, write_json
from pipeline.diagnostics import reading
from pipeline.diagnostics.reading import interval, number
from pipeline.diagnostics.results import Diagnosis
from pipeline.errors import UsageError
from pipeline.html.page import Section, render_page, render_template

# In rem; with one pair the figure is as wide as two panels.
_PANEL_WIDTH = 18

_LEAD = (
    "Documents of the same segments in all orders: whatever differs between places is position, not content."
)


def diagnosis_section(diagnosis: Diagnosis, plots: Mapping[str, Path]) -> Section:
    """Render a diagnosis.

    Args:
        diagnosis: what was found.
        plots: the SVG files of its figures: `profile` and, if attention was looked at, `attention`.
    """
    calibrated = [arm for arm in diagnosis.calibrations.values() if arm is not None]
    body = render_template(
        "diagnosis.html.j2",
        reading=reading.sentences(diagnosis),
        proxy=reading.PROXY,
        plots={"attention": "", **{name: _as_address(path) for name, path in plots.items()}},
        profile_width=_PANEL_WIDTH * max(2, len(diagnosis.counts.pairs)),
        several_pairs=len(diagnosis.counts.pairs) > 1,
        places=[place.position for place in diagnosis.profiles[0].places],
        profiles=list(_profiles(diagnosis)),
        fits=list(_fits(diagnosis)),
        attention=list(_attention(diagnosis)),
        parts=_parts(diagnosis),
        basket_size=calibrated[0]["basket_size"] if calibrated else 128,
        n_watched=diagnosis.cost.watched_documents,
        fidelity=list(_fidelity(diagnosis)),
        n_queries=f"{diagnosis.fidelity[0].n_queries:,}",
        counted=reading.counted(diagnosis.counts),
        left_out=[(reason, f"{count:,}") for reason, count in diagnosis.counts.left_out.items()],
    )
    return Section("Does position decide how well a part is represented?", "diagnosis", body, lead=_LEAD)


def write_page(diagnosis: Diagnosis, plots: Mapping[str, Path], files: DiagnosisFiles) -> None:
    """Write the section as a page that needs no other file, and by itself for other reports."""
    section = diagnosis_section(diagnosis, plots)
    page = render_page(
        f"Diagnosis of {diagnosis.model}",
        [section],
        subtitle=f"on {diagnosis.source}; arms {', '.join(diagnosis.arms)}",
        footer="lastpage diagnose",
    )
    with atomic_path(files.page) as temporary:
        temporary.write_text(page, encoding="utf-8")
    write_json(files.section, asdict(section))


def read_section(run: Path) -> Section:
    """Read the section that a diagnosis left in its run directory.

    Raises:
        UsageError: there is none.
    """
    found = read_json(DiagnosisFiles(run).section)
    if found is None:
        raise UsageError(f"{run}: no diagnosis in it; run `lastpage diagnose --run {run}` first")
    return Section(**{**found, "body": Markup(found["body"])})  # noqa: S704 - rendered and escaped by us


def _as_address(path: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _profiles(diagnosis: Diagnosis) -> Iterator[tuple[str, str, str, list[str]]]:
    for each in diagnosis.profiles:
        cells = [f"{number(place.mean)} {interval(place.low, place.high)}" for place in each.places]
        yield each.measure, each.pair, each.arm, cells


def _fits(diagnosis: Diagnosis) -> Iterator[tuple[str, ...]]:
    for each in diagnosis.fits:
        arm = each.arm if each.minus is None else f"{each.arm} - {each.minus}"
        for term in each.fit.coefficients:
            bounds = interval(term.low, term.high)
            yield each.measure, each.pair, arm, term.term, number(term.estimate), bounds, _p(term.p)


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else number(value)


def _attention(diagnosis: Diagnosis) -> Iterator[tuple[str, int, list[str]]]:
    for each in diagnosis.attention:
        loads = each.front_loading_by_layer
        for layer, (first, baskets, last, groups) in enumerate(
            zip(each.first, each.baskets, each.last, loads, strict=True)
        ):
            values = (first, *baskets, last, sum(groups) / len(groups))
            yield each.arm, layer + 1, [number(value) for value in values]


def _parts(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.attention:
        return []
    n_baskets = len(diagnosis.attention[0].baskets[0])
    return ["first token", *(f"basket {basket + 1}" for basket in range(n_baskets)), "last token"]


def _fidelity(diagnosis: Diagnosis) -> Iterator[tuple[str, list[str]]]:
    for each in diagnosis.fidelity:
        near = [number(value) for value in (each.documents, each.documents_lowest, each.segments)]
        yield each.arm, [*near, number(each.reciprocal_rank), f"{100 * each.first_rank:.1f} %"]
