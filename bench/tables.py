"""Tool values in tables: whole columns beside a loop over rows, and a tool of a table beside LangChain's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pyarrow as pa
from langchain_core.tools import StructuredTool

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, undisturbed
from bench.core.main import Part
from toolpost import Settings, Toolbox, tool
from toolpost.adapters import (
    LangchainToolConverter,
    MCPTool,
    TableTool,
    ToolColumnType,
    ToolType,
    ToolValueFactory,
    ToolValues,
    WorkflowTool,
    filter_tools,
    tool_column,
    tool_values,
)

VALUES, QUICK_VALUES = 1_000_000, 100_000
SCHEMAS = 1_000
SAMPLE = 50_000  # rows of the loop: it takes the same for each
AT_LEAST = 20.0
LANGCHAIN_LIMIT = 1.1
ROUNDS, QUICK_ROUNDS, CALLS = 15, 3, 200

TABLE_COLUMNS = (
    Column("name", "what"),
    Column("columns_us", "by columns, µs a value", 2),
    Column("rows_us", "cell by cell, µs", 2),
    Column("times", "times faster", 1),
    Column("dicts_us", "by lists of dicts, µs", 2),
    Column("times_dicts", "times faster", 1),
)
LANGCHAIN_COLUMNS = (
    Column("name", "call of a tool"),
    Column("own_us", "StructuredTool of a function, µs", 1),
    Column("schema_us", "StructuredTool of a schema, µs", 1),
    Column("table_us", "tool of a table, µs", 1),
    Column("ratio", "of the first", 2),
)


def _values(count: int) -> list[Any]:
    """Values of which one in ten is a workflow, with a thousand different schemas."""
    number = {"type": "integer", "description": "the first number"}
    schemas = [
        {"type": "object", "title": f"tool {n}", "properties": {"a": number, "b": {"type": "string"}}}
        for n in range(SCHEMAS)
    ]

    def value(n: int) -> Any:
        name, text, schema = f"tool_{n}", f"Does what tool {n % SCHEMAS} does.", schemas[n % SCHEMAS]
        if n % 10 == 0:
            return WorkflowTool(name, text, schema, b"packed")
        return MCPTool(name, text, schema, "https://mcp.example.com/mcp", name)

    return [value(n) for n in range(count)]


def measure_columns(tick: Tick, *, count: int = VALUES) -> Figure:
    """Encode and decode values by columns and by rows, and find those of a type."""
    factory, values = ToolValueFactory(), _values(count)
    sample = values[:SAMPLE]
    column, encode_us = _spent(lambda: tool_column(values), count)
    tick("encoded by columns")
    decoded, decode_us = _spent(lambda: tool_values(column), count)
    assert decoded == values
    tick("decoded by columns")
    kind = ToolColumnType().storage_type
    _, cells_encode_us = _spent(lambda: pa.array([pa.scalar(factory.encode(v), kind) for v in sample]), len(sample))
    structs, dicts_encode_us = _spent(lambda: pa.array([factory.encode(v) for v in sample], kind), len(sample))
    tick("encoded by rows")
    _, cells_decode_us = _spent(lambda: [factory.decode(cell.as_py()) for cell in structs], len(sample))
    _, dicts_decode_us = _spent(lambda: [factory.decode(row) for row in structs.to_pylist()], len(sample))
    tick("decoded by rows")
    table = pa.table({"Tool": column})
    found, filter_us = _spent(lambda: filter_tools(table, ToolType.WORKFLOW), count)
    assert found.num_rows == count // 10
    encode = _row("encode", encode_us, cells_encode_us, dicts_encode_us)
    decode = _row("decode", decode_us, cells_decode_us, dicts_decode_us)
    both = _row(
        *("both", encode_us + decode_us),
        *(cells_encode_us + cells_decode_us, dicts_encode_us + dicts_decode_us),
    )
    rows = [encode, decode, both, _row("find a type", filter_us, cells_decode_us, dicts_decode_us)]
    return Figure(
        key="tables_columns",
        title=f"{count:,} tool values in a column",
        columns=TABLE_COLUMNS,
        rows=rows,
        targets=[Target("encode and decode", float(both["times"]), "at least", AT_LEAST, "times a loop over cells")],
        notes=(
            "CPU time with the garbage collector off. Loops over rows encode and decode by ToolValueFactory, with one",
            f"cell of Arrow at a time or with a list of dicts for all; they are measured on {SAMPLE:,} rows. The lists",
            f"are converted by pyarrow as a whole: beside those, columns are {both['times_dicts']:.1f} times faster.",
            "Most of what is left goes into reading ten attributes of each object, and making texts of Arrow of them.",
        ),
    )


def _row(name: str, columns_us: float, cells_us: float, dicts_us: float) -> Row:
    return {
        "name": name,
        "columns_us": columns_us,
        "rows_us": cells_us,
        "times": cells_us / columns_us,
        "dicts_us": dicts_us,
        "times_dicts": dicts_us / columns_us,
    }


def _spent(work: Callable[[], Any], count: int) -> tuple[Any, float]:
    """What the work came to, and the CPU that it took for each value, in microseconds."""
    with undisturbed():
        began = time.process_time()
        result = work()
        return result, 1e6 * (time.process_time() - began) / count


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def measure_langchain(tick: Tick, *, rounds: int = ROUNDS) -> Figure:
    """Call a tool of a table and LangChain's own in turn, and compare the medians of their rounds."""
    row = asyncio.run(_langchain_row(tick, rounds))
    return Figure(
        key="tables_langchain",
        title="A tool of a table in LangChain",
        columns=LANGCHAIN_COLUMNS,
        rows=[row],
        targets=[Target("tool of a table", float(row["ratio"]), "at most", LANGCHAIN_LIMIT, "of StructuredTool")],
        notes=(
            "CPU time of the event loop, without the garbage collector: medians of rounds that take turns. The tool of",
            "a table validates, permits, limits and emits events; one of a schema does not look at its arguments.",
        ),
    )


async def _langchain_row(tick: Tick, rounds: int) -> Row:
    async with Toolbox(tools=[add], settings=Settings(data_dir=None)) as box:
        schema = box.registry.find("add").spec.input_schema
        value = MCPTool("add", "Add two numbers.", schema, "here", "add")
        ours = LangchainToolConverter([TableTool(value, "add", "add", "add", ToolValues(box))])
        tools: dict[str, Any] = {
            "own": StructuredTool.from_function(coroutine=_add, name="add"),
            "schema": StructuredTool.from_function(coroutine=_add, name="add", args_schema=schema),
            "table": ours.to_langchain_tools()[0],
        }
        took: dict[str, list[float]] = {name: [] for name in tools}
        call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "1", "type": "tool_call"}
        with undisturbed():
            for _ in range(rounds):
                for name, called in tools.items():
                    began = time.thread_time()
                    for _ in range(CALLS):
                        await called.ainvoke(call)
                    took[name].append(1e6 * (time.thread_time() - began) / CALLS)
        tick("calls as LangChain's tools")
    own, schema_us, table = (median(took[name]) for name in ("own", "schema", "table"))
    return {"name": "add", "own_us": own, "schema_us": schema_us, "table_us": table, "ratio": table / own}


def parts(*, quick: bool = False) -> list[Part]:
    """The figures as parts of a run."""
    count, rounds = (QUICK_VALUES, QUICK_ROUNDS) if quick else (VALUES, ROUNDS)
    return [
        Part("tables", 4, lambda tick: measure_columns(tick, count=count)),
        Part("tables in LangChain", 1, lambda tick: measure_langchain(tick, rounds=rounds)),
    ]
