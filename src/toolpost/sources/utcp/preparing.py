"""From a manual's tool to one that can be called: allowed, filled in, its addresses read; else the reason why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from toolpost.contracts.errors import ConfigError, ToolPermissionError
from toolpost.sources.utcp.command_calls import call_command
from toolpost.sources.utcp.content_calls import call_file, call_text
from toolpost.sources.utcp.http_calls import call_graphql, call_http
from toolpost.sources.utcp.http_requests import RequestPlan
from toolpost.sources.utcp.message_calls import call_tcp, call_udp, call_websocket
from toolpost.sources.utcp.scripts import check_script
from toolpost.sources.utcp.stream_calls import call_sse, call_stream
from toolpost.sources.utcp.templates import (
    KINDS,
    CliTemplate,
    RequestTemplate,
    WebSocketTemplate,
    WebTemplate,
    template_of,
)
from toolpost.sources.utcp.wires import Prepared, addresses_of
from toolpost.wire.guard import HTTP_SCHEMES, WEBSOCKET_SCHEMES, parse_target, split_url

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from toolpost.contracts.calls import ToolOutput
    from toolpost.sources.utcp.manuals import Manual, ManualTool
    from toolpost.sources.utcp.templates import CallTemplate
    from toolpost.sources.utcp.variables import Filled, Variables
    from toolpost.sources.utcp.wires import Asked, Wires

    Call: TypeAlias = Callable[[Prepared, Asked, Wires], Coroutine[Any, Any, ToolOutput]]

CALLS: dict[str, Call] = {
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


def check_allowed(tool: ManualTool, manual: Manual) -> None:
    """Refuse a tool of a kind that its manual may not have; ConfigError says what would let it."""
    if manual.allows(tool.kind):
        return
    has = sorted(manual.allowed or {manual.kind})
    wanted = ", ".join(dict.fromkeys([*has, tool.kind]))
    raise left_out(
        tool,
        f"it is called by {tool.kind}, and the manual may only use {', '.join(has)}; "
        f"write utcp: {{allowed_communication_protocols: [{wanted}]}} to let it",
    )


def left_out(tool: ManualTool, why: str) -> ConfigError:
    """Why a tool cannot be used."""
    return ConfigError(f"tool {tool.full_name!r} is left out: {why}")


def prepare(tool: ManualTool, variables: Variables, *, timeout_s: float) -> Prepared:
    """A tool that can be called; ConfigError says why this one cannot."""
    if tool.kind not in KINDS:
        known = ", ".join(KINDS)
        raise left_out(
            tool,
            f"its call template is of the kind {tool.kind!r}; known are {known} and mcp, "
            "and others with utcp: {bridge: true}",
        )
    return prepared_of(tool, filled_template(tool, variables), timeout_s=timeout_s)


def filled_template(tool: ManualTool, variables: Variables) -> Filled:
    """The template of a tool with its variables; ConfigError names those that nobody set."""
    filled = variables.filled(tool.template)
    if filled.missing:
        raise unset(tool, filled.missing, variables)
    return filled


def unset(tool: ManualTool, names: Sequence[str], variables: Variables) -> ConfigError:
    """Nobody set the variables that a tool needs."""
    return left_out(
        tool,
        f"its variables are not set: {', '.join(dict.fromkeys(names))}. Write them into utcp.variables of the source, "
        f"or set the environment variable {variables.key(names[0])}",
    )


def prepared_of(tool: ManualTool, filled: Filled, *, timeout_s: float) -> Prepared:
    """A tool whose template is filled in; ConfigError says why it cannot be called."""
    try:
        template = template_of(filled.template)
        check_addresses(template)
        if isinstance(template, CliTemplate):
            check_script(template.commands)
    except (ConfigError, ToolPermissionError) as error:
        raise left_out(tool, str(error)) from None
    return Prepared(
        full_name=tool.full_name,
        template=template,
        shown=_shown(tool, template),
        timeout_s=timeout_s,
        secrets=filled.values,
        outputs=tool.outputs,
        plan=RequestPlan(template) if isinstance(template, RequestTemplate) else None,
    )


def check_addresses(template: CallTemplate) -> None:
    """Read every address as strictly as it will be read when it is called; a host is never an argument."""
    for url in addresses_of(template):
        origin = split_url(url)[0]
        if "{" in origin:
            raise ConfigError(
                f"the host in {origin!r} of its address has a place for an argument; a host must be written"
            )
        is_socket = isinstance(template, WebSocketTemplate) and url == template.url
        parse_target(url if "{" not in url else origin, schemes=_WS if is_socket else HTTP_SCHEMES)


_WS = WEBSOCKET_SCHEMES


def _shown(tool: ManualTool, template: CallTemplate) -> str:
    """What errors call it: an address as the manual writes it, since a variable in it may be a secret."""
    if not isinstance(template, WebTemplate):
        return f"tool {tool.full_name!r}"
    method: Any = getattr(template, "http_method", "")
    written = str(tool.template.get("url")).partition("?")[0]
    return f"{method} {written}".strip()
