"""The figures of tables, on a few values."""

import pytest

from bench.tables import measure_columns, measure_langchain

pytestmark = pytest.mark.slow


def test_columns_and_rows_are_measured_side_by_side() -> None:
    figure = measure_columns(lambda _text: None, count=2_000)

    assert [row["name"] for row in figure.rows] == ["encode", "decode", "both", "find a type"]
    assert all(row["columns_us"] > 0 and row["dicts_us"] > 0 for row in figure.rows)


def test_a_tool_of_a_table_is_measured_beside_langchains_own() -> None:
    (row,) = measure_langchain(lambda _text: None, rounds=1).rows

    assert row["ratio"] > 0
