"""Draw the plots of kept figures: `python -m bench.plots FILE FOLDER`, in an environment that has matplotlib."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

# By name, because the checkers' environment has none.
mpl: Any = import_module("matplotlib")
mpl.use("svg")
plt: Any = import_module("matplotlib.pyplot")

STYLES = ("o-", "s-", "^-", "D--", "v:")


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


if __name__ == "__main__":
    for drawn in draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])):
        print(drawn)
