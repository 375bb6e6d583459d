"""`python -m bench.rest`: how often calls ran whose gateway was killed."""

from __future__ import annotations

import argparse
import sys
import time

from bench.rest.kills import count_runs


def main() -> int:
    """Measure what was asked for, print it, and return 1 where a promise does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.rest", description=__doc__)
    figures = parser.add_subparsers(dest="figure", required=True)
    kill = figures.add_parser("kill", help="kill -9 between question and answer, and during the answer")
    kill.add_argument("--count", type=int, default=1000, help="how many gateways are killed")
    count = parser.parse_args().count
    began = time.perf_counter()
    ran = count_runs(count)
    took_s = time.perf_counter() - began
    print(f"calls that ran once: {ran[1]} of {count} (calls by how often they ran: {dict(ran)}), {took_s:.0f} s")
    return int(ran[1] != count)


if __name__ == "__main__":
    sys.exit(main())
