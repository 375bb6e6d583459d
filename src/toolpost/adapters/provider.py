"""MCP Tool Provider: the tools of an MCP server as a table, one row per tool."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolpost.adapters.credentials import NamedCredential
from toolpost.adapters.stored_tools import MCPTool
from toolpost.contracts.errors import ConfigError
from toolpost.schema.json_values import is_array, is_object, json_type
from toolpost.toolbox.blocking import EventLoopThread
from toolpost.toolbox.mcp_client import MCPClient

if TYPE_CHECKING:
    from pyarrow import Table

    from toolpost.contracts.spec import ToolSpec

SchemaProfile = Literal["full", "simple"]
UNSUPPORTED = "x-unsupported"
"""Keyword of a parameter schema with the reason why simple parameters do not suffice."""

_SIMPLE = frozenset({"string", "integer", "number"})


class ServerTools(NamedTuple):
    """The tools of a server, and the reasons for skipped ones."""

    tools: list[MCPTool]
    problems: list[str]


def tools_table(
    server_url: str,
    *,
    column: str = "Tool",
    schema_profile: SchemaProfile = "full",
    booleans: bool = False,
    credential: NamedCredential | None = None,
    **options: Any,
) -> Table:
    """Return the tools of an MCP server as a table with one column, for code with or without an event loop.

    The profile `simple` keeps only parameters that are strings or numbers, and with `booleans` also booleans; a tool
    that needs another one is marked as unsupported. Requests use `credential`, which must be for the server's origin;
    the table contains its name. `options` are those of an ExternalToolConfig. Warn about skipped tools and an empty
    list; raise ConfigError without an address and MCPConnectionError if the server does not answer.
    """
    from toolpost.adapters.arrow_encoding import tool_table  # noqa: PLC0415 - an extra

    listing = list_server_tools(
        server_url, schema_profile=schema_profile, booleans=booleans, credential=credential, **options
    )
    with EventLoopThread() as thread:
        server_tools = thread.run(listing)
    for problem in server_tools.problems:
        warnings.warn(problem, stacklevel=2)
    return tool_table(server_tools.tools, column)


async def list_server_tools(
    server_url: str,
    *,
    schema_profile: SchemaProfile = "full",
    booleans: bool = False,
    credential: NamedCredential | None = None,
    **options: Any,
) -> ServerTools:
    """Return the tools of an MCP server as values; the arguments are those of `tools_table`."""
    url = server_url.strip()
    if not url:
        raise ConfigError("Server URL must not be empty")
    sent = {} if credential is None else credential.source_options(url, token_env=_token_env(options))
    name = None if credential is None else credential.name
    async with MCPClient(url, **{**options, **sent}) as client:
        specs, problems = await client.list_tools(), client.problems
    tools = [_value(spec, url, name) for spec in specs]
    if schema_profile == "simple":
        tools = [simple_tool(tool, booleans=booleans) for tool in tools]
    if not tools:
        problems = [*problems, "No tools found on MCP server"]
    return ServerTools(tools, problems)


def _token_env(options: Mapping[str, Any]) -> str:
    """Return the variable in which a command gets its token."""
    auth: Any = options.get("auth_config")
    return str(auth.get("token_env") or "") if is_object(auth) else ""


def _value(spec: ToolSpec, url: str, credential_name: str | None) -> MCPTool:
    remote = spec.extra["remote_name"]
    kind = (spec.output_schema or {}).get("type")
    output_type = kind if isinstance(kind, str) else None
    return MCPTool(
        *(remote, spec.description, spec.input_schema, url, remote),
        output_type=output_type,
        credential_name=credential_name,
    )


# ---------------------------------------------------------------- simple parameters


def simple_tool(tool: MCPTool, *, booleans: bool = False) -> MCPTool:
    """Return a tool with only its simple parameters; its input schema is the server's.

    A tool that needs a parameter that is not simple is marked as unsupported: without it, every call would fail.
    """
    schema = tool.parameter_schema
    raw_properties: Any = schema.get("properties")
    properties: dict[str, Any] = raw_properties if is_object(raw_properties) else {}
    allowed = _SIMPLE | {"boolean"} if booleans else _SIMPLE
    supported = {name: described for name, described in properties.items() if _is_simple(described, allowed)}
    if len(supported) == len(properties):
        return tool
    raw_required: Any = schema.get("required")
    required: list[Any] = raw_required if is_array(raw_required) else []
    simple = {**schema, "properties": supported, "required": [name for name in required if name in supported]}
    if lost := [name for name in required if name in properties and name not in supported]:
        simple[UNSUPPORTED] = f"needs {lost[0]!r}, which is {_kind(properties[lost[0]])}"
    return MCPTool(
        *(tool.name, tool.description, simple, tool.server_uri, tool.tool_name, schema),
        output_type=tool.output_type,
        credential_name=tool.credential_name,
    )


def unsupported_reason(schema: dict[str, Any]) -> str | None:
    """Return why a tool with this parameter schema is marked as unsupported, or None."""
    reason = schema.get(UNSUPPORTED)
    return reason if isinstance(reason, str) else None


def _is_simple(schema: Any, allowed: frozenset[str]) -> bool:
    """Return whether a parameter has one of the types, or null beside it."""
    if not is_object(schema):
        return False
    kinds: Any = schema.get("type")
    listed: list[Any] = kinds if is_array(kinds) else [kinds]
    return bool(listed) and listed != ["null"] and all(kind in allowed or kind == "null" for kind in listed)


def _kind(schema: Any) -> str:
    kind = schema.get("type") if is_object(schema) else json_type(schema)
    return f"of the type {kind}" if isinstance(kind, str) else "of a type that is not simple"
