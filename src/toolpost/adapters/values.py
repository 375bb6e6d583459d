"""Tool values as stored structs: encoding of version 1, and decoding of all versions.

A struct has fields named "0", "1" and so on, as in columnar stores of KNIME. Version 1 has twelve fields, the first of
them the type, and two optional ones. Earlier forms are also decoded: workflows of six fields, and forms of nine and ten
fields with a number as type.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, cast

from toolpost.adapters.stored_tools import (
    AnyToolValue,
    HTTPTool,
    MCPTool,
    PythonFunctionTool,
    RemoteTool,
    StoredTool,
    ToolExecutionResult,
    ToolPort,
    ToolType,
    ToolValue,
    WorkflowTool,
)
from toolpost.contracts.errors import ToolValueError
from toolpost.schema.json_values import is_array, is_object, json_type

__all__ = [
    "FIELDS",
    "SCHEMA_VERSION",
    "AnyToolValue",
    "HTTPTool",
    "MCPTool",
    "MCPToolValueFactory",
    "PythonFunctionTool",
    "RemoteTool",
    "Tool",
    "ToolExecutionResult",
    "ToolPort",
    "ToolType",
    "ToolValue",
    "ToolValueFactory",
    "WorkflowTool",
    "WorkflowToolValueFactory",
]

Tool: TypeAlias = AnyToolValue
"""The union of tool values, named as in KNIME; elsewhere in Toolpost, `Tool` is the Protocol of runnable tools."""

SCHEMA_VERSION = 1
FIELDS = (
    "tool_type",
    "name",
    "description",
    "parameter_schema",
    "workflow_filestore",
    "input_ports",
    "output_ports",
    "message_output_port_index",
    "server_uri",
    "tool_name",
    "input_schema",
    "output_type",
    "schema_version",
    "credential_name",
)
REMOTE: Mapping[str, type[RemoteTool]] = {
    ToolType.MCP.value: MCPTool,
    ToolType.HTTP.value: HTTPTool,
    ToolType.FUNCTION.value: PythonFunctionTool,
}
Storage: TypeAlias = Mapping[str, Any]
Form: TypeAlias = Literal["unified", "numbered", "legacy", "filestore"]

_NUMBERED_TYPES = {0: ToolType.WORKFLOW, 1: ToolType.MCP}
_NUMBERED_FIELDS = (
    *("tool_type", "name", "description", "parameter_schema", "input_spec", "output_spec"),
    *("message_output_port_index", "workflow_filestore", "server_uri", "credential_name"),
)
_LEGACY_FIELDS = ("name", "description", "parameter_schema", "workflow", "input_ports", "output_ports")


class ToolValueFactory:
    """Encode tool values of every type as structs of one shape, and decode them; since 0.1.

    Columns of whole tables are encoded and decoded by `tool_column` and `tool_values`, which is far faster.
    """

    compatible_type = StoredTool

    def encode(self, value: object) -> dict[str, Any] | None:
        """Return the twelve fields of version 1, and then the name of the credential, if any."""
        match value:
            case None:
                return None
            case WorkflowTool():
                return {
                    **_common(value),
                    "4": value.package,
                    "5": encode_ports(value.input_ports),
                    "6": encode_ports(value.output_ports),
                    "7": value.message_output_port_index,
                    **dict.fromkeys(("8", "9", "10", "11")),
                }
            case RemoteTool():
                optional = {"12": SCHEMA_VERSION, "13": value.credential_name} if value.credential_name else {}
                return {
                    **_common(cast("ToolValue", value)),
                    **dict.fromkeys(("4", "5", "6")),
                    "7": -1,
                    "8": value.server_uri,
                    "9": value.tool_name,
                    "10": None if value.input_schema is None else encode_json(value.input_schema),
                    "11": value.output_type,
                    **optional,
                }
            case _:
                raise TypeError(f"Unknown tool type: {type(value)}")

    def decode(self, storage: Storage | None) -> AnyToolValue | None:
        """Return the value of a struct of any known form; ToolValueError, a ValueError, names the invalid field."""
        if storage is None:
            return None
        _check_struct(storage)
        match form_of(storage):
            case "unified":
                return _decode_unified(storage)
            case "numbered":
                return _decode_numbered(storage)
            case "legacy":
                return _decode_legacy(storage)
            case "filestore":
                return _decode_filestore(storage)


class WorkflowToolValueFactory(ToolValueFactory):
    """Deprecated: use ToolValueFactory, which reads and writes the same values; removed in 2.0."""

    def __init__(self) -> None:
        super().__init__()
        _warn_deprecated("WorkflowToolValueFactory")


class MCPToolValueFactory(ToolValueFactory):
    """Deprecated: use ToolValueFactory, which reads and writes the same values; removed in 2.0."""

    def __init__(self) -> None:
        super().__init__()
        _warn_deprecated("MCPToolValueFactory")


def _warn_deprecated(name: str) -> None:
    warnings.warn(f"{name} is deprecated, use ToolValueFactory instead", DeprecationWarning, stacklevel=3)


def _check_struct(cell: object) -> None:
    """Raise ToolValueError for a cell of another column."""
    if not isinstance(cell, Mapping):
        raise ToolValueError(f"a tool value is a struct of numbered fields, not {type(cell).__name__}")


def form_of(storage: Storage) -> Form:
    """Return the form of a struct, by its number of fields and the kind of the first."""
    if len(storage) == 2 and isinstance(storage.get("1"), Mapping):
        return "filestore"
    if len(storage) == len(_LEGACY_FIELDS):
        return "legacy"
    return "numbered" if isinstance(storage.get("0"), int) else "unified"


def encode_json(value: Any) -> str:
    """Return a schema as JSON."""
    return json.dumps(value)


def encode_ports(ports: list[ToolPort] | None) -> str | None:
    """Return ports as JSON; None without ports."""
    return json.dumps([port.to_arrow_dict() for port in ports]) if ports else None


def decode_json(text: Any, field: str) -> dict[str, Any]:
    """Return the JSON object of a field; an empty field is an empty object."""
    if not text:
        return {}
    value = _parse(text, field)
    if not is_object(value):
        raise ToolValueError(f"field {field} has a JSON {json_type(value)}; it must be an object")
    return value


def decode_ports(stored: Any, field: str) -> list[ToolPort]:
    """Return the ports of a field, which is JSON or a list of structs; an empty field has none."""
    if stored is None or stored == "":
        return []
    listed = _parse(stored, field) if isinstance(stored, str) else stored
    if not is_array(listed):
        raise ToolValueError(f"field {field} must be a list of ports")
    ports: list[ToolPort] = []
    for number, port in enumerate(listed):
        try:
            tool_port = ToolPort.from_arrow_dict(port)
        except (KeyError, TypeError, AttributeError):
            message = f'field {field}: port {number} must be an object with "0" name, "1" description, "2" type'
            raise ToolValueError(f'{message} and "3" spec') from None
        if tool_port is not None:
            ports.append(tool_port)
    return ports


def check_version(version: Any) -> None:
    """Reject a struct of a newer release."""
    if version is not None and (not isinstance(version, int) or version > SCHEMA_VERSION):
        remedy = f"this release reads versions up to {SCHEMA_VERSION}; install a newer one"
        raise ToolValueError(f"field 12 (schema_version) is {version!r}, and {remedy}")


def unknown_type(kind: Any) -> ToolValueError:
    """Return the error of an unknown type."""
    names = ", ".join(one.value for one in ToolType)
    return ToolValueError(f"Unknown tool type: {kind}; field 0 (tool_type) must be one of {names}")


def _parse(text: Any, field: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolValueError(f"field {field} is not JSON: {error}") from error


def _common(value: ToolValue) -> dict[str, Any]:
    return {
        "0": value.tool_type.value,
        "1": value.name,
        "2": value.description,
        "3": encode_json(value.parameter_schema),
    }


def _require_text(storage: Storage, names: tuple[str, ...], number: int) -> Any:
    """Return a required field with a string."""
    value = storage.get(str(number))
    if not isinstance(value, str) or not value:
        missing = "is missing" if value is None else "is empty" if value == "" else f"is a {type(value).__name__}"
        raise ToolValueError(f"field {number} ({names[number]}) {missing}; it must be a string")
    return value


def _decode_unified(storage: Storage) -> AnyToolValue:
    check_version(storage.get("12"))
    kind = storage.get("0")
    if kind == ToolType.WORKFLOW.value:
        return WorkflowTool(
            name=_require_text(storage, FIELDS, 1),
            description=storage.get("2") or "",
            parameter_schema=decode_json(storage.get("3"), "3 (parameter_schema)"),
            _filestore_keys=storage.get("4"),
            input_ports=decode_ports(storage.get("5"), "5 (input_ports)"),
            output_ports=decode_ports(storage.get("6"), "6 (output_ports)"),
            message_output_port_index=storage.get("7", -1),
        )
    if not isinstance(kind, str) or kind not in REMOTE:
        raise unknown_type(kind)
    make = cast("Callable[..., MCPTool | HTTPTool | PythonFunctionTool]", REMOTE[kind])
    return make(
        name=_require_text(storage, FIELDS, 1),
        description=storage.get("2") or "",
        parameter_schema=decode_json(storage.get("3"), "3 (parameter_schema)"),
        server_uri=_require_text(storage, FIELDS, 8),
        tool_name=_require_text(storage, FIELDS, 9),
        input_schema=decode_json(text, "10 (input_schema)") if (text := storage.get("10")) else None,
        output_type=storage.get("11"),
        credential_name=storage.get("13") or None,
    )


def _decode_numbered(storage: Storage) -> AnyToolValue:
    """Decode the form of nine or ten fields; the name of a tool is the one of its server."""
    kind = _NUMBERED_TYPES.get(storage["0"])
    name, description = _require_text(storage, _NUMBERED_FIELDS, 1), storage.get("2") or ""
    schema = decode_json(storage.get("3"), "3 (parameter_schema)")
    match kind:
        case ToolType.WORKFLOW:
            return WorkflowTool(
                name=name,
                description=description,
                parameter_schema=schema,
                _filestore_keys=storage.get("7"),
                input_ports=decode_ports(storage.get("4"), "4 (input_spec)"),
                output_ports=decode_ports(storage.get("5"), "5 (output_spec)"),
                message_output_port_index=storage.get("6", -1),
            )
        case ToolType.MCP:
            uri = _require_text(storage, _NUMBERED_FIELDS, 8)
            return MCPTool(name, description, schema, uri, name, credential_name=storage.get("9") or None)
        case _:
            raise ToolValueError(f"Unknown tool type: {storage['0']}; field 0 (tool_type) must be 0 or 1 in this form")


def _decode_legacy(storage: Storage) -> WorkflowTool:
    """Decode a workflow of the form without types."""
    return WorkflowTool(
        name=_require_text(storage, _LEGACY_FIELDS, 0),
        description=storage.get("1") or "",
        parameter_schema=decode_json(storage.get("2"), "2 (parameter_schema)"),
        _filestore_keys=storage.get("3"),
        input_ports=decode_ports(storage.get("4"), "4 (input_ports)"),
        output_ports=decode_ports(storage.get("5"), "5 (output_ports)"),
    )


def _decode_filestore(storage: Storage) -> AnyToolValue:
    """Decode a struct of two fields: the keys of its file store, and the value."""
    inner: Storage = storage["1"]
    keys = storage["0"] or None
    form = form_of(inner)
    place = {"legacy": "3", "numbered": "7"}.get(form, "4")
    is_workflow = inner.get("0") in (ToolType.WORKFLOW.value, 0) or form == "legacy"
    struct = {**inner, place: keys} if is_workflow and keys else inner
    value = ToolValueFactory().decode(struct)
    if value is None:
        raise ToolValueError("field 1 of a value with a file store is missing")
    return value
