"""Tool specs of UTCP tools."""

from __future__ import annotations

from toolpost.catalog.names import canonical_name
from toolpost.catalog.specs import Effects, effects_of_method
from toolpost.contracts.spec import JsonSchema, SafetyProfile, ToolCategory, ToolSpec, ToolTarget
from toolpost.schema.json_values import is_object
from toolpost.schema.secrets import drop_secrets
from toolpost.sources.utcp import templates
from toolpost.sources.utcp.context import origin_of, template_urls
from toolpost.sources.utcp.manuals import ManualTool

_CATEGORIES: dict[type[object], ToolCategory] = {
    templates.CliTemplate: ToolCategory.SYSTEM,
    templates.FileTemplate: ToolCategory.FILE,
    templates.TextTemplate: ToolCategory.DATA,
}
_STREAMS = (templates.SseTemplate, templates.StreamTemplate)


def tool_spec(
    tool: ManualTool, template: templates.CallTemplate | None, *, source: str, max_timeout_s: float | None = None
) -> ToolSpec:
    """Build the ToolSpec of a tool; without a template, the tool is bridged and its effects are unknown.

    `max_timeout_s` limits the timeout that the manual declares.
    """
    effects = _effects(template)
    return ToolSpec(
        name=canonical_name(source, tool.name),
        description=tool.description,
        category=_CATEGORIES.get(type(template), ToolCategory.NETWORK),
        input_schema=tool.inputs,
        output_schema=_output_schema(tool, template),
        side_effects=effects.side_effects,
        replay=effects.replay,
        safety=effects.safety,
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


def _target(tool: ManualTool, template: templates.CallTemplate | None) -> ToolTarget:
    # As the manual writes it: values of variables may be secret, hosts are not.
    hosts = [] if template is None else [origin_of(address) for address in template_urls(template)]
    declared = tool.template
    match template:
        case templates.WebTemplate():
            url = str(declared.get("url")).partition("?")[0]
            method = str(getattr(template, "http_method", "") or "")
            summary = f"{method} {url}".strip() + (f" ({hosts[0]})" if "$" in url else "")
        case templates.SocketTemplate():
            summary = f"{tool.kind} {declared.get('host')}:{declared.get('port')}"
        case templates.CliTemplate():
            steps = [step for step in declared.get("commands", ()) if is_object(step)]
            summary = "; ".join(str(step.get("command")) for step in steps)
        case templates.FileTemplate():
            summary = f"the file {declared.get('file_path')}"
        case templates.TextTemplate():
            summary = "a text in the manual"
        case _:
            summary = f"{tool.full_name} by the utcp packages ({tool.kind})"
    return ToolTarget.of("utcp", summary, template=drop_secrets(declared), hosts=hosts)


def _effects(template: templates.CallTemplate | None) -> Effects:
    match template:
        case templates.HttpTemplate() | templates.StreamTemplate():
            return effects_of_method(template.http_method)
        case templates.SseTemplate():
            return effects_of_method("GET" if template.body_field is None else "POST")
        case templates.GraphqlTemplate():
            return effects_of_method("POST" if template.is_mutation else "GET")
        case templates.TextTemplate() | templates.FileTemplate():
            return Effects("read", "idempotent", SafetyProfile(file=isinstance(template, templates.FileTemplate)))
        case _:
            safety = SafetyProfile(
                network=not isinstance(template, templates.CliTemplate), destructive=None, open_world=True
            )
            return Effects("external", "unsafe", safety)


def _output_schema(tool: ManualTool, template: templates.CallTemplate | None) -> JsonSchema | None:
    # The manual of a stream describes one item, but a call returns a list of them.
    if isinstance(template, _STREAMS) and tool.outputs is not None and tool.outputs.get("type") != "array":
        return None
    return tool.outputs


def _timeout_s(template: templates.CallTemplate | None, max_timeout_s: float | None) -> float | None:
    if template is None or "timeout" not in template.model_fields_set:
        return None
    match template:
        case templates.WebSocketTemplate(timeout=float() as seconds):
            pass
        case templates.StreamTemplate(timeout=float() as milliseconds) | templates.SocketTemplate(timeout=milliseconds):
            seconds = milliseconds / 1000
        case _:
            return None
    return seconds if max_timeout_s is None else min(seconds, max_timeout_s)
