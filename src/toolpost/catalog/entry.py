"""One tool in the catalog: its record with the operator's overrides, its source, its validators and its call counts."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from msgspec.structs import replace

from toolpost.catalog.code_target import code_target
from toolpost.catalog.function import FunctionTool, run_tool
from toolpost.catalog.overrides import Overlay
from toolpost.catalog.specs import clean_spec, has_plain_schemas
from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.sources import SourceTraits
from toolpost.contracts.spec import JsonSchema, PreviewingTool, ToolSpec, ToolTarget
from toolpost.schema.json_values import as_object, parts_within
from toolpost.schema.secrets import SecretPaths, secret_paths

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.catalog.lock import Hold
    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig, OutputCheck
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import Preview, Tool
    from toolpost.schema.shared_definitions import SharedDefinitions
    from toolpost.schema.validator import Validator

_LIGHT_SCHEMA = 300  # values in a schema that are compiled within a few milliseconds


class Entry:
    """One registered tool. Validators are compiled at its first call, not when it is listed.

    Compiling large schemas takes a while: `prepare` does it in a thread beforehand.
    """

    __slots__ = (
        "_input",
        "_output",
        "_secrets",
        "change",
        "config",
        "counts",
        "hold",
        "is_prepared",
        "overlay",
        "rank",
        "source",
        "spec",
        "tool",
        "traits",
    )

    def __init__(
        self,
        tool: Tool,
        *,
        source: ToolSource | None = None,
        config: ExternalToolConfig | None = None,
        traits: SourceTraits | None = None,
        overlay: Overlay | None = None,
        rank: int = 0,
        shared: SharedDefinitions | None = None,
    ) -> None:
        self.tool = tool
        spec = overlay.spec if overlay is not None else tool.spec
        self.spec: ToolSpec = clean_spec(_with_target(spec, tool, source), shared)
        self.overlay = overlay
        self.config = config
        self.traits = traits or SourceTraits(is_own_code=config is None, declares_schemas=config is None)
        self.rank = rank
        self.source = source
        self.counts = CallCounts()
        self.hold: Hold | None = None
        self.change: Hold | None = None  # a reported change, which blocks calls only under a strict policy
        self._input: Validator | None = None
        self._output: Validator | None = None
        self._secrets: tuple[SecretPaths, SecretPaths] | None = None
        self.is_prepared = source is None or _is_light(tool.spec, shared)
        """Whether validators are compiled, or small enough to be compiled during a call."""

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
        return self.original.origin if self.config is None or self.traits.is_own_code else self.config.name

    @property
    def content_origin(self) -> str:
        """The origin of results and errors: the external source, or a tool that fetches content.

        Empty for tools that return the operator's own content.
        """
        return self.origin or (self.spec.name if self.spec.third_party else "")

    @property
    def is_trusted(self) -> bool:
        """Whether a model reads the content of the tool as trusted.

        The operator trusts the annotations of the source, and these say that results are its own. By the default of
        MCP, results are of the open world: the text of a web page is not the server's.
        """
        if self.config is None or not self.config.trust or self.spec.third_party:
            return False
        claims = as_object(self.original.extra.get("annotations"))
        return claims.get("openWorldHint") is False

    @property
    def _is_own(self) -> bool:
        """Whether the operator wrote the schemas, in code or in the configuration."""
        return not self.origin or (self.config is not None and self.traits.declares_schemas)

    @property
    def unchecked_patterns(self) -> tuple[str, ...]:
        """The patterns of the tool's schemas that are not validated."""
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

    def prepare(self) -> None:
        """Compile the validators and find the secret paths; ToolSchemaError if a schema cannot be used."""
        for validator in (self.input_validator, self.output_validator):
            if validator is not None:
                validator.secrets()
        self.secret_paths  # noqa: B018 - cached from now on
        self.is_prepared = True

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
        return self.config.outputs or ("strict" if self.traits.is_own_code else "report")

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
        """Validate arguments and fill in those of the override; ToolValidationError names the invalid places.

        If the schema does not allow null, null means absent. Absent arguments get the defaults of the override.
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


DURATION_BOUNDS_MS = (1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000)
"""The upper bounds of the buckets that count durations of calls; longer calls are in one further bucket."""


class CallCounts:
    """Calls, failures, schema violations and durations of a tool, kept when it is replaced."""

    __slots__ = ("buckets", "count", "failures", "schema_violations", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.failures = 0
        self.schema_violations = 0
        self.total_ms = 0.0
        self.buckets: list[int] = []  # empty before the first call: most tools of a large catalog are never called

    def record(self, duration_ms: float, success: bool) -> None:  # noqa: FBT001 - positional arguments are faster, and every call counts
        """Count one call."""
        self.count += 1
        self.total_ms += duration_ms
        if not self.buckets:
            self.buckets = [0] * (len(DURATION_BOUNDS_MS) + 1)
        self.buckets[bisect_left(DURATION_BOUNDS_MS, duration_ms)] += 1
        if not success:
            self.failures += 1


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
    """Return whether the text of a schema has few values, counted by commas and brackets."""
    text = None if shared is None else shared.text(schema)
    return text is not None and text.count(",") + text.count("{") + text.count("[") <= _LIGHT_SCHEMA


def _is_entangled(overlay: Overlay | None) -> TypeGuard[Overlay]:
    return overlay is not None and overlay.entangled


def _without_nulls(schema: JsonSchema, arguments: dict[str, Any]) -> dict[str, Any]:
    from toolpost.schema.coercion import drop_nulls  # noqa: PLC0415 - as in `_compile`

    return drop_nulls(schema, arguments) if None in arguments.values() else arguments


def _compile(schema: JsonSchema, *, lenient: bool = False, own: bool = False) -> Validator:
    from toolpost.schema.validator import compile_validator  # noqa: PLC0415 - a catalog is often listed, not called

    return compile_validator(schema, lenient=lenient, own=own)
