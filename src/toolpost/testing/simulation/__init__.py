"""Deterministic simulation of several processes on one store, with faults that a seed chooses.

Toolboxes run in one thread on virtual time. Crashes, failed commits, failing tools, lost answers and jumps of the wall
clock happen where the seed says, while clients repeat calls and approvers click twice. Then every promise is audited:

    report = simulate(17)
    assert report.broken == []

The same seed gives the same world, also in another process: `python -m toolpost.testing.simulation --seed 17` prints
its trace. `enumerate_crashes` kills a process before and after every commit of a small world.
"""

from toolpost.testing.simulation.auditor import PROMISES
from toolpost.testing.simulation.faults import NO_FAULTS, CrashPoint, FaultRates
from toolpost.testing.simulation.runner import Report, WorldOptions, enumerate_crashes, simulate

__all__ = [
    "NO_FAULTS",
    "PROMISES",
    "CrashPoint",
    "FaultRates",
    "Report",
    "WorldOptions",
    "enumerate_crashes",
    "simulate",
]
