"""What an operator changes about a tool, laid over it without touching the original."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast, get_args

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import JsonSchema, ReplayClass, SideEffects, ToolSpec, replay_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.config import ToolOverride


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """The record as changed, and the arguments that are filled in behind the caller's back."""

    spec: ToolSpec
    fixed: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def fill(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the original tool takes them."""
        return {**self.defaults, **arguments, **self.fixed}


def overlay(spec: ToolSpec, override: ToolOverride, *, name: str) -> Overlay:
    """Lay an override over a tool's record."""
    _known_arguments(spec, [*override.fix, *override.default])
    changed = replace(
        spec,
        name=name,
        description=override.description if override.description is not None else spec.description,
        input_schema=_without(_with_defaults(spec.input_schema, override.default), set(override.fix)),
        tags=tuple(override.tags) if override.tags is not None else spec.tags,
        timeout_s=override.timeout_s or spec.timeout_s,
    )
    return Overlay(spec=_with_effects(changed, override), fixed=override.fix, defaults=override.default)


def _with_effects(spec: ToolSpec, override: ToolOverride) -> ToolSpec:
    if override.side_effects is not None:
        effects = _one_of(override.side_effects, get_args(SideEffects), spec.name, "side_effects")
        spec = replace(spec, side_effects=cast("SideEffects", effects), replay=replay_of(cast("SideEffects", effects)))
    if override.replay is not None:
        replay = _one_of(override.replay, get_args(ReplayClass), spec.name, "replay")
        spec = replace(spec, replay=cast("ReplayClass", replay))
    if override.destructive is not None:
        spec = replace(spec, safety=spec.safety._replace(destructive=override.destructive))
    return spec


def _one_of(value: str, allowed: tuple[str, ...], tool: str, key: str) -> str:
    if value not in allowed:
        msg = f"override of {tool!r}: {key} {value!r} is not one of {', '.join(allowed)}"
        raise ConfigError(msg, tool_name=tool)
    return value


def _known_arguments(spec: ToolSpec, names: list[str]) -> None:
    properties = spec.input_schema.get("properties", {})
    for name in names:
        if name not in properties and spec.input_schema.get("additionalProperties") is False:
            msg = f"override of {spec.name!r}: it has no argument {name!r}; it has {', '.join(properties) or 'none'}"
            raise ConfigError(msg, tool_name=spec.name)


def _without(schema: JsonSchema, names: set[str]) -> JsonSchema:
    if not names:
        return schema
    kept = {name: part for name, part in schema.get("properties", {}).items() if name not in names}
    required = [name for name in schema.get("required", []) if name not in names]
    return {**schema, "properties": kept, "required": required}


def _with_defaults(schema: JsonSchema, defaults: Mapping[str, Any]) -> JsonSchema:
    if not defaults:
        return schema
    properties = dict(schema.get("properties", {}))
    for name, value in defaults.items():
        part = properties.get(name, {})
        properties[name] = {**part, "default": value} if isinstance(part, dict) else part
    required = [name for name in schema.get("required", []) if name not in defaults]
    return {**schema, "properties": properties, "required": required}
