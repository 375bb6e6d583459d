"""How much the planner's figures measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerScale:
    """Rounds of turns, runs a turn, runs at once, steps before a pause, and how often a long run is resumed."""

    rounds: int
    runs: int
    at_once: int
    steps: int
    resumed: int


FULL = PlannerScale(rounds=15, runs=50, at_once=1_000, steps=200, resumed=15)
QUICK = PlannerScale(rounds=5, runs=20, at_once=1_000, steps=200, resumed=5)
