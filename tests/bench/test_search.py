"""The labelled queries of the search figures."""

from collections import Counter

from bench.search.corpus import QUERIES, queries
from bench.search.figures import KINDS
from toolpost.contracts.spec import ToolSpec


def test_there_are_hundreds_of_queries_of_every_kind_and_none_twice() -> None:
    rows = [line.split("\t") for line in QUERIES.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]

    assert all(len(row) == 3 and row[2] for row in rows)
    assert Counter(row[0] for row in rows).keys() == set(KINDS)
    assert sum(kind != "unseen" for kind, *_ in rows) >= 300
    assert len({(kind, text) for kind, text, _ in rows}) == len(rows)


def test_queries_are_asked_where_a_right_tool_is_there() -> None:
    asked = queries([ToolSpec(name="read_file")])

    assert {name for query in asked for name in query.right} == {"read_file"}
