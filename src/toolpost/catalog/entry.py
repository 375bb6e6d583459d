"""One tool in the catalog: its record with the operator's overrides, its source, its validators and its call counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast, get_args

from msgspec.structs import replace

from toolpost.catalog.function import FunctionTool, code_target, run_tool
from toolpost.catalog.specs import clean_spec, has_plain_schemas
from toolpost.contracts.errors import ConfigError, ToolValidationError
from toolpost.contracts.source_kinds import TransportType
from toolpost.contracts.spec import (
    JsonSchema,
    PreviewingTool,
    ReplayClass,
    SideEffects,
    ToolSpec,
    ToolTarget,
    destructive_of,
    replay_of,
)
from toolpost.schema.json_values import as_object, parts_within
from toolpost.schema.secrets import SecretPaths, is_secret_name, secret_paths

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from toolpost.catalog.lock import Hold
    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig, OutputCheck, ToolOverride
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import Preview, Tool
    from toolpost.schema.subschemas import SharedDefinitions
    from toolpost.schema.validator import Validator

# Keywords that let in arguments which `properties` does not name.
_OPEN = frozenset({"additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"})

# Keywords by which one argument has to do with another.
_ENTANGLING = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "minProperties", "maxProperties"}
    | {"dependentRequired", "dependentSchemas", "dependencies", "const", "enum"}
)

# What says how a single argument must look, whichever others are given.
_SHAPE = frozenset({"$schema", "$id", "$defs", "definitions", "properties"})

_LIGHT_SCHEMA = 300  # so many values in a schema are compiled within a few milliseconds


class Overlay(NamedTuple):
    """A record with an override applied, and the arguments that the override fills in.

    `entangled` is set where the schema relates arguments to each other, such as requiring one of two: then arguments
    can only be validated after the override filled in its own.
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
    """Apply an operator's override to a tool's record; ConfigError when the override does not fit the schema."""
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
    """Return the `destructive` flag under other effects; unknown for a tool that is now external."""
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
    issues = _compile(shape).issues(dict(values))
    if issues:
        msg = f"override of {spec.name!r} does not fit its schema: {'; '.join(issues)}"
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


class CallCounts:
    """Calls, failures, output mismatches and total duration of a tool, however often it is replaced."""

    __slots__ = ("count", "failures", "misfits", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.failures = 0
        self.misfits = 0
        self.total_ms = 0.0

    def record(self, duration_ms: float, success: bool) -> None:  # noqa: FBT001 - made for every call
        """Count one call."""
        self.count += 1
        self.total_ms += duration_ms
        if not success:
            self.failures += 1


class Entry:
    """One registered tool. Validators are compiled at its first call, not when it is listed.

    Compiling large schemas takes a while: `prepare` does it in a thread beforehand.
    """

    __slots__ = (
        "_input",
        "_output",
        "_prepared",
        "_secrets",
        "change",
        "config",
        "counts",
        "hold",
        "overlay",
        "rank",
        "source",
        "spec",
        "tool",
    )

    def __init__(
        self,
        tool: Tool,
        *,
        source: ToolSource | None = None,
        config: ExternalToolConfig | None = None,
        overlay: Overlay | None = None,
        rank: int = 0,
        shared: SharedDefinitions | None = None,
    ) -> None:
        self.tool = tool
        spec = overlay.spec if overlay is not None else tool.spec
        self.spec: ToolSpec = clean_spec(_with_target(spec, tool, source), shared)
        self.overlay = overlay
        self.config = config
        self.rank = rank
        self.source = source
        self.counts = CallCounts()
        self.hold: Hold | None = None
        self.change: Hold | None = None  # of a definition that is reported, and blocked only under a strict policy
        self._input: Validator | None = None
        self._output: Validator | None = None
        self._secrets: tuple[SecretPaths, SecretPaths] | None = None
        self._prepared = source is None or _is_light(tool.spec, shared)

    @property
    def invoke(self) -> Callable[[AuthorizedCall], Awaitable[ToolOutput | Question]]:
        """The function that runs a call."""
        if self.source is not None:
            return self.source.invoke
        return self.tool.invoke if isinstance(self.tool, FunctionTool) else run_tool

    @property
    def original(self) -> ToolSpec:
        """The record as the source gave it, without overrides."""
        return self.tool.spec

    @property
    def origin(self) -> str:
        """The external source of the tool; empty for the operator's own code."""
        config = self.config
        return self.original.origin if config is None or config.transport is TransportType.PYTHON else config.name

    @property
    def content_origin(self) -> str:
        """Where the content of results and errors comes from: the external source, or a tool that fetches content.

        It is empty for tools whose results are the operator's own.
        """
        return self.origin or (self.spec.name if self.spec.third_party else "")

    @property
    def is_trusted(self) -> bool:
        """Whether the content of the tool reaches a model as that of own tools.

        The operator trusts what the source says of its tools, and the source says that results are its own. By the
        default of MCP they are of the open world: the text of a web page is not the server's.
        """
        if self.config is None or not self.config.trust or self.spec.third_party:
            return False
        claims = as_object(self.original.extra.get("annotations"))
        return claims.get("openWorldHint") is False

    @property
    def _is_own(self) -> bool:
        """Whether the operator wrote the schemas, in code or in the configuration."""
        return not self.origin or (self.config is not None and declares_schemas(self.config))

    @property
    def unchecked_patterns(self) -> tuple[str, ...]:
        """The patterns of the tool's schemas that are left out of validation."""
        from toolpost.schema.validator import unchecked_patterns  # noqa: PLC0415 - as in `_compile`

        schemas = () if self._is_own else (self.original.input_schema, self.original.output_schema or {})
        return tuple(pattern for schema in schemas for pattern in unchecked_patterns(schema))

    @property
    def unaccepted(self) -> Hold | None:
        """The changed definition that the operator has not accepted, whether or not it blocks calls."""
        return self.hold or self.change

    def apply_hold(self, hold: Hold) -> None:
        """Replace the record by the stub of a hold; arguments are validated once its definition is accepted."""
        self.hold, self.overlay = hold, None
        self.spec = hold.stub(self.spec)

    @property
    def is_prepared(self) -> bool:
        """Whether validators are compiled, or small enough to be compiled during a call."""
        return self._prepared

    def prepare(self) -> None:
        """Compile the validators and find the secret paths; ToolSchemaError when a schema cannot be used."""
        for validator in (self.input_validator, self.output_validator):
            if validator is not None:
                validator.secrets()
        self.secret_paths  # noqa: B018 - known from now on
        self._prepared = True

    @property
    def secret_paths(self) -> tuple[SecretPaths, SecretPaths]:
        """The paths that the source's schemas mark as secret, in the arguments and in the result."""
        if self._secrets is None:
            original = self.original
            self._secrets = secret_paths(original.input_schema), secret_paths(original.output_schema or {})
        return self._secrets

    @property
    def input_validator(self) -> Validator:
        """The compiled input schema."""
        if self._input is None:
            schema = self.original.input_schema if _is_entangled(self.overlay) else self.spec.input_schema
            self._input = _compile(schema, lenient=self.spec.validate_inputs == "lenient", own=self._is_own)
        return self._input

    @property
    def output_validator(self) -> Validator | None:
        """The compiled output schema, if the tool has one."""
        if self._output is None and self.spec.output_schema is not None:
            self._output = _compile(self.spec.output_schema, own=self._is_own)
        return self._output

    @property
    def output_check(self) -> OutputCheck:
        """How results that violate the output schema are handled; strict for tools of the operator's own code."""
        if self.overlay is not None and self.overlay.outputs is not None:
            return self.overlay.outputs
        if self.config is None:
            return "report" if self.origin else "strict"
        return self.config.output_check

    @property
    def shown_schema(self) -> JsonSchema:
        """The input schema that models see."""
        view = self.spec.model_schema
        return self.spec.input_schema if view is None else view

    @property
    def previewer(self) -> Preview | None:
        """The function that previews a call, for tools of the operator's own code only."""
        if self.origin:
            return None
        if isinstance(self.tool, FunctionTool):
            return self.tool.previewer
        return self.tool.preview if isinstance(self.tool, PreviewingTool) else None

    def fit(self, arguments: Any) -> dict[str, Any]:
        """Validate arguments and fill in those of the override; ToolValidationError says where they do not fit.

        Null is taken as absent where the schema does not admit it. What stays out gets the default of the override.
        """
        if _is_entangled(self.overlay) and isinstance(arguments, dict):
            given = cast("dict[str, Any]", arguments)
            arguments = self.overlay.fill(_without_nulls(self.spec.input_schema, given))
        if self.spec.validate_inputs != "off":
            arguments = self.input_validator.coerce(arguments)
            self.input_validator.check(arguments, self.spec.name)
        if not isinstance(arguments, dict):
            raise ToolValidationError(f"$: expected object, got {type(arguments).__name__}", tool_name=self.spec.name)
        fitting = cast("dict[str, Any]", arguments)
        return fitting if self.overlay is None else self.overlay.fill(fitting)


def _with_target(spec: ToolSpec, tool: Tool, source: ToolSource | None) -> ToolSpec:
    """Add a target to a record that has none: the function's code, or the name of the remote tool and its source."""
    if spec.target is not None:
        return spec
    if source is None:
        return replace(spec, target=code_target(tool.execute))
    remote = spec.extra.get("remote_name", spec.name)
    return replace(spec, target=ToolTarget.of("source", f"{remote} of source {source.name}", extra=dict(spec.extra)))


def _is_light(spec: ToolSpec, shared: SharedDefinitions | None) -> bool:
    if has_plain_schemas(spec, shared):
        return True
    schemas = (schema for schema in (spec.input_schema, spec.output_schema) if schema)
    return all(_is_short(schema, shared) or parts_within(_LIGHT_SCHEMA, schema) for schema in schemas)


def _is_short(schema: JsonSchema, shared: SharedDefinitions | None) -> bool:
    """Return whether the text of a schema shows that it has few values: there are no more than commas and brackets."""
    text = None if shared is None else shared.text(schema)
    return text is not None and text.count(",") + text.count("{") + text.count("[") <= _LIGHT_SCHEMA


def declares_schemas(config: ExternalToolConfig) -> bool:
    """Return whether a source's tools get their schemas from its configuration, not from its other side."""
    match config.transport:
        case TransportType.PYTHON | TransportType.WEBSOCKET:
            return True
        case TransportType.CLI:
            return config.cli.manual is None
        case _:
            return False


def _is_entangled(overlay: Overlay | None) -> TypeGuard[Overlay]:
    return overlay is not None and overlay.entangled


def _without_nulls(schema: JsonSchema, arguments: dict[str, Any]) -> dict[str, Any]:
    from toolpost.schema.validator import drop_nulls  # noqa: PLC0415 - as in `_compile`

    return drop_nulls(schema, arguments) if None in arguments.values() else arguments


def _compile(schema: JsonSchema, *, lenient: bool = False, own: bool = False) -> Validator:
    from toolpost.schema.validator import compile_validator  # noqa: PLC0415 - a catalog is often listed, not called

    return compile_validator(schema, lenient=lenient, own=own)
