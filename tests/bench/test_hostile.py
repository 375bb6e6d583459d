"""The attacks of `python -m bench hostile`, in small: each row has what the table shows."""

import asyncio

import pytest

from bench import hostile

pytestmark = pytest.mark.programs


@pytest.mark.parametrize(
    ("tool", "ends_as"),
    [("doubles", "expression_limit"), ("bad.objects", "completed"), ("bad.deep", "completed")],
)
def test_an_attack_is_measured(tool: str, ends_as: str) -> None:
    row = asyncio.run(hostile.measure_attack(hostile.Case("an attack", tool, 10)))
    assert row["outcome"] == ends_as
    assert {column.key for column in hostile.COLUMNS} == row.keys()
    assert row["share"] > 0
