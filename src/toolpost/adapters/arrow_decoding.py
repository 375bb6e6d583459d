"""Decode a column of an Arrow table into tool values."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from typing import Any, cast

from toolpost.adapters.arrow_type import CHUNK_ROWS, FACTORY, STORAGE, ToolColumnType, np, pa, pc
from toolpost.adapters.stored_tools import AnyToolValue, ToolType, WorkflowTool
from toolpost.adapters.values import (
    FIELDS,
    REMOTE,
    SCHEMA_VERSION,
    check_version,
    decode_json,
    decode_ports,
)
from toolpost.contracts.errors import ToolValueError


def tool_values(column: Any) -> list[AnyToolValue | None]:
    """Decode a column of any known form; empty cells are None, ToolValueError names the row and the field.

    Values with equal schemas share one dict: treat it as read-only.
    """
    values: list[AnyToolValue | None] = []
    chunks: Sequence[Any] = column.chunks if hasattr(column, "chunks") else [column]
    decoder = _Decoder()
    for chunk in chunks:
        structs = storage_of(chunk)
        for start in range(0, len(structs), CHUNK_ROWS):
            values.extend(_decode(structs[start : start + CHUNK_ROWS], len(values), decoder))
    return values


def _decode(storage: Any, start: int, decoder: _Decoder) -> list[AnyToolValue | None]:
    if is_unified(storage.type):
        try:
            return decoder.values(as_written(storage))
        except (ToolValueError, pa.ArrowException):
            pass  # decoded again below, row by row, to name the row
    values: list[AnyToolValue | None] = []
    for number, stored in enumerate(storage.to_pylist(), start):
        try:
            values.append(FACTORY.decode(stored))
        except ToolValueError as error:
            raise ToolValueError(f"row {number}: {error.message}") from error
    return values


def storage_of(chunk: Any) -> Any:
    """Return the structs of a chunk; raise ToolValueError for a column of another type."""
    if isinstance(chunk.type, ToolColumnType):
        if chunk.type.version > SCHEMA_VERSION:
            remedy = f"this release reads versions up to {SCHEMA_VERSION}; install a newer one"
            raise ToolValueError(f"the column has tool values of version {chunk.type.version}, and {remedy}")
        return chunk.storage
    if not pa.types.is_struct(chunk.type):
        raise ToolValueError(f"a column of tools contains structs, and this one contains {chunk.type}")
    return chunk


def is_unified(struct: Any) -> bool:
    """Return whether structs have the unified form, with the type as a string."""
    return bool(struct.num_fields >= 12) and _is_text(struct.field("0").type)


def _is_text(kind: Any) -> bool:
    """Return whether a column contains strings, also in the types of other libraries."""
    types = pa.types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def as_written(structs: Any) -> Any:
    """Return structs of the unified form with the field types of this module."""
    target_fields = list(STORAGE)[: structs.type.num_fields]
    if list(structs.type) == target_fields:
        return structs
    fields = [structs.field(number).cast(field.type) for number, field in enumerate(target_fields)]
    return pa.StructArray.from_arrays(fields, fields=target_fields, mask=structs.is_null())


class _Decoder:
    """Decode structs by columns; read values that chunks share once. Raise ToolValueError for an invalid one."""

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
        return cast("list[AnyToolValue | None]", placed.tolist())

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
        # Callers may change lists, and there are few workflows: each gets a copy.
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
    """Create values without attributes; without references, they need no cycle collection."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return list(map(kind.__new__, repeat(kind, count)))
    finally:
        if collecting:
            gc.enable()


def _read_texts(structs: Any, field: str) -> list[str]:
    """Return a column of strings, none of which may be missing or empty."""
    column = structs.field(field)
    if column.null_count or pc.any(pc.equal(column, pa.scalar(""))).as_py():
        raise ToolValueError(f"field {field} ({FIELDS[int(field)]}) is missing")
    return cast("list[str]", column.to_numpy(zero_copy_only=False).tolist())


def _text(text: str | None) -> str:
    if not text:
        raise ToolValueError("a string is missing")
    return text


def _read_shared(structs: Any, field: str, read: Callable[[str | None], Any]) -> Iterable[Any]:
    """Read each distinct string of a column once; equal strings share one object."""
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
