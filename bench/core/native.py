"""Figure 1: a native call through the whole pipeline, beside the floor and whatever peers take part."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.core.figures import Column, Figure, Row, Target
from bench.core.floor import Floor
from bench.core.harness import Contender, LocalTrack, Measured, Tick, Track, interleave
from bench.core.scale import Scale
from bench.core.subject import ARGUMENTS, add3
from toolpost.catalog.function import tool
from toolpost.configuration.settings import Settings
from toolpost.contracts.outcomes import Completed
from toolpost.toolbox.box import Toolbox

DIRECT = "direct await"
FLOOR = "floor, by hand"
MEMORY = "Toolbox in memory"
SQLITE = "Toolbox on SQLite"
MOST_ADDED_MS = 50
SHARE_OF_PEER = 0.4
MOST_CPU = 4.6  # of the floor's, with all events on disk: 50 µs where the floor took 10.8

COLUMNS = (
    Column("name", "contender"),
    Column("median_us", "median µs"),
    Column("p99_us", "p99 µs"),
    Column("sustained_us", "sustained µs"),
    Column("cpu_us", "CPU µs"),
    Column("of_floor", "x floor"),
    Column("of_floor_cpu", "CPU x floor", 2),
)
PEER_COLUMNS = (Column("of_peer", "x peer", 2), Column("of_peer_cpu", "x peer CPU", 2))
NOTES = (
    "sustained: a whole turn with its settling (events written to disk), per call; CPU: all threads, the writer's too.",
)


def count(scale: Scale, *, peers: int = 0) -> int:
    """How many ticks this figure makes."""
    return (scale.rounds + 1) * (4 + peers)


def measure(scale: Scale, tick: Tick, *, tracks: Sequence[Track] = (), peer: str | None = None) -> Figure:
    """Measure the call; `tracks` hold peers, and `peer` is the one that the targets speak of."""
    return asyncio.run(_measure(scale, tick, tracks, peer))


async def _measure(scale: Scale, tick: Tick, tracks: Sequence[Track], peer: str | None) -> Figure:
    async with contenders() as own:
        result = await interleave([LocalTrack(own), *tracks], rounds=scale.rounds, calls=scale.calls, tick=tick)
    return figure(result, peer=peer)


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    """The contenders that ship; the folder of the one on SQLite is removed afterwards."""
    subject = tool(side_effects="pure")(add3)
    floor = Floor(add3, subject.spec.input_schema)
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        in_memory = Toolbox(tools=[subject], settings=Settings(data_dir=None))
        on_disk = Toolbox(tools=[subject], settings=Settings(data_dir=Path(folder)))
        async with in_memory, on_disk:
            yield [
                Contender(name=DIRECT, call=lambda: add3(**ARGUMENTS)),
                Contender(name=FLOOR, call=lambda: floor.call(ARGUMENTS), settle=floor.settle),
                await _through(in_memory, MEMORY),
                await _through(on_disk, SQLITE),
            ]


async def _through(box: Toolbox, name: str) -> Contender:
    outcome = await box.call("add3", ARGUMENTS)
    if not isinstance(outcome, Completed):
        raise RuntimeError(f"{name}: the call under test {outcome.status}: {outcome}")  # noqa: TRY004 - no caller's mistake
    return Contender(name=name, call=lambda: box.call("add3", ARGUMENTS), settle=box.store.events.flush)


def figure(result: dict[str, Measured], *, peer: str | None) -> Figure:
    """The numbers as a table, with the targets if the peer took part."""
    rival = result.get(peer or "")
    columns = COLUMNS if rival is None else COLUMNS + PEER_COLUMNS
    targets = [_overhead(result[SQLITE], result[DIRECT]), _cpu(result[SQLITE], result[FLOOR])]
    if rival is not None:
        targets += [_target(name, result[name], peer, rival) for name in (MEMORY, SQLITE)]
    return Figure(
        key="native",
        title="Native call, three fields, pure tool",
        columns=columns,
        rows=[_row(name, measured, result[FLOOR], rival) for name, measured in result.items()],
        targets=targets,
        notes=NOTES,
    )


def _row(name: str, measured: Measured, floor: Measured, rival: Measured | None) -> Row:
    row: Row = {"name": name, **measured._asdict(), "of_floor": measured.times(floor)}
    row["of_floor_cpu"] = measured.cpu_us / floor.cpu_us
    if rival is not None:
        row["of_peer"] = measured.times(rival)
        row["of_peer_cpu"] = measured.cpu_us / rival.cpu_us
    return row


def _overhead(measured: Measured, direct: Measured) -> Target:
    """What the whole pipeline adds to calling the function by hand."""
    added_ms = (measured.median_us - direct.median_us) / 1000
    return Target(f"{SQLITE} over a {DIRECT}", added_ms, "at most", MOST_ADDED_MS, "ms")


def _cpu(measured: Measured, floor: Measured) -> Target:
    """What a call costs with its events on disk, all threads together."""
    return Target(f"{SQLITE} / {FLOOR}, CPU", measured.cpu_us / floor.cpu_us, "at most", MOST_CPU)


def _target(name: str, measured: Measured, peer: str | None, rival: Measured) -> Target:
    return Target(f"{name} / {peer}, median", measured.times(rival), "at most", SHARE_OF_PEER)
