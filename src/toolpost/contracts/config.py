"""The configuration of an external tool source, with the options of each transport."""

# Annotations are evaluated as they stand, as in `config_model`.
import re
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from toolpost.contracts.config_model import ConfigModel, SourceModel
from toolpost.contracts.errors import did_you_mean, nearest
from toolpost.contracts.retries import RetryPolicy
from toolpost.contracts.source_kinds import TRANSPORTS_GROUP, AuthType, McpTransport, TransportType, UtcpMode
from toolpost.contracts.spec import ReplayClass, SideEffects

HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"


class DeclaredTool(ConfigModel):
    """A tool that the operator describes in the configuration."""

    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object"}, description="JSON Schema")
    output_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema of what it gives")
    side_effects: SideEffects = "external"
    destructive: bool | None = None
    replay: ReplayClass | None = None
    timeout_s: float | None = Field(default=None, gt=0)
    tags: list[str] = Field(default_factory=list[str])


class CliTool(DeclaredTool):
    """A command: `args` follow the source's `connection`, with `{name}` where an argument goes."""

    args: list[str] = Field(default_factory=list[str], description="Words of the command, with {name} for arguments")
    stdin: str | None = Field(default=None, description="What is written to it, with {name} for arguments")
    output: Literal["auto", "json", "lines", "text", "bytes"] = "auto"
    success_codes: list[int] = Field(default_factory=lambda: [0], min_length=1)


class CliOptions(ConfigModel):
    """Options of command lines; a tool that `manual` describes, too, takes from there what it leaves out."""

    tools: dict[str, CliTool] = Field(default_factory=dict[str, CliTool])
    manual: str | None = Field(
        default=None, min_length=1, description="The path or the address of a UTCP manual that describes the commands"
    )
    pass_env: list[str] = Field(default_factory=list[str], description="Variables of this process handed on")
    max_output_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)


class WebSocketTool(DeclaredTool):
    """A message and its reply: one message, or a stream of messages."""

    message: Any = Field(default=None, description="What is sent, with {name} for arguments; none sends them all")
    stream: bool = Field(default=False, description="Whether answers go on until a limit")
    max_messages: int = Field(default=100, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)
    last_field: str | None = Field(default=None, description="Where the last answer of a stream says that it is")


class WebSocketOptions(ConfigModel):
    """Options of WebSockets; `multiplexed` calls share one connection and are matched by a correlation id."""

    tools: dict[str, WebSocketTool] = Field(default_factory=dict[str, WebSocketTool])
    mode: Literal["per_call", "multiplexed"] = "per_call"
    id_field: str = Field(default="id", min_length=1, description="Where the correlation id is sent")
    id_type: Literal["integer", "text"] = "integer"
    reply_id_field: str | None = Field(default=None, description="Where it comes back, if elsewhere")
    subprotocols: list[str] = Field(default_factory=list[str])
    format: Literal["json", "text", "bytes"] = "json"
    max_message_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)


class GraphqlOptions(ConfigModel):
    """Options of GraphQL; `selections` are keyed by the field's name."""

    depth: int = Field(default=2, ge=0, le=8, description="How deep the default selection goes")
    selections: dict[str, str] = Field(default_factory=dict[str, str])
    schema_file: str | None = Field(default=None, description="SDL or introspection in a file, where a server has none")


class WebhookTool(DeclaredTool):
    """A webhook: the arguments are the body of the request, or the query where the method has no body."""

    url: str = Field(default="", description="A path below the connection, or a whole URL; empty is the connection")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    idempotency_header: str | None = Field(
        default=None,
        pattern=HEADER_NAME,
        description="Where a key is sent that stays the same however often a call is tried",
    )


class WebhookSignature(ConfigModel):
    """Signature of the body: an HMAC in a header."""

    secret: str = Field(min_length=1, repr=False)
    header: str = Field(default="X-Signature-256", pattern=HEADER_NAME)
    algorithm: Literal["sha256", "sha512", "sha1"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    timestamp_header: str | None = Field(default=None, pattern=HEADER_NAME)


class WebhookOptions(ConfigModel):
    """Options of webhooks; `n8n` lists the tools by n8n's public API."""

    kind: Literal["auto", "plain", "n8n"] = "auto"
    tools: dict[str, WebhookTool] = Field(default_factory=dict[str, WebhookTool])
    signature: WebhookSignature | None = None


class UtcpOptions(ConfigModel):
    """Options of UTCP manuals."""

    allowed_communication_protocols: list[str] | None = Field(
        default=None, description="Kinds of call templates that are taken; the manual's own kind by default"
    )
    variables: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    bridge: bool = Field(default=False, description="Whether other kinds go through the utcp packages")


Percent = Annotated[int, Field(ge=0, le=100)]


class WorkflowOptions(ConfigModel):
    """Options of workflows: other names of versions.

    An alias is one version, such as `report_v2`, or several with the percentage of calls that each gets.
    """

    aliases: dict[str, str | dict[str, Percent]] = Field(
        default_factory=dict[str, "str | dict[str, int]"],
        description="Names for versions: one, such as report_v2, or several with their percentage of the calls",
    )

    @field_validator("aliases")
    @classmethod
    def _percentages_are_whole(cls, aliases: dict[str, str | dict[str, int]]) -> dict[str, str | dict[str, int]]:
        for name, versions in aliases.items():
            if isinstance(versions, dict) and sum(versions.values()) != 100:
                raise ValueError(f"the percentages of {name} add up to {sum(versions.values())}, not to 100")
        return aliases


OutputCheck = Literal["report", "strict", "off"]


_TRANSPORT_SCHEMA = {
    "anyOf": [{"enum": [*TransportType]}, {"type": "string", "pattern": "^[a-z][a-z0-9_-]*$"}],
    "description": "How the source is reached: one of these, or the transport of an installed plug-in",
}


def _registered(value: str) -> str:
    """Return the name of a transport, ours as the member of the enum; ValueError when no plug-in brings it either."""
    if value in frozenset(TransportType):
        return TransportType(value)
    plugged = {point.name for point in entry_points(group=TRANSPORTS_GROUP)}
    if value in plugged:
        return value
    names = [*(one.value for one in TransportType), *sorted(plugged)]
    meant = f"; {near}" if (near := did_you_mean(value, names)) else "."
    raise ValueError(f"no transport is named {value!r}{meant} There are: {', '.join(names)}")


_AUTH_NEEDS = {
    AuthType.BEARER: ("token",),
    AuthType.API_KEY: ("api_key",),
    AuthType.COOKIE: ("value",),
    AuthType.BASIC: ("username", "password"),
}


_AUTH_TAKES = {**_AUTH_NEEDS, AuthType.API_KEY: ("api_key", "header"), AuthType.COOKIE: ("value", "name")}
# The others have uses of their own for `auth_config`, or none for credentials.
_AUTH_IS_SENT = frozenset({"mcp", "http", "websocket", "webhook", "graphql"})


_ORIGIN_IS_CHECKED = frozenset({"mcp", "http"})


class ToolOverride(ConfigModel):
    """Changes of the operator to one tool; the original stays readable for audit."""

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


_LONGEST_CALL_S = 300.0  # unless the operator says otherwise
_OLD_TRUST = frozenset({"trust_annotations", "trustAnnotations"})


class McpOptions(ConfigModel):
    """Options of MCP servers.

    `protocol` pins a version: `legacy` is the handshake up to 2025-11-25. `roots=None` stands for the allowed paths.
    """

    transport: McpTransport = McpTransport.AUTO
    protocol: Literal["auto", "legacy", "2026-07-28"] = "auto"
    max_message_bytes: int = Field(default=64 * 1024 * 1024, ge=1024, description="The longest message taken in")
    poll_s: float = Field(default=300.0, ge=1.0, description="How often tools are listed anew where nobody tells")
    elicitation: bool = Field(default=True, description="Whether the server may ask a person")
    sampling: bool = Field(default=False, description="Whether the server may ask the configured chat model")
    roots: list[str] | None = None
    name_in_descriptions: bool = Field(default=False, description="Whether descriptions begin with the source's [name]")
    declared_tools: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]], description="Tools as the server would list them, before anybody signs in"
    )

    @model_validator(mode="before")
    @classmethod
    def _trust_is_of_the_source(cls, data: Any) -> Any:
        if isinstance(data, dict) and not _OLD_TRUST.isdisjoint(cast("dict[str, Any]", data)):
            raise ValueError(
                "trust_annotations is gone: a server's annotations make calls stricter only, unless the source itself "
                "has trust: true; write that beside its name, or nothing"
            )
        return cast("Any", data)


def _connection_or_manual(schema: dict[str, Any]) -> None:
    """Require a connection or a manual: the commands of a manual need no connection."""
    schema["required"].remove("connection")
    by_manual = {"properties": {"cli": {"required": ["manual"]}}, "required": ["cli"]}
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
    idempotency_header: str | None = Field(
        default=None, pattern=HEADER_NAME, description="Carries a key by which the other side knows a repeat"
    )
    enabled: bool = True
    required: bool = False
    trust: bool = Field(default=False, description="Whether what the source says of its own tools is believed")
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
        description="A result that breaks its schema: handed on with a note (report, the default), a failure (strict, "
        "the default of python), or not looked at (off)",
    )
    mcp: McpOptions = Field(default_factory=McpOptions.defaults)
    cli: CliOptions = Field(default_factory=CliOptions.defaults)
    websocket: WebSocketOptions = Field(default_factory=WebSocketOptions.defaults)
    graphql: GraphqlOptions = Field(default_factory=GraphqlOptions.defaults)
    webhook: WebhookOptions = Field(default_factory=WebhookOptions.defaults)
    utcp: UtcpOptions = Field(default_factory=UtcpOptions.defaults)
    workflow: WorkflowOptions = Field(default_factory=WorkflowOptions.defaults)
    options: dict[str, Any] = Field(default_factory=dict, description="Options of a transport that a plug-in brings")

    @model_validator(mode="before")
    @classmethod
    def _reached_by_manual(cls, data: Any) -> Any:
        """Use the manual of a command line as its connection, where there is none."""
        if not isinstance(data, dict) or "connection" in data:
            return cast("Any", data)
        members = cast("dict[str, Any]", data)
        options = members.get("cli")
        named: Any = options.model_dump() if isinstance(options, CliOptions) else options
        manual = cast("dict[str, Any]", named).get("manual") if isinstance(named, dict) else None
        is_command = members.get("transport") == TransportType.CLI
        return {**members, "connection": manual} if is_command and isinstance(manual, str) else members

    _used_excludes: set[str] = PrivateAttr(default_factory=set[str])  # excluded names are stored nowhere else

    def deadline_for(self, try_s: float) -> float:
        """Return the seconds that a call has over all its attempts and waits, where one attempt has `try_s`."""
        if self.deadline_s is not None:
            return self.deadline_s
        return max(try_s, min(_LONGEST_CALL_S, self.retry_policy.max_attempts * try_s))

    @field_validator("tool_filter", "tool_exclude")
    @classmethod
    def _patterns_compile(cls, patterns: list[str] | None) -> list[str] | None:
        for pattern in patterns or []:
            try:
                re.compile(pattern)
            except re.error as error:
                msg = f"{pattern!r} is not a regular expression: {error}"
                raise ValueError(msg) from error
        return patterns

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if msg := self._auth_fault():
            raise ValueError(msg)
        if self.transport is TransportType.MCP and self.utcp_mode is not UtcpMode.AUTO:
            msg = "utcp_mode is only valid for HTTP/UTCP transports"
            raise ValueError(msg)
        return self

    def _auth_fault(self) -> str:
        """Return what is wrong with `auth_config`; empty where it can be sent."""
        if "origin" in self.auth_config and not (
            self.transport in _ORIGIN_IS_CHECKED and self.auth_type in _AUTH_NEEDS
        ):
            kinds = ", ".join(kind.value for kind in _AUTH_NEEDS)
            return f"auth_config.origin is for the transports mcp and http with an auth_type of {kinds}"
        if "auth_type" not in self.model_fields_set:
            return self._untyped_auth_fault()
        takes = _AUTH_TAKES.get(self.auth_type, ())
        meant: dict[str, str] = {}
        for stranger in self.auth_config.keys() - set(takes):
            if key := nearest(stranger, [key for key in takes if key not in self.auth_config]):
                meant[key] = f"auth_config has {stranger!r}; did you mean {key!r}?"
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

    @property
    def output_check(self) -> OutputCheck:
        """Return how a result that breaks its schema is treated: by default strict for Python, report for others."""
        if self.outputs is not None:
            return self.outputs
        return "strict" if self.transport is TransportType.PYTHON else "report"

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
