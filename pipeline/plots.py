"""Figures as SVG and PNG: one look for all plots, the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.artifacts import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette: distinct for colour-blind readers; plain first, then the arms.
COLOURS = ("#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "lastpage",
    "savefig.dpi": 144,
}


@contextmanager
def figure(*, width: float = 6.4, height: float = 4.0) -> Iterator[Figure]:
    """Yield an empty figure, sizes in inches; no window system is touched."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def save_figure(drawn: Figure, stem: Path) -> tuple[Path, Path]:
    """Write `stem`.svg and `stem`.png atomically, inside the `figure` block; return both paths."""
    paths = (stem.with_suffix(".svg"), stem.with_suffix(".png"))
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        with atomic_path(path) as temporary:
            drawn.savefig(temporary, format=path.suffix[1:], metadata=metadata)
    return paths
