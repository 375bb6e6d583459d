"""Columns of tool values: mixed, concatenated, written, read by other libraries, and broken."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from tests.adapters import samples
from toolpost.adapters import (
    MCPTool,
    ToolColumnType,
    ToolType,
    ToolValueFactory,
    WorkflowTool,
    filter_tools,
    tool_column,
    tool_table,
    tool_values,
)
from toolpost.adapters.arrow_tables import tool_column_name
from toolpost.errors import ConfigError, ToolValueError

FACTORY = ToolValueFactory()


@pytest.mark.req("KTYPE-11", "KTYPE-15", "MISC-11")
def test_values_of_every_type_and_empty_cells_share_one_column() -> None:
    column = tool_column(samples.EVERY)

    assert column.null_count == 1
    assert tool_values(column) == samples.EVERY
    assert column.to_pylist() == samples.EVERY


@given(st.lists(st.sampled_from(samples.EVERY), max_size=40))
def test_any_mixture_is_decoded_in_its_order(values: list[Any]) -> None:
    column = tool_column(values)

    assert tool_values(column) == values
    assert tool_values(column[1:]) == values[1:]


@pytest.mark.req("KTYPE-18")
def test_a_column_is_read_as_rows_and_rows_as_a_column() -> None:
    structs = pa.array([FACTORY.encode(value) for value in samples.EVERY])

    assert tool_values(structs) == samples.EVERY
    whole: Any = tool_column(samples.EVERY).chunk(0)
    assert [FACTORY.decode(row) for row in whole.storage.to_pylist()] == samples.EVERY


@pytest.mark.req("KLC-07")
def test_tables_of_different_origin_are_concatenated_without_conflicts() -> None:
    provided = tool_table([samples.MCP, None])
    made = tool_table([samples.WORKFLOW, samples.BARE_WORKFLOW])
    with_credential = tool_table([samples.MCP_WHOLE])

    whole = pa.concat_tables([provided, made, with_credential, tool_table([])])

    assert tool_values(whole["Tool"]) == [
        *(samples.MCP, None, samples.WORKFLOW, samples.BARE_WORKFLOW, samples.MCP_WHOLE),
    ]


def _parquet(table: Any, path: Path) -> Any:
    pq.write_table(table, path)
    return pq.read_table(path)


def _feather(table: Any, path: Path) -> Any:
    feather.write_feather(table, str(path))
    return feather.read_table(str(path))


def _ipc(table: Any, path: Path) -> Any:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pa.OSFile(str(path), "rb") as file:
        return pa.ipc.open_file(file).read_all()


def _stream(table: Any, path: Path) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


@pytest.mark.parametrize("store", [_parquet, _feather, _ipc, _stream])
def test_a_table_that_was_written_is_read_with_its_type(store: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    table = pa.table({"n": list(range(len(samples.EVERY))), "Tool": tool_column(samples.EVERY)})

    read = store(table, tmp_path / "tools")

    assert isinstance(read.schema.field("Tool").type, ToolColumnType)
    assert tool_values(read["Tool"]) == samples.EVERY


@pytest.mark.parametrize("store", [_parquet, _feather, _ipc, _stream])
def test_equal_types_are_one_object_that_stays(store: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    """Threads of Arrow let go of types when they like, and must not need the interpreter for it while it ends."""
    first, known = tool_column([samples.MCP]).type, id(tool_column([]).type)

    read = store(tool_table(samples.EVERY), tmp_path / "tools").schema.field("Tool").type
    assert read is first is ToolColumnType()
    del first, read

    assert id(ToolColumnType()) == known
    assert ToolColumnType(version=2) is ToolColumnType(version=2) is not ToolColumnType()


def test_pandas_takes_a_table_and_gives_it_back() -> None:
    table = tool_table(samples.EVERY)

    frame = table.to_pandas()
    back = pa.Table.from_pandas(frame, schema=table.schema)
    series = pd.Series(tool_values(table["Tool"]), dtype=object)

    assert frame["Tool"][0]["1"] == "add"
    assert tool_values(back["Tool"]) == samples.EVERY
    assert tool_values(tool_column(series.where(series.notna(), None).tolist())) == samples.EVERY


@pytest.mark.filterwarnings("ignore::UserWarning:polars")
def test_polars_reads_what_was_written_and_its_frames_are_taken(tmp_path: Path) -> None:
    pq.write_table(tool_table(samples.EVERY), tmp_path / "tools.parquet")

    frame = pl.read_parquet(tmp_path / "tools.parquet")
    column = frame["Tool"].ext.storage() if hasattr(frame["Tool"], "ext") else frame["Tool"]
    found = pl.DataFrame({"Tool": column}).filter(pl.col("Tool").struct.field("0") == "MCP")

    assert tool_values(pa.table(frame)["Tool"]) == samples.EVERY
    assert tool_values(pa.table(found)["Tool"]) == samples.EVERY_MCP
    for other in (frame.with_columns(Note=pl.lit("a text")), pl.DataFrame({"Tool": column})):
        assert tool_values(filter_tools(other, ToolType.MCP)["Tool"]) == samples.EVERY_MCP


def test_frames_of_pandas_are_taken() -> None:
    frame = tool_table(samples.EVERY).to_pandas()
    assert tool_values(filter_tools(frame, ToolType.MCP)["Tool"]) == samples.EVERY_MCP


DUCKDB = """
import duckdb, json, sys
path, uri = sys.argv[1:]
names = duckdb.sql(f"SELECT Tool['1'] FROM '{path}' WHERE Tool['0'] = 'MCP' ORDER BY 1").fetchall()
duckdb.sql(f"COPY (SELECT Tool FROM '{path}' WHERE Tool['8'] = '{uri}') TO '{path}.found' (FORMAT parquet)")
print(json.dumps(names))
"""


@pytest.mark.programs
def test_duckdb_queries_the_parquet(tmp_path: Path) -> None:
    path = tmp_path / "tools.parquet"
    pq.write_table(tool_table(samples.EVERY), path)

    words = [sys.executable, "-c", DUCKDB, str(path), samples.URI]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)

    assert json.loads(done.stdout) == [["add"], ["none"], ["søk"]]
    assert tool_values(pq.read_table(f"{path}.found")["Tool"]) == samples.EVERY_MCP


def test_a_column_of_an_older_form_is_not_filtered_before_it_is_written_again() -> None:
    nine = {"0": 1, "1": "add", "2": "", "3": "", "4": None, "5": None, "6": -1, "7": None, "8": samples.URI}
    table = pa.table({"Tool": pa.array([nine])})

    with pytest.raises(ToolValueError, match=r"has an older form; rewrite it first"):
        filter_tools(table, ToolType.MCP)
    assert filter_tools(tool_table(tool_values(table["Tool"])), ToolType.MCP).num_rows == 1


def test_columns_longer_than_a_chunk_are_decoded_in_order() -> None:
    values = [samples.EVERY[number % 7] for number in range(40_000)]
    column = tool_column(values)

    assert column.num_chunks > 1
    assert tool_values(column) == values
    assert tool_values(column.combine_chunks()) == values


def test_rows_are_filtered_by_type_without_decoding_any() -> None:
    broken = pa.array([{**(FACTORY.encode(samples.MCP) or {}), "3": "{"}, FACTORY.encode(samples.WORKFLOW), None])
    table = pa.table({"n": [1, 2, 3], "Tool": broken})

    assert filter_tools(table, ToolType.WORKFLOW)["n"].to_pylist() == [2]
    assert filter_tools(table, ToolType.MCP)["n"].to_pylist() == [1]
    assert filter_tools(tool_table([]), ToolType.MCP).num_rows == 0


@pytest.mark.req("KMIG-03", "TEST-06")
def test_columns_of_older_forms_are_read() -> None:
    ports = [{"0": "in", "1": "rows", "2": "table", "3": "spec"}]
    legacy = {"0": "add", "1": "Add.", "2": json.dumps(samples.SCHEMA), "3": b"zip", "4": ports, "5": ports}
    nine = {"0": 1, "1": "add", "2": "", "3": "", "4": None, "5": None, "6": -1, "7": None, "8": samples.URI}

    old, later = tool_values(pa.array([legacy, None])), tool_values(pa.array([nine]))

    assert [type(value) for value in old] == [WorkflowTool, type(None)]
    assert later == [MCPTool("add", "", {}, samples.URI, "add")]
    assert tool_values(tool_column([*old, *later])) == [*old, *later]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"0": "SOAP"}, r"row 2: Unknown tool type: SOAP"),
        ({"0": None}, r"row 2: Unknown tool type: None"),
        ({"1": None}, r"row 2: field 1 \(name\) is missing"),
        ({"3": "{"}, r"row 2: field 3 \(parameter_schema\) is not JSON"),
        ({"8": None}, r"row 2: field 8 \(server_uri\) is missing"),
        ({"9": ""}, r"row 2: field 9 \(tool_name\) is empty"),
        ({"12": 2}, r"row 2: field 12 \(schema_version\) is 2"),
    ],
)
def test_a_cell_that_cannot_be_read_is_reported_by_its_row_and_field(changed: dict[str, Any], complaint: str) -> None:
    rows = [FACTORY.encode(samples.MCP), None, {**(FACTORY.encode(samples.MCP_WHOLE) or {}), **changed}]
    column = pa.array(rows, ToolColumnType().storage_type)

    with pytest.raises(ToolValueError, match=complaint):
        tool_values(pa.chunked_array([column[:1], column[1:]]))


def test_a_column_of_a_newer_version_is_reported() -> None:
    storage: Any = tool_column([samples.MCP]).chunk(0)
    newer = pa.ExtensionArray.from_storage(ToolColumnType(version=2), storage.storage)

    with pytest.raises(ToolValueError, match="version 2, and this release reads versions up to 1"):
        tool_values(newer)


def test_a_column_of_something_else_is_reported() -> None:
    with pytest.raises(ToolValueError, match="contains structs, and this one contains int64"):
        tool_values(pa.array([1]))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("add", r"Unknown tool type: <class 'str'> in row 2"),
        (MCPTool(7, "", {}, "u", "t"), r"row 2: 7 cannot be stored: field 1 \(name\): "),  # type: ignore[arg-type]
        (MCPTool("n", "", {"x": object()}, "u", "t"), r"row 2: 'n' cannot be stored: .*object"),
    ],
)
def test_a_value_that_cannot_be_stored_is_reported_by_its_row(value: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        tool_column([samples.MCP, None, value])


@pytest.mark.req("KTYPE-17", "MISC-12")
def test_the_last_column_of_tools_is_taken_unless_one_is_named() -> None:
    table = pa.table({"First": tool_column([samples.MCP]), "n": [1], "Last": tool_column([samples.HTTP])})

    assert tool_column_name(table) == "Last"
    assert tool_column_name(table, "First") == "First"
    with pytest.raises(ConfigError, match=r"no column 'first'; its columns are: First, n, Last"):
        tool_column_name(table, "first")
    with pytest.raises(ConfigError, match=r"'n' contains int64, not tools; columns of tools are: First, Last"):
        tool_column_name(table, "n")
    with pytest.raises(ConfigError, match="no column of tools; its columns are: n"):
        tool_column_name(table.select(["n"]))
