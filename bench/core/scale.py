"""How much is measured: more rounds for steadier numbers, fewer for a quick look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of one run of the benchmarks."""

    rounds: int
    calls: int
    starts: int
    event_rounds: int
    events: int
    catalog_rounds: int
    catalogs: tuple[int, ...]


FULL = Scale(
    rounds=25,
    calls=1_000,
    starts=11,
    event_rounds=3,
    events=75_000,
    catalog_rounds=9,
    catalogs=(1_000, 2_000, 5_000, 10_000),
)
QUICK = Scale(
    rounds=8,
    calls=500,
    starts=5,
    event_rounds=3,
    events=30_000,
    catalog_rounds=3,
    catalogs=(1_000, 10_000),
)
