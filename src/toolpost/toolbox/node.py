"""Front classes of sources: ToolNode for any one, MCPClient for one MCP server, MCPManager for several."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from msgspec.structs import replace
from pydantic import BaseModel

from toolpost.auth.credentials import Authorizer
from toolpost.auth.user_credentials import AccountCounts, AuthManager, UserCredentials, may_list_later, own_context
from toolpost.catalog.entry import Entry
from toolpost.catalog.lock import DEFINITION, Lock
from toolpost.catalog.names import canonical_name
from toolpost.catalog.registry import CatalogContents, ToolRegistry
from toolpost.configuration.loading import parse_settings
from toolpost.configuration.settings import McpServerSettings
from toolpost.contracts import errors
from toolpost.contracts.calls import Credential
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.events import EventCode, RunEvent
from toolpost.contracts.outcomes import Completed, Failed, Outcome, ToolResult, now_ms, pause_signal
from toolpost.contracts.principal import Principal
from toolpost.contracts.source_kinds import AuthType, TransportType
from toolpost.contracts.sources import CredentialProvider, SourceHealth
from toolpost.contracts.spec import Tool, ToolSpec
from toolpost.contracts.storage import ArtifactRef
from toolpost.policy.redaction import Redactor, redacted_logs
from toolpost.policy.rules import Policy
from toolpost.runtime.router import ToolRouter
from toolpost.schema.json_values import is_array, is_object
from toolpost.stores.memory import MemoryStore
from toolpost.toolbox.blocking import BlockingMCPClient
from toolpost.toolbox.source_manager import SourceManager
from toolpost.toolbox.source_tools import Catalog, Pinning
from toolpost.transports.base import Services
from toolpost.wire.network import NetworkPolicy

Run = Callable[[str, Any, ToolContext | None], Awaitable[Completed]]

_UNAUTHORIZED = 401
_log = logging.getLogger("toolpost.toolbox")


class NodeTool:
    """A tool of a node in a shared registry; every call runs through the router of the node.

    A call uses the credential of the node or of the user of its context, a tool that is held back is refused, and
    the node's secrets are redacted. `redactor` knows the secrets, for events about its calls; `counts` are those of
    the node's sign-ins, if it has any.
    """

    __slots__ = ("_run", "counts", "redactor", "spec")

    def __init__(self, spec: ToolSpec, run: Run, redactor: Redactor, counts: AccountCounts | None) -> None:
        self.spec = spec
        self.redactor = redactor
        self.counts = counts
        self._run = run

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool for the user of the context, who may have to sign in first; raise its error."""
        started = now_ms()
        completed = await self._run(self.spec.name, params, context)
        return ToolResult.completed(completed.content, completed.text, started_at=started)


class _NodeDraft(CatalogContents):
    """Draft of a node's own registry whose changes are also made in a draft of the shared one.

    A tool that the shared registry refuses is refused. `shown` has the node's tools in the shared registry.
    """

    __slots__ = ("_wrap", "shared", "shown")

    def __init__(
        self,
        own: ToolRegistry,
        shared: ToolRegistry,
        shown: Mapping[str, Tool],
        wrap: Callable[[ToolSpec], Tool],
    ) -> None:
        super().__init__(own.draft())
        self.shared = shared.draft()
        self.shown = dict(shown)
        self._wrap = wrap

    def place(self, entry: Entry, *, replace: bool = False) -> None:
        name = entry.spec.name
        tool = self._wrap(entry.spec)
        self.shared.place(Entry(tool), replace=name in self.shown)
        super().place(entry, replace=replace)
        self.shown[name] = tool

    def remove(self, canonical: str) -> None:
        super().remove(canonical)
        shown, shared = self.shown.pop(canonical), self.shared.entries.get(canonical)
        if shared is not None and shared.tool is shown:  # the host may have removed or replaced it
            self.shared.remove(canonical)


class _NodeCatalog:
    """A node's own registry and the shared one, whose contents change in one step."""

    def __init__(
        self, own: ToolRegistry, shared: ToolRegistry, run: Run, redactor: Redactor, counts: AccountCounts | None
    ) -> None:
        self._counts = counts
        self._own = own
        self._shared = shared
        self._run = run
        self._redactor = redactor
        self.shown: Mapping[str, Tool] = {}
        self.find = own.find

    def draft(self) -> _NodeDraft:
        """Copy the contents of both registries."""

        def wrap(spec: ToolSpec) -> NodeTool:
            return NodeTool(spec, self._run, self._redactor, self._counts)

        return _NodeDraft(self._own, self._shared, self.shown, wrap)

    def commit(self, draft: CatalogContents) -> CatalogContents | None:
        """Exchange the contents of both; None when those of the shared registry have changed since."""
        changed = cast("_NodeDraft", draft)
        if self._shared.commit(changed.shared) is None:
            return None
        self.shown = changed.shown
        return self._own.commit(changed)


@dataclass(slots=True)
class ToolNode:
    """An external tool source; connecting registers its tools in `registry` as `{name}.{tool}`.

    With `auth_type=oauth2_user` each call uses the token of its user: `auth_manager` has the token under the node's
    name, or the call pauses until the user has signed in. Without an `auth_manager` the credential of the
    configuration is used. `server` is an MCP server object of this process. Tools that differ from the file `lock`
    are held back: their calls fail until `toolpost lock approve`. Unlike a Toolbox, a node raises its errors.
    A call connects a node that was not connected yet; once it is closed, only `connect` does.
    """

    config: ExternalToolConfig
    registry: ToolRegistry
    auth_manager: AuthManager | CredentialProvider | None = None
    server: Any = None
    lock: str | Path | None = None
    _open: StandaloneRouter | None = field(default=None, init=False, repr=False)
    _is_closed: bool = field(default=False, init=False, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _redactor: Redactor = field(default_factory=Redactor, init=False, repr=False)
    _users: UserCredentials | None = field(default=None, init=False, repr=False)
    _catalog: _NodeCatalog | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        from toolpost.connecting.presets import with_token_variable  # noqa: PLC0415 - only with sources, and slow

        self.config = with_token_variable(self.config)
        if self.config.auth_type is AuthType.OAUTH2_USER:
            self._users = UserCredentials(self.config, self.auth_manager, self._redactor.learn)

    async def connect(self, ctx: ToolContext | None = None) -> None:
        """Connect and register the tools, also those of a closed node; does nothing when the node is connected.

        A server that lists no tools without a user is asked again with the token of the user of `ctx`, or at the
        first call of a user who has signed in. `auth_config.discovery_auth` lists the tools at once.
        """
        async with self._turn:
            self._is_closed = False
            await self._connect(ctx)

    async def _connect(self, ctx: ToolContext | None) -> None:
        """Connect while the lock is held."""
        if self._open is not None:
            return
        if self._users is None:
            self._open = await self._open_router(self.config)
            return
        config = await self._users.discovery_config(ctx)
        try:
            self._open = await self._open_router(config)
        except (errors.ToolAuthError, errors.ToolConnectionError) as refused:
            if not may_list_later(config, refused):
                raise

    async def _open_router(self, config: ExternalToolConfig) -> StandaloneRouter:
        name, users = config.name, self._users
        private = ToolRegistry()
        self._catalog = _NodeCatalog(private, self.registry, self._completed, self._redactor, self.counts)
        own_provider = None if isinstance(self.auth_manager, AuthManager) else self.auth_manager
        provider = own_provider if users is None else users.provider
        opened = StandaloneRouter(
            private,
            catalog=self._catalog,
            servers={name: self.server} if self.server is not None else None,
            credentials=None if provider is None else {name: provider},
            redactor=self._redactor,
            lock=self.lock,
        )
        try:
            wanted = config.model_copy(update={"enabled": True, "required": True})
            await opened.sources.add(without_elicitation(wanted))
            self._refuse_collisions(opened)
        except BaseException as error:
            await _close_router(opened)
            if isinstance(error, errors.ConfigError) and (fault := error.__cause__) is not None:
                raise fault from fault.__cause__
            raise
        return opened

    def _refuse_collisions(self, opened: StandaloneRouter) -> None:
        """Raise for names that are taken, which the caller must solve; a bad schema only leaves its tool out."""
        for problem in opened.sources.problems:
            if problem.startswith("Duplicate tool name"):
                raise errors.ToolNodeError(problem)
        for tool, problem in opened.sources.collisions(self.config.name).items():
            raise errors.ToolNodeError(f"Tool name collision for '{tool}' (native tool or another ToolNode): {problem}")

    @property
    def problems(self) -> list[str]:
        """Tools that were left out, and why."""
        return [] if self._open is None else self._open.sources.problems

    @property
    def health(self) -> SourceHealth | None:
        """How the connection is doing, once it is open."""
        source = None if self._open is None else self._open.sources.source(self.config.name)
        return None if source is None else source.health

    @property
    def counts(self) -> AccountCounts | None:
        """Counters of sign-ins, for sources with users' own accounts."""
        return None if self._users is None else self._users.counts

    def get_tools(self) -> list[Tool]:
        """Return the tools that this node has registered."""
        if self._open is None or self._catalog is None:
            self._refuse_closed()
            raise errors.ToolNodeError(f"ToolNode '{self.config.name}' not connected; `await connect()` connects it")
        return [tool for tool in self._catalog.shown.values() if not tool.spec.is_helper]

    async def call(self, tool_name: str, args: Any, ctx: ToolContext | None = None) -> Any:
        """Call a tool by its full or its bare name; return its content or raise its error."""
        return (await self._completed(tool_name, args, ctx)).content

    async def list_resources(self, ctx: ToolContext | None = None) -> list[dict[str, Any]]:
        """Return the resources of an MCP server, as it lists them; none where it has none."""
        return await self._list("resources_list", "resources", ctx)

    async def list_resource_templates(self, ctx: ToolContext | None = None) -> list[dict[str, Any]]:
        """Return the templates of further resources."""
        return await self._list("resources_list", "templates", ctx)

    async def read_resource(self, uri: str, ctx: ToolContext | None = None) -> list[dict[str, Any]]:
        """Return the contents of a resource: each has a `text`, or the `artifact_id` of a file."""
        contents: Any = await self.call("resources_read", {"uri": uri}, ctx)
        return contents if is_array(contents) else [contents]

    async def list_prompts(self, ctx: ToolContext | None = None) -> list[dict[str, Any]]:
        """Return the prompts of an MCP server, as it lists them; none where it has none."""
        return await self._list("prompts_list", "prompts", ctx)

    async def get_prompt(
        self, name: str, arguments: dict[str, str] | None = None, ctx: ToolContext | None = None
    ) -> dict[str, Any]:
        """Fill in a prompt; return its `messages`, and its `description` if it has one."""
        filled: dict[str, Any] = await self.call("prompts_get", {"name": name, "arguments": arguments or {}}, ctx)
        return filled

    async def _list(self, tool_name: str, key: str, ctx: ToolContext | None) -> list[dict[str, Any]]:
        await self._ready(ctx)
        if not self.registry.has(f"{self.config.name}.{tool_name}"):
            return []
        listed: list[dict[str, Any]] = (await self.call(tool_name, {}, ctx))[key]
        return listed

    async def read_artifact(self, artifact_id: str) -> bytes:
        """Return a file that a result of `call` names; a call within a Toolbox's call stores its files there."""
        return (await (await self._ready(None)).read_artifact(artifact_id))[1]

    async def _completed(self, tool_name: str, args: Any, ctx: ToolContext | None) -> Completed:
        prefix = f"{self.config.name}."
        name = tool_name if tool_name.startswith(prefix) else prefix + tool_name
        if self._users is None:
            return await (await self._ready(ctx)).call(name, args, ctx)
        self._refuse_closed()  # before the user is asked to sign in
        credential = await self._users.credential(ctx)
        try:
            return await self._run_for(credential, name, args, ctx)
        except errors.ToolAuthError as refused:
            if refused.status_code != _UNAUTHORIZED or credential is None:
                raise
        credential = await self._users.credential(ctx, refused=credential)
        return await self._run_for(credential, name, args, ctx)

    async def _run_for(self, credential: Credential | None, name: str, args: Any, ctx: Any) -> Completed:
        """Run a call with a user's own credential; None if a credential provider supplies it."""
        opened, users = await self._ready(ctx), self._users
        if credential is None or users is None:
            return await opened.call(name, args, own_context(ctx))
        with users.calls.use(credential) as correlation_id:
            return await opened.call(name, args, own_context(ctx), correlation_id=correlation_id)

    async def _ready(self, ctx: ToolContext | None) -> StandaloneRouter:
        if self._open is None:
            async with self._turn:
                self._refuse_closed()
                await self._connect(ctx)
        if self._open is None:
            raise errors.ToolConnectionError(f"ToolNode '{self.config.name}' not connected", sent=False)
        return self._open

    def _refuse_closed(self) -> None:
        if self._is_closed:
            remedy = "make the call before, or `await connect()` again"
            raise errors.ToolNodeError(f"ToolNode '{self.config.name}' not connected: it was closed; {remedy}")

    async def close(self) -> None:
        """Disconnect and unregister the tools; safe to call twice. Calls after this raise ToolNodeError."""
        async with self._turn:
            self._is_closed = True
            opened, self._open = self._open, None
            if opened is not None:
                await _close_router(opened)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _close_router(opened: StandaloneRouter) -> None:
    """Unregister the tools, then close the source."""
    try:
        await opened.sources.withdraw()
    finally:
        await opened.close()


class MCPClient:
    """Connect to one MCP server by URL or command, list its tools and call them.

    `async with MCPClient(server_uri)` is connected; without an address, `connect` is called later. In code without an
    event loop, `with MCPClient(server_uri) as client` gives a client whose methods block. `options` are those of an
    ExternalToolConfig.

    Raises MCPConnectionError without a connection and MCPToolExecutionError when a call fails; MCPClientError is the
    parent of both. Approvals and storage need a Toolbox.
    """

    def __init__(self, server_uri: str | None = None, **options: Any) -> None:
        self._server_uri = server_uri
        self._options = options
        self._node: ToolNode | None = None
        self._blocking: BlockingMCPClient | None = None

    async def connect(self, server_uri: str) -> None:
        """Connect to a server."""
        options = {"name": "server", "transport": TransportType.MCP, **self._options, "connection": server_uri}
        node = ToolNode(config=ExternalToolConfig.model_validate(options), registry=ToolRegistry())
        try:
            await node.connect()
        except errors.ToolError as error:
            raise _client_error(error, connected=False) from error
        await self.close()
        self._node = node

    @property
    def problems(self) -> list[str]:
        """Tools of the server that were left out, and why."""
        return self._connected().problems

    async def list_tools(self) -> list[ToolSpec]:
        """Return the server's tools, named `server.tool`, without the helpers for its resources and prompts."""
        return [tool.spec for tool in self._connected().get_tools()]

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool by the server's name or by that of `list_tools`, and return its content."""
        node = self._connected()
        try:
            return await node.call(tool_name, arguments or {})
        except errors.ToolError as error:
            raise _client_error(error) from error

    async def close(self) -> None:
        """Disconnect; safe to call twice."""
        node, self._node = self._node, None
        if node is not None:
            await node.close()

    def _connected(self) -> ToolNode:
        if self._node is None:
            raise errors.MCPClientError("the client is not connected; call connect(server_uri) first")
        return self._node

    def __enter__(self) -> BlockingMCPClient:
        self._blocking = BlockingMCPClient(self)
        return self._blocking.open()

    def __exit__(self, *_: object) -> None:
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.close()

    async def __aenter__(self) -> Self:
        if self._server_uri is not None:
            await self.connect(self._server_uri)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _client_error(error: errors.ToolError, *, connected: bool = True) -> errors.MCPClientError:
    """Convert an error of the library into the client's own, with the same category, status and code."""
    facts: dict[str, Any] = {
        "tool_name": error.tool_name,
        "category": error.category,
        "status_code": error.status_code,
        "code": error.error_code,
        "retry_after_s": error.retry_after_s,
        "cause": error,
    }
    raised: errors.MCPClientError
    if isinstance(error, errors.ToolConnectionError):
        raised = errors.MCPConnectionError(error.message, sent=error.sent, **facts)
    elif not connected:  # refused, for example
        raised = errors.MCPConnectionError(error.message, **facts)
    else:
        raised = errors.MCPToolExecutionError(error.message, **facts)
    raised.is_repeatable = error.is_repeatable
    return raised


class StandaloneRouter:
    """Run calls through the same pipeline as a Toolbox: validation, limits, safe retries.

    Calls find their tools in `registry`. Sources register them in `catalog`, if they are not for that registry alone.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        catalog: Catalog | None = None,
        servers: Mapping[str, Any] | None = None,
        credentials: Mapping[str, CredentialProvider] | None = None,
        redactor: Redactor | None = None,
        lock: str | Path | None = None,
        network: NetworkPolicy | None = None,
    ) -> None:
        authorizer = Authorizer(credentials)
        self._store = MemoryStore()
        self.redactor = redactor or Redactor()
        self.router = ToolRouter(
            registry,
            store=self._store,
            policy=Policy("exploratory"),
            authorizer=authorizer,
            redactor=self.redactor,
            inline_bytes=sys.maxsize,  # whoever calls stores what is large; here nobody could read it
        )
        self.router.joins_repeated = False  # whoever calls asks the person, and calls again
        self._closing = ExitStack()
        self._closing.enter_context(redacted_logs(self.redactor))
        self.sources = SourceManager(
            catalog or registry,
            authorizer,
            services=Services(servers=servers or {}, network=network or NetworkPolicy()),
            redactor=self.redactor,
            emit=self.router.emitter.emit_source,
            pinning=Pinning(None if lock is None else Lock(Path(lock).absolute())),
            finish_calls=self.router.inflight.finish_on,
        )

    async def call(
        self, name: str, arguments: Any, context: ToolContext | None, *, correlation_id: str = ""
    ) -> Completed:
        """Call a tool; raise its error, or PauseSignal for a question to a user."""
        match await self._outcome(name, arguments, context, correlation_id):
            case Completed() as completed:
                return await self._with_moved_artifacts(completed, context)
            case Failed(error=error):
                raise error
            case paused if paused.question.key == DEFINITION:  # an approval here could not be stored in the lock file
                remedy = f"run `toolpost lock approve {paused.tool_name}` once you agree"
                message = f"{paused.tool_name!r} is set aside: {paused.question.payload['reason']}; {remedy}"
                raise errors.ToolPermissionError(message, tool_name=paused.tool_name, code="definition_changed")
            case paused:
                raise pause_signal(paused)

    async def _with_moved_artifacts(self, completed: Completed, context: ToolContext | None) -> Completed:
        """Store the files of a result with the call that this one is part of, if there is one."""
        if not completed.artifacts or not isinstance(context, ToolContext) or not context.is_running:
            return completed
        encoded = json.dumps([completed.content, completed.text])
        for artifact_id in completed.artifacts:
            ref, data = await self.read_artifact(artifact_id)
            moved = await context.save_artifact(data, media_type=ref.media_type, name=ref.name)
            encoded = encoded.replace(artifact_id, moved)
        content, text = json.loads(encoded)
        return replace(completed, content=content, text=text)

    async def read_artifact(self, artifact_id: str) -> tuple[ArtifactRef, bytes]:
        """Return a stored file and what is known of it; KeyError when there is none."""
        artifacts = self._store.artifacts
        data = await artifacts.read(artifact_id, tenant=None)
        ref = await artifacts.info(artifact_id, tenant=None)
        if ref is None:
            raise KeyError(artifact_id)
        return ref, data

    async def _outcome(self, name: str, arguments: Any, context: ToolContext | None, correlation_id: str) -> Outcome:
        tenant = (context.tenant_id if context else None) or "local"
        user = (context.user_id if context else None) or "local"
        call_id = self.router.new_id("call")
        with self._relayed(call_id, context):
            return await self.router.call(
                name,
                _plain(arguments),
                principal=Principal(tenant, user),
                context=context,
                correlation_id=correlation_id,
                call_id=call_id,
            )

    @contextmanager
    def _relayed(self, call_id: str, context: ToolContext | None) -> Generator[None]:
        """Pass the progress of a call on to the call that it is part of, if there is one."""
        if not isinstance(context, ToolContext) or not context.is_running:
            yield
            return
        remove = self.router.emitter.add_sink(_ProgressRelay(call_id, context))
        try:
            yield
        finally:
            remove()

    async def close(self) -> None:
        """Close sources, router and store; safe to call twice."""
        await self.sources.close()
        await self.router.close()
        await self._store.close()
        self._closing.close()


class _ProgressRelay:
    """Sink that passes the progress of one call, and the values of its stream, on to another call."""

    def __init__(self, call_id: str, context: ToolContext) -> None:
        self._call_id = call_id
        self._context = context

    def emit(self, event: RunEvent) -> None:
        if event.code is not EventCode.SUBAGENT_ACTION or event.call.call_id != self._call_id:
            return
        facts = event.facts
        if "fraction" in facts:
            self._context.progress(facts["text"], fraction=facts["fraction"])
        else:
            self._context.stream(json.loads(facts["value"]) if "value" in facts else facts["text"])


def without_elicitation(config: ExternalToolConfig) -> ExternalToolConfig:
    """Return the configuration without elicitation, for callers that cannot answer questions."""
    return config.model_copy(update={"mcp": config.mcp.model_copy(update={"elicitation": False})})


def _plain(arguments: Any) -> dict[str, Any]:
    """Return arguments as JSON; unset fields of a model are not sent."""
    if isinstance(arguments, BaseModel):
        return arguments.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return cast("dict[str, Any]", arguments) if arguments is not None else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectReport:
    """The servers that connected, and the errors of the others."""

    connected: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


class ManagedTool:
    """A server's tool in an agent's registry; calls run through the manager, and failures are results."""

    __slots__ = ("_manager", "_server", "redactor", "spec")

    def __init__(self, manager: MCPManager, server: str, spec: ToolSpec, redactor: Redactor) -> None:
        self._manager = manager
        self._server = server
        self.redactor = redactor
        self.spec = spec

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool on its server."""
        return await self._manager.call_tool(self._server, self.spec.name, params, context=context)


def _without_server_name(config: ExternalToolConfig) -> ExternalToolConfig:
    """Return the configuration without the server's name in descriptions; `load_tools` adds the name."""
    return config.model_copy(update={"mcp": config.mcp.model_copy(update={"name_in_descriptions": False})})


def _external_config(config: ExternalToolConfig | McpServerSettings | Mapping[str, Any]) -> ExternalToolConfig:
    if isinstance(config, Mapping):
        given: Any = config.get("env")
        secrets = [str(value) for value in given.values()] if is_object(given) else []
        settings = parse_settings({"tools": {"mcpServers": [dict(config)]}}, shown="the MCP servers", secrets=secrets)
        [config] = settings.tools.mcp_servers
    return config if isinstance(config, ExternalToolConfig) else config.to_external_config()


class MCPManager:
    """Connect MCP servers, keep them connected, and register their tools in any number of registries.

    Tools that differ from the file `lock` are held back until `toolpost lock approve`. `network` says which private
    addresses may be reached besides those of the servers.
    """

    def __init__(self, *, lock: str | Path | None = None, network: NetworkPolicy | None = None) -> None:
        self.registry = ToolRegistry()
        self._lock = lock
        self._network = network
        self._open: StandaloneRouter | None = None

    async def connect_all(
        self, configs: Iterable[ExternalToolConfig | McpServerSettings | Mapping[str, Any]]
    ) -> ConnectReport:
        """Connect every enabled server; one that fails is reported and skipped, unless it is required.

        A mapping is an entry as `tools.mcpServers` of the configuration has it.
        """
        external = [_external_config(config) for config in configs]
        sources = [_without_server_name(without_elicitation(config)) for config in external]
        if self._open is None:
            self._open = StandaloneRouter(self.registry, lock=self._lock, network=self._network)
        connected_names = {state.name for state in self._open.sources.states} & {config.name for config in sources}
        if connected_names:
            raise errors.ConfigError(
                f"already connected: {', '.join(sorted(connected_names))}; disconnect them first, or rename"
            )
        try:
            await self._open.sources.load_all(sources)
        except BaseException:
            await self.disconnect_all()
            raise
        report = ConnectReport()
        for state in self._open.sources.states:
            if state.ok:
                report.connected.append(state.name)
            else:
                report.failed[state.name] = state.error or ""
                _log.warning("MCP server %r is skipped: %s", state.name, state.error)
        return report

    def list_tools(self, server: str) -> list[Tool]:
        """Return the tools of one server with the server's own descriptions."""
        opened = self._opened()
        if opened.sources.source(server) is None:
            names = ", ".join(state.name for state in opened.sources.states) or "none"
            raise errors.ToolNodeError(f"no MCP server {server!r} is connected; there are: {names}")
        return [ManagedTool(self, server, spec, opened.redactor) for spec in self._specs(server)]

    def _specs(self, server: str) -> list[ToolSpec]:
        """Return the specs of one server's tools, without helpers for resources and prompts."""
        return [spec for spec in self.registry.specs() if spec.source == server and not spec.is_helper]

    async def call_tool(
        self, server: str, tool: str, args: dict[str, Any] | None = None, *, context: ToolContext | None = None
    ) -> ToolResult:
        """Call a tool of one server; a failure is a failed ToolResult."""
        name = tool if tool.startswith(f"{server}.") else canonical_name(server, tool)
        started = now_ms()
        try:
            completed = await self._opened().call(name, args, context)
            return ToolResult.completed(completed.content, completed.text, started_at=started)
        except errors.ToolError as error:
            return ToolResult.failed(error, started_at=started)

    def load_tools(self, *registries: ToolRegistry) -> int:
        """Register every server's tools in each of the registries, described as `[server] ...`; return how many."""
        opened = self._opened()
        servers = [state.name for state in opened.sources.states if state.ok]
        redactor = opened.redactor
        tools = [
            ManagedTool(self, server, replace(spec, description=f"[{server}] {spec.description}", source=""), redactor)
            for server in servers
            for spec in self._specs(server)
        ]
        for registry in registries:
            registry.register_many(tools)
        return len(tools)

    async def disconnect_all(self) -> None:
        """Disconnect every server; safe to call twice."""
        opened, self._open = self._open, None
        if opened is not None:
            try:
                await opened.sources.withdraw()
            finally:
                await opened.close()

    async def __aenter__(self) -> Self:
        """Do nothing: `connect_all` connects."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect every server."""
        await self.disconnect_all()

    def _opened(self) -> StandaloneRouter:
        if self._open is None:
            raise errors.ToolNodeError("no MCP server is connected; call connect_all first")
        return self._open
