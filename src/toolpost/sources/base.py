"""Base classes of transports and sources, and the services that a Toolbox injects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from importlib import import_module
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct, field

from toolpost.contracts.calls import (
    NO_CREDENTIAL,
    AuthorizedCall,
    Credential,
    PermittedCall,
    RequestedCall,
    ToolOutput,
    ValidatedCall,
)
from toolpost.contracts.errors import ConfigError, PauseSignal, ToolExecutionError
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import HoldingSource, SourceHealth, SourceTraits, ToolSource
from toolpost.contracts.spec import Tool, ToolSpec
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from pydantic import BaseModel

    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.events import EventCode
    from toolpost.contracts.manuals import DescribedCommands
    from toolpost.contracts.storage import ArtifactStore
    from toolpost.stores.encryption import CacheFolder
    from toolpost.wire.client import HttpClient
    from toolpost.wire.messages import Request

ConnectionForm: TypeAlias = Literal["url", "command", "file", "module"]
API_TIMEOUT_S = 30.0
API_BYTES = 64 * 1024 * 1024


class Services(Struct, frozen=True, kw_only=True):
    """Services injected into a source by the Toolbox that it belongs to.

    `credential` lists the tools; calls bring their own. `emit` sends an event of the source to every sink. `make`
    builds a source of another transport, for a manual that refers to one. `servers` are MCP server objects of this
    process, by the name of their source.
    """

    credential: Credential = NO_CREDENTIAL
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    artifacts: ArtifactStore | None = None
    chat_model: ChatModel | None = None
    emit: Callable[[EventCode, Mapping[str, Any]], None] = lambda _code, _facts: None
    make: Callable[[ExternalToolConfig], ToolSource] | None = None
    describe_commands: Callable[[ExternalToolConfig], Awaitable[DescribedCommands]] | None = None
    roots: Sequence[str] | None = None
    servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    documents: CacheFolder | None = None
    listings: CacheFolder | None = None

    def http_client(self, *urls: str, timeout_s: float = API_TIMEOUT_S, max_bytes: int = API_BYTES) -> HttpClient:
        """Open an HTTP client behind the network policy; the hosts of `urls`, written by an operator, are allowed."""
        from toolpost.wire.client import HttpClient  # noqa: PLC0415 - sources without HTTP do not need it

        return HttpClient(self.network.for_source(*urls), timeout_s=timeout_s, max_bytes=max_bytes)


class ProbeResponse(NamedTuple):
    """The response to a probe, or the content of a file as the response to a GET: status 200, without headers.

    `given` is the address or path that the user entered; `url` is the same, or one that a probe derived from it.
    """

    url: str
    given: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    method: str = "GET"

    @property
    def is_given(self) -> bool:
        """Whether this is the given address itself."""
        return self.url == self.given


class Detection(NamedTuple):
    """Result of a detection: a label such as "an MCP server", the evidence, and the path below the given address.

    A certain detection of another transport takes precedence over one that is not certain.
    """

    label: str
    because: str
    below: str = ""
    is_certain: bool = True


class Transport:
    """A kind of connection to tools; subclasses set `name`, and `source_class` or override `make`.

    `options` validates `ExternalToolConfig.options`. `source_class` is the `module:Class` that `make` builds by
    default; the module is imported in a thread first. `requires` is the module that the transport needs and the extra
    that installs it. `forms` are the forms that a connection may have. `serves_oauth_metadata` says that remote servers
    publish the address of their authorization server.
    """

    name: ClassVar[str]
    options: ClassVar[type[BaseModel] | None] = None
    source_class: ClassVar[str] = ""
    requires: ClassVar[tuple[str, str] | None] = None
    forms: ClassVar[tuple[ConnectionForm, ...]] = ("url",)
    serves_oauth_metadata: ClassVar[bool] = False

    def traits(self, config: ExternalToolConfig) -> SourceTraits:
        """Return the facts that the catalog needs about a source."""
        del config
        return SourceTraits()

    def starts_program(self, config: ExternalToolConfig) -> bool:
        """Return whether a source starts programs on this machine."""
        del config
        return False

    def runs_code(self, config: ExternalToolConfig) -> bool:
        """Return whether a source starts programs on this machine, or runs code of this machine."""
        return self.starts_program(config) or "module" in self.forms

    def required_program(self, config: ExternalToolConfig) -> str:
        """Return the program that must be on the PATH to start a source; empty if there is none."""
        del config
        return ""

    def make(self, config: ExternalToolConfig, services: Services) -> ToolSource:
        """Build a source, without connecting to anything."""
        module, _, name = self.source_class.partition(":")
        source_class: Callable[[ExternalToolConfig, Services], ToolSource] = getattr(import_module(module), name)
        return source_class(config, services)

    def probes(self, url: str) -> Iterable[Request]:
        """Return harmless requests that show if a server at or below a URL supports this transport."""
        del url
        return ()

    def detect(self, response: ProbeResponse) -> Detection | None:
        """Return the detection of this transport in a response or a file, None if there is none."""
        del response
        return None

    def configure(self, config: ExternalToolConfig, detection: Detection) -> ExternalToolConfig:
        """Return the configuration for a detection."""
        below = detection.below
        connection = url_below(config.connection, below) if below else config.connection
        options = config.options if config.transport == self.name else {}
        return config.model_copy(update={"transport": self.name, "connection": connection, "options": options})

    def without_elicitation(self, config: ExternalToolConfig) -> ExternalToolConfig:
        """Return the configuration for a caller that cannot answer requests for input from a server."""
        return config

    def advice(self, config: ExternalToolConfig) -> str:
        """Return advice for the user who connects this source; empty if there is none."""
        del config
        return ""

    def advice_without_tools(self, config: ExternalToolConfig) -> str:
        """Return how to add tools to a source that lists none, if known."""
        del config
        return ""

    def files(self, config: ExternalToolConfig) -> Iterable[str]:
        """Return the local files that a source reads; file tools must not read or write them."""
        return [config.connection] if "file" in self.forms else []

    def command_words(self, config: ExternalToolConfig) -> Iterable[str]:
        """Return the words of the commands that a source runs besides its connection."""
        del config
        return ()

    def with_absolute_paths(self, config: ExternalToolConfig, absolute: Callable[[str], str]) -> ExternalToolConfig:
        """Return the configuration with the connection, and paths in its options, made absolute."""
        if "command" in self.forms or not is_local_file(config.connection):
            return config
        return config.model_copy(update={"connection": absolute(config.connection)})

    def check_options(self, config: ExternalToolConfig) -> None:
        """Refuse options that the transport does not have."""
        if self.options is not None:
            config.read_options(self.options)
        elif config.options:
            raise ConfigError(f"transport {self.name} has no options; remove {', '.join(map(repr, config.options))}")


class SourceTool:
    """A tool that its source runs; with its `source`, also outside of a Toolbox."""

    __slots__ = ("source", "spec")

    def __init__(self, spec: ToolSpec, source: BaseSource | None = None) -> None:
        self.spec = spec
        self.source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool with the source's own credential; raise a ToolError when it fails."""
        if self.source is None:
            raise ToolExecutionError(f"{self.spec.name!r} is run by its source; call it through a Toolbox")
        started = now_ms()
        output = await self.source.run_directly(self, params, context)
        return ToolResult.completed(output.content, output.text, started_at=started)


class BaseSource:
    """A source with the defaults of `ToolSource`: nothing to report, nothing to close."""

    def __init__(self, config: ExternalToolConfig, services: Services | None = None) -> None:
        self.config = config
        self.credential = NO_CREDENTIAL if services is None else services.credential
        self.problems: Sequence[str] = ()
        self.secrets: frozenset[str] = frozenset()
        self.files: Collection[str] = ()

    @property
    def name(self) -> str:
        """The namespace of the tools."""
        return self.config.name

    @property
    def health(self) -> SourceHealth:
        """The health of the connection."""
        return SourceHealth("up")

    async def discover(self) -> Sequence[Tool]:
        """List the tools that are offered now."""
        raise NotImplementedError

    def invoke(self, call: AuthorizedCall) -> Coroutine[Any, Any, ToolOutput | Question]:
        """Run one call."""
        raise NotImplementedError

    async def run_directly(self, tool: Tool, params: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Run a tool without a router, with the source's own credential; a question is raised as PauseSignal."""
        principal = Principal(context.tenant_id or "local", context.user_id or "local")
        request = RequestedCall(f"direct_{token_hex(8)}", "direct", tool.spec.name, params, principal)
        permitted = PermittedCall(ValidatedCall(request, tool, params))
        output = await self.invoke(AuthorizedCall(permitted, self.credential, lambda: context))
        if isinstance(output, ToolOutput):
            return output
        if isinstance(self, HoldingSource):
            self.release(request.call_id)  # without a router, it cannot be resumed
        raise PauseSignal(output)

    async def close(self) -> None:
        """Release everything; safe to call twice."""


def is_local_file(connection: str) -> bool:
    """Return whether a connection is written as a file: `./x`, `~/x`, `x.py`; not a URL or the name of a module."""
    if "://" in connection:
        return False
    return connection.startswith((".", "/", "~")) or connection.endswith((".py", ".json", ".yaml", ".yml"))


def is_root(url: str) -> bool:
    """Return whether a URL has no path."""
    return urlsplit(url).path in ("", "/")


def is_graphql_path(url: str) -> bool:
    """Return whether a URL is written as that of a GraphQL endpoint."""
    return urlsplit(url).path.rstrip("/").lower().endswith(("graphql", "gql"))


def url_below(url: str, path: str) -> str:
    """Return the URL of a path below another URL; the query stays."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}", fragment=""))
