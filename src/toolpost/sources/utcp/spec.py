"""Build the ToolSpec of a manual's tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from toolpost.catalog.names import canonical_name
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, ToolTarget, replay_of
from toolpost.schema.json_values import is_object
from toolpost.schema.secrets import drop_secrets
from toolpost.sources.utcp.context import origin_of, template_urls
from toolpost.sources.utcp.templates import (
    CliTemplate,
    FileTemplate,
    GraphqlTemplate,
    HttpTemplate,
    SocketTemplate,
    SseTemplate,
    StreamTemplate,
    TextTemplate,
    WebSocketTemplate,
    WebTemplate,
)

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema, ReplayClass, SideEffects
    from toolpost.sources.utcp.manuals import ManualTool
    from toolpost.sources.utcp.templates import CallTemplate

_IDEMPOTENT = frozenset({"PUT", "DELETE"})
_CATEGORIES: dict[type[object], ToolCategory] = {
    CliTemplate: ToolCategory.SYSTEM,
    FileTemplate: ToolCategory.FILE,
    TextTemplate: ToolCategory.DATA,
}
_STREAMS = (SseTemplate, StreamTemplate)


class _Effects(NamedTuple):
    side_effects: SideEffects
    replay: ReplayClass
    destructive: bool | None


_READS = _Effects("read", "idempotent", destructive=False)
_UNKNOWN = _Effects("external", "unsafe", destructive=None)


def tool_spec(
    tool: ManualTool, template: CallTemplate | None, *, source: str, max_timeout_s: float | None = None
) -> ToolSpec:
    """Build the ToolSpec of a tool; without a template, the tool is bridged and its effects are unknown.

    `max_timeout_s` limits the timeout that the manual declares.
    """
    effects = _UNKNOWN if template is None else _effects(template)
    local = isinstance(template, (CliTemplate, FileTemplate, TextTemplate))
    return ToolSpec(
        name=canonical_name(source, tool.name),
        description=tool.description,
        category=_CATEGORIES.get(type(template), ToolCategory.NETWORK),
        input_schema=tool.inputs,
        output_schema=_output_schema(tool, template),
        side_effects=effects.side_effects,
        replay=effects.replay,
        safety=SafetyProfile(
            network=not local,
            file=isinstance(template, FileTemplate),
            destructive=effects.destructive,
            open_world=not isinstance(template, (FileTemplate, TextTemplate)),
        ),
        timeout_s=_timeout_s(template, max_timeout_s),
        tags=tuple(dict.fromkeys(("utcp", source, *tool.tags))),
        source=source,
        origin=source,
        extra={
            "source": "utcp",
            "namespace": source,
            "remote_name": tool.full_name,
            "kind": tool.kind,
            "outputs": tool.outputs,
        },
        target=_target(tool, template),
    )


def _target(tool: ManualTool, template: CallTemplate | None) -> ToolTarget:
    """Describe what a call does."""
    # As the manual writes it: values of variables may be secret, hosts are not.
    hosts = [] if template is None else [origin_of(address) for address in template_urls(template)]
    declared = tool.template
    match template:
        case WebTemplate():
            url = str(declared.get("url")).partition("?")[0]
            method = str(getattr(template, "http_method", "") or "")
            summary = f"{method} {url}".strip() + (f" ({hosts[0]})" if "$" in url else "")
        case SocketTemplate():
            summary = f"{tool.kind} {declared.get('host')}:{declared.get('port')}"
        case CliTemplate():
            steps = [step for step in declared.get("commands", ()) if is_object(step)]
            summary = "; ".join(str(step.get("command")) for step in steps)
        case FileTemplate():
            summary = f"the file {declared.get('file_path')}"
        case TextTemplate():
            summary = "a text in the manual"
        case _:
            summary = f"{tool.full_name} by the utcp packages ({tool.kind})"
    return ToolTarget.of("utcp", summary, template=drop_secrets(declared), hosts=hosts)


def _effects(template: CallTemplate) -> _Effects:
    match template:
        case HttpTemplate() | StreamTemplate():
            return _method_effects(template.http_method)
        case SseTemplate():
            return _method_effects("GET" if template.body_field is None else "POST")
        case GraphqlTemplate():
            return _UNKNOWN if template.is_mutation else _READS
        case TextTemplate() | FileTemplate():
            return _READS
        case _:
            return _UNKNOWN


def _method_effects(method: str) -> _Effects:
    """Derive the effects of an HTTP method (RFC 9110 section 9.2)."""
    if method == "GET":
        return _READS
    replay = replay_of("external", idempotent=method in _IDEMPOTENT)
    return _Effects("external", replay, destructive=True if method == "DELETE" else None)


def _output_schema(tool: ManualTool, template: CallTemplate | None) -> JsonSchema | None:
    """Return the schema of the output."""
    # The manual of a stream describes one item, but a call returns a list of them.
    if isinstance(template, _STREAMS) and tool.outputs is not None and tool.outputs.get("type") != "array":
        return None
    return tool.outputs


def _timeout_s(template: CallTemplate | None, max_timeout_s: float | None) -> float | None:
    """Return the timeout that the template declares, in seconds."""
    if template is None or "timeout" not in template.model_fields_set:
        return None
    match template:
        case WebSocketTemplate(timeout=float() as seconds):
            pass
        case StreamTemplate(timeout=float() as milliseconds) | SocketTemplate(timeout=milliseconds):
            seconds = milliseconds / 1000
        case _:
            return None
    return seconds if max_timeout_s is None else min(seconds, max_timeout_s)
