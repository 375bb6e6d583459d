"""The configuration of an external tool source."""

# Real annotations, as in `config_model`.
import re
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from toolpost.contracts.config_model import ConfigModel, SourceModel
from toolpost.contracts.http_syntax import TOKEN
from toolpost.contracts.nearest_names import did_you_mean, nearest
from toolpost.contracts.retries import RetryPolicy
from toolpost.contracts.source_kinds import TRANSPORTS_GROUP, AuthType, TransportType, UtcpMode
from toolpost.contracts.spec import ReplayClass, SideEffects

HEADER_NAME = rf"^{TOKEN}$"
OutputCheck = Literal["report", "strict", "off"]
OptionsModel = TypeVar("OptionsModel", bound=BaseModel)
_LONGEST_CALL_S = 300.0  # unless `deadline_s` is set
_TRANSPORT_SCHEMA = {
    "anyOf": [{"enum": [*TransportType]}, {"type": "string", "pattern": "^[a-z][a-z0-9_-]*$"}],
    "description": "How the source is reached: one of these, or the transport of an installed plug-in",
}
_AUTH_NEEDS = {
    AuthType.BEARER: ("token",),
    AuthType.API_KEY: ("api_key",),
    AuthType.COOKIE: ("value",),
    AuthType.BASIC: ("username", "password"),
}
_AUTH_TAKES = {**_AUTH_NEEDS, AuthType.API_KEY: ("api_key", "header"), AuthType.COOKIE: ("value", "name")}
# The others use `auth_config` differently, or have no credentials.
_AUTH_IS_SENT = frozenset({"mcp", "http", "websocket", "webhook", "graphql"})
_ORIGIN_IS_CHECKED = frozenset({"mcp", "http"})


class DeclaredTool(ConfigModel):
    """A tool that the operator describes in the configuration."""

    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object"}, description="JSON Schema")
    output_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema of the result")
    side_effects: SideEffects = "external"
    destructive: bool | None = None
    replay: ReplayClass | None = None
    timeout_s: float | None = Field(default=None, gt=0)
    tags: list[str] = Field(default_factory=list[str])


class ToolOverride(ConfigModel):
    """Changes of the operator to one tool; the original remains readable for audit."""

    name: str | None = None
    description: str | None = None
    hide: bool = False
    fix: dict[str, Any] = Field(default_factory=dict)
    default: dict[str, Any] = Field(default_factory=dict)
    side_effects: str | None = None
    destructive: bool | None = None
    replay: str | None = None
    timeout_s: float | None = Field(default=None, gt=0)
    tags: list[str] | None = None
    outputs: OutputCheck | None = Field(default=None, description="As for the source, for this tool alone")


def _registered(value: str) -> str:
    """Return the name of a transport, a built-in one as member of the enum; ValueError if no plug-in has it either."""
    if value in frozenset(TransportType):
        return TransportType(value)
    plugged = {point.name for point in entry_points(group=TRANSPORTS_GROUP)}
    if value in plugged:
        return value
    names = [*(one.value for one in TransportType), *sorted(plugged)]
    meant = f"; {near}" if (near := did_you_mean(value, names)) else "."
    raise ValueError(f"no transport is named {value!r}{meant} There are: {', '.join(names)}")


def _connection_or_manual(schema: dict[str, Any]) -> None:
    """Require a connection or a manual: the commands of a manual need no connection."""
    schema["required"].remove("connection")
    by_manual = {"properties": {"options": {"required": ["manual"]}}, "required": ["options"]}
    schema["anyOf"] = [{"required": ["connection"]}, by_manual]


class ExternalToolConfig(SourceModel):
    """One external tool source.

    `tool_filter` and `tool_exclude` are regular expressions that match whole tool names; `overrides` are keyed by the
    tool's name within the source. Without `trust`, the source's own annotations make calls stricter, never looser.
    """

    model_config = ConfigDict(json_schema_extra=_connection_or_manual)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="Unique namespace of the source's tools")
    description: str = ""
    transport: Annotated[str, AfterValidator(_registered), WithJsonSchema(_TRANSPORT_SCHEMA)]
    connection: str = Field(min_length=1, description="A command, a URL, a file or a module, as the transport wants")
    utcp_mode: UtcpMode = UtcpMode.AUTO
    base_url: str | None = None
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    env_file: str | None = Field(default=None, description="A file of more variables for a command, as .env files are")
    cwd: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    enabled: bool = True
    required: bool = False
    trust: bool = Field(default=False, description="Whether the metadata of the source about its tools is trusted")
    trace_context: bool = Field(default=False, description="Whether calls carry the ids of their trace (traceparent)")
    auth_type: AuthType = AuthType.NONE
    auth_config: dict[str, Any] = Field(default_factory=dict, repr=False)
    timeout_s: float = Field(default=30.0, ge=1.0, le=300.0)
    deadline_s: float | None = Field(default=None, ge=1.0, le=86_400.0)
    connect_timeout_s: float = Field(default=30.0, ge=0.1, le=600.0)
    retry_policy: RetryPolicy = Field(default_factory=RetryPolicy.defaults)
    max_concurrency: int = Field(default=10, ge=1, le=100)
    max_values: int = Field(
        default=2_500_000,
        ge=1000,
        description="A message with more JSON values is refused before it is decoded (message_too_large)",
    )
    inline_values: int = Field(
        default=100_000,
        ge=1000,
        description="A result with more JSON values is checked in another process and becomes an artifact",
    )
    tool_filter: list[str] | None = None
    tool_exclude: list[str] | None = None
    overrides: dict[str, ToolOverride] = Field(default_factory=dict)
    outputs: OutputCheck | None = Field(
        default=None,
        description="A result that violates its schema: passed through with a note (report, the default), a failure "
        "(strict, the default of python), or not checked (off)",
    )
    options: dict[str, Any] = Field(default_factory=dict, repr=False, description="Options of the transport")

    @model_validator(mode="before")
    @classmethod
    def _reached_by_manual(cls, data: Any) -> Any:
        """Use the manual that describes a source as its connection if there is none."""
        if not isinstance(data, dict) or "connection" in data:
            return cast("Any", data)
        members = cast("dict[str, Any]", data)
        options = members.get("options")
        manual = cast("dict[str, Any]", options).get("manual") if isinstance(options, dict) else None
        return {**members, "connection": manual} if isinstance(manual, str) else members

    def with_options(self, **changes: Any) -> Self:
        """Copy the configuration with other options."""
        return self.model_copy(update={"options": {**self.options, **changes}})

    def read_options(self, model: type[OptionsModel]) -> OptionsModel:
        """Return the options as the model of the transport; pydantic's ValidationError if they are invalid."""
        cached = self._read_options
        if cached is None or cached[0] is not self.options or not isinstance(cached[1], model):
            cached = self._read_options = (self.options, model.model_validate(self.options))
        return cast("OptionsModel", cached[1])

    _read_options: tuple[dict[str, Any], BaseModel] | None = PrivateAttr(default=None)  # of one `options` object
    _used_excludes: set[str] = PrivateAttr(default_factory=set[str])  # excluded names are stored nowhere else

    def deadline_for(self, attempt_s: float) -> float:
        """Return the seconds of a call with all its attempts and waits, if one attempt has `attempt_s`."""
        if self.deadline_s is not None:
            return self.deadline_s
        return max(attempt_s, min(_LONGEST_CALL_S, self.retry_policy.max_attempts * attempt_s))

    @field_validator("tool_filter", "tool_exclude")
    @classmethod
    def _patterns_compile(cls, patterns: list[str] | None) -> list[str] | None:
        for pattern in patterns or []:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return patterns

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if msg := self._auth_fault():
            raise ValueError(msg)
        if self.transport is TransportType.MCP and self.utcp_mode is not UtcpMode.AUTO:
            raise ValueError("utcp_mode is only valid for HTTP/UTCP transports")
        return self

    def _auth_fault(self) -> str:
        """Return the problem of `auth_config`, or an empty string."""
        if "origin" in self.auth_config and not (
            self.transport in _ORIGIN_IS_CHECKED and self.auth_type in _AUTH_NEEDS
        ):
            kinds = ", ".join(kind.value for kind in _AUTH_NEEDS)
            return f"auth_config.origin is for the transports mcp and http with an auth_type of {kinds}"
        if "auth_type" not in self.model_fields_set:
            return self._untyped_auth_fault()
        takes = _AUTH_TAKES.get(self.auth_type, ())
        meant: dict[str, str] = {}
        for unknown in self.auth_config.keys() - set(takes):
            if key := nearest(unknown, [key for key in takes if key not in self.auth_config]):
                meant[key] = f"auth_config has {unknown!r}; did you mean {key!r}?"
        for key in _AUTH_NEEDS.get(self.auth_type, ()):
            if key not in self.auth_config:
                hint = f": {meant[key]}" if key in meant else ""
                return f"auth_type={self.auth_type.name} requires auth_config.{key}{hint}"
        return next(iter(meant.values()), "")

    def _untyped_auth_fault(self) -> str:
        """Return the fault of an `auth_config` without `auth_type`, which would not be sent."""
        if self.transport not in _AUTH_IS_SENT:
            return ""
        for kind, needed in _AUTH_NEEDS.items():
            if any(key in self.auth_config for key in needed):
                return f"auth_config is not sent without an auth_type; write auth_type: {kind.value} beside it"
        return ""

    def idle_excludes(self) -> list[str]:
        """Return the patterns of `tool_exclude` that have matched no tool so far."""
        return [pattern for pattern in self.tool_exclude or [] if pattern not in self._used_excludes]

    def includes(self, tool_name: str) -> bool:
        """Return whether the filters include a tool of this name."""
        if self.tool_exclude:
            excluding = [pattern for pattern in self.tool_exclude if re.fullmatch(pattern, tool_name)]
            if excluding:
                self._used_excludes.update(excluding)
                return False
        return self.tool_filter is None or any(re.fullmatch(pattern, tool_name) for pattern in self.tool_filter)
