"""An MCP server over the catalog of a Toolbox, for clients of both protocol eras.

Every call goes through the Toolbox like any other. A call that needs a person answers `input_required` to clients of
the newer protocol; its state is the id of the pending action, so that a retry collects the outcome in any process on
the same store, exactly once. Nothing that a client sends answers an approval.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolpost import __version__
from toolpost.configuration.settings import ViewSettings
from toolpost.contracts.errors import ToolNotFoundError
from toolpost.contracts.events import EventCode
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.contracts.principal import Principal
from toolpost.gateway.mcp_pauses import PENDING_TOOLS, PausedCalls, input_required, pending_result
from toolpost.gateway.mcp_results import (
    ARTIFACTS,
    completed_result,
    failed_result,
    resource_contents,
    tool_definition,
)
from toolpost.gateway.views import View, differs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from mcp.server.connection import Connection
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp_types import CallToolResult, InputRequiredResult, ReadResourceResult

    from toolpost.contracts.events import RunEvent
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.spec import ToolSpec
    from toolpost.toolbox.box import Toolbox

    Context = ServerRequestContext[Any, Any]

_COMPLETE = {"resultType": "complete"}  # dropped where the protocol is older
_LIST_CACHE = {"ttlMs": 60_000, "cacheScope": "private"}
_SETTLE_S = 0.1
_INSTRUCTIONS = (
    "Tools of many sources under one policy. Some calls wait until a person has agreed; the result says so, and the "
    "same call is never carried out twice."
)


class ProgressRelay:
    """Event sink that passes the progress of calls to the requests that made them, by run."""

    def __init__(self) -> None:
        self._queues: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Mapping[str, Any] | None]]] = {}

    def emit(self, event: RunEvent) -> None:
        waiting = self._queues.get(event.call.run_id) if event.code is EventCode.SUBAGENT_ACTION else None
        if waiting is not None:
            loop, queue = waiting  # plain functions report from their thread
            loop.call_soon_threadsafe(queue.put_nowait, event.payload)

    @asynccontextmanager
    async def to_client(self, run_id: str, ctx: Context) -> AsyncGenerator[None]:
        """Send the progress of a run to the client of a request, which gets all of it before the result."""
        queue: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._queues[run_id] = loop, queue
        sending = loop.create_task(_send_progress(queue, ctx))
        try:
            yield
        finally:
            del self._queues[run_id]
            loop.call_soon(queue.put_nowait, None)  # behind what was reported before
            await sending


async def _send_progress(queue: asyncio.Queue[Mapping[str, Any] | None], ctx: Context) -> None:
    """Send progress until None comes; it must always increase, which fractions need not."""
    last = 0.0
    while (facts := await queue.get()) is not None:
        fraction = facts.get("fraction")
        last = last + 1e-6 if fraction is None else max(last + 1e-6, float(fraction))
        total = None if fraction is None else 1.0
        with suppress(Exception):  # the client may have gone
            await ctx.session.report_progress(last, total, str(facts.get("text") or "") or None)


class McpServer:
    """Serve the tools of an open Toolbox over MCP; `principal` says for whom a request is, as `tenant:user`.

    `relay` must be among the sinks of the Toolbox for progress to reach clients. Clients see the tools of `view`, by
    default all.
    """

    def __init__(
        self,
        box: Toolbox,
        *,
        principal: Callable[[Context], str],
        relay: ProgressRelay | None = None,
        view: View | None = None,
        name: str = "toolpost",
    ) -> None:
        self._box = box
        self._principal = principal
        self._view = view or View(box, "all", ViewSettings())
        self._paused = PausedCalls(box, sees=self._sees)
        self._relay = relay or ProgressRelay()
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._lists: dict[str, dict[str, Any]] = {}
        self._listed = [self._view.shown()]  # what clients may have seen since they were last told of a change
        self._changed = asyncio.Event()
        self._connections = cast("set[Connection]", set())  # of older clients, which are told of changes unasked
        self.server: Server[Any] = Server(
            name,
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=self._listen,
        )
        self.server.middleware.append(self._serve_cached_list)
        self._unsubscribe = box.registry.subscribe(self._catalog_changed)

    @property
    def initialization(self) -> Any:
        """The options that older clients get when they initialize."""
        return self.server.create_initialization_options(NotificationOptions(tools_changed=True))

    # ------------------------------------------------------------------ lists

    def show(self, view: View) -> None:
        """Show the tools of another view from now on."""
        self._view = view
        self._catalog_changed(None)

    def _sees(self, tool_name: str) -> bool:
        return self._view.has(tool_name)

    def _catalog_changed(self, _change: object) -> None:
        self._lists.clear()
        self._changed.set()

    async def _serve_cached_list(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer `tools/list` from the cache, which is validated once for each protocol version."""
        if ctx.method == "notifications/initialized":
            connection = ctx.session._connection  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no other way
            self._connections.add(connection)
            connection.exit_stack.callback(self._connections.discard, connection)
        if (
            ctx.method != "tools/list"
            or (ctx.params or {}).get("cursor")
            or not self._view.is_for(self._principal(ctx))
        ):
            return await call_next(ctx)
        cached = self._lists.get(ctx.protocol_version)
        if cached is None:
            cached = self._lists[ctx.protocol_version] = cast("dict[str, Any]", await call_next(ctx))
        return cached

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        if not self._view.is_for(self._principal(ctx)):
            return cast("ListToolsResult", {"tools": [], **_LIST_CACHE, **_COMPLETE})
        shown = self._view.shown()
        self._listed.append(shown)
        pending = [tool for tool in PENDING_TOOLS if self._paused.is_own_tool(tool["name"])]
        tools = [*(tool_definition(name, spec) for name, spec in shown.items()), *pending]
        return cast("ListToolsResult", {"tools": tools, **_LIST_CACHE, **_COMPLETE})

    # ------------------------------------------------------------------ calls

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        user = self._principal(ctx)
        if not self._view.is_for(user):
            raise MCPError(code=INVALID_PARAMS, message=str(ToolNotFoundError(params.name)))
        if self._paused.is_own_tool(params.name):
            told = await self._paused.call_own_tool(params, user)
            result = told if isinstance(told, dict) else await self._result(told, user)
        elif params.request_state is not None:
            name, arguments = self._view.unwrap(params.name, params.arguments)
            retried = params.model_copy(update={"name": name, "arguments": arguments})
            result = await self._present(ctx, await self._paused.collect(retried, user), user, params.request_state)
        else:
            result = await self._call(ctx, params, user)
        return cast("CallToolResult", {**_COMPLETE, **result})

    async def _call(self, ctx: Context, params: CallToolRequestParams, user: str) -> dict[str, Any]:
        run_id = self._box.router.new_id("run")
        spec = self._view.spec(self._view.unwrap(params.name, params.arguments)[0])  # as the client knows it
        async with self._relay.to_client(run_id, ctx):
            outcome = await self._view.call(params.name, params.arguments, user=user, run_id=run_id)
        if isinstance(outcome, Failed) and self._view.is_own(params.name):
            return failed_result(outcome)  # the tool exists; the one that it was asked for may not
        return await self._present(ctx, outcome, user, spec=spec)

    async def _present(
        self, ctx: Context, outcome: Outcome, user: str, state: str | None = None, *, spec: ToolSpec | None = None
    ) -> dict[str, Any]:
        """Return an outcome as this client can take it; a pause may be asked and collected on the way."""
        if isinstance(outcome, Paused):
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return input_required(outcome, ctx, state=state)
            outcome = await self._paused.ask(ctx, outcome, user)
        return await self._result(outcome, user, spec)

    async def _result(self, outcome: Outcome, user: str, spec: ToolSpec | None = None) -> dict[str, Any]:
        spec = spec or self._view.spec(outcome.tool_name)
        match outcome:
            case Completed():
                tenant = Principal.parse(user).tenant
                return await completed_result(outcome, spec, self._box.store.artifacts, tenant=tenant)
            case Failed(error=ToolNotFoundError() as error):
                raise MCPError(code=INVALID_PARAMS, message=str(error))
            case Failed():
                return failed_result(outcome)
            case Paused():
                return pending_result(outcome, spec)

    # ------------------------------------------------------------------ artifacts

    async def _list_resources(self, ctx: Context, params: PaginatedRequestParams | None) -> Any:
        tenant = Principal.parse(self._principal(ctx)).tenant
        found = await self._box.store.artifacts.list(tenant=tenant)
        resources = [
            {"uri": f"{ARTIFACTS}{ref.id}", "name": ref.name or ref.id, "mimeType": ref.media_type, "size": ref.size}
            for ref in found
        ]
        return {"resources": resources, **_LIST_CACHE, **_COMPLETE}

    async def _read_resource(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri, tenant = str(params.uri), Principal.parse(self._principal(ctx)).tenant
        artifacts, artifact_id = self._box.store.artifacts, uri.removeprefix(ARTIFACTS)
        ref = await artifacts.info(artifact_id, tenant=tenant) if uri.startswith(ARTIFACTS) else None
        if ref is None:
            raise MCPError(code=INVALID_PARAMS, message=f"there is no resource {uri!r}", data={"uri": uri})
        data = await artifacts.read(artifact_id, tenant=tenant)
        return cast(
            "ReadResourceResult",
            {"contents": [resource_contents(uri, ref.media_type, data)], **_LIST_CACHE, **_COMPLETE},
        )

    @asynccontextmanager
    async def publishing(self) -> AsyncGenerator[None]:
        """Tell clients when their list of tools changes, while this is open; several changes at once are told once."""
        task = asyncio.get_running_loop().create_task(self._publish_changes())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._listen.close()
            self._unsubscribe()

    async def _publish_changes(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SETTLE_S)
            self._changed.clear()
            now = self._view.shown()
            before, self._listed = self._listed, [now]
            if not any(differs(listed, now) for listed in before):
                continue
            await self._bus.publish(ToolsListChanged())
            for connection in list(self._connections):
                await connection.send_tool_list_changed()
