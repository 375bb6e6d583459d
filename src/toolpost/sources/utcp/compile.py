"""Compile a manual's tool: check that it is allowed, fill in its variables, and parse its template and URLs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ConfigError, ToolPermissionError
from toolpost.sources.utcp import templates
from toolpost.sources.utcp.context import CompiledTool, Invocation, ManualContext, template_urls
from toolpost.sources.utcp.http_calls import call_graphql, call_http, call_sse, call_stream
from toolpost.sources.utcp.http_requests import TemplateRequestBuilder
from toolpost.sources.utcp.local_calls import call_command, call_file, call_text
from toolpost.sources.utcp.manuals import Manual, ManualTool
from toolpost.sources.utcp.scripts import check_script
from toolpost.sources.utcp.socket_calls import call_tcp, call_udp, call_websocket
from toolpost.sources.utcp.variables import FilledTemplate, Variables
from toolpost.wire.targets import HTTP_SCHEMES, WEBSOCKET_SCHEMES, parse_target, split_url

CallFunction: TypeAlias = Callable[[CompiledTool, Invocation, ManualContext], Coroutine[Any, Any, ToolOutput]]

_TOOL, _SKIPPED = "tool ", " is skipped: "
_MOST_NAMES = 3

CALL_FUNCTIONS: dict[str, CallFunction] = {
    "http": call_http,
    "sse": call_sse,
    "streamable_http": call_stream,
    "graphql": call_graphql,
    "websocket": call_websocket,
    "cli": call_command,
    "text": call_text,
    "file": call_file,
    "tcp": call_tcp,
    "udp": call_udp,
}


def check_kind_allowed(tool: ManualTool, manual: Manual) -> None:
    """Refuse a tool of a kind that its manual may not use; the ConfigError says which setting allows it."""
    if manual.allows(tool.kind):
        return
    has = sorted(manual.allowed or {manual.kind})
    kinds = ", ".join(dict.fromkeys([*has, tool.kind]))
    raise unusable_tool(
        tool,
        f"it is called by {tool.kind}, and the manual may only use {', '.join(has)}; "
        f"write options: {{allowed_communication_protocols: [{kinds}]}} to allow it",
    )


def unusable_tool(tool: ManualTool, why: str) -> ConfigError:
    """Build the error that says why a tool cannot be used."""
    return ConfigError(f"{_TOOL}{tool.full_name!r}{_SKIPPED}{why}")


def group_reasons(reasons: Iterable[str]) -> list[str]:
    """Return the reasons of `unusable_tool`, and others, with one for all tools that share it."""
    tools: dict[str, list[str]] = {}
    for reason in reasons:
        name, _, why = reason.removeprefix(_TOOL).partition(_SKIPPED)
        is_of_tool = bool(why) and reason.startswith(_TOOL)
        tools.setdefault(why if is_of_tool else reason, []).extend([name] if is_of_tool else [])
    return [_reason(names, why) for why, names in tools.items()]


def _reason(names: Sequence[str], why: str) -> str:
    if len(names) < 2:
        return f"{_TOOL}{names[0]}{_SKIPPED}{why}" if names else why
    shown, more = ", ".join(names[:_MOST_NAMES]), len(names) - _MOST_NAMES
    return f"tools {shown}{f' and {more} more' if more > 0 else ''} are skipped, each because: {why}"


def compile_tool(tool: ManualTool, variables: Variables, *, timeout_s: float) -> CompiledTool:
    """Fill in and check a tool's template; a ConfigError says why the tool cannot be called."""
    if tool.kind not in templates.TEMPLATE_TYPES:
        names = ", ".join(templates.TEMPLATE_TYPES)
        raise unusable_tool(
            tool,
            f"its call template is of the kind {tool.kind!r}; known are {names} and mcp, "
            "and others with options: {bridge: true}",
        )
    return compile_template(tool, fill_template(tool, variables), timeout_s=timeout_s)


def fill_template(tool: ManualTool, variables: Variables) -> FilledTemplate:
    """Fill the variables of a tool's template; a ConfigError names those that are not set."""
    filled = variables.fill(tool.template)
    if filled.missing:
        raise unset_variables(tool, filled.missing, variables)
    return filled


def unset_variables(tool: ManualTool, names: Sequence[str], variables: Variables) -> ConfigError:
    """Build the error that names the variables that are not set."""
    return unusable_tool(
        tool,
        f"its variables are not set: {', '.join(dict.fromkeys(names))}. Write them into options.variables of the "
        f"source, or set the environment variable {variables.key(names[0])}",
    )


def compile_template(tool: ManualTool, filled: FilledTemplate, *, timeout_s: float) -> CompiledTool:
    """Parse and check a template whose variables are filled in."""
    try:
        template = templates.parse_template(filled.template)
        _check_urls(template)
        if isinstance(template, templates.CliTemplate):
            check_script(template.commands)
    except (ConfigError, ToolPermissionError) as error:
        raise unusable_tool(tool, str(error)) from None
    return CompiledTool(
        full_name=tool.full_name,
        template=template,
        label=_label(tool, template),
        timeout_s=timeout_s,
        secrets=filled.values,
        outputs=tool.outputs,
        build_request=TemplateRequestBuilder(template).build
        if isinstance(template, templates.RequestTemplate)
        else None,
    )


def _check_urls(template: templates.CallTemplate) -> None:
    """Parse every URL as strictly as a call does; a host must not contain a placeholder."""
    for url in template_urls(template):
        origin = split_url(url)[0]
        if "{" in origin:
            raise ConfigError(f"the host in {origin!r} of its address contains an argument; the host must be a literal")
        is_socket = isinstance(template, templates.WebSocketTemplate) and url == template.url
        parse_target(url if "{" not in url else origin, schemes=WEBSOCKET_SCHEMES if is_socket else HTTP_SCHEMES)


def _label(tool: ManualTool, template: templates.CallTemplate) -> str:
    """Return the name of a tool in errors."""
    # The URL as the manual writes it: a variable in it may be a secret.
    if not isinstance(template, templates.WebTemplate):
        return f"tool {tool.full_name!r}"
    method: Any = getattr(template, "http_method", "")
    url = str(tool.template.get("url")).partition("?")[0]
    return f"{method} {url}".strip()
