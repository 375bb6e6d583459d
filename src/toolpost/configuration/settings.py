"""Typed, frozen models of `toolpost.yaml` and its JSON Schema. `loading` reads the file."""

# Annotations are evaluated, not strings, as in `contracts.config_model`.
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from toolpost.builtin.providers.config import ProviderSettings, SearchName
from toolpost.configuration.defaults import DATA_FOLDER, DEFAULT_FOLDER, FILE_BUILTINS, FILE_NAME, LOCK_NAME
from toolpost.contracts.callers import CallerScope
from toolpost.contracts.config_model import ConfigModel, Deferred, SourceModel, to_camel
from toolpost.contracts.http_syntax import TOKEN
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.source_kinds import McpTransport, TransportType
from toolpost.contracts.spec import SideEffects
from toolpost.policy.paths import template_problem

# Every program reads settings, but few programs need the types that they are converted to.
if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.storage import Retention
    from toolpost.policy.approvals import Approvals
    from toolpost.policy.rules import Rule
    from toolpost.runtime.webhook_receivers import EventWebhook

_DURATION = r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*$"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
PolicyTemplate = Literal["exploratory", "standard", "regulated", "audit"]
RuleAction = Literal["allow", "ask", "deny"]
McpServerTransport = Literal["stdio", "sse", "streamable_http"]
_BUILTINS = "must be all, none or a list of tool names and collections, such as [all, run_command]"
SCHEMA_FILE = Path(__file__).with_name("toolpost.schema.json")


def parse_duration(value: Any, *, bare: Literal["ms", "s"] = "s") -> float:
    """Return a duration such as `500ms`, `30s` or `7d` in seconds; `bare` is the unit of a number without one."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) * _SECONDS[bare]
    else:
        match = re.match(_DURATION, value) if isinstance(value, str) else None
        if match is None:
            raise ValueError("must be a number with a unit, such as 500ms, 30s, 10m, 12h or 7d")
        seconds = float(match[1]) * _SECONDS[match[2] or bare]
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError("must be a duration above 0, such as 500ms, 30s, 10m, 12h or 7d")
    return seconds


def _reject_bool(value: Any) -> Any:
    # YAML reads `yes` as true, and Python treats true as 1.
    if isinstance(value, bool):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic reports ValueError
    return value


def _parse_milliseconds(value: Any) -> int:
    return round(parse_duration(value, bare="ms") * 1000)


def _duration_schema(description: str) -> WithJsonSchema:
    numbers = {"type": "number", "exclusiveMinimum": 0}
    return WithJsonSchema({"anyOf": [numbers, {"type": "string", "pattern": _DURATION}], "description": description})


def _shape_of(value: Any) -> str | None:
    match value:
        case str():
            return "word"
        case list() | tuple():
            return "list"
        case _:
            return None


def _word_or_list(message: str) -> Discriminator:
    """Select the alternative by the type of the value, so that pydantic reports one error, not one per alternative."""
    return Discriminator(_shape_of, custom_error_type="word_or_list", custom_error_message=message)


Count = Annotated[int, Field(ge=1), BeforeValidator(_reject_bool)]
Milliseconds = Annotated[
    int,
    Field(ge=1),
    BeforeValidator(_parse_milliseconds),
    _duration_schema("Milliseconds, or with a unit: 500ms, 30s, 2m"),
]
Seconds = Annotated[
    float, BeforeValidator(parse_duration), _duration_schema("Seconds, or with a unit: 500ms, 30s, 10m, 12h, 7d")
]


class ApprovalSettings(ConfigModel):
    """The users who may approve calls and answer questions about interrupted ones; by default all of the tenant."""

    four_eyes: bool | None = Field(default=None, description="The user who made the call may not answer")
    answerers: list[str] | None = Field(
        default=None, min_length=1, description="Users who may answer: patterns of tenant:user, such as acme:ops-*"
    )
    person: bool | None = Field(
        default=None, description="Questions of tools and servers go to a user, never to the caller's MCP client"
    )

    def to_approvals(self) -> "Approvals":
        """Convert to the type that `toolpost.policy` takes."""
        from toolpost.policy.approvals import Approvals  # noqa: PLC0415 - few programs need it, here and below

        answerers = None if self.answerers is None else tuple(self.answerers)
        return Approvals(four_eyes=self.four_eyes, answerers=answerers, person=self.person)


class PolicyRule(ConfigModel):
    """Allow, require approval for, or deny the calls that match; an omitted condition matches every call."""

    tools: list[str] = Field(default_factory=lambda: ["*"], min_length=1, description="Tool names, with * and ?")
    sources: list[str] | None = None
    tags: list[str] | None = None
    side_effects: list[SideEffects] | None = None
    destructive: bool | None = None
    action: RuleAction
    reason: str = ""
    approvals: ApprovalSettings | None = None

    def to_rule(self) -> "Rule":
        """Convert to the rule type of `toolpost.policy`."""
        from toolpost.policy.rules import Rule  # noqa: PLC0415

        return Rule(
            action=self.action,
            tools=tuple(self.tools),
            sources=tuple(self.sources or ()),
            tags=tuple(self.tags or ()),
            side_effects=tuple(self.side_effects or ()),
            destructive=self.destructive,
            reason=self.reason,
            approvals=(self.approvals or ApprovalSettings.defaults()).to_approvals(),
        )


Policy = Annotated[
    Annotated[PolicyTemplate, Tag("word")] | Annotated[list[PolicyRule], Tag("list")],
    _word_or_list("must be exploratory, standard, regulated, audit or a list of rules"),
]


def _all_or_none(value: Any) -> Any:
    if value not in ("all", "none"):
        raise ValueError(_BUILTINS)
    return value


Builtins = Annotated[
    Annotated[Literal["all", "none"], BeforeValidator(_all_or_none), Tag("word")] | Annotated[list[str], Tag("list")],
    _word_or_list(_BUILTINS),
]


class WebSearchSettings(ConfigModel):
    """The provider of web searches, or a chain of providers: if one fails, the next one is used."""

    provider: SearchName = "duckduckgo"
    api_key: SecretStr | None = None
    engine: str | None = Field(default=None, description="The ID of a Google search engine (cx)")
    url: str | None = Field(default=None, description="The address of the provider, if not the default")
    max_results: Count = 10
    chain: list[ProviderSettings] = Field(
        default_factory=list[ProviderSettings], description="Providers in order, instead of one provider"
    )

    def providers(self) -> list[ProviderSettings]:
        """Return the chain; a single provider is a chain of one, and settings that name none have an empty chain."""
        if self.chain or not {"provider", "api_key", "engine", "url"} & self.model_fields_set:
            return self.chain
        facts = {"provider": self.provider, "api_key": self.api_key, "engine": self.engine, "url": self.url}
        return [ProviderSettings.model_validate(facts)]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        self.providers()
        return self


class WebFetchSettings(ConfigModel):
    """Providers that fetch web pages, in order; without any, Toolpost fetches pages itself."""

    chain: list[ProviderSettings] = Field(default_factory=list[ProviderSettings])


class RetrievalSettings(ConfigModel):
    """Document stores that `retrieve` searches; without one the tool does not exist."""

    chain: list[ProviderSettings] = Field(default_factory=list[ProviderSettings])


class McpServerSettings(SourceModel):
    """An MCP server in the short form of agents' configuration files."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    transport: McpServerTransport = "stdio"
    command: str | None = None
    args: list[str] = Field(default_factory=list[str])
    env: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    url: str | None = None
    enabled: bool = True
    required: bool = False
    trust: bool = Field(default=False, description="As `sources[].trust`")

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.transport == "stdio" and not self.command:
            raise ValueError("transport=stdio requires command")
        if self.transport != "stdio" and not self.url:
            raise ValueError(f"transport={self.transport} requires url")
        return self

    def to_external_config(self) -> "ExternalToolConfig":
        """Convert to the configuration of an MCP source."""
        from toolpost.contracts.config import ExternalToolConfig  # noqa: PLC0415

        connection = shlex.join([self.command or "", *self.args]) if self.transport == "stdio" else self.url or ""
        source = ExternalToolConfig(
            name=self.name,
            transport=TransportType.MCP,
            connection=connection,
            env=self.env,
            cwd=self.cwd,
            enabled=self.enabled,
            required=self.required,
            trust=self.trust,
            options={"transport": _TRANSPORTS[self.transport].value, "name_in_descriptions": True},
        )
        return source.left_out(self.unusable) if self.unusable else source


# A server declared as SSE may speak streamable HTTP by now, so AUTO tries that first.
_TRANSPORTS: dict[McpServerTransport, McpTransport] = {
    "stdio": McpTransport.STDIO,
    "sse": McpTransport.AUTO,
    "streamable_http": McpTransport.STREAMABLE_HTTP,
}


class AgentSettings(ConfigModel):
    """Keys of agents' configuration files that set a key of `tools`."""

    max_concurrent_tools: Count | None = Field(default=None, description="The same as tools.maxConcurrent")


class ToolsSettings(ConfigModel):
    """How tools run: timeout, concurrency, reachable files, and the providers of built-in tools.

    `allowed_paths=None`, in code only, lifts every restriction except the protected paths.
    """

    timeout: Milliseconds = 30_000
    max_concurrent: Count = 3
    allowed_paths: list[Path] | None = Field(
        default_factory=lambda: [Path(DEFAULT_FOLDER)],
        description="Folders that file tools may reach. The segments `{tenant}` and `{user}` make separate folders. "
        "Without them the list applies to the local tenant, and every other tenant has ./tenants/{tenant}",
    )
    env: list[str] = Field(
        default_factory=list[str], description="Additional environment variables that get_env may read"
    )
    web_search: WebSearchSettings = Field(default_factory=WebSearchSettings.defaults)
    web_fetch: WebFetchSettings = Field(default_factory=WebFetchSettings.defaults)
    retrieval: RetrievalSettings = Field(default_factory=RetrievalSettings.defaults)
    mcp_servers: list[McpServerSettings] = Field(default_factory=list[McpServerSettings])

    @field_validator("allowed_paths")
    @classmethod
    def _separate(cls, paths: list[Path] | None) -> list[Path] | None:
        for path in paths or ():
            if problem := template_problem(path):
                raise ValueError(problem)
        return paths

    @property
    def timeout_s(self) -> float:
        """The default deadline of a call, in seconds."""
        return self.timeout / 1000


class NetworkSettings(ConfigModel):
    """Private addresses that the network guard allows, and the proxy; public addresses need no entry."""

    allow_hosts: list[str] = Field(default_factory=list[str])
    allow_private: bool = False
    allow_ip_literals: bool = Field(
        default=False, description="Whether built-in web tools accept URLs with an IP address instead of a host name"
    )
    proxy: str | None = Field(
        default=None, repr=False, description="http://host:port; variables of the environment are ignored"
    )

    @field_validator("proxy")
    @classmethod
    def _a_proxy(cls, proxy: str | None) -> str | None:
        if proxy is not None:
            from toolpost.wire.proxies import parse_proxy  # noqa: PLC0415

            parse_proxy(proxy)
        return proxy

    @field_validator("allow_hosts")
    @classmethod
    def _readable(cls, hosts: list[str]) -> list[str]:
        from toolpost.wire.network import allow_rules  # noqa: PLC0415

        allow_rules(frozenset(hosts))
        return hosts


class AccountSettings(ConfigModel):
    """Sign-in for accounts of users; browsers reach this program at `public_url`."""

    public_url: str | None = Field(default=None, pattern=r"^https?://[^\s?#]+$")
    redirect_uri: str | None = Field(default=None, pattern=r"^https?://[^\s#]+$")
    document_url: str | None = Field(default=None, pattern=r"^https://[^\s#]+$")
    sign_in_ttl: Seconds = 600.0
    key: str = Field(
        default="file",
        description="Where the encryption key is: file, file:PATH, env:NAME, keyring:SERVICE/NAME or kms:NAME",
    )


class LimitSettings(ConfigModel):
    """Limits on sizes, parallel calls, pending actions, retries and the event queue."""

    inline_bytes: Count = Field(default=32_768, description="A larger result becomes an artifact with a preview")
    absolute_max_parallel: Count = 50
    pending_ttl: Seconds = 7 * 86_400.0
    retry_budget: float = Field(default=0.1, ge=0, le=1, description="Retries as a share of all calls to a source")
    event_queue: Count = Field(default=50_000, description="Unwritten events in memory before callers have to wait")


class BackgroundSettings(ConfigModel):
    """Background work: where it runs, how many jobs run concurrently, and how many may wait."""

    engine: Literal["auto", "in_process", "dbos"] = Field(
        default="auto",
        description="in_process: the gateway runs jobs; dbos: `toolpost worker` does; auto: workers with a PostgreSQL "
        "database where the extra scale is installed",
    )
    concurrency: Count = Field(default=16, description="Jobs that one process runs concurrently")
    max_running_per_tenant: Count | None = Field(
        default=None, description="Jobs of one tenant that all processes together run concurrently"
    )
    max_waiting: Count | None = Field(default=100_000, description="Waiting jobs of a queue; more are refused")
    max_waiting_per_tenant: Count | None = Field(
        default=10_000, description="Waiting jobs of one tenant in a queue; more are refused"
    )


class RetentionSettings(ConfigModel):
    """Retention time of records, and space for artifacts; null means no limit."""

    max_age: Seconds | None = None
    max_artifact_mb: float | None = Field(default=None, gt=0)

    def to_retention(self) -> "Retention":
        """Convert to the retention type of the store."""
        from toolpost.contracts.storage import Retention  # noqa: PLC0415

        size = None if self.max_artifact_mb is None else round(self.max_artifact_mb * 1024 * 1024)
        return Retention(max_age_s=self.max_age, max_artifact_bytes=size)


class RoleSettings(ConfigModel):
    """The scopes and tools of a role of the issuer."""

    scopes: list[CallerScope] = Field(min_length=1)
    tools: list[str] = Field(
        default_factory=lambda: ["*"], min_length=1, description="The tools that the role may answer for, with * and ?"
    )


class OidcSettings(ConfigModel):
    """The issuer of callers' tokens, and the meaning of its claims."""

    issuer: str = Field(pattern=r"^https?://[^\s?#]+$")
    audience: str = Field(
        min_length=1, description="Required audience of a token; tokens with another audience are refused"
    )
    user_claim: str = Field(default="sub", min_length=1)
    tenant_claim: str | None = Field(
        default=None, min_length=1, description="Without it every user belongs to `tenant`"
    )
    tenant: str = Field(default=LOCAL_TENANT, pattern=r"^[^:]+$")
    roles_claim: str = Field(
        default="roles", min_length=1, description="For nested claims, for example realm_access.roles"
    )
    roles: dict[str, RoleSettings] = Field(
        default_factory=dict[str, RoleSettings],
        description="Roles by name; a token without any of them has no permissions",
    )
    person_clients: list[str] = Field(
        default_factory=list[str],
        description="Clients of the issuer (azp, client_id) that approvers use; tokens of other clients never answer",
    )
    client_id: str | None = Field(
        default=None,
        min_length=1,
        description="The gateway's own client, with which people sign in to the console",
    )
    client_secret: str | None = Field(default=None, min_length=1, description="Without it, the client is public (PKCE)")
    scopes: list[str] = Field(
        default_factory=lambda: ["openid"], description="Scopes that a sign-in to the console requests"
    )


class ConsoleSettings(ConfigModel):
    """The changes that callers of the gateway may make over HTTP."""

    commands: Literal["operator", "admin", "never"] = Field(
        default="operator",
        description="Who may start a program on this machine by adding, enabling, reloading or trying a source over "
        "HTTP: the operator, also callers with an admin key of the tenant local, or no one",
    )


class ServerSettings(ConfigModel):
    """`toolpost up`: its public address, the issuer of tokens, and the limits of a caller."""

    public_url: str | None = Field(
        default=None, pattern=r"^https?://[^\s?#]+$", description="The address for callers on other machines"
    )
    trusted_proxies: list[str] = Field(
        default_factory=list[str],
        description="Addresses or networks of reverse proxies that set X-Forwarded-For; of other senders it is ignored",
    )
    token: str | None = Field(
        default=None,
        min_length=1,
        description="Where the operator's token is: env:NAME, file:PATH or keyring:SERVICE/NAME; null: the file "
        "`token` of the data folder, created at the first start",
    )
    oidc: OidcSettings | None = None
    console: ConsoleSettings = Field(default_factory=ConsoleSettings.defaults)
    log_format: Literal["text", "json"] | None = Field(
        default=None, description="Log each request and each call to stderr; by default only warnings"
    )
    requests_per_minute: Count = Field(default=1200, description="Limit per key, or per user of tokens")
    concurrent_requests: Count = Field(
        default=200, description="Limit per key, or per user of tokens, including event streams; all workers together"
    )
    max_upload_mb: float = Field(default=100.0, gt=0, description="The largest file that becomes an artifact")
    pending_wait_s: float = Field(
        default=25.0,
        gt=0,
        le=120,
        description="Seconds that a request of an MCP client waits for an approver before it returns",
    )
    shutdown_limit_s: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="Seconds for running calls at shutdown; remaining calls are suspended or cancelled",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, proxies: list[str]) -> list[str]:
        from ipaddress import ip_network  # noqa: PLC0415

        for proxy in proxies:
            try:
                ip_network(proxy)
            except ValueError:
                raise ValueError(f"{proxy!r} is not an IP address or a network such as 10.0.0.0/8") from None
        return proxies


class TelemetrySettings(ConfigModel):
    """Contents of OpenTelemetry spans in addition to names, IDs, times and outcomes."""

    arguments: bool = Field(default=False, description="The arguments of calls, with secrets masked")


class WebhookSettings(ConfigModel):
    """An address that receives events as they happen, as signed requests."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="Identifies the webhook after a restart")
    url: str = Field(pattern=r"^https?://[^\s#]+$", repr=False)
    secret: SecretStr | None = Field(
        default=None,
        description="whsec_ and base64 of at least 24 random bytes, such as ${HOOK_SECRET}; optional with `template`",
    )
    previous_secret: SecretStr | None = Field(
        default=None, description="Also signs requests, until the receiver uses the new secret"
    )
    events: list[str] = Field(
        default_factory=lambda: ["*"], min_length=1, description="Types of events, such as APPROVAL_*"
    )
    tools: list[str] = Field(default_factory=lambda: ["*"], min_length=1, description="Tool names, with * and ?")
    principals: list[str] = Field(
        default_factory=lambda: ["*"], min_length=1, description="Only events of these users: patterns of tenant:user"
    )
    template: Literal["slack", "teams"] | dict[str, Any] | None = Field(
        default=None, description="The body for a chat, or JSON with placeholders such as {subject} for a mail service"
    )
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="More headers, such as Authorization: Bearer ${MAIL_KEY}"
    )
    enabled: bool = True

    @model_validator(mode="after")
    def _check_signature(self) -> Self:
        if self.secret is None and self.template is None:
            raise ValueError("secret is required without a template: the receiver verifies requests with it")
        return self

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        from toolpost.runtime.webhook_messages import placeholders, unknown_placeholders  # noqa: PLC0415

        if isinstance(template, dict) and (unknown := unknown_placeholders(template)):
            raise ValueError(f"placeholders must be {', '.join(placeholders())}; {unknown[0]!r} is unknown")
        return template

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            if not re.fullmatch(TOKEN, name) or not value.get_secret_value().isprintable():
                raise ValueError(f"{name!r} is not a valid header name, or its value contains control characters")
            if name.lower() == "content-type" or name.lower().startswith("webhook-"):
                raise ValueError(f"the header {name!r} is set by Toolpost")
        return headers

    @field_validator("secret", "previous_secret")
    @classmethod
    def _usable(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None:
            from toolpost.runtime.webhook_receivers import webhook_key  # noqa: PLC0415

            webhook_key(secret.get_secret_value())
        return secret

    @field_validator("events")
    @classmethod
    def _check_events(cls, events: list[str]) -> list[str]:
        from toolpost.contracts.events import EventCode  # noqa: PLC0415

        for pattern in events:
            if not any(fnmatchcase(code.name, pattern) for code in EventCode):
                raise ValueError(f"must be types of events; none matches {pattern!r}")
        return events

    def to_webhook(self, *, console: str = "") -> "EventWebhook":
        """Convert to the type that the runtime takes; messages for people link to `console`."""
        from toolpost.runtime.webhook_receivers import EventWebhook, webhook_key  # noqa: PLC0415

        secrets = [one.get_secret_value() for one in (self.secret, self.previous_secret) if one is not None]
        return EventWebhook(
            name=self.name,
            url=self.url,
            keys=tuple(map(webhook_key, secrets)),
            events=tuple(self.events),
            tools=tuple(self.tools),
            principals=tuple(self.principals),
            template=self.template,
            headers=tuple((name, value.get_secret_value()) for name, value in self.headers.items()),
            console=console,
        )


class ViewSettings(ConfigModel):
    """The tools that some clients of the gateway see; an omitted condition matches every tool."""

    show: Literal["all", "search"] = Field(
        default="all", description="All tools, or instead search_tools, describe_tool and call_tool"
    )
    collection: str | None = Field(default=None, description="Only tools of this collection")
    sources: list[str] | None = Field(default=None, description="Only tools of these sources")
    tags: list[str] | None = Field(default=None, description="Only tools with one of these tags")
    tools: list[str] | None = Field(default=None, description="Only these tools: names, with *, or tag:x")
    principals: list[str] | None = Field(
        default=None, min_length=1, description="Only these callers: patterns of tenant:user"
    )
    names: Literal["qualified", "own"] = Field(
        default="qualified", description="Names with the source, or for a single MCP server its own names"
    )
    large_results: Literal["link", "whole"] = Field(
        default="link",
        description="Structured content above limits.inline_bytes: a reference to an artifact with a preview, or whole",
    )

    @model_validator(mode="after")
    def _own_names_are_of_one_source(self) -> Self:
        if self.names == "own" and (self.show != "all" or self.sources is None or len(self.sources) != 1):
            raise ValueError("names: own shows one server unchanged: give the view one of `sources`, and show: all")
        return self

    def selection(self) -> dict[str, Any]:
        """Return the given conditions as arguments of `ToolRegistry.select`."""
        conditions = {"collection": self.collection, "sources": self.sources, "tags": self.tags, "patterns": self.tools}
        return {key: value for key, value in conditions.items() if value is not None}


ViewName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
PLAIN_VIEWS: Mapping[str, ViewSettings] = {
    "all": ViewSettings.defaults(),
    "search": ViewSettings.defaults().model_copy(update={"show": "search"}),
}


def _load_sources() -> Any:
    from toolpost.contracts.config import ExternalToolConfig  # noqa: PLC0415

    return list[ExternalToolConfig]


def _load_overrides() -> Any:
    from toolpost.contracts.config import ToolOverride  # noqa: PLC0415

    return dict[str, ToolOverride]


# The models of sources are imported with the first validation. A program without sources and file never needs them,
# which saves 20 ms of the 150 ms that importing the settings takes (measured 2026-11).
if TYPE_CHECKING:
    Sources = list[ExternalToolConfig]
    Overrides = dict[str, ToolOverride]
else:
    Sources = Annotated[list, Deferred(_load_sources)]
    Overrides = Annotated[dict, Deferred(_load_overrides)]


class Settings(ConfigModel):
    """The settings of `toolpost.yaml`; every key has a default that is safe on one machine.

    The default of `builtins` is `none` in code and `all` in a file.
    """

    data_dir: Path | None = Field(default=Path(DATA_FOLDER), description="null keeps everything in memory")
    database: str | None = Field(
        default=None,
        min_length=1,
        description="sqlite, memory, or the URL of a plug-in's database; null: SQLite in the data folder",
    )
    artifacts: str | None = Field(
        default=None,
        description="Where contents of artifacts are stored: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
        "az://CONTAINER/PREFIX; null: the data folder. Credentials come from the environment",
    )
    lock: Path | None = Field(
        default=Path(LOCK_NAME), description="File with the approved tool definitions; null disables pinning"
    )
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings.defaults)
    policy: Policy = "standard"
    builtins: Builtins = Field(default="none", json_schema_extra={"default": FILE_BUILTINS})
    sources: Sources = Field(default_factory=list["ExternalToolConfig"])
    model: str | None = Field(default=None, min_length=1, description="The chat model of `toolpost run` and `chat`")
    agent: AgentSettings = Field(default_factory=AgentSettings.defaults)
    tools: ToolsSettings = Field(default_factory=ToolsSettings.defaults, validate_default=True)
    network: NetworkSettings = Field(default_factory=NetworkSettings.defaults)
    accounts: AccountSettings = Field(default_factory=AccountSettings.defaults)
    server: ServerSettings = Field(default_factory=ServerSettings.defaults)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.defaults)
    webhooks: list[WebhookSettings] = Field(default_factory=list[WebhookSettings], description="Receivers of events")
    limits: LimitSettings = Field(default_factory=LimitSettings.defaults)
    background: BackgroundSettings = Field(default_factory=BackgroundSettings.defaults)
    retention: RetentionSettings = Field(default_factory=RetentionSettings.defaults)
    startup_wait_s: float = Field(
        default=3.0, ge=0, description="Seconds that opening waits at most for sources that are not required"
    )
    collections: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]], description="Names for sets of tools: patterns of names, or tag:x"
    )
    overrides: Overrides = Field(default_factory=dict, description="Changes of tools, by full name")
    views: dict[ViewName, ViewSettings] = Field(
        default_factory=dict[str, ViewSettings], description="Tools at /mcp/NAME of the gateway"
    )
    view: str = Field(default="all", description="Tools at /mcp: all, search, or the name of a view")

    @field_validator("view")
    @classmethod
    def _known_view(cls, view: str, info: ValidationInfo) -> str:
        views: dict[str, ViewSettings] = info.data.get("views") or {}
        if view not in views and view not in PLAIN_VIEWS:
            raise ValueError(f"must be {', '.join((*PLAIN_VIEWS, *views))}")
        return view

    def all_views(self) -> dict[str, ViewSettings]:
        """Return the views by name, with those of all tools only if one of them is the default.

        Otherwise a client that the default restricts to a view could use another.
        """
        if self.view in PLAIN_VIEWS and self.view not in self.views:
            return {**PLAIN_VIEWS, **self.views}
        return dict(self.views)

    @field_validator("tools")
    @classmethod
    def _one_limit(cls, tools: ToolsSettings, info: ValidationInfo) -> ToolsSettings:
        """Copy `agent.maxConcurrentTools` to `tools.maxConcurrent`; two different numbers are an error."""
        agent: AgentSettings | None = info.data.get("agent")
        other = agent.max_concurrent_tools if agent else None
        if other is None:
            return tools
        if "max_concurrent" in tools.model_fields_set and tools.max_concurrent != other:
            both = f"tools.maxConcurrent is {tools.max_concurrent} and agent.maxConcurrentTools is {other}"
            raise ValueError(f"{both}; they are one limit, so give one of them")
        return tools.model_copy(update={"max_concurrent": other})

    @field_validator("artifacts")
    @classmethod
    def _a_bucket(cls, artifacts: str | None, info: ValidationInfo) -> str | None:
        if artifacts is None:
            return None
        from toolpost.stores.object_storage import BucketPlace  # noqa: PLC0415 - few programs need it

        if info.data.get("database") == "memory" or info.data.get("data_dir") is None:
            raise ValueError("needs a database that stores its data: set data_dir, and no `database: memory`")
        return str(BucketPlace.parse(artifacts))

    @model_validator(mode="after")
    def _secrets_stay(self) -> Self:
        for name in self.secret_variables():
            if name in self.tools.env:
                raise ValueError(f"tools.env names {name}, a secret of the deployment that no tool may read; remove it")
        return self

    def secret_variables(self) -> list[str]:
        """Return the names of the variables with the encryption key, the operator's token and those of the bucket."""
        references = (self.accounts.key, self.server.token or "")
        named = [name for kind, _, name in (one.partition(":") for one in references) if kind == "env" and name]
        return [*named, *self.storage_variables()]

    def storage_variables(self) -> tuple[str, ...]:
        """Return the names of the variables with the secrets of object storage, if artifacts are in a bucket."""
        if self.artifacts is None:
            return ()
        from toolpost.stores.object_storage import BucketPlace  # noqa: PLC0415 - few programs need it

        return BucketPlace.parse(self.artifacts).secret_variables()

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        first: dict[str, str] = {}
        named = [(f"sources[{n}]", source.name) for n, source in enumerate(self.sources)]
        named += [(f"tools.mcpServers[{n}]", server.name) for n, server in enumerate(self.tools.mcp_servers)]
        for place, name in named:
            if name in first:
                raise ValueError(
                    f"{first[name]} and {place} are both named {name!r}; "
                    "the name is the namespace of a source's tools, so rename one"
                )
            first[name] = place
        return self

    @field_validator("webhooks")
    @classmethod
    def _webhook_names_differ(cls, webhooks: list[WebhookSettings]) -> list[WebhookSettings]:
        names = [webhook.name for webhook in webhooks]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two webhooks are named {name!r}; rename one")
        return webhooks

    def all_sources(self) -> "list[ExternalToolConfig]":
        """Return the configurations of all sources, `tools.mcpServers` included."""
        return [*self.sources, *(server.to_external_config() for server in self.tools.mcp_servers)]

    def policy_data(self) -> str | list[dict[str, Any]]:
        """Return the policy as plain data: the name of a template, or rules without unset keys."""
        if isinstance(self.policy, str):
            return self.policy
        return [rule.model_dump(exclude_none=True) for rule in self.policy]


class PlacedError(NamedTuple):
    """The error of a model's validation, and the keys that lead to the model's data."""

    error: ValidationError
    model: type[BaseModel]
    keys: tuple[str | int, ...] = ()


def file_schema() -> dict[str, Any]:
    """Return the JSON Schema of `toolpost.yaml`, with every key in snake_case and camelCase."""
    schema = Settings.model_json_schema(by_alias=False)
    defs: dict[str, Any] = schema.pop("$defs")
    defs["ExternalToolConfig"]["allOf"] = list(_option_schemas(defs))
    parts = {name: _both_spellings(part) for name, part in defs.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_both_spellings(schema),
        "title": FILE_NAME,
        "$defs": parts,
    }


def _option_schemas(defs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the condition that ties `options` to its transport, and add the schemas of the options to `defs`."""
    from toolpost.sources.registry import find_transport  # noqa: PLC0415 - only the schema of the file needs it

    for name in TransportType:
        options = find_transport(name).options
        if options is not None:
            schema = options.model_json_schema(by_alias=False, ref_template="#/$defs/{model}")
            defs |= schema.pop("$defs", {}) | {options.__name__: schema}
            then = {"properties": {"options": {"$ref": f"#/$defs/{options.__name__}"}}}
            yield {"if": {"properties": {"transport": {"const": name.value}}}, "then": then}


def _both_spellings(schema: dict[str, Any]) -> dict[str, Any]:
    if "properties" not in schema:
        return schema
    properties: dict[str, Any] = {}
    for name, part in schema["properties"].items():
        untitled = {key: value for key, value in part.items() if key != "title"}
        properties[name] = properties[to_camel(name)] = untitled
    return {**schema, "properties": properties}
