"""`python -m bench.rest`: calls beside a bare endpoint, and how often calls ran whose gateway was killed."""

from __future__ import annotations

import argparse
import sys
import time

from bench.rest.calls import compare
from bench.rest.kills import count_runs

_MOST_TIMES, _MOST_SPREAD = 2.5, 5.0


def main() -> int:
    """Measure what was asked for, print it, and return 1 where a promise does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.rest", description=__doc__)
    figures = parser.add_subparsers(dest="figure", required=True)
    kill = figures.add_parser("kill", help="kill -9 between question and answer, and during the answer")
    kill.add_argument("--count", type=int, default=1000, help="how many gateways are killed")
    calls = figures.add_parser("calls", help="calls of a native tool beside a bare Starlette endpoint")
    calls.add_argument("--count", type=int, default=5000, help="how many calls of each are sent")
    chosen = parser.parse_args()
    return _kill(chosen.count) if chosen.figure == "kill" else _calls(chosen.count)


def _kill(count: int) -> int:
    began = time.perf_counter()
    ran = count_runs(count)
    took_s = time.perf_counter() - began
    print(f"calls that ran once: {ran[1]} of {count} (calls by how often they ran: {dict(ran)}), {took_s:.0f} s")
    return int(ran[1] != count)


def _calls(count: int) -> int:
    kept = True
    for found in compare(count):
        bare, ours = found["bare"], found["ours"]
        times, spread = ours.p50_ms / bare.p50_ms, ours.p99_ms / ours.p50_ms
        kept = kept and times <= _MOST_TIMES and spread <= _MOST_SPREAD
        print(
            f"{found['at_once']} at once: {ours.p50_ms:.2f} ms beside {bare.p50_ms:.2f} ms, {times:.2f} times; "
            f"p99 {ours.p99_ms:.2f} ms, {spread:.1f} times p50; "
            f"{ours.per_second:.0f} calls/s beside {bare.per_second:.0f}"
        )
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
