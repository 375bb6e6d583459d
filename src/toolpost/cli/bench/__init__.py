"""`toolpost bench`: what a call, an import, an event and a tool cost on this machine.

Not a test: it prints figures beside their targets and fails only when it cannot measure.
"""

from __future__ import annotations


def run(*, json: bool, quick: bool = False) -> int:
    """Measure everything that ships, print it, and return the exit code."""
    from toolpost.cli.bench.main import print_figures
    from toolpost.cli.bench.scale import FULL, QUICK

    return print_figures(QUICK if quick else FULL, as_json=json)
