"""A tool of a manual as the record that the catalog holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from toolpost.catalog.names import canonical_name
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, ToolTarget, replay_of
from toolpost.schema.jsontypes import is_object
from toolpost.schema.secrets import harmless
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
from toolpost.sources.utcp.wires import addresses_of, origin_of

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema, ReplayClass, SideEffects
    from toolpost.sources.utcp.manuals import ManualTool
    from toolpost.sources.utcp.templates import CallTemplate

_REPEATABLE = frozenset({"PUT", "DELETE"})
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
    tool: ManualTool, template: CallTemplate | None, *, source: str, longest_s: float | None = None
) -> ToolSpec:
    """The record of a tool; without a template, somebody else's code calls it and may do anything.

    `longest_s` is how long a call may take, whatever its manual says.
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
        timeout_s=_timeout_s(template, longest_s),
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
    """What a call does, as the manual writes it: what its variables stand for may be secret, but not the hosts."""
    hosts = [] if template is None else [origin_of(address) for address in addresses_of(template)]
    written = tool.template
    match template:
        case WebTemplate():
            url = str(written.get("url")).partition("?")[0]
            method = str(getattr(template, "http_method", "") or "")
            summary = f"{method} {url}".strip() + (f" ({hosts[0]})" if "$" in url else "")
        case SocketTemplate():
            summary = f"{tool.kind} {written.get('host')}:{written.get('port')}"
        case CliTemplate():
            steps = [step for step in written.get("commands", ()) if is_object(step)]
            summary = "; ".join(str(step.get("command")) for step in steps)
        case FileTemplate():
            summary = f"the file {written.get('file_path')}"
        case TextTemplate():
            summary = "a text in the manual"
        case _:
            summary = f"{tool.full_name} by the utcp packages ({tool.kind})"
    return ToolTarget.of("utcp", summary, template=harmless(written), hosts=hosts)


def _effects(template: CallTemplate) -> _Effects:
    match template:
        case HttpTemplate() | StreamTemplate():
            return _by_method(template.http_method)
        case SseTemplate():
            return _by_method("GET" if template.body_field is None else "POST")
        case GraphqlTemplate():
            return _UNKNOWN if template.is_mutation else _READS
        case TextTemplate() | FileTemplate():
            return _READS
        case _:
            return _UNKNOWN


def _by_method(method: str) -> _Effects:
    """What a method may do (RFC 9110 section 9.2)."""
    if method == "GET":
        return _READS
    replay = replay_of("external", idempotent=method in _REPEATABLE)
    return _Effects("external", replay, destructive=True if method == "DELETE" else None)


def _output_schema(tool: ManualTool, template: CallTemplate | None) -> JsonSchema | None:
    """What a call gives; of a stream a manual describes the items, and a call gives them all."""
    if isinstance(template, _STREAMS) and tool.outputs is not None and tool.outputs.get("type") != "array":
        return None
    return tool.outputs


def _timeout_s(template: CallTemplate | None, longest_s: float | None) -> float | None:
    """How long the manual lets a call take, where it says so."""
    if template is None or "timeout" not in template.model_fields_set:
        return None
    match template:
        case WebSocketTemplate(timeout=float() as seconds):
            pass
        case StreamTemplate(timeout=float() as milliseconds) | SocketTemplate(timeout=milliseconds):
            seconds = milliseconds / 1000
        case _:
            return None
    return seconds if longest_s is None else min(seconds, longest_s)
