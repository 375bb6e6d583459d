"""Draw the plots of kept figures: `python -m bench.plots FILE FOLDER`, in an environment that has matplotlib.

A file of JSON has the figures of `python -m bench`, one of CSV the samples of `python -m bench.soak`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.soak.samples import MEASURES, SECONDS, WARM_UP, Sample, columns_of, read

# By name, because the checkers' environment has none.
mpl: Any = import_module("matplotlib")
mpl.use("svg")
plt: Any = import_module("matplotlib.pyplot")

STYLES = ("o-", "s-", "^-", "D--", "v:")
SOAK_POINTS = 60  # of each line: the median of the samples between two of them


class Plot(NamedTuple):
    """One picture: a figure's key, the columns of both axes, and what they are called."""

    key: str
    x: str
    y: str
    title: str
    x_label: str
    y_label: str
    y_scale: str = "log"


PLOTS = (
    Plot(
        "concurrency",
        "at_once",
        "per_second",
        "Native calls a second",
        "calls at once",
        "calls a second",
        "linear",
    ),
    Plot(
        "listing", "tools", "cpu_ms", "All tools as definitions for a model", "tools in the catalog", "CPU ms a listing"
    ),
)


def draw(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw each plot whose figure was measured, and return the files."""
    figures = {figure["key"]: figure for figure in document["figures"]}
    return [_draw(plot, figures[plot.key]["rows"], folder) for plot in PLOTS if plot.key in figures]


def _draw(plot: Plot, rows: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    mpl.rcParams["svg.hashsalt"] = plot.key  # the same numbers give the same file
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for style, name in zip(STYLES * len(rows), dict.fromkeys(row["name"] for row in rows), strict=False):
        mine = sorted((row[plot.x], row[plot.y]) for row in rows if row["name"] == name)
        axes.plot(*zip(*mine, strict=True), style, label=name)
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label, xscale="log", yscale=plot.y_scale)
    ticks = sorted({row[plot.x] for row in rows})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}" if value < 1000 else f"{value:,.0f}")
    axes.grid(visible=True, alpha=0.3)
    if plot.y_scale == "linear":
        axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    path = folder / f"bench-{plot.key}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def draw_soak(samples: Sequence[Sample], folder: Path) -> Path:
    """Draw how the processes of a soak went, with a panel for each kind of measure."""
    mpl.rcParams["svg.hashsalt"] = "soak"
    size = -(-len(samples) // SOAK_POINTS)
    chunks = [samples[start : start + size] for start in range(0, len(samples), size)]
    minutes = [median(one[SECONDS] for one in chunk) / 60 for chunk in chunks]
    figure, panels = plt.subplots(len(MEASURES), figsize=(8, 2.2 * len(MEASURES)), layout="constrained", sharex=True)
    for axes, measure in zip(panels, MEASURES, strict=True):
        for column in columns_of(measure, samples):
            values = [median(one[column] for one in chunk) for chunk in chunks]
            axes.plot(minutes, values, label=column.removesuffix(f" {measure.suffix}"), linewidth=1.2)
        axes.set(ylabel=f"{measure.label}, {measure.unit}".removesuffix(", "))
        if measure.unit == "ms":
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        else:
            axes.set_ylim(0, 1.15 * max(max(line.get_ydata()) for line in axes.lines))
        axes.set_xlim(0, samples[-1][SECONDS] / 60)
        axes.axvspan(0, samples[-1][SECONDS] / 60 * WARM_UP, color="0.92")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small", frameon=False)
    panels[-1].set(xlabel="minutes; the warm-up is gray")
    path = folder / "soak.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def main(kept: Path, folder: Path) -> None:
    """Draw a file of kept figures or samples."""
    if kept.suffix == ".csv":
        print(draw_soak(read(kept), folder))
        return
    for drawn in draw(json.loads(kept.read_text(encoding="utf-8")), folder):
        print(drawn)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
