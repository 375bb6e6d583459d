"""Tells which lines and branches no test ran, and fails when too few branches were.

`python -m tools.branch_gate coverage.json 90` reads coverage's JSON report. Coverage's own gate mixes lines into its
percentage, and a missed branch hides behind many easy lines.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any


def main() -> None:
    """Print what was missed, and compare the branches with the threshold."""
    report, threshold = Path(sys.argv[1]), float(sys.argv[2])
    document = json.loads(report.read_text(encoding="utf-8"))
    for path, file in document["files"].items():
        if places := ", ".join(_missed(file)):
            print(f"{path}  {file['summary']['percent_covered_display']} %  {places}")
    totals = document["totals"]
    percent = 100 * totals["covered_branches"] / max(totals["num_branches"], 1)
    print(f"lines and branches covered: {totals['percent_covered_display']} %")
    print(f"branches covered: {totals['covered_branches']} of {totals['num_branches']} ({percent:.1f} %)")
    if percent < threshold and totals["num_branches"]:
        sys.exit(f"at least {threshold:g} % of the branches must be covered")


def _missed(file: Mapping[str, Any]) -> Iterator[str]:
    """Missed lines, each row of statements as one range, and branches between lines that were run."""
    missing = set(file["missing_lines"])
    for is_missing, row in groupby(sorted({*file["executed_lines"], *missing}), missing.__contains__):
        if is_missing:
            lines = list(row)
            yield str(lines[0]) if len(lines) == 1 else f"{lines[0]}-{lines[-1]}"
    for start, end in file.get("missing_branches", ()):
        if missing.isdisjoint((start, end)):
            yield f"{start}->{end if end > 0 else 'exit'}"


if __name__ == "__main__":
    main()
