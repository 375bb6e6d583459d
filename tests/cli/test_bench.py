"""`toolpost bench` from the command line."""

import pytest

from tests.cli.program import Run

pytestmark = pytest.mark.slow


def test_the_costs_of_a_call_are_one_document(toolpost: Run) -> None:
    done = toolpost("bench", "--quick", "--json")

    names = [cost["name"] for cost in done.json["costs"]]
    assert (done.code, done.json["calls"]) == (0, 1000)
    assert names == ["function alone", "Toolbox in memory", "Toolbox on SQLite"]
    assert all(cost["p99_us"] >= cost["median_us"] > 0 for cost in done.json["costs"])


def test_people_get_a_table(toolpost: Run) -> None:
    done = toolpost("bench", "--quick")

    assert done.code == 0
    assert "Toolbox on SQLite" in done.out
    assert "1,000 calls each" in done.err
