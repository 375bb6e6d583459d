"""Encode tool values as a column of an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from toolpost.adapters.arrow_type import CHUNK_ROWS, FACTORY, STORAGE, ToolColumnType, np, pa, pc
from toolpost.adapters.stored_tools import RemoteTool, ToolValue, WorkflowTool
from toolpost.adapters.values import (
    FIELDS,
    SCHEMA_VERSION,
    encode_json,
    encode_ports,
)

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table

DEFAULT_COLUMN = "Tool"


def tool_table(values: Iterable[ToolValue | None], column: str = DEFAULT_COLUMN) -> Table:
    """Return a table with one column of tool values."""
    table: Table = pa.table({column: tool_column(values)})
    return table


def tool_column(values: Iterable[ToolValue | None]) -> ChunkedArray[Any]:
    """Encode tool values, of any types and with None for empty cells, as a column.

    TypeError names the first row that is not a tool value.
    """
    rows: list[Any] = values if isinstance(values, list) else list(values)
    json_texts = _JsonTexts()
    chunks = [_encode(rows[start : start + CHUNK_ROWS], start, json_texts) for start in range(0, len(rows), CHUNK_ROWS)]
    column: ChunkedArray[Any] = pa.chunked_array(chunks, type=ToolColumnType())
    return column


def _encode(rows: list[Any], start: int, json_texts: _JsonTexts) -> Any:
    classes: list[type[Any]] = [type(row) for row in rows]
    kinds = set(classes)
    empty = type(None) in kinds
    for kind in kinds - {type(None)}:
        if not issubclass(kind, WorkflowTool | RemoteTool):
            raise TypeError(f"Unknown tool type: {kind} in row {start + classes.index(kind)}")
    try:
        present = [row for row in rows if row is not None] if empty else rows
        storage = _structs(present, [type(row) for row in present] if empty else classes, json_texts)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _blame(rows, start, error) from error
    if empty:
        storage = storage.take(_places(np.array([kind is not type(None) for kind in classes])))
    return pa.ExtensionArray.from_storage(ToolColumnType(), storage)


def _structs(rows: list[Any], classes: list[type[Any]], json_texts: _JsonTexts) -> Any:
    """Encode values by columns: workflows and other values separately, each in its rows."""
    kinds = {kind: rows[classes.index(kind)].tool_type.value for kind in set(classes)}
    workflows = {kind: issubclass(kind, WorkflowTool) for kind in kinds}
    is_workflow = np.fromiter(map(workflows.__getitem__, classes), np.bool_, len(rows))
    text = pa.string()
    columns = {
        "0": pa.array(list(map(kinds.__getitem__, classes)), text),
        "1": pa.array([row.name for row in rows], text),
        "2": pa.array([row.description for row in rows], text),
        "3": json_texts.column([row.parameter_schema for row in rows]),
        "7": pa.repeat(pa.scalar(-1, pa.int32()), len(rows)),
        "12": pa.repeat(pa.scalar(SCHEMA_VERSION, pa.int32()), len(rows)),
    }
    if is_workflow.any():
        columns |= _encode_rows(is_workflow, rows, _workflow_columns)
    if not is_workflow.all():
        columns |= _encode_rows(~is_workflow, rows, lambda chosen: _remote_columns(chosen, json_texts))
    columns["7"] = pc.fill_null(columns["7"], -1) if not is_workflow.all() else columns["7"]
    arrays = [columns.get(field.name, pa.nulls(len(rows), field.type)) for field in cast("Iterable[Any]", STORAGE)]
    return pa.StructArray.from_arrays(arrays, fields=list(STORAGE))


def _encode_rows(chosen: Any, rows: list[Any], encode: Callable[[list[Any]], dict[str, Any]]) -> dict[str, Any]:
    """Encode some of the rows, with nulls for the others."""
    if chosen.all():
        return encode(rows)
    columns = encode([rows[index] for index in np.flatnonzero(chosen).tolist()])
    places = _places(chosen)
    return {name: column.take(places) for name, column in columns.items()}


def _places(chosen: Any) -> Any:
    """Return for each row its index among the chosen rows; null for other rows."""
    return pa.array(np.cumsum(chosen) - 1, mask=~chosen)


def _workflow_columns(rows: list[Any]) -> dict[str, Any]:
    text = pa.string()
    return {
        "4": pa.array([row.package for row in rows], pa.binary()),
        "5": pa.array([encode_ports(row.input_ports) for row in rows], text),
        "6": pa.array([encode_ports(row.output_ports) for row in rows], text),
        "7": pa.array([row.message_output_port_index for row in rows], pa.int32()),
    }


def _remote_columns(rows: list[Any], json_texts: _JsonTexts) -> dict[str, Any]:
    text = pa.string()
    return {
        "8": pa.array([row.server_uri for row in rows], text),
        "9": pa.array([row.tool_name for row in rows], text),
        "10": json_texts.column([row.input_schema for row in rows]),
        "11": pa.array([row.output_type for row in rows], text),
        "13": pa.array([row.credential_name for row in rows], text),
    }


class _JsonTexts:
    """Schemas as columns of JSON; a shared schema is encoded once."""

    def __init__(self) -> None:
        self._texts: dict[int, str | None] = {id(None): None}

    def column(self, schemas: list[Any]) -> Any:
        """Return the column of schemas; the schemas must live at least as long as this object."""
        if schemas.count(None) == len(schemas):
            return pa.nulls(len(schemas), pa.string())
        encoded = pa.array(np.fromiter(map(id, schemas), np.int64, len(schemas))).dictionary_encode()
        distinct: list[int] = encoded.dictionary.to_pylist()
        if not self._texts.keys() >= set(distinct):
            for schema in schemas:
                if id(schema) not in self._texts:
                    self._texts[id(schema)] = encode_json(schema)
        return pa.array([self._texts[key] for key in distinct], pa.string()).take(encoded.indices)


def _blame(rows: list[Any], start: int, error: Exception) -> TypeError:
    """Return the error of the first row that cannot be encoded."""
    for number, row in enumerate(rows, start):
        field = None
        try:
            for field, stored in (FACTORY.encode(row) or {}).items():
                pa.scalar(stored, STORAGE.field(field).type)
        except (pa.ArrowException, TypeError, ValueError) as reason:
            where = "" if field is None else f"field {field} ({FIELDS[int(field)]}): "
            return TypeError(f"row {number}: {getattr(row, 'name', row)!r} cannot be stored: {where}{reason}")
    return TypeError(str(error))
