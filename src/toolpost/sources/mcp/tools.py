"""Tools of an MCP server, built from its listing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolpost.catalog.names import canonical_name
from toolpost.catalog.specs import effects_from_claims, read_annotations
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ToolSchemaError
from toolpost.contracts.spec import ToolCategory, ToolSpec, ToolTarget
from toolpost.schema.json_values import is_object
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.secrets import drop_secrets
from toolpost.sources.base import BaseSource, SourceTool
from toolpost.sources.mcp.endpoint import describe_server, is_remote
from toolpost.sources.mcp.options import McpOptions
from toolpost.sources.mcp.results import passed_meta

_MAX_DESCRIPTION_LENGTH = 32_768
MAX_TOOL_META = 16_384


class ServerTool(SourceTool):
    """One tool of an MCP server.

    `remote_name` is its name on the server; `has_header_arguments` says that some arguments are also sent as headers.
    """

    __slots__ = ("has_header_arguments", "remote_name")

    def __init__(self, spec: ToolSpec, remote_name: str, server: BaseSource) -> None:
        super().__init__(spec, server)
        self.remote_name = remote_name
        self.has_header_arguments = False

    def describe_call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the request of a call: the server, the name of the tool there, and the arguments."""
        return {"kind": "mcp", "server": self.spec.source, "tool": self.remote_name, "arguments": dict(arguments)}


def build_tools(raw_tools: Iterable[Any], source: BaseSource) -> tuple[list[ServerTool], list[str]]:
    """Build the tools of a listing; report broken tools and duplicate names as problems."""
    tools: dict[str, ServerTool] = {}
    problems: list[str] = []
    config = source.config
    target, remote = server_targets(config), is_remote(config)
    for raw in raw_tools:
        name = raw.get("name") if is_object(raw) else None
        if not isinstance(name, str) or not name:
            problems.append(f"source {config.name!r} lists a tool without a name; it is skipped")
            continue
        if not config.includes(name):
            continue
        canonical = canonical_name(config.name, name)
        if canonical in tools:
            first = tools[canonical].remote_name
            text = f"Duplicate tool name '{canonical}' in ToolNode '{config.name}': the server lists {first!r}"
            problems.append(f"{text} and {name!r}; the first one is kept")
            continue
        try:
            spec = _spec(canonical, raw, config, problems, target(f"tool {name!r}"), remote=remote)
            tools[canonical] = ServerTool(spec, name, source)
        except ToolSchemaError as error:
            problems.append(f"tool {name!r} of source {config.name!r} is skipped: {error}")
    return list(tools.values()), problems


def _spec(
    canonical: str,
    raw: dict[str, Any],
    config: ExternalToolConfig,
    problems: list[str],
    target: ToolTarget,
    *,
    remote: bool,
) -> ToolSpec:
    effects, replay, safety = effects_from_claims(
        read_annotations(raw.get("annotations")), trusted=config.trust, remote=remote
    )
    extra: dict[str, Any] = {"source": "mcp", "namespace": config.name, "remote_name": raw["name"]}
    extra |= {key: raw[key] for key in ("title", "annotations", "icons") if raw.get(key)}
    if meta := passed_meta(raw.get("_meta"), most=MAX_TOOL_META):
        extra["meta"] = meta
    text = raw.get("description")
    description = text[:_MAX_DESCRIPTION_LENGTH] if isinstance(text, str) else ""
    if config.read_options(McpOptions).name_in_descriptions:
        description = f"[{config.name}] {description}"
    return ToolSpec(
        name=canonical,
        description=description,
        category=ToolCategory.MCP,
        input_schema=_input_schema(raw, canonical),
        output_schema=_output_schema(raw, canonical, problems),
        side_effects=effects,
        replay=replay,
        safety=safety,
        tags=("mcp", config.name),
        source=config.name,
        origin=config.name,
        extra=extra,
        target=target,
    )


def server_targets(config: ExternalToolConfig) -> Callable[[str], ToolTarget]:
    """Return a function that builds the target of a request to one server."""
    server = describe_server(config)
    detail = ToolTarget.of(
        "mcp", server, cwd=config.cwd, env=drop_secrets(config.env)
    ).detail  # built once for all tools
    return lambda what: ToolTarget("mcp", f"{what} of {server}", detail)


def _input_schema(raw: dict[str, Any], canonical: str) -> dict[str, Any]:
    schema = raw.get("inputSchema")
    if schema is None:
        return {"type": "object", "properties": {}}
    if not is_object(schema):
        raise ToolSchemaError(f"its inputSchema is a {type(schema).__name__}, not an object", tool_name=canonical)
    return schema


def _output_schema(raw: dict[str, Any], canonical: str, problems: list[str]) -> dict[str, Any] | None:
    """Return the output schema; drop and report an invalid one, because the tool can still be called."""
    schema = raw.get("outputSchema")
    if schema is None:
        return None
    try:
        check_schema(schema, tool_name=canonical, role="output")
    except ToolSchemaError as error:
        problems.append(f"the output schema of {canonical!r} is not used: {error}")
        return None
    return schema if is_object(schema) else None
