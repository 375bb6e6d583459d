"""Tables with columns of tools: conversion from other libraries, the name of the column, filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from toolpost.adapters.arrow_decoding import as_written, is_unified, storage_of
from toolpost.adapters.arrow_type import ToolColumnType, pa, pc
from toolpost.adapters.stored_tools import ToolType
from toolpost.contracts.errors import ConfigError, ToolValueError

if TYPE_CHECKING:
    from pyarrow import Table

_FORMS = frozenset({2, 6, 9, 10, 12, 13, 14})  # numbers of fields of the forms that can be read


def as_table(table: Any) -> Table:
    """Convert a table of another library, such as Polars, pandas or DuckDB, to an Arrow table."""
    if isinstance(table, pa.Table):
        return cast("Table", table)
    if hasattr(table, "__arrow_c_stream__"):
        arrow_table: Any = pa.table(table)
        # Polars stores strings as views, which pyarrow can neither filter nor compare.
        columns: list[Any] = [_without_views(column) for column in arrow_table.columns]
        plain: Table = pa.table(columns, names=arrow_table.column_names)
        return plain
    raise ConfigError(f"a {type(table).__name__} is not a table; give one of pyarrow, Polars, pandas or DuckDB")


def _without_views(column: Any) -> Any:
    if isinstance(column.type, ToolColumnType):
        if not column.num_chunks or not is_unified(column.type.storage_type):
            return column
        chunks = [as_written(chunk.storage) for chunk in column.chunks]
        kind = ToolColumnType(chunks[0].type, column.type.version)
        return pa.chunked_array([pa.ExtensionArray.from_storage(kind, one) for one in chunks], type=kind)
    plain = _plain_type(column.type)
    return column if plain == column.type else column.cast(plain)


def _plain_type(kind: Any) -> Any:
    """Return a type with strings and bytes instead of views."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    return kind


def tool_column_name(table: Table, column: str | None = None) -> str:
    """Return the name of the tool column: the given one, or by default the last; ConfigError if there is none."""
    fields: Any = table.schema
    names: list[str] = [field.name for field in fields if _holds_tools(field.type)]
    if column is None:
        if not names:
            raise ConfigError(f"the table has no column of tools; its columns are: {', '.join(table.column_names)}")
        return names[-1]
    if column not in table.column_names:
        raise ConfigError(f"the table has no column {column!r}; its columns are: {', '.join(table.column_names)}")
    if column not in names:
        there = f"columns of tools are: {', '.join(names) or 'none'}"
        raise ConfigError(f"the column {column!r} contains {fields.field(column).type}, not tools; {there}")
    return column


def _holds_tools(kind: Any) -> bool:
    """Return whether a column has the type of tools, or contains their structs, as other programs write them."""
    if isinstance(kind, ToolColumnType):
        return True
    if not pa.types.is_struct(kind) or kind.num_fields not in _FORMS:
        return False
    return [field.name for field in kind] == [str(number) for number in range(kind.num_fields)]


def filter_tools(table: Any, tool_type: ToolType, column: str | None = None) -> Table:
    """Return the rows with tools of a type, without decoding the values."""
    rows = as_table(table)
    chunks: Sequence[Any] = rows.column(tool_column_name(rows, column)).chunks
    structs = [storage_of(chunk) for chunk in chunks]
    if not all(is_unified(one.type) for one in structs):
        raise ToolValueError("the column has an older form; rewrite it first with tool_column(tool_values(column))")
    masks = [pc.equal(one.field("0").cast(pa.string()), pa.scalar(tool_type.value)) for one in structs]
    matching: Table = cast("Any", rows).filter(pa.chunked_array(masks, type=pa.bool_()))
    return matching
