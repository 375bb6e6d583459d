"""Apply an operator's override to the record of a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from msgspec.structs import replace

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.spec import JsonSchema, ReplayClass, SideEffects, ToolSpec, destructive_of, replay_of
from toolpost.schema.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.config import OutputCheck, ToolOverride

# Keywords that allow arguments which `properties` does not name.
_OPEN = frozenset({"additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"})

# Keywords that relate arguments to each other.
_ENTANGLING = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "minProperties", "maxProperties"}
    | {"dependentRequired", "dependentSchemas", "dependencies", "const", "enum"}
)

# Keywords that describe a single argument independently of others.
_SHAPE = frozenset({"$schema", "$id", "$defs", "definitions", "properties"})


class Overlay(NamedTuple):
    """A record with an override applied, and the arguments that the override fills in.

    `entangled` is set if the schema relates arguments to each other, for example by requiring one of two. Arguments
    can then only be validated after the override has filled in its own.
    """

    spec: ToolSpec
    fixed: Mapping[str, Any]
    defaults: Mapping[str, Any]
    entangled: bool
    outputs: OutputCheck | None = None

    def fill(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with defaults and fixed values filled in."""
        return {**self.defaults, **arguments, **self.fixed}


def apply_override(spec: ToolSpec, override: ToolOverride, *, name: str) -> Overlay:
    """Apply an operator's override to a tool's record; ConfigError if the override violates the schema."""
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
        leaves = effects == "external" and spec.side_effects != "external"
        # Whether a tool that is now external destroys anything is unknown, unless it did before.
        destructive = (spec.safety.destructive or None) if leaves else spec.safety.destructive
        safety = spec.safety._replace(destructive=destructive_of(effects, destructive))
        spec = replace(spec, side_effects=effects, replay=replay_of(effects), safety=safety)
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
    """Reject a misspelled argument: a fixed argument must not stay open to callers."""
    properties = spec.input_schema.get("properties", {})
    if _OPEN & spec.input_schema.keys() and spec.input_schema.get("additionalProperties") is not False:
        return
    for name in names:
        if name not in properties:
            msg = f"override of {spec.name!r}: it has no argument {name!r}; it has {', '.join(properties) or 'none'}"
            raise ConfigError(msg, tool_name=spec.name)


def _fitting_values(spec: ToolSpec, values: Mapping[str, Any]) -> None:
    """Reject an invalid value: it is filled in after the validation of the caller's arguments."""
    if not values:
        return
    shape = {key: part for key, part in spec.input_schema.items() if key in _SHAPE}
    from toolpost.schema.validator import compile_validator  # noqa: PLC0415 - a catalog is often listed, not called

    issues = compile_validator(shape).issues(dict(values))
    if issues:
        msg = f"override of {spec.name!r} violates its schema: {'; '.join(issues)}"
        raise ConfigError(msg, tool_name=spec.name)


def _changed(schema: JsonSchema, override: ToolOverride) -> JsonSchema:
    return _without(_with_defaults(schema, override.default), set(override.fix))


def _without(schema: JsonSchema, names: set[str]) -> JsonSchema:
    if not names:
        return schema
    properties = {name: part for name, part in schema.get("properties", {}).items() if name not in names}
    required = [name for name in schema.get("required", []) if name not in names]
    return {**schema, "properties": properties, "required": required}


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
