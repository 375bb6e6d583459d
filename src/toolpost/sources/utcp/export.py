"""Our own catalog as a UTCP manual: each tool with its contract, and how somebody else's client calls it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

from toolpost.catalog.names import model_name
from toolpost.processes.launch import INHERITED
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolpost.contracts.spec import JsonSchema, ToolSpec

UTCP_VERSION = "1.0.1"
_ARGUMENTS = "arguments"
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_DEFINITIONS = ("$defs", "definitions")
_DEFINED = ("#/$defs/", "#/definitions/")
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
_MAY_BE_BOOLEAN = frozenset({"additionalProperties"})


class Way(NamedTuple):
    """How a tool is called: its call template, what it then takes, and what comes back."""

    template: dict[str, Any]
    inputs: JsonSchema
    outputs: JsonSchema


Route: TypeAlias = Callable[["ToolSpec"], Way]


def exported_manual(specs: Iterable[ToolSpec], route: Route, *, version: str = "1.0.0") -> dict[str, Any]:
    """The manual of these tools; `route` says how each of them is called."""
    return {"utcp_version": UTCP_VERSION, "manual_version": version, "tools": [_tool(spec, route) for spec in specs]}


def manual_text(manual: Mapping[str, Any]) -> str:
    """A manual as JSON in which no dollar sign stands: some clients take one in a text for a variable."""
    return json.dumps(manual, indent=2, ensure_ascii=True).replace("$", "\\u0024")


def by_command(
    program: Sequence[str] = ("toolpost",), *, config: str | None = None, user: str = "", env: Iterable[str] = ()
) -> Route:
    """Calls go through our command line, under the policy of its configuration and for a user.

    `env` are the variables that the configuration takes from the environment. A script takes one value for each
    place, so that the arguments are one text, the JSON of them all.
    """
    given = [*(("--config", config) if config else ()), *(("--user", user) if user else ())]
    options = f" {shlex.join(given)}" if given else ""
    inherited = list(dict.fromkeys([*INHERITED, *_LOCALE, *env]))

    def way(spec: ToolSpec) -> Way:
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
        return Way(template, _object(_ARGUMENTS, argument), _object("content", spec.output_schema or {}))

    return way


def by_address(base_url: str, *, headers: Mapping[str, str] | None = None) -> Route:
    """Calls are a POST below an address: `{base_url}/{tool}`, with the arguments as the body."""

    def way(spec: ToolSpec) -> Way:
        template: dict[str, Any] = {
            "call_template_type": "http",
            "http_method": "POST",
            "url": f"{base_url.rstrip('/')}/{quote(spec.name, safe='')}",
            "content_type": "application/json",
            "body_field": "body",
        }
        if headers:
            template["headers"] = dict(headers)
        return Way(template, _object("body", spec.input_schema), portable(spec.output_schema or {}))

    return way


def portable(schema: JsonSchema, *, moved_to: str = "#") -> JsonSchema:
    """A schema without `true` and `false` in the place of schemas, which not every reader of manuals takes.

    What it refers to in itself is found when it is `moved_to` another place, with its definitions at the root.
    """
    return {key: _portable(key, value, moved_to) for key, value in schema.items()}


def _portable(key: str, value: Any, moved_to: str) -> Any:
    if key == "$ref" and isinstance(value, str) and value.startswith("#") and not value.startswith(_DEFINED):
        return f"{moved_to}{value[1:]}"
    if key in _SCHEMA_MAPS and is_object(value):
        return {name: _part(part, moved_to) for name, part in value.items()}
    if key in _SCHEMA_LISTS and is_array(value):
        return [_part(part, moved_to) for part in value]
    if key in _SCHEMAS and not (key in _MAY_BE_BOOLEAN and isinstance(value, bool)):
        return [_part(part, moved_to) for part in value] if is_array(value) else _part(value, moved_to)
    return value


def _part(part: Any, moved_to: str) -> Any:
    if isinstance(part, bool):
        return {} if part else {"not": {}}
    return portable(part, moved_to=moved_to) if is_object(part) else part


def _object(name: str, schema: JsonSchema) -> JsonSchema:
    """An object with one field; the definitions of its schema, or of the content in it, come to the root."""
    place = f"#/properties/{name}"
    if "contentSchema" in schema:
        inner = portable(schema["contentSchema"], moved_to=f"{place}/contentSchema")
        defined = {key: inner.pop(key) for key in _DEFINITIONS if key in inner}
        field = {**schema, "contentSchema": inner}
    else:
        field = portable(schema, moved_to=place)
        defined = {key: field.pop(key) for key in _DEFINITIONS if key in field}
    return {"type": "object", "properties": {name: field}, "required": [name], **defined}


def _tool(spec: ToolSpec, route: Route) -> dict[str, Any]:
    way = route(spec)
    return {
        "name": model_name(spec.name),
        "description": spec.description,
        "inputs": way.inputs,
        "outputs": way.outputs,
        "tags": list(spec.tags),
        "tool_call_template": {"name": model_name(spec.name), **way.template},
    }
