"""An MCP server over the catalog of a Toolbox, for session-based and stateless clients.

Every call goes through the Toolbox. A call that needs a person returns `input_required` to stateless clients (protocol
2026-07-28). Its state names the pending action, so that a retry in any process on the same store gets the outcome,
exactly once. A client that has retried often gets the pending action as its result, before it gives up. No message of a
client answers an approval.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    CompleteRequestParams,
    GetPromptRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)

from toolpost import __version__
from toolpost.configuration.settings import ViewSettings
from toolpost.contracts.errors import ToolNotFoundError
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.contracts.principal import Principal
from toolpost.gateway.mcp.calls import COMPLETE, ClientCall, ClientCalls
from toolpost.gateway.mcp.contents import Contents, no_prompt, no_resource
from toolpost.gateway.mcp.definitions import differs, tool_definition
from toolpost.gateway.mcp.elicitation import answer_options, where_to_answer
from toolpost.gateway.mcp.names import Names, Origin
from toolpost.gateway.mcp.notifications import Notifications, connection_of
from toolpost.gateway.mcp.pauses import PausedCalls
from toolpost.gateway.mcp.pending_tools import PENDING_TOOLS, PendingTools, pending_result
from toolpost.gateway.mcp.progress import ProgressRelay
from toolpost.gateway.mcp.results import (
    completed_result,
    failed_result,
    is_refusal,
    protocol_error,
)
from toolpost.gateway.views import View
from toolpost.wire.tracing import TRACEPARENT, find_tracer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from mcp.server.context import CallNext, HandlerResult
    from mcp_types import CallToolResult, InputRequiredResult, SubscriptionsListenResult

    from toolpost.contracts.events import RunSummary
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.mcp.client import Context
    from toolpost.gateway.mcp.requests import CallTool
    from toolpost.toolbox.box import Toolbox

_LIST_CACHE = {"ttlMs": 60_000, "cacheScope": "private"}
_HEADER_KEY = "x-mcp-header"
_INSTRUCTIONS = (
    "Tools of many sources under one policy. Some calls wait for approval; their result says so. The same call never "
    "runs twice."
)


class McpServer:
    """Serve the tools of an open Toolbox over MCP; `principal` returns the principal of a request, as `tenant:user`.

    `interactive` returns whether a user operates the client of a request; only such a client answers questions of tools
    and servers. By default no client is interactive. Clients never answer approvals.

    Clients see the tools of `view`, by default all, and the resources and prompts of the upstream MCP servers. Clients
    receive progress only if `relay` is among the sinks of the Toolbox. `session` returns the session of a request:
    repeating a pending call in the same session joins it. By default all requests share one session.
    """

    def __init__(
        self,
        box: Toolbox,
        *,
        principal: Callable[[Context], str],
        interactive: Callable[[Context], bool] = lambda _ctx: False,
        session: Callable[[Context], str] | None = None,
        relay: ProgressRelay | None = None,
        view: View | None = None,
        name: str = "toolpost",
    ) -> None:
        self._box = box
        self._principal = principal
        only_session: Callable[[Context], str] = partial(_constant, secrets.token_hex(8))
        self._session = session or only_session
        self._view = view or View(box, "all", ViewSettings())
        self._names = Names(self._view)
        self._contents = Contents(box, self._names, sees=self._sees)
        self._paused = PausedCalls(box, sees=self._sees, interactive=interactive)
        self._pending_tools = PendingTools(box, self._paused)
        self._calls = ClientCalls(
            box,
            self._paused,
            relay or ProgressRelay(),
            principal=principal,
            interactive=interactive,
            restore=self._restore_call,
        )
        self._notifications = Notifications(self._contents, self._names, tools_differ=self._tools_differ)
        self._lists: dict[str, dict[str, Any]] = {}
        self._encoded_lists: dict[str, bytes] = {}
        self._header_schemas: dict[str, Mapping[str, Any] | None] = {}
        # The lists that clients may have seen since the last notification of a change.
        self._listed: list[Mapping[str, ToolSpec]] = [self._view.shown()]
        self.server: Server[Any] = _ListingServer(
            name,
            version=__version__,
            instructions=_INSTRUCTIONS,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._end_subscription,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        self._calls.tasks.serve(self.server)
        self._is_traced = find_tracer() is not None
        self._traced, self.server.middleware = self.server.middleware, [self._trace, self._serve_cached_list]
        self._unsubscribe = box.registry.subscribe(self._catalog_changed)
        self._unsubscribe_contents = box.sources.monitor.subscribe_contents(self._contents_changed)

    @property
    def initialization(self) -> Any:
        """The response to `initialize` of session-based clients."""
        return self.server.create_initialization_options()

    @property
    def untraced_call(self) -> CallTool | None:
        """The function that calls a tool without the middleware of the server; None if requests are traced."""
        return None if self._is_traced else self._call_tool

    # ------------------------------------------------------------------ lists

    def show(self, view: View) -> None:
        """Show the tools of another view from now on."""
        if view.links_large != self._view.links_large:
            self._listed = [{}]  # clients have seen other output schemas
        self._view = view
        self._names.show(view)
        self._catalog_changed(None)

    def _sees(self, tool_name: str) -> bool:
        return self._view.has(tool_name)

    def _tools_differ(self) -> bool:
        """Return whether the list of tools differs from those sent since the last notification."""
        now = self._view.shown()
        before, self._listed = self._listed, [now]
        return any(differs(listed, now) for listed in before)

    def _catalog_changed(self, _change: object) -> None:
        self._lists.clear()
        self._encoded_lists.clear()
        self._header_schemas.clear()
        self._names.catalog_changed()
        self._notifications.catalog_changed()

    def _contents_changed(self, source: str, uri: str | None) -> None:
        if not self._names.serves(source):
            return
        if uri is None:
            self._notifications.catalog_changed()
        else:
            self._notifications.resource_updated(Origin(source, uri))

    async def _trace(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Trace a request if there is a tracer provider, or if the client sent a trace to continue."""
        if self._is_traced or TRACEPARENT in (ctx.meta or {}):
            for middleware in reversed(self._traced):
                call_next = partial(middleware, call_next=call_next)
        return await call_next(ctx)

    async def _serve_cached_list(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer `tools/list` from the cache, which the SDK has validated once per protocol version."""
        if ctx.method == "notifications/initialized":
            self._notifications.add_session(connection_of(ctx))
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

    def encoded_list(self, version: str, user: str) -> bytes | None:
        """Return the cached result of `tools/list` as JSON, or None before the first list of this version."""
        if not self._view.is_for(user):
            return None
        encoded, listed = self._encoded_lists.get(version), self._lists.get(version)
        if encoded is None and listed is not None:
            encoded = self._encoded_lists[version] = json.dumps(listed, separators=(",", ":")).encode()
        return encoded

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        if not self._view.is_for(self._principal(ctx)):
            return cast("ListToolsResult", {"tools": [], **_LIST_CACHE, **COMPLETE})
        shown = self._view.shown()
        if shown != self._listed[-1]:
            self._listed.append(shown)
        pending = [tool for tool in PENDING_TOOLS if self._pending_tools.has(tool["name"])]
        own = [] if self._names.only else pending
        links, show = self._view.links_large, self._contents.shown
        tools = [show(tool_definition(name, spec, links_large=links), spec.source) for name, spec in shown.items()]
        return cast("ListToolsResult", {"tools": [*tools, *own], **_LIST_CACHE, **COMPLETE})

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema that declares arguments sent as headers, or None without such arguments."""
        if name not in self._header_schemas:
            spec = self._names.find_tool(name)
            if spec is None:
                return None
            schema = spec.input_schema
            self._header_schemas[name] = schema if _HEADER_KEY in json.dumps(schema, default=str) else None
        return self._header_schemas[name]

    async def _list_resources(self, ctx: Context, params: PaginatedRequestParams | None) -> Any:
        user = self._principal(ctx)
        resources = await self._contents.resources(user) if self._view.is_for(user) else []
        return {"resources": resources, **_LIST_CACHE, **COMPLETE}

    async def _list_templates(self, ctx: Context, params: PaginatedRequestParams | None) -> Any:
        templates = self._contents.templates() if self._view.is_for(self._principal(ctx)) else []
        return {"resourceTemplates": templates, **_LIST_CACHE, **COMPLETE}

    async def _list_prompts(self, ctx: Context, params: PaginatedRequestParams | None) -> Any:
        prompts = self._contents.prompts() if self._view.is_for(self._principal(ctx)) else []
        return {"prompts": prompts, **_LIST_CACHE, **COMPLETE}

    # ------------------------------------------------------------------ requests that are calls

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        user, name = self._principal(ctx), self._names.canonical(params.name)
        if not self._view.is_for(user):
            raise MCPError(code=INVALID_PARAMS, message=str(ToolNotFoundError(params.name)))
        if self._pending_tools.has(params.name):
            outcome = await self._pending_tools.call(params, user)
            result = outcome if isinstance(outcome, dict) else await self._tool_result(outcome, user)
            return cast("CallToolResult", {**COMPLETE, **result})
        tool_name, arguments = self._view.unwrap(name, params.arguments)
        spec = self._view.spec(tool_name)  # as the client has seen it
        call = ClientCall(
            ctx,
            params,
            user,
            tool_name,
            arguments or {},
            run=partial(self._view.call, name, params.arguments, user=user, session=self._session(ctx)),
            finish=partial(self._tool_result, user=user, spec=spec, is_own=self._view.is_own(params.name)),
        )
        return cast("CallToolResult", await self._calls.serve(call))

    async def _read_resource(self, ctx: Context, params: ReadResourceRequestParams) -> Any:
        user, uri = self._principal(ctx), str(params.uri)
        artifact = await self._contents.read_artifact(uri, user)
        if artifact is not None:
            return {**artifact, **_LIST_CACHE, **COMPLETE}
        if not self._view.is_for(user):
            raise no_resource(uri)
        origin = self._contents.find_resource(uri)
        finish = partial(self._read_result, uri=uri, origin=origin, user=user)
        return await self._relay_to(ctx, params, user, *self._contents.reading(origin), finish)

    async def _get_prompt(self, ctx: Context, params: GetPromptRequestParams) -> Any:
        user = self._principal(ctx)
        if not self._view.is_for(user):
            raise no_prompt(params.name)
        origin = self._contents.find_prompt(params.name)

        async def finish(outcome: Outcome) -> dict[str, Any]:
            return await self._contents.prompt_result(self._completed(outcome, user), origin, user)

        return await self._relay_to(ctx, params, user, *self._contents.getting(origin, params.arguments), finish)

    async def _relay_to(
        self,
        ctx: Context,
        params: ReadResourceRequestParams | GetPromptRequestParams,
        user: str,
        tool_name: str,
        arguments: dict[str, Any],
        finish: Callable[[Outcome], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Serve a request for a resource or a prompt with the tool of its source."""
        run = partial(self._box.call, tool_name, arguments, user=user, session=self._session(ctx))
        return await self._calls.serve(ClientCall(ctx, params, user, tool_name, arguments, run, finish))

    def _restore_call(self, ctx: Context, run: RunSummary, user: str) -> ClientCall | None:
        """Return the call of a stored run, to continue it as a task."""
        if not self._sees(run.tool_name):
            return None
        params = CallToolRequestParams(name=run.tool_name)
        finish = partial(self._tool_result, user=user, spec=self._view.spec(run.tool_name))
        return ClientCall(ctx, params, user, run.tool_name, {}, partial(self._box.call, run.tool_name), finish)

    # ------------------------------------------------------------------ results

    async def _tool_result(
        self, outcome: Outcome, user: str, spec: ToolSpec | None = None, *, is_own: bool = False
    ) -> dict[str, Any]:
        spec = spec or self._view.spec(outcome.tool_name)
        match outcome:
            case Completed():
                owner, links = Principal.parse(user), self._view.links_large
                artifacts = self._box.store.artifacts
                result = await completed_result(outcome, spec, artifacts, owner=owner, links_large=links)
                shown = self._contents.shown(result, spec.source)
                return {**shown, "content": self._contents.shown_blocks(result["content"], spec.source)}
            case Failed(error=ToolNotFoundError() as error) if not is_own:
                raise MCPError(code=INVALID_PARAMS, message=str(error))
            case Failed():  # also of `call_tool` in a search view, which exists although its target may not
                return self._contents.shown(failed_result(outcome), spec.source)
            case Paused():
                pending = self._box.pending
                card = pending.card(await pending.get(outcome.pending_id, by=user))
                return pending_result(outcome, spec, card, answer_options(self._box, user))

    async def _read_result(self, outcome: Outcome, uri: str, origin: Origin, user: str) -> dict[str, Any]:
        if isinstance(outcome, Failed) and is_refusal(outcome.error):
            raise no_resource(uri)
        return {**_LIST_CACHE, **await self._contents.read_result(self._completed(outcome, user), origin, user)}

    def _completed(self, outcome: Outcome, user: str) -> Completed:
        """Return a completed outcome; raise any other one, because these results cannot contain errors."""
        match outcome:
            case Completed():
                return outcome
            case Failed(error=error):
                raise protocol_error(error) or MCPError(code=INTERNAL_ERROR, message=str(error))
            case Paused():
                message = where_to_answer(outcome, answer_options(self._box, user))
                raise MCPError(code=INVALID_REQUEST, message=message)

    # ------------------------------------------------------------------ beside calls

    async def _complete(self, ctx: Context, params: CompleteRequestParams) -> Any:
        plain = params.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta"})
        return {**COMPLETE, **await self._contents.complete(plain, self._principal(ctx))}

    async def _set_level(self, ctx: Context, params: SetLevelRequestParams) -> Any:
        self._calls.set_log_level(connection_of(ctx), params.level)
        return {}

    async def _subscribe(self, ctx: Context, params: SubscribeRequestParams) -> Any:
        await self._notifications.subscribe(connection_of(ctx), str(params.uri), self._principal(ctx))
        return {}

    async def _end_subscription(self, ctx: Context, params: UnsubscribeRequestParams) -> Any:
        await self._notifications.unsubscribe(connection_of(ctx), str(params.uri))
        return {}

    async def _listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        return await self._notifications.listen(ctx, params, self._principal(ctx))

    @asynccontextmanager
    async def publishing(self) -> AsyncGenerator[None]:
        """Notify clients of changes of the catalog while this is open; concurrent changes cause one notification."""
        try:
            async with self._notifications.publishing():
                yield
        finally:
            self._unsubscribe()
            self._unsubscribe_contents()
            await self._calls.tasks.close()


def _constant(session: str, _ctx: Context) -> str:
    return session


class _ListingServer(Server[Any]):
    """A server that declares to all clients that its lists can change."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *given: Any, **options: Any
    ) -> Any:
        """Return the response to `initialize`."""
        changes = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(notification_options or changes, *given, **options)
