"""Measure the file tools alone: `python -m bench.files [--quick] [--files N] [--gigabytes G]`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from bench.core.main import measured, tell
from bench.files.material import FULL, QUICK
from bench.files.parts import parts
from toolpost.cli.output import Output
from toolpost.cli.stdout_guard import guard_stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.files", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller files, rougher numbers")
    parser.add_argument("--files", type=int, help="how many small files")
    parser.add_argument("--gigabytes", type=float, help="the size of the large file")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout and nothing else")
    chosen = parser.parse_args()
    scale = QUICK if chosen.quick else FULL
    scale = replace(scale, files=chosen.files or scale.files, gigabytes=chosen.gigabytes or scale.gigabytes)
    began = time.perf_counter()
    with guard_stdout() as stream:
        figures = measured(parts(scale))
        tell(figures, Output(stream, as_json=chosen.json), took_s=time.perf_counter() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
