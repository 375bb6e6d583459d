"""Tools that an operator wrote down: the record of each, and how its message is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolpost.catalog.declared import closed_schema, declared_spec
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import ToolTarget
from toolpost.schema.jsontypes import is_object
from toolpost.sources.websocket.streams import Limits
from toolpost.sources.websocket.templates import json_message, text_message, wanted

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.options import WebSocketTool
    from toolpost.contracts.spec import JsonSchema, ToolSpec
    from toolpost.sources.websocket.correlation import Correlation
    from toolpost.sources.websocket.templates import Build


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a tool is called; only a stream has limits."""

    build: Build
    timeout_s: float
    limits: Limits | None


def planned(
    config: ExternalToolConfig, name: str, tool: WebSocketTool, correlation: Correlation | None
) -> tuple[ToolSpec, Plan]:
    """A tool's record and its plan; a ConfigError says why it cannot be called."""
    known = tool.input_schema.get("properties")
    unknown = [name for name in wanted(tool.message) if is_object(known) and name not in known]
    if unknown:
        raise ConfigError(f"its message wants {', '.join(map(repr, unknown))}, which its input_schema does not have")
    _refuse_id(tool, correlation)
    is_json = config.websocket.format == "json"
    build = json_message(tool.message, correlation) if is_json else text_message(tool.message)
    described = tool.model_copy(update={"input_schema": _schema(tool)})
    target = ToolTarget.of(
        "websocket",
        f"a message to {config.connection}",
        message=tool.message,
        options=config.websocket.model_dump(exclude={"tools"}),
    )
    spec = declared_spec(config.name, name, tool=described, kind="websocket", target=target)
    limits = Limits.of(tool, config.websocket.max_message_bytes) if tool.stream else None
    if limits and limits.seconds and spec.timeout_s is None:
        spec = replace(spec, timeout_s=limits.seconds + config.timeout_s)  # a limit must come before the deadline
    return spec, Plan(build=build, timeout_s=spec.timeout_s or config.timeout_s, limits=limits)


def _schema(tool: WebSocketTool) -> JsonSchema:
    """The operator's schema, or one of what the message names; arguments that it has no place for are refused."""
    if "input_schema" in tool.model_fields_set or tool.message is None:
        return closed_schema(tool.input_schema)
    names = wanted(tool.message)
    anything: dict[str, JsonSchema] = {name: {} for name in names}
    return closed_schema({"type": "object", "properties": anything, "required": names})


def _refuse_id(tool: WebSocketTool, correlation: Correlation | None) -> None:
    """Where the arguments are the message, none of them may stand where the id of a call goes."""
    if tool.message is not None or correlation is None:
        return
    known = tool.input_schema.get("properties")
    if any(correlation.sent == (name,) for name in (known if is_object(known) else ())):
        name = correlation.sent[0]
        raise ConfigError(f"its argument {name!r} stands where the id of a call goes; write a message for it")
