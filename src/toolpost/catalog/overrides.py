"""What an operator changes about a tool, laid over it without touching the original."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast, get_args

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import JsonSchema, ReplayClass, SideEffects, ToolSpec, destructive_of, replay_of
from toolpost.schema.secrets import is_secret_name
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.config import OutputCheck, ToolOverride

# Keywords that let in arguments which `properties` does not name.
_OPEN = frozenset({"additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"})

# Keywords by which one argument has to do with another.
_ENTANGLING = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "minProperties", "maxProperties"}
    | {"dependentRequired", "dependentSchemas", "dependencies", "const", "enum"}
)

# What says how a single argument must look, whichever others are given.
_SHAPE = frozenset({"$schema", "$id", "$defs", "definitions", "properties"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """The record as changed, and the arguments that are filled in behind the caller's back.

    They are `entangled` where the schema has more to say than how each argument looks, such as
    that one of two is needed: then it can only be checked with all of them there.
    """

    spec: ToolSpec
    fixed: Mapping[str, Any]
    defaults: Mapping[str, Any]
    entangled: bool
    outputs: OutputCheck | None = None

    def fill(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the original tool takes them."""
        return {**self.defaults, **arguments, **self.fixed}


def overlay(spec: ToolSpec, override: ToolOverride, *, name: str) -> Overlay:
    """Lay an override over a tool's record."""
    _known_arguments(spec, [*override.fix, *override.default])
    _fitting_values(spec, {**override.default, **override.fix})
    changed = replace(
        spec,
        name=name,
        description=override.description if override.description is not None else spec.description,
        input_schema=_changed(spec.input_schema, override),
        model_schema=None if spec.model_schema is None else _changed(spec.model_schema, override),
        tags=tuple(override.tags) if override.tags is not None else spec.tags,
        timeout_s=override.timeout_s or spec.timeout_s,
    )
    return Overlay(
        spec=_with_effects(changed, override),
        fixed=override.fix,
        defaults=override.default,
        entangled=bool(override.fix or override.default) and not _ENTANGLING.isdisjoint(spec.input_schema),
        outputs=override.outputs,
    )


def _with_effects(spec: ToolSpec, override: ToolOverride) -> ToolSpec:
    if override.side_effects is not None:
        named = _one_of(override.side_effects, get_args(SideEffects), spec.name, "side_effects")
        effects = cast("SideEffects", named)
        safety = spec.safety._replace(destructive=destructive_of(effects, _still_known(spec, effects)))
        spec = replace(spec, side_effects=effects, replay=replay_of(effects), safety=safety)
    if override.replay is not None:
        replay = _one_of(override.replay, get_args(ReplayClass), spec.name, "replay")
        spec = replace(spec, replay=cast("ReplayClass", replay))
    if override.destructive is not None:
        spec = replace(spec, safety=spec.safety._replace(destructive=override.destructive))
    return spec


def _still_known(spec: ToolSpec, effects: SideEffects) -> bool | None:
    """What is known of destruction under other effects; a tool that turns out to leave the machine is unknown again."""
    leaves = effects == "external" and spec.side_effects != "external"
    return (spec.safety.destructive or None) if leaves else spec.safety.destructive


def _one_of(value: str, allowed: tuple[str, ...], tool: str, key: str) -> str:
    if value not in allowed:
        msg = f"override of {tool!r}: {key} {value!r} is not one of {', '.join(allowed)}"
        raise ConfigError(msg, tool_name=tool)
    return value


def _known_arguments(spec: ToolSpec, names: list[str]) -> None:
    """Refuse a misspelled argument: what an operator fixed must not stay open to callers."""
    properties = spec.input_schema.get("properties", {})
    if _OPEN & spec.input_schema.keys() and spec.input_schema.get("additionalProperties") is not False:
        return
    for name in names:
        if name not in properties:
            msg = f"override of {spec.name!r}: it has no argument {name!r}; it has {', '.join(properties) or 'none'}"
            raise ConfigError(msg, tool_name=spec.name)


def _fitting_values(spec: ToolSpec, values: Mapping[str, Any]) -> None:
    """Refuse a value that the tool would refuse; it is filled in after the caller's arguments were checked."""
    if not values:
        return
    shape = {key: part for key, part in spec.input_schema.items() if key in _SHAPE}
    issues = compile_validator(shape).issues(dict(values))
    if issues:
        msg = f"override of {spec.name!r} does not fit its schema: {'; '.join(issues)}"
        raise ConfigError(msg, tool_name=spec.name)


def _changed(schema: JsonSchema, override: ToolOverride) -> JsonSchema:
    return _without(_with_defaults(schema, override.default), set(override.fix))


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
        shown = isinstance(part, dict) and not is_secret_name(name)  # a model sees the schema
        properties[name] = {**part, "default": value} if shown else part
    required = [name for name in schema.get("required", []) if name not in defaults]
    return {**schema, "properties": properties, "required": required}
