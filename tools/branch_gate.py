"""Fails when too few branches are covered: `python -m tools.branch_gate coverage.json 90`.

Coverage's own gate mixes lines into its percentage, and a missed branch hides behind many easy lines.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    """Read coverage's JSON report and compare its branches with the threshold."""
    report, threshold = Path(sys.argv[1]), float(sys.argv[2])
    totals = json.loads(report.read_text(encoding="utf-8"))["totals"]
    percent = 100 * totals["covered_branches"] / max(totals["num_branches"], 1)
    print(f"branches covered: {totals['covered_branches']} of {totals['num_branches']} ({percent:.1f} %)")
    if percent < threshold and totals["num_branches"]:
        sys.exit(f"at least {threshold:g} % of the branches must be covered")


if __name__ == "__main__":
    main()
