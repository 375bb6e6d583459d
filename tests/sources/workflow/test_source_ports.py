"""Tables that go into a workflow and come out of it."""

import io
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from toolpost import Completed, Failed, Settings, Toolbox, tool
from toolpost.contracts.events import CallRef
from toolpost.contracts.principal import login_name
from toolpost.runtime.results import artifact_ref
from toolpost.sources import Workflow, WorkflowFunction

TEXT = """
name: large_orders
inputs: {properties: {least: {type: number}}, required: [least]}
ports:
  inputs: {orders: {columns: {id: int64, total: float64, day: date}}}
  outputs: {large: {columns: {id: int64, day: date}, rows: steps.keep}}
steps:
  keep: {tool: echo, arguments: {value: "${{ ports.orders[?total >= root().inputs.least] }}"}}
outputs: {count: "${{ length(steps.keep) }}"}
"""
ROWS = [{"id": 1, "total": 5.0, "day": "2026-11-01"}, {"id": 2, "total": 50.0, "day": None}]


@tool(side_effects="pure")
async def echo(value: Any) -> Any:
    """Return what is given."""
    return value


def box_of(text: str = TEXT) -> Toolbox:
    return Toolbox(tools=[echo, WorkflowFunction(Workflow.parse(text))], settings=Settings(data_dir=None))


async def stored(box: Toolbox, data: bytes) -> str:
    call = CallRef("run", "call", "tool", "local", login_name(), "", dict)
    return (await box.store.artifacts.put(data, artifact_ref(call, media_type="", at=0.0))).id


def table(**columns: Any) -> "pa.Table":
    given = {"id": pa.array([1, 2]), "total": pa.array([5.0, 50.0]), "day": pa.array([None, None], pa.date32())}
    return pa.table({**given, **columns})


def as_parquet(given: "pa.Table") -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(given, buffer)
    return buffer.getvalue()


async def test_rows_go_in_and_an_arrow_file_comes_out() -> None:
    async with box_of() as box:
        outcome = await box.call("large_orders", {"least": 10, "orders": ROWS})
        assert isinstance(outcome, Completed)
        large = outcome.content["large"]
        data = await box.store.artifacts.read(large["artifact_id"], tenant="local")
    assert (outcome.content["count"], large["rows"]) == (1, 1)
    assert ipc.open_file(pa.BufferReader(data)).read_all().to_pylist() == [{"id": 2, "day": None}]


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
async def test_a_table_goes_in_as_an_artifact(form: str) -> None:
    if form == "parquet":
        data = as_parquet(table())
    else:
        sink = pa.BufferOutputStream()
        make = ipc.new_file if form == "file" else ipc.new_stream
        with make(sink, table().schema) as writer:
            writer.write_table(table())
        data = sink.getvalue().to_pybytes()
    async with box_of() as box:
        outcome = await box.call("large_orders", {"least": 10, "orders": await stored(box, data)})
    assert isinstance(outcome, Completed)
    assert outcome.content["count"] == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (as_parquet(table(total=pa.array(["5", "50"]))), "port 'orders': column 'total' is string, not float64"),
        (as_parquet(table().drop_columns(["day"])), "port 'orders': the table has no column 'day'"),
        (b"neither of them", "port 'orders': the artifact is not an Arrow or Parquet table"),
    ],
)
async def test_a_port_of_the_wrong_schema_is_named(given: bytes, message: str) -> None:
    async with box_of() as box:
        failed = await box.call("large_orders", {"least": 1, "orders": await stored(box, given)})
        missing = await box.call("large_orders", {"least": 1, "orders": "art_none"})
        rows = [*ROWS, {"id": "three", "total": 1, "day": None}]
        wrong_row = await box.call("large_orders", {"least": 1, "orders": rows})
    assert isinstance(failed, Failed)
    assert f"workflow 'large_orders' (version 1): {message}" in failed.error.message
    assert isinstance(missing, Failed)
    assert "the artifact 'art_none' does not exist" in missing.error.message
    assert isinstance(wrong_row, Failed)
    assert "$.orders[2].id" in wrong_row.error.message


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("`5`", "its rows are of type int, not a list of objects"),
        ("`[1]`", "row 0 is of type int, not an object"),
        ('`[{"id": 1}, {"id": "x"}]`', "column 'id', row 1: of type str 'x' is not of type int64"),
        ('`[{"day": "soon"}]`', "column 'day', row 0: 'soon' is not a valid date"),
    ],
)
async def test_rows_that_do_not_fit_the_port_that_goes_out_are_named(rows: str, message: str) -> None:
    async with box_of(TEXT.replace("rows: steps.keep", f"rows: '{rows}'")) as box:
        failed = await box.call("large_orders", {"least": 1, "orders": ROWS})
    assert isinstance(failed, Failed)
    assert f"port 'large': {message}" in failed.error.message
