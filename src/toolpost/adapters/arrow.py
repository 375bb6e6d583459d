"""Columns of tool values in Arrow tables: their type, encoding and decoding a column at a time, and filters.

Importing this module registers the type with pyarrow, by which files and other programs' tables get it back.
"""

from __future__ import annotations

import gc
import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self, cast

from toolpost.adapters.values import (
    FIELDS,
    REMOTE,
    SCHEMA_VERSION,
    ToolValueFactory,
    check_version,
    decode_json,
    decode_ports,
    encode_json,
    encode_ports,
)
from toolpost.contracts.errors import ConfigError, ToolValueError
from toolpost.contracts.tool_values import AnyToolValue, RemoteTool, ToolType, ToolValue, WorkflowTool

try:
    import numpy as np
    import pyarrow  # noqa: ICN001 - `pa` is the same without types
except ImportError as missing:
    raise ConfigError("tables of tools need pyarrow; run: pip install 'toolpost[arrow]'") from missing

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table

# The types of pyarrow are of a package of others, and say less than its documents.
pa: Any = pyarrow
pc: Any = import_module("pyarrow.compute")

DEFAULT_COLUMN = "Tool"

_CHUNK_ROWS = 16_384  # whose values stay in the processor's cache while one attribute after another is read
_FORMS = frozenset({2, 6, 9, 10, 12, 13, 14})  # numbers of fields of the forms that can be read
_FIELD_TYPES: dict[str, Any] = {"4": pa.binary(), "7": pa.int32(), "12": pa.int32()}
_STORAGE = pa.struct(
    [pa.field(str(number), _FIELD_TYPES.get(str(number), pa.string())) for number in range(len(FIELDS))]
)
_FACTORY = ToolValueFactory()


class ToolScalar(pyarrow.ExtensionScalar):
    """One cell of a tool column; `as_py` returns the tool value."""

    def as_py(self, **_: Any) -> AnyToolValue | None:
        return _FACTORY.decode(None if self.value is None else self.value.as_py())


class ToolColumnType(pyarrow.ExtensionType):
    """The Arrow type of tool values of every kind: a struct with the twelve fields of version 1 and two optional ones.

    It is one type whatever the values are, so that tables of different origin can be concatenated. Equal types are one
    object that stays: Arrow's threads may let go of a type after a read has returned, and the last one to let go needs
    the interpreter. While a program ends that is fatal before Python 3.14, where a thread that waits for it is unwound.
    """

    version: int

    def __new__(cls, storage_type: Any = _STORAGE, version: int = SCHEMA_VERSION) -> Self:
        return cast("Self", _column_type(cast("Any", cls), storage_type, version))

    def __init__(self, *_: Any, **__: Any) -> None:
        """Leave the type as it is: it is complete since it was first asked for."""

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps({"version": self.version}).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> ToolColumnType:
        # A newer version is told when a value is read: the rest of its table may still be of use.
        return cls(storage_type, int(json.loads(serialized or b"{}").get("version", SCHEMA_VERSION)))

    def __arrow_ext_scalar_class__(self) -> type[ToolScalar]:
        return ToolScalar


@lru_cache(maxsize=256)
def _column_type(cls: type[ToolColumnType], storage_type: Any, version: int) -> ToolColumnType:
    column_type = pyarrow.ExtensionType.__new__(cls)
    column_type.version = version
    pyarrow.ExtensionType.__init__(column_type, storage_type, "toolpost.tool")
    return column_type


def _register() -> None:
    try:
        pa.register_extension_type(ToolColumnType())
    except pa.ArrowKeyError:  # the module was imported anew; the type is known by its name
        pa.unregister_extension_type("toolpost.tool")
        pa.register_extension_type(ToolColumnType())


_register()


# ---------------------------------------------------------------- encoding


def tool_table(values: Iterable[ToolValue | None], column: str = DEFAULT_COLUMN) -> Table:
    """Return a table with one column of tool values."""
    table: Table = pa.table({column: tool_column(values)})
    return table


def tool_column(values: Iterable[ToolValue | None]) -> ChunkedArray[Any]:
    """Encode tool values, of any types and with None for empty cells, as a column.

    TypeError names the row of what is no tool value.
    """
    rows: list[Any] = values if isinstance(values, list) else list(values)
    json_texts = _JsonTexts()
    chunks = [
        _encode(rows[start : start + _CHUNK_ROWS], start, json_texts) for start in range(0, len(rows), _CHUNK_ROWS)
    ]
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
    """Encode values by columns; those of workflows and of the others are filled in where they are."""
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
    arrays = [columns.get(field.name, pa.nulls(len(rows), field.type)) for field in cast("Iterable[Any]", _STORAGE)]
    return pa.StructArray.from_arrays(arrays, fields=list(_STORAGE))


def _encode_rows(chosen: Any, rows: list[Any], encode: Callable[[list[Any]], dict[str, Any]]) -> dict[str, Any]:
    """Encode some of the rows, with nulls for the others."""
    if chosen.all():
        return encode(rows)
    columns = encode([rows[index] for index in np.flatnonzero(chosen).tolist()])
    places = _places(chosen)
    return {name: column.take(places) for name, column in columns.items()}


def _places(chosen: Any) -> Any:
    """Return for each row which of the chosen ones it is; null for the others."""
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
    """Schemas as columns of JSON; one that several values share is written once."""

    def __init__(self) -> None:
        self._texts: dict[int, str | None] = {id(None): None}

    def column(self, schemas: list[Any]) -> Any:
        """Return the column of schemas that live at least as long as this object."""
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
            for field, stored in (_FACTORY.encode(row) or {}).items():
                pa.scalar(stored, _STORAGE.field(field).type)
        except (pa.ArrowException, TypeError, ValueError) as reason:
            where = "" if field is None else f"field {field} ({FIELDS[int(field)]}): "
            return TypeError(f"row {number}: {getattr(row, 'name', row)!r} cannot be stored: {where}{reason}")
    return TypeError(str(error))


# ---------------------------------------------------------------- decoding


def tool_values(column: Any) -> list[AnyToolValue | None]:
    """Decode a column of any known form; empty cells are None, ToolValueError names the row and the field.

    Values with equal schemas share one dict: treat it as read-only.
    """
    values: list[AnyToolValue | None] = []
    chunks: Sequence[Any] = column.chunks if hasattr(column, "chunks") else [column]
    decoder = _Decoder()
    for chunk in chunks:
        structs = _storage_of(chunk)
        for start in range(0, len(structs), _CHUNK_ROWS):
            values.extend(_decode(structs[start : start + _CHUNK_ROWS], len(values), decoder))
    return values


def _decode(storage: Any, start: int, decoder: _Decoder) -> list[AnyToolValue | None]:
    if _is_unified(storage.type):
        try:
            return decoder.values(_as_written(storage))
        except (ToolValueError, pa.ArrowException):
            pass  # decoded again below, row by row, to name the row
    values: list[AnyToolValue | None] = []
    for number, stored in enumerate(storage.to_pylist(), start):
        try:
            values.append(_FACTORY.decode(stored))
        except ToolValueError as error:
            raise ToolValueError(f"row {number}: {error.message}") from error
    return values


def _storage_of(chunk: Any) -> Any:
    """Return the structs of a chunk; ToolValueError for a column of something else."""
    if isinstance(chunk.type, ToolColumnType):
        if chunk.type.version > SCHEMA_VERSION:
            remedy = f"this release reads versions up to {SCHEMA_VERSION}; install a newer one"
            raise ToolValueError(f"the column has tool values of version {chunk.type.version}, and {remedy}")
        return chunk.storage
    if not pa.types.is_struct(chunk.type):
        raise ToolValueError(f"a column of tools holds structs, and this one holds {chunk.type}")
    return chunk


def _is_unified(struct: Any) -> bool:
    return bool(struct.num_fields >= 12) and _is_text(struct.field("0").type)


def _is_text(kind: Any) -> bool:
    """Return whether a column holds texts; other libraries have other types for them."""
    types = pa.types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _as_written(structs: Any) -> Any:
    """Return structs of the unified form with the types of fields that are written here."""
    target_fields = list(_STORAGE)[: structs.type.num_fields]
    if list(structs.type) == target_fields:
        return structs
    fields = [structs.field(number).cast(field.type) for number, field in enumerate(target_fields)]
    return pa.StructArray.from_arrays(fields, fields=target_fields, mask=structs.is_null())


class _Decoder:
    """Decode structs by columns; what is equal in several chunks is read once. ToolValueError where one is broken."""

    def __init__(self) -> None:
        self._parameter_schema = cache(_parameter_schema)
        self._input_schema = cache(_input_schema)

    def values(self, structs: Any) -> list[AnyToolValue | None]:
        """Decode the values of each type, and put them in the order of the rows."""
        kinds: Any = structs.field("0")
        if structs.null_count:
            kinds = pc.if_else(structs.is_valid(), kinds, pa.scalar(None, pa.string()))
        if kinds.null_count != structs.null_count:
            raise ToolValueError("field 0 (tool_type) is missing")
        present = [kind for kind in kinds.unique().to_pylist() if kind is not None]
        if len(present) == 1 and not structs.null_count:
            return self._of_kind(present[0], structs)
        placed = np.full(len(structs), None, dtype=object)
        for kind in present:
            where: Any = pc.indices_nonzero(pc.equal(kinds, pa.scalar(kind)))
            values = np.empty(len(where), dtype=object)
            values[:] = self._of_kind(kind, structs.take(where))
            placed[where.to_numpy()] = values
        return placed.tolist()

    def _of_kind(self, kind: str, structs: Any) -> list[Any]:
        if structs.type.num_fields > 12:
            check_version(pc.max(structs.field("12")).as_py())
        common: dict[str, Iterable[Any]] = {
            "name": _read_texts(structs, "1"),
            "description": _read_shared(structs, "2", lambda text: text or ""),
            "parameter_schema": _read_shared(structs, "3", self._parameter_schema),
        }
        if kind == ToolType.WORKFLOW.value:
            return _fill(WorkflowTool, {**common, **_workflow_attributes(structs)}, len(structs))
        if kind not in REMOTE:
            raise ToolValueError(f"Unknown tool type: {kind}")
        named = structs.type.num_fields > 13
        same_name = structs.field("9").equals(structs.field("1"))
        attributes: dict[str, Iterable[Any]] = {
            **common,
            "server_uri": _read_shared(structs, "8", _text),
            "tool_name": common["name"] if same_name else _read_texts(structs, "9"),
            "input_schema": _read_shared(structs, "10", self._input_schema),
            "output_type": _read_shared(structs, "11", lambda text: text),
            "credential_name": _read_shared(structs, "13", lambda text: text or None) if named else repeat(None),
        }
        return _fill(REMOTE[kind], attributes, len(structs))


def _parameter_schema(text: str | None) -> dict[str, Any]:
    return decode_json(text, "3 (parameter_schema)")


def _input_schema(text: str | None) -> dict[str, Any] | None:
    return decode_json(text, "10 (input_schema)") if text else None


def _workflow_attributes(structs: Any) -> dict[str, list[Any]]:
    return {
        "_filestore_keys": structs.field("4").to_pylist(),
        # Lists may be changed by their owners, and workflows are few: each has its own.
        "input_ports": [decode_ports(ports, "5 (input_ports)") for ports in structs.field("5").to_pylist()],
        "output_ports": [decode_ports(ports, "6 (output_ports)") for ports in structs.field("6").to_pylist()],
        "message_output_port_index": structs.field("7").to_pylist(),
    }


def _fill(kind: type, attributes: dict[str, Iterable[Any]], count: int) -> list[Any]:
    """Make values without running their `__init__`, which takes ten times as long as setting the slots by columns."""
    values = _blank(kind, count)
    for name, column in attributes.items():
        set_attribute: Callable[[Any, Any], None] = getattr(kind, name).__set__
        deque(map(set_attribute, values, column), maxlen=0)
    return values


def _blank(kind: Any, count: int) -> list[Any]:
    """Make values without attributes; they refer to nothing, so that looking for cycles among them would be in vain."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return list(map(kind.__new__, repeat(kind, count)))
    finally:
        if collecting:
            gc.enable()


def _read_texts(structs: Any, field: str) -> list[str]:
    """Return a column of texts, none of which may be missing or empty."""
    column = structs.field(field)
    if column.null_count or pc.any(pc.equal(column, pa.scalar(""))).as_py():
        raise ToolValueError(f"field {field} ({FIELDS[int(field)]}) is missing")
    return cast("list[str]", column.to_numpy(zero_copy_only=False).tolist())


def _text(text: str | None) -> str:
    if not text:
        raise ToolValueError("a text is missing")
    return text


def _read_shared(structs: Any, field: str, read: Callable[[str | None], Any]) -> Iterable[Any]:
    """Read each different text of a column once; equal texts give the same object."""
    column = structs.field(field)
    if column.null_count == len(column):
        return repeat(read(None))
    encoded = column.dictionary_encode()
    distinct = [*map(read, encoded.dictionary.to_pylist())]
    if encoded.null_count:
        distinct.append(read(None))
    if len(distinct) == 1:
        return repeat(distinct[0])
    indices = encoded.indices.fill_null(len(distinct) - 1).to_numpy(zero_copy_only=False).tolist()
    return list(map(distinct.__getitem__, indices))


# ---------------------------------------------------------------- tables


def as_table(table: Any) -> Table:
    """Return the Arrow table of a table of another library, such as Polars, pandas or DuckDB."""
    if isinstance(table, pyarrow.Table):
        return table
    if hasattr(table, "__arrow_c_stream__"):
        arrow_table: Any = pa.table(table)
        # Polars gives texts as views, which pyarrow can neither filter nor compare.
        columns: list[Any] = [_without_views(column) for column in arrow_table.columns]
        plain: Table = pa.table(columns, names=arrow_table.column_names)
        return plain
    raise ConfigError(f"a {type(table).__name__} is no table; give one of pyarrow, Polars, pandas or DuckDB")


def _without_views(column: Any) -> Any:
    if isinstance(column.type, ToolColumnType):
        if not column.num_chunks or not _is_unified(column.type.storage_type):
            return column
        chunks = [_as_written(chunk.storage) for chunk in column.chunks]
        kind = ToolColumnType(chunks[0].type, column.type.version)
        return pa.chunked_array([pa.ExtensionArray.from_storage(kind, one) for one in chunks], type=kind)
    plain = _plain_type(column.type)
    return column if plain == column.type else column.cast(plain)


def _plain_type(kind: Any) -> Any:
    """Return a type with texts and bytes in place of views of them."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    return kind


def tool_column_name(table: Table, column: str | None = None) -> str:
    """Return the name of the tool column: the one given, or by default the last; ConfigError where there is none."""
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
        raise ConfigError(f"the column {column!r} holds {fields.field(column).type}, not tools; {there}")
    return column


def _holds_tools(kind: Any) -> bool:
    """Return whether a column has the type of tools, or structs of one of their forms, as other programs write them."""
    if isinstance(kind, ToolColumnType):
        return True
    if not pa.types.is_struct(kind) or kind.num_fields not in _FORMS:
        return False
    return [field.name for field in kind] == [str(number) for number in range(kind.num_fields)]


def filter_tools(table: Any, tool_type: ToolType, column: str | None = None) -> Table:
    """Return the rows whose tools are of a type, without decoding any value."""
    rows = as_table(table)
    chunks: Sequence[Any] = rows.column(tool_column_name(rows, column)).chunks
    structs = [_storage_of(chunk) for chunk in chunks]
    if not all(_is_unified(one.type) for one in structs):
        raise ToolValueError("the column has an older form; write it anew first, by tool_column(tool_values(column))")
    masks = [pc.equal(one.field("0").cast(pa.string()), pa.scalar(tool_type.value)) for one in structs]
    matching: Table = cast("Any", rows).filter(pa.chunked_array(masks, type=pa.bool_()))
    return matching
