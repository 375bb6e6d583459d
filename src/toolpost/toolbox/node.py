"""ToolNode: one external tool source that registers its tools in a shared registry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from toolpost.auth.account_counts import AccountCounts
from toolpost.auth.managed_credentials import AuthManager
from toolpost.auth.user_credentials import UserCredentials, may_list_later, own_context
from toolpost.catalog.entry import Entry
from toolpost.catalog.registry import CatalogContents, ToolRegistry
from toolpost.contracts import errors
from toolpost.contracts.calls import Credential
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import Completed, ToolResult, now_ms
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.sources import CredentialProvider, SourceHealth
from toolpost.contracts.spec import Tool, ToolSpec
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_values import is_array
from toolpost.sources.registry import find_transport
from toolpost.toolbox.standalone_router import StandaloneRouter

Run = Callable[[str, Any, ToolContext | None], Awaitable[Completed]]

_UNAUTHORIZED = 401


@dataclass(slots=True)
class ToolNode:
    """An external tool source; connecting registers its tools in `registry` as `{name}.{tool}`.

    With `auth_type=oauth2_user` each call uses the token of its user: `auth_manager` supplies the token under the
    node's name, or the call pauses until the user has signed in. Without an `auth_manager` the credential of the
    configuration is used. `server` is an MCP server object of this process. Tools that differ from the file `lock`
    are blocked: their calls fail until `toolpost lock approve`. Unlike a Toolbox, a node raises its errors. The first
    call connects the node; after `close`, only `connect` does.
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
        """Connect, or reconnect after `close`, and register the tools; do nothing if the node is connected.

        If a server lists no tools without a user, the tools are listed with the token of the user of `ctx`, or at the
        first call of a user who has signed in. With `auth_config.discovery_auth` they are listed immediately.
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
            # The caller of a node cannot answer questions of the server.
            await opened.sources.add(find_transport(config.transport).without_elicitation(wanted))
            self._refuse_collisions(opened)
        except BaseException as error:
            await _close_router(opened)
            if isinstance(error, errors.ConfigError) and (fault := error.__cause__) is not None:
                raise fault from fault.__cause__
            raise
        return opened

    def _refuse_collisions(self, opened: StandaloneRouter) -> None:
        """Raise for names that are taken; a tool with an invalid schema is only skipped."""
        for problem in opened.sources.index.problems:
            if problem.startswith("Duplicate tool name"):
                raise errors.ToolNodeError(problem)
        for tool, problem in opened.sources.index.collisions(self.config.name).items():
            raise errors.ToolNodeError(f"Tool name collision for '{tool}' (native tool or another ToolNode): {problem}")

    @property
    def problems(self) -> list[str]:
        """The tools that were skipped, with the reason."""
        return [] if self._open is None else self._open.sources.index.problems

    @property
    def health(self) -> SourceHealth | None:
        """The state of the connection, once it is open."""
        source = None if self._open is None else self._open.sources.index.source(self.config.name)
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
        """Return the resources of an MCP server, as it lists them; none if it has none."""
        return await self._list("resources_list", "resources", ctx)

    async def list_resource_templates(self, ctx: ToolContext | None = None) -> list[dict[str, Any]]:
        """Return the templates of further resources."""
        return await self._list("resources_list", "templates", ctx)

    async def read_resource(self, uri: str, ctx: ToolContext | None = None) -> list[dict[str, Any]]:
        """Return the contents of a resource: each has a `text`, or the `artifact_id` of a file."""
        contents: Any = await self.call("resources_read", {"uri": uri}, ctx)
        return contents if is_array(contents) else [contents]

    async def list_prompts(self, ctx: ToolContext | None = None) -> list[dict[str, Any]]:
        """Return the prompts of an MCP server, as it lists them; none if it has none."""
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
        """Return a file that a result of `call` names; a nested call of a Toolbox stores its files in the Toolbox."""
        return (await (await self._ready(None)).read_artifact(artifact_id))[1]

    async def _completed(self, tool_name: str, args: Any, ctx: ToolContext | None) -> Completed:
        prefix = f"{self.config.name}."
        name = tool_name if tool_name.startswith(prefix) else prefix + tool_name
        if self._users is None:
            return await (await self._ready(ctx)).call(name, args, ctx)
        self._refuse_closed()  # before the user is prompted to sign in
        credential = await self._users.credential(ctx)
        try:
            return await self._run_for(credential, name, args, ctx)
        except errors.ToolAuthError as refused:
            if refused.status_code != _UNAUTHORIZED or credential is None:
                raise
        credential = await self._users.credential(ctx, refused=credential)
        return await self._run_for(credential, name, args, ctx)

    async def _run_for(self, credential: Credential | None, name: str, args: Any, ctx: Any) -> Completed:
        """Run a call with a user's credential; None if a credential provider supplies it."""
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
            remedy = "make the call earlier, or `await connect()` again"
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


class NodeTool:
    """A tool of a node in a shared registry; every call runs through the router of the node.

    A call uses the credential of the node or of the user of its context, blocked tools fail, and the node's secrets are
    redacted. `redactor` masks them in events about its calls; `counts` are those of the node's sign-ins, if any.
    """

    __slots__ = ("_run", "counts", "redactor", "spec")

    def __init__(self, spec: ToolSpec, run: Run, redactor: Redactor, counts: AccountCounts | None) -> None:
        self.spec = spec
        self.redactor = redactor
        self.counts = counts
        self._run = run

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool for the user of the context, and raise its error; the user may have to sign in first."""
        started = now_ms()
        completed = await self._run(self.spec.name, params, context)
        return ToolResult.completed(completed.content, completed.text, started_at=started)


class _NodeCatalog:
    """A node's own registry and the shared one; the contents of both change in one step."""

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
        """Replace the contents of both; None if those of the shared registry have changed since."""
        changed = cast("_NodeDraft", draft)
        if self._shared.commit(changed.shared) is None:
            return None
        self.shown = changed.shown
        return self._own.commit(changed)


class _NodeDraft(CatalogContents):
    """Draft of a node's own registry; every change is also made in a draft of the shared one.

    A tool that the shared registry rejects is rejected. `shown` contains the node's tools in the shared registry.
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


async def _close_router(opened: StandaloneRouter) -> None:
    """Unregister the tools, then close the source."""
    try:
        await opened.sources.withdraw()
    finally:
        await opened.close()
