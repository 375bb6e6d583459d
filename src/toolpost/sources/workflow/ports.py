"""Tables that go in and out of workflows: rows for expressions, Arrow files among the artifacts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolExecutionError, ToolValidationError
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.workflow.definition import OutputPort, Port

if TYPE_CHECKING:
    import pyarrow as pa

    from toolpost.contracts.context import ToolContext

ARROW_FILE = "application/vnd.apache.arrow.file"
_ARROW_MAGIC, _PARQUET_MAGIC = b"ARROW1", b"PAR1"


async def read_port(where: str, port: Port, value: Any, context: ToolContext) -> list[dict[str, Any]]:
    """Return the rows of an input port: the given rows, or those of an artifact with matching columns."""
    if is_array(value):  # already validated by the input schema
        return list(value)
    try:
        data = await context.read_artifact(str(value))
    except KeyError:
        raise ToolValidationError(
            f"{where}: the artifact {value!r} does not exist; pass its rows, or save it first"
        ) from None
    return _rows(where, _table(where, data), port)


def _table(where: str, data: bytes) -> pa.Table:
    arrow = _arrow(where)
    try:
        if data.startswith(_PARQUET_MAGIC):
            table: pa.Table = import_module("pyarrow.parquet").read_table(arrow.BufferReader(data))
        else:
            open_data = arrow.ipc.open_file if data.startswith(_ARROW_MAGIC) else arrow.ipc.open_stream
            table = open_data(arrow.BufferReader(data)).read_all()
    except (arrow.ArrowException, OSError) as error:
        raise ToolValidationError(f"{where}: the artifact is not an Arrow or Parquet table: {error}") from error
    return table


def _rows(where: str, table: pa.Table, port: Port) -> list[dict[str, Any]]:
    missing = [name for name in port.columns if name not in table.column_names]
    if missing:
        has = ", ".join(table.column_names) or "none"
        raise ToolValidationError(f"{where}: the table has no column {missing[0]!r}; its columns are {has}")
    types = dict(zip(table.schema.names, map(str, table.schema.types), strict=True))
    for name, kind in port.columns.items():
        if not _fits(types[name], kind):
            raise ToolValidationError(f"{where}: column {name!r} is {types[name]}, not {kind}")
    rows: list[dict[str, Any]] = table.select(list(port.columns)).to_pylist()
    times = [name for name, kind in port.columns.items() if kind in ("date", "timestamp")]
    for row in rows if times else ():
        row.update({name: None if row[name] is None else row[name].isoformat() for name in times})
    return rows


def _fits(column_type: str, kind: str) -> bool:
    """Return whether a column has the type that the port declares, or an equivalent one."""
    others = {"float64": ("double",), "float32": ("float",), "string": ("large_string", "string_view")}
    if kind == "date":
        return column_type.startswith("date")
    if kind == "timestamp":
        return column_type.startswith("timestamp")
    return column_type in (kind, *others.get(kind, ()))


async def write_port(where: str, port: OutputPort, rows: Any, context: ToolContext) -> dict[str, Any]:
    """Save rows as an Arrow file; return its artifact ID, number of rows and columns."""
    arrow = _arrow(where)
    if not is_array(rows):
        raise ToolExecutionError(f"{where}: its rows are {_kind(rows)}, not a list of objects")
    for number, row in enumerate(rows):
        if not is_object(row):
            raise ToolExecutionError(f"{where}: row {number} is {_kind(row)}, not an object with its columns")
    columns = {name: _column(where, name, kind, rows) for name, kind in port.columns.items()}
    sink = arrow.BufferOutputStream()
    table = arrow.table(columns)
    with arrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    artifact_id = await context.save_artifact(data, media_type=ARROW_FILE, name="")
    return {"artifact_id": artifact_id, "rows": len(rows), "columns": dict(port.columns)}


def _arrow(where: str) -> Any:
    try:
        pyarrow = import_module("pyarrow")  # only workflows with tables need it
        import_module("pyarrow.ipc")
    except ModuleNotFoundError as error:
        msg = f"{where}: tables need pyarrow: pip install 'toolpost[arrow]'"
        raise ToolExecutionError(msg, cause=error) from error
    return pyarrow


def _types(arrow: Any) -> Mapping[str, Any]:
    return {
        "bool": arrow.bool_(),
        "int32": arrow.int32(),
        "int64": arrow.int64(),
        "float32": arrow.float32(),
        "float64": arrow.float64(),
        "string": arrow.string(),
        "date": arrow.date32(),
        "timestamp": arrow.timestamp("us"),
    }


def _column(where: str, name: str, kind: str, rows: list[dict[str, Any]]) -> pa.Array[Any]:
    arrow = _arrow(where)
    values = [row.get(name) for row in rows]
    if kind in ("date", "timestamp"):
        values = [_parsed_time(where, name, number, kind, value) for number, value in enumerate(values)]
    try:
        column: pa.Array[Any] = arrow.array(values, type=_types(arrow)[kind])
        return column
    except (arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        number = _first_mismatch(arrow, values, kind)
        value = values[number]
        msg = f"{where}: column {name!r}, row {number}: {_kind(value)} {value!r:.80} is not of type {kind}"
        raise ToolExecutionError(msg, cause=error) from error


def _first_mismatch(arrow: Any, values: list[Any], kind: str) -> int:
    """Return the first row with a mismatched value; the error of Arrow does not name it."""
    for number, value in enumerate(values):
        try:
            arrow.array([value], type=_types(arrow)[kind])
        except (arrow.ArrowException, TypeError, ValueError, OverflowError):
            return number
    return 0


def _parsed_time(where: str, name: str, number: int, kind: str, value: Any) -> Any:
    if value is None:
        return None
    parse = dt.date.fromisoformat if kind == "date" else dt.datetime.fromisoformat
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        msg = f"{where}: column {name!r}, row {number}: {value!r:.80} is not a valid {kind} such as 2026-11-17"
        raise ToolExecutionError(msg, cause=error) from error


def _kind(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"
