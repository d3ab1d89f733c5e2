"""The two figures of a diagnosis: similarity by place, and attention by layer and basket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.artifacts import DiagnosisFiles
from pipeline.diagnostics.results import Diagnosis, Measure, Profile
from pipeline.plots import COLOURS, figure, save_figure

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.diagnostics.attention_profile import AttentionProfile

_PANEL_WIDTH, _PANEL_HEIGHT = 3.2, 2.5
_LABELS: dict[Measure, str] = {
    "sigma": "σ: document and segment",  # noqa: RUF001
    "tau": "τ: segment alone and inside",
}


def draw_plots(diagnosis: Diagnosis, files: DiagnosisFiles) -> dict[str, Path]:
    """Write both figures as SVG and PNG; return the SVGs by name."""
    drawn = {"profile": _draw_profiles(diagnosis, files.profile_plot)}
    if diagnosis.attention:
        drawn["attention"] = _draw_attention(diagnosis, files.attention_plot)
    return drawn


def _draw_profiles(diagnosis: Diagnosis, stem: Path) -> Path:
    """One column a language pair, one row a measure; the bands are 95 % intervals."""
    pairs = diagnosis.counts.pairs
    size = {"width": max(1.6, len(pairs)) * _PANEL_WIDTH, "height": 2 * _PANEL_HEIGHT + 0.3}
    with figure(**size) as drawn:
        panels = drawn.subplots(2, len(pairs), sharex=True, sharey="row", squeeze=False)
        for row, (measure, label) in enumerate(_LABELS.items()):
            panels[row][0].set_ylabel(label)
            for column, pair in enumerate(pairs):
                for number, arm in enumerate(diagnosis.arms):
                    profile = diagnosis.profile(measure, arm, pair)
                    _draw_line(panels[row][column], profile, COLOURS[number % len(COLOURS)])
        for column, pair in enumerate(pairs):
            panels[0][column].set_title(pair, fontsize=9)
            panels[1][column].set_xlabel("place of the segment")
        handles, labels = panels[0][0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        return save_figure(drawn, stem)[0]


def _draw_line(panel: Any, profile: Profile, colour: str) -> None:
    places = [place.position for place in profile.places]
    panel.plot(places, [place.mean for place in profile.places], marker="o", color=colour, label=profile.arm)
    low, high = ([getattr(place, end) for place in profile.places] for end in ("low", "high"))
    panel.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    panel.set_xticks(places)


def _draw_attention(diagnosis: Diagnosis, stem: Path) -> Path:
    """One panel an arm: layers from below upwards, the first token, the baskets, the last token."""
    tables = [_table(profile) for profile in diagnosis.attention]
    highest = max(value for table in tables for row in table for value in row)
    n_layers, n_columns = len(tables[0]), len(tables[0][0])
    width = len(tables) * (1.1 + 0.42 * n_columns) + 0.8
    with figure(width=width, height=1.6 + 0.22 * n_layers) as drawn:
        panels = drawn.subplots(1, len(tables), sharey=True, squeeze=False)[0]
        for panel, profile, table in zip(panels, diagnosis.attention, tables, strict=True):
            image = panel.imshow(table, origin="lower", aspect="auto", cmap="Blues", vmin=0, vmax=highest)
            panel.grid(visible=False)
            panel.set_title(f"{profile.arm}\nfront-loading {profile.front_loading:+.2f}", fontsize=9)
            panel.set_xticks(range(n_columns), ["first", *map(str, range(1, n_columns - 1)), "last"])
            panel.tick_params(axis="x", labelrotation=90 if n_columns > 8 else 0)
            panel.set_xlabel("basket")
        panels[0].set_ylabel("layer")
        panels[0].set_yticks(range(n_layers), [str(layer + 1) for layer in range(n_layers)])
        drawn.colorbar(image, ax=list(panels), label="attention mass")
        return save_figure(drawn, stem)[0]


def _table(profile: AttentionProfile) -> list[list[float]]:
    """Layer by layer: first token, baskets, last token."""
    return [
        [first, *baskets, last]
        for first, baskets, last in zip(profile.first, profile.baskets, profile.last, strict=True)
    ]
