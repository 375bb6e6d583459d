"""Figures that the README and the summary of the performance page quote are those of the measured tables."""

import re

import pytest

from tests.docs.blocks import ROOT

PERFORMANCE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
SUMMARY = " ".join(PERFORMANCE.partition("\n## ")[0].split())


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("native", "Toolbox in memory"),
        ("native", "pydantic-ai ToolManager.handle_call"),
        ("mcp_stdio", "Toolbox in memory"),
        ("mcp_stdio", "mcp 2.3 ClientSession"),
    ],
)
def test_a_quoted_median_is_the_measured_one(table: str, row: str) -> None:
    median = f"{_cell(table, row):.0f} µs"

    assert median in README
    assert median in SUMMARY


@pytest.mark.parametrize("row", ["Toolbox in memory", "mcp 2.3 ClientSession"])
def test_a_quoted_median_over_http_is_the_measured_one(row: str) -> None:
    assert f"{_cell('mcp_http', row):,.0f} µs" in SUMMARY


@pytest.mark.parametrize("row", ["bare python", "toolpost --version", "a program that makes one call"])
def test_a_quoted_startup_is_the_measured_one(row: str) -> None:
    assert f"{_cell('imports', row):.0f} ms" in SUMMARY


def _cell(table: str, row: str) -> float:
    """The first figure of a row of a measured table."""
    rows = PERFORMANCE.partition(f"<!-- bench:{table} -->")[2].partition("<!-- /bench -->")[0]
    found = re.search(rf"^\| {re.escape(row)} \| ([\d.,]+) \|", rows, re.MULTILINE)
    assert found is not None
    return float(found[1].replace(",", ""))
