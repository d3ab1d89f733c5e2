"""Bar charts as inline SVG in the page's own colours, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.html.page import render_template

_WIDTH, _HEIGHT = 340, 200
_TOP, _BOTTOM, _LEFT = 20, 30, 4
_WIDEST = 40


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        value: its height; negative ones hang from the base line.
        tone: first, second, up, down or soft, as in page.css.
        label: what is written at its end.
    """

    value: float
    tone: str
    label: str


@dataclass(frozen=True, slots=True)
class BarGroup:
    """Bars that stand together, over a name."""

    name: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class _Drawn:
    x: float
    y: float
    width: float
    height: float
    tone: str
    label: str
    label_y: float


def bar_chart(groups: Sequence[BarGroup], *, title: str, caption: str, stacked: bool = False) -> Markup:
    """Draw groups of bars side by side.

    Args:
        groups: from left to right, at least one.
        title: what the chart shows, for those who cannot see it; the values are added.
        caption: under the chart.
        stacked: a positive and a negative bar at one place.
    """
    values = [bar.value for group in groups for bar in group.bars]
    highest, lowest = max(0.0, *values), min(0.0, *values)
    scale = (_HEIGHT - _TOP - _BOTTOM - (14 if lowest < 0 else 0)) / ((highest - lowest) or 1.0)
    base = _TOP + highest * scale
    step = (_WIDTH - 2 * _LEFT) / len(groups)
    drawn, names = [], []
    for number, group in enumerate(groups):
        centre = _LEFT + step * (number + 0.5)
        names.append((round(centre, 1), group.name))
        n_places = 1 if stacked else len(group.bars)
        width = min(_WIDEST, 0.72 * step / n_places)
        for place, bar in enumerate(group.bars):
            shift = 0.0 if stacked else (place - (n_places - 1) / 2) * (width + 2)
            drawn.append(_drawn(bar, centre + shift, width, base, scale))
    spoken = "; ".join(
        f"{group.name}: {', '.join(bar.label for bar in group.bars if bar.label)}" for group in groups
    )
    return render_template(
        "chart.html.j2",
        width=_WIDTH,
        height=_HEIGHT,
        bars=drawn,
        names=names,
        base=round(base, 1),
        title=f"{title}. {spoken}",
        caption=caption,
    )


def histogram(values: Sequence[float], *, bins: int, tone: str) -> list[BarGroup]:
    """Count values from 0 to 1 in equal bins, each named by its upper edge; those of exactly 0 come first."""
    counts = [0] * bins
    n_zero = 0
    for value in values:
        if value == 0:
            n_zero += 1
        else:
            counts[min(math.ceil(value * bins) - 1, bins - 1)] += 1
    edges = [f"{(number + 1) / bins:.1f}".removeprefix("0") for number in range(bins)]
    return [
        BarGroup("0", (_counted(n_zero, "soft"),)),
        *(BarGroup(edge, (_counted(n, tone),)) for edge, n in zip(edges, counts, strict=True)),
    ]


def _counted(n: int, tone: str) -> Bar:
    return Bar(n, tone, str(n) if n else "")


def _drawn(bar: Bar, centre: float, width: float, base: float, scale: float) -> _Drawn:
    height = abs(bar.value) * scale
    y = base - height if bar.value >= 0 else base
    label_y = y - 6 if bar.value >= 0 else y + height + 14
    return _Drawn(
        x=round(centre - width / 2, 1),
        y=round(y, 1),
        width=round(width, 1),
        height=round(height, 1),
        tone=bar.tone,
        label=bar.label,
        label_y=round(label_y, 1),
    )
