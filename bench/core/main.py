"""One run of the benchmarks: the figures in their order, a progress bar meanwhile, the answer at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from bench.core import catalog, events, imports, native
from bench.core.figures import Figure
from bench.core.harness import Tick
from bench.core.report import document, show
from bench.core.scale import Scale
from toolpost.cli.output import Output
from toolpost.cli.stdout_guard import guard_stdout


class Part(NamedTuple):
    """A figure to be measured, and how many ticks that takes."""

    name: str
    ticks: int
    measure: Callable[[Tick], Figure]


def shipped(scale: Scale) -> list[Part]:
    """The figures that need no peers."""
    return [
        Part("native call", native.count(scale), partial(native.measure, scale)),
        *without_calls(scale),
    ]


def without_calls(scale: Scale) -> list[Part]:
    """The figures that peers have no part in."""
    return [
        Part("imports", imports.count(scale), partial(imports.measure, scale)),
        Part("events", events.count(scale), partial(events.measure, scale)),
        Part("catalog", catalog.count(scale), partial(catalog.measure, scale)),
    ]


def print_figures(scale: Scale, *, as_json: bool) -> int:
    """Measure and print what ships."""
    began = time.perf_counter()
    with guard_stdout() as stream:
        figures = measured(shipped(scale))
        tell(figures, Output(stream, as_json=as_json), took_s=time.perf_counter() - began)
    return 0


def measured(parts: Sequence[Part]) -> list[Figure]:
    """Measure one figure after the other, with a bar on stderr.

    The bar is drawn between turns only: a thread that draws would be measured with them.
    """
    bar = Progress(
        TextColumn("{task.description:<40}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("", total=sum(part.ticks for part in parts))

        def measure(part: Part) -> Figure:
            def tick(name: str) -> None:
                bar.update(task, advance=1, description=f"{part.name}: {name}", refresh=True)

            return part.measure(tick)

        return [measure(part) for part in parts]


def tell(figures: Sequence[Figure], output: Output, *, took_s: float) -> None:
    """Print the figures."""
    if output.as_json:
        output.document(document(figures, took_s=took_s))
        return
    for figure in figures:
        show(figure, output)
    kept = sum(target.met for figure in figures for target in figure.targets)
    output.text(f"{kept} of {sum(len(figure.targets) for figure in figures)} targets met, in {took_s:.0f} s")
