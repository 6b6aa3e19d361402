"""A study's `Figure` as inline SVG that follows the page's colour scheme.

Matplotlib knows no CSS, so it is given colours that mean a role (ink, grid, series 1 ...), and these
are replaced by CSS variables in its output: one drawing serves the light and the dark page. Series
differ by marker and dash as well as by colour (Okabe and Ito's palette, safe for colour blindness).
"""

from __future__ import annotations

import io
import math
import re
from html import escape
from typing import TYPE_CHECKING, Any

from whence.report.format import number
from whence.studies.base import Figure, Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERIES_MAX = 6
_INK, _SOFT, _GRID = "#0a0b01", "#0a0b02", "#0a0b03"
_SERIES = tuple(f"#0a0c{at:02x}" for at in range(1, SERIES_MAX + 1))
_ROLES = {_INK: "currentColor", _SOFT: "var(--soft)", _GRID: "var(--grid)"}
_ROLES |= {colour: f"var(--series-{at})" for at, colour in enumerate(_SERIES, 1)}
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (3, 1)), "-")

_PANEL_INCHES = (5.1, 3.0)
_LEGEND_INCHES, _LETTER_INCHES = 0.75, 0.085  # of one entry: its line, and each letter
_PANEL_PIXELS = 600  # at most, on a page
_LABELS_APART = 0.07  # of an axis of sizes: labels closer than that run into each other
_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text: it can be selected, searched and read aloud
    "text.parse_math": False,  # a dollar sign is a dollar sign
    "font.size": 9.5,
    "axes.edgecolor": _SOFT,
    "axes.labelcolor": _INK,
    "axes.titlesize": 10,
    "axes.titlecolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "text.color": _INK,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
}


def svg(figure: Figure) -> str:
    """The figure as one `<svg>` element, its alternative text included."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    labels = _series_labels(figure)
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": figure.name}):
        width, height = _PANEL_INCHES
        canvas = Canvas(figsize=(width * len(figure.panels), height + 0.35), layout="constrained")
        all_axes = canvas.subplots(1, len(figure.panels), squeeze=False)[0]
        for axes, panel in zip(all_axes, figure.panels, strict=True):
            _draw(axes, panel, labels)
        if len(labels) > 1:
            lines = {line.get_label(): line for axes in all_axes for line in axes.containers}
            handles = [lines[label] for label in labels]
            # As many in a row as are no wider than the drawing.
            entry_inches = _LEGEND_INCHES + _LETTER_INCHES * max(map(len, labels))
            columns = max(1, min(len(labels), int(width * len(figure.panels) / entry_inches)))
            canvas.legend(
                handles, labels, loc="outside upper center", ncols=columns, handlelength=3.5, frameon=False
            )
        text = io.StringIO()
        unnamed = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.savefig(text, format="svg", transparent=True, metadata=unnamed)
    return _inline(text.getvalue(), figure)


def _series_labels(figure: Figure) -> list[str]:
    labels = list(dict.fromkeys(series.label for panel in figure.panels for series in panel.series))
    if len(labels) > SERIES_MAX:
        raise ValueError(f"figure {figure.name!r}: {len(labels)} series; {SERIES_MAX} can be told apart")
    return labels


def _draw(axes: Axes, panel: Panel, labels: list[str]) -> None:
    categories = _categories(panel)
    for at, series in enumerate(panel.series):
        # Points of one category are moved apart, so that intervals do not hide each other.
        shift = 0.09 * (at - (len(panel.series) - 1) / 2)
        x = [categories[str(value)] + shift if categories else float(value) for value in series.x]
        role = labels.index(series.label)
        axes.errorbar(
            x,
            [one.mean for one in series.y],
            yerr=[one.half or 0.0 for one in series.y],
            label=series.label,
            color=_SERIES[role],
            marker=_MARKERS[role],
            # Between two categories there is nothing for a line to run through.
            linestyle=_DASHES[role] if series.joined and not categories else "none",
            markersize=5,
            linewidth=1.8,
            elinewidth=1.1,
            capsize=2.5,
        )
    if categories:
        axes.set_xticks(list(categories.values()), list(categories))
        axes.set_xlim(-0.4, len(categories) - 0.6)
    if panel.x_log2:
        _log2_axis(axes, panel)
    if panel.y_log:
        _log_y_axis(axes, panel)
    else:
        if all(one.mean >= 0 for series in panel.series for one in series.y):
            axes.set_ylim(bottom=0)
        else:
            axes.axhline(0, color=_SOFT, linewidth=0.8)
        axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)


def _categories(panel: Panel) -> dict[str, int]:
    """Place of each category on the x axis; empty when x is a number."""
    values = dict.fromkeys(value for series in panel.series for value in series.x)
    if not any(isinstance(value, str) for value in values):
        return {}
    return {str(value): at for at, value in enumerate(values)}


def _log2_axis(axes: Axes, panel: Panel) -> None:
    ticks = sorted({float(value) for series in panel.series for value in series.x})
    axes.set_xscale("log", base=2)
    shown, apart = math.inf, (ticks[-1] / ticks[0]) ** _LABELS_APART
    labels = dict.fromkeys(ticks, "")
    for tick in reversed(ticks):  # the largest has its label in any case
        if tick * apart <= shown:
            labels[tick], shown = number(tick), tick
    axes.set_xticks(ticks, list(labels.values()))
    axes.minorticks_off()


def _log_y_axis(axes: Axes, panel: Panel) -> None:
    """Plain numbers at 1, 2, 5, 10 ...: matplotlib's own labels are formulas."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    positive = [one.mean for series in panel.series for one in series.y if one.mean > 0]
    if positive:  # an interval that reaches down to zero must not set the scale
        axes.set_ylim(bottom=min(positive) / 2)
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _inline(text: str, figure: Figure) -> str:
    """Matplotlib's file as an element of a page: roles for colours, the page's font, ids of its own."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r"#0a0[bc]0\d", lambda found: _ROLES[found.group()], text)
    text = re.sub(r' id="(?!m[0-9a-f]{10}|p[0-9a-f]{10})[^"]*"', "", text)  # nothing refers to these
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{figure.name}-", text)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text).replace("xlink:href", "href")
    # Without a size of its own the drawing takes the width of its column, and its shape from viewBox.
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    # One panel alone would be drawn twice as large as one of two.
    width = f"max-width: {_PANEL_PIXELS * len(figure.panels)}px; --panels: {len(figure.panels)}"
    described = f'<svg style="{width}" role="img" aria-label="{escape(alternative(figure))}"'
    return text.replace("<svg", described, 1).strip()


def alternative(figure: Figure) -> str:
    """The figure in words and numbers, for a reader who cannot see it."""
    parts = [f"{figure.title}."]
    for panel in figure.panels:
        parts.append(f"Plot: {panel.title}; {panel.y_label} over {panel.x_label}.")
        parts += [f"{series.label}: {_points(series)}." for series in panel.series]
    return " ".join(parts)


def _points(series: Series) -> str:
    return ", ".join(
        f"{number(one.mean)} at {at if isinstance(at, str) else number(at)}"
        for at, one in zip(series.x, series.y, strict=True)
    )
