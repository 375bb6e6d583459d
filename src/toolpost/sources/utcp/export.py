"""Export the catalog as a UTCP manual that other clients can call."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from toolpost.catalog.names import model_name
from toolpost.contracts.spec import JsonSchema, ToolSpec
from toolpost.processes.launch import INHERITED, LOCALE_VARIABLES
from toolpost.schema.json_values import SCHEMA_MAPS, is_array, is_object

_UTCP_VERSION = "1.0.1"
_ARGUMENTS = "arguments"
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_DEFINITIONS = ("$defs", "definitions")
_DEFINED = ("#/$defs/", "#/definitions/")
_MAY_BE_BOOLEAN = frozenset({"additionalProperties"})


class ExportedCall(NamedTuple):
    """Call template of an exported tool, and the schemas of its inputs and outputs."""

    template: dict[str, Any]
    inputs: JsonSchema
    outputs: JsonSchema


Route: TypeAlias = Callable[["ToolSpec"], ExportedCall]


def export_manual(specs: Iterable[ToolSpec], route: Route) -> dict[str, Any]:
    """Export tools as a manual; `route` decides how each of them is called."""
    return {
        "utcp_version": _UTCP_VERSION,
        "manual_version": "1.0.0",
        "tools": [_export_tool(spec, route) for spec in specs],
    }


def serialize_manual(manual: Mapping[str, Any]) -> str:
    """Serialize a manual as JSON."""
    # Dollar signs are escaped, because some clients interpret one in a string as a variable.
    return json.dumps(manual, indent=2, ensure_ascii=True).replace("$", "\\u0024")


def command_route(
    program: Sequence[str] = ("toolpost",), *, config: str | None = None, user: str = "", env: Iterable[str] = ()
) -> Route:
    """Return a route that calls tools by the command line, with the policy of its configuration and for a user.

    `env` are the environment variables that the configuration uses. The arguments are passed as one JSON text,
    because a placeholder of a script takes one value.
    """
    arguments = [*(("--config", config) if config else ()), *(("--user", user) if user else ())]
    options = f" {shlex.join(arguments)}" if arguments else ""
    inherited = list(dict.fromkeys([*INHERITED, *LOCALE_VARIABLES, *env]))

    def route(spec: ToolSpec) -> ExportedCall:
        called = f"{shlex.join([*program, 'tools', 'call', spec.name])}{options} --json"
        template = {
            "call_template_type": "cli",
            "commands": [{"command": f"{called} --args UTCP_ARG_{_ARGUMENTS}_UTCP_END"}],
            "inherit_env_vars": inherited,
        }
        argument = {
            "type": "string",
            "description": "The arguments, as the JSON of an object",
            "contentMediaType": "application/json",
            "contentSchema": spec.input_schema,
        }
        return ExportedCall(
            template, _wrap_schema(_ARGUMENTS, argument), _wrap_schema("content", spec.output_schema or {})
        )

    return route


def http_route(base_url: str, *, headers: Mapping[str, str] | None = None) -> Route:
    """Return a route that calls tools by POST to `{base_url}/{tool}`, with the arguments as the body."""

    def route(spec: ToolSpec) -> ExportedCall:
        template: dict[str, Any] = {
            "call_template_type": "http",
            "http_method": "POST",
            "url": f"{base_url.rstrip('/')}/{quote(spec.name, safe='')}",
            "content_type": "application/json",
            "body_field": "body",
        }
        if headers:
            template["headers"] = dict(headers)
        return ExportedCall(template, _wrap_schema("body", spec.input_schema), make_portable(spec.output_schema or {}))

    return route


def make_portable(schema: JsonSchema, *, moved_to: str = "#") -> JsonSchema:
    """Replace boolean subschemas, which not every client supports, and adapt local references.

    `moved_to` is the schema's new position in its document; its definitions move to the root.
    """
    return {key: _make_portable(key, value, moved_to) for key, value in schema.items()}


def _make_portable(key: str, value: Any, moved_to: str) -> Any:
    if key == "$ref" and isinstance(value, str) and value.startswith("#") and not value.startswith(_DEFINED):
        return f"{moved_to}{value[1:]}"
    if key in SCHEMA_MAPS and is_object(value):
        return {name: _portable_subschema(part, moved_to) for name, part in value.items()}
    if key in _SCHEMA_LISTS and is_array(value):
        return [_portable_subschema(part, moved_to) for part in value]
    if key in _SCHEMAS and not (key in _MAY_BE_BOOLEAN and isinstance(value, bool)):
        return (
            [_portable_subschema(part, moved_to) for part in value]
            if is_array(value)
            else _portable_subschema(value, moved_to)
        )
    return value


def _portable_subschema(part: Any, moved_to: str) -> Any:
    if isinstance(part, bool):
        return {} if part else {"not": {}}
    return make_portable(part, moved_to=moved_to) if is_object(part) else part


def _wrap_schema(name: str, schema: JsonSchema) -> JsonSchema:
    """Wrap a schema as the only field of an object, and move its definitions to the root."""
    pointer = f"#/properties/{name}"
    if "contentSchema" in schema:
        inner = make_portable(schema["contentSchema"], moved_to=f"{pointer}/contentSchema")
        defined = {key: inner.pop(key) for key in _DEFINITIONS if key in inner}
        field = {**schema, "contentSchema": inner}
    else:
        field = make_portable(schema, moved_to=pointer)
        defined = {key: field.pop(key) for key in _DEFINITIONS if key in field}
    return {"type": "object", "properties": {name: field}, "required": [name], **defined}


def _export_tool(spec: ToolSpec, route: Route) -> dict[str, Any]:
    call = route(spec)
    return {
        "name": model_name(spec.name),
        "description": spec.description,
        "inputs": call.inputs,
        "outputs": call.outputs,
        "tags": list(spec.tags),
        "tool_call_template": {"name": model_name(spec.name), **call.template},
    }
