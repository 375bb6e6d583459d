"""An MCP server over the catalog of a Toolbox, for clients of both protocol eras.

Every call goes through the Toolbox like any other. A call that needs a person answers `input_required` to clients of
the newer protocol; its state names the pending action, so that a retry collects the outcome in any process on the same
store, exactly once. A client that has retried for long gets the pending action as its result, before it gives up.
Nothing that a client sends answers an approval.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

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
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolpost import __version__
from toolpost.configuration.settings import ViewSettings
from toolpost.contracts.calls import OutcomeKey
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolNotFoundError
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.contracts.principal import Principal
from toolpost.gateway.access import CALLER
from toolpost.gateway.mcp_client import RequestClient
from toolpost.gateway.mcp_contents import Contents, no_prompt, no_resource
from toolpost.gateway.mcp_names import Names, Origin
from toolpost.gateway.mcp_news import News, connection_of
from toolpost.gateway.mcp_pauses import (
    PENDING_TOOLS,
    PausedCalls,
    Retry,
    answer_options,
    pending_result,
    where_to_answer,
)
from toolpost.gateway.mcp_progress import ProgressRelay
from toolpost.gateway.mcp_results import (
    completed_result,
    differs,
    failed_result,
    is_refusal,
    protocol_error,
    refuse_missing_capability,
    tool_definition,
)
from toolpost.gateway.mcp_tasks import McpTask, Restored, Tasks, knows_tasks
from toolpost.gateway.views import View
from toolpost.runtime.persistence import kept_outcome
from toolpost.wire.tracing import TRACEPARENT, find_tracer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Mapping

    from mcp.server.connection import Connection
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp_types import CallToolResult, InputRequiredResult, SubscriptionsListenResult

    from toolpost.contracts.callers import Caller
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.spec import ToolSpec
    from toolpost.toolbox.box import Toolbox

    Context = ServerRequestContext[Any, Any]

_COMPLETE = {"resultType": "complete"}  # dropped where the protocol is older
_LIST_CACHE = {"ttlMs": 60_000, "cacheScope": "private"}
_LOOK_S = 0.5
_RECORD_S = 0.02
_TASK_AFTER_S = 5.0  # a call that takes longer is a task for clients that know tasks
_HEADER_KEY = "x-mcp-header"
_DEFAULT_LOG_LEVEL = "info"  # of older clients that have set none
_INSTRUCTIONS = (
    "Tools of many sources under one policy. Some calls wait until a person has agreed; the result says so, and the "
    "same call is never carried out twice."
)


def _nobody(_ctx: Context) -> bool:
    """Say of every client that no person uses it."""
    return False


class McpServer:
    """Serve the tools of an open Toolbox over MCP; `principal` says for whom a request is, as `tenant:user`.

    `interactive` says whether a person uses the client of a request, who then answers what tools and servers ask; by
    default none does. Approvals are never answered by a client.

    Clients see the tools of `view`, by default all, and the resources and prompts of the MCP servers behind them.
    `relay` must be among the sinks of the Toolbox for progress to reach clients. `session` says in which session a
    request is, within which a repeated call that waits is the same call; by default all requests are in one.
    """

    def __init__(
        self,
        box: Toolbox,
        *,
        principal: Callable[[Context], str],
        interactive: Callable[[Context], bool] = _nobody,
        session: Callable[[Context], str] | None = None,
        relay: ProgressRelay | None = None,
        view: View | None = None,
        name: str = "toolpost",
    ) -> None:
        own_session = secrets.token_hex(8)
        self._box = box
        self._principal = principal
        self._interactive = interactive

        def one_session(_ctx: Context) -> str:
            return own_session

        self._session = session or one_session
        self._view = view or View(box, "all", ViewSettings())
        self._names = Names(self._view)
        self._contents = Contents(box, self._names, sees=self._sees)
        self._paused = PausedCalls(box, sees=self._sees, interactive=interactive)
        self._tasks = Tasks(principal, self._restore_task, interactive=interactive)
        self._relay = relay or ProgressRelay()
        self._news = News(self._contents, self._names, tools_differ=self._tools_differ)
        self._lists: dict[str, dict[str, Any]] = {}
        self._encoded_lists: dict[str, bytes] = {}
        self._header_schemas: dict[str, Mapping[str, Any] | None] = {}
        self._listed: list[Mapping[str, ToolSpec]] = [
            self._view.shown()
        ]  # what clients may have seen since the last notification of a change
        self._log_levels: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()
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
        self._tasks.serve(self.server)
        self._is_traced = find_tracer() is not None
        self._traced, self.server.middleware = self.server.middleware, [self._trace, self._serve_cached_list]
        self._unsubscribe = box.registry.subscribe(self._catalog_changed)
        self._unsubscribe_contents = box.sources.subscribe_contents(self._contents_changed)

    @property
    def initialization(self) -> Any:
        """The options that older clients get when they initialize."""
        return self.server.create_initialization_options()

    # ------------------------------------------------------------------ lists

    @property
    def view(self) -> View:
        """What clients see."""
        return self._view

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
        """Return whether clients would see other tools than when they were last told of a change."""
        now = self._view.shown()
        before, self._listed = self._listed, [now]
        return any(differs(listed, now) for listed in before)

    def _catalog_changed(self, _change: object) -> None:
        self._lists.clear()
        self._encoded_lists.clear()
        self._header_schemas.clear()
        self._names.catalog_changed()
        self._news.catalog_changed()

    def _contents_changed(self, source: str, uri: str | None) -> None:
        if not self._names.serves(source):
            return
        if uri is None:
            self._news.catalog_changed()
        else:
            self._news.resource_updated(Origin(source, uri))

    async def _trace(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Trace a request where anybody collects traces, or its client has one that goes on behind the gateway."""
        if self._is_traced or TRACEPARENT in (ctx.meta or {}):
            for middleware in reversed(self._traced):
                call_next = partial(middleware, call_next=call_next)
        return await call_next(ctx)

    async def _serve_cached_list(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer `tools/list` from the cache, which is validated once for each protocol version."""
        if ctx.method == "notifications/initialized":
            self._news.add_older_client(connection_of(ctx))
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
        """Return the cached result of `tools/list` as JSON; None before a client of this version has listed."""
        if not self._view.is_for(user):
            return None
        encoded, listed = self._encoded_lists.get(version), self._lists.get(version)
        if encoded is None and listed is not None:
            encoded = self._encoded_lists[version] = json.dumps(listed, separators=(",", ":")).encode()
        return encoded

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        if not self._view.is_for(self._principal(ctx)):
            return cast("ListToolsResult", {"tools": [], **_LIST_CACHE, **_COMPLETE})
        shown = self._view.shown()
        if shown != self._listed[-1]:
            self._listed.append(shown)
        pending = [tool for tool in PENDING_TOOLS if self._paused.is_own_tool(tool["name"])]
        own = [] if self._names.only else pending
        links, show = self._view.links_large, self._contents.shown
        tools = [show(tool_definition(name, spec, links_large=links), spec.source) for name, spec in shown.items()]
        return cast("ListToolsResult", {"tools": [*tools, *own], **_LIST_CACHE, **_COMPLETE})

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema that says which arguments a request also carries as headers; None where none are."""
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
        return {"resources": resources, **_LIST_CACHE, **_COMPLETE}

    async def _list_templates(self, ctx: Context, params: PaginatedRequestParams | None) -> Any:
        templates = self._contents.templates() if self._view.is_for(self._principal(ctx)) else []
        return {"resourceTemplates": templates, **_LIST_CACHE, **_COMPLETE}

    async def _list_prompts(self, ctx: Context, params: PaginatedRequestParams | None) -> Any:
        prompts = self._contents.prompts() if self._view.is_for(self._principal(ctx)) else []
        return {"prompts": prompts, **_LIST_CACHE, **_COMPLETE}

    # ------------------------------------------------------------------ requests that are calls

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        user, name = self._principal(ctx), self._names.canonical(params.name)
        if not self._view.is_for(user):
            raise MCPError(code=INVALID_PARAMS, message=str(ToolNotFoundError(params.name)))
        if self._paused.is_own_tool(params.name):
            told = await self._paused.call_own_tool(params, user)
            result = told if isinstance(told, dict) else await self._tool_result(told, user)
            return cast("CallToolResult", {**_COMPLETE, **result})
        tool_name, arguments = self._view.unwrap(name, params.arguments)
        spec = self._view.spec(tool_name)  # as the client knows it
        call = _Call(
            ctx,
            params,
            user,
            tool_name,
            arguments or {},
            run=partial(self._view.call, name, params.arguments, user=user, session=self._session(ctx)),
            finish=partial(self._tool_result, user=user, spec=spec, is_own=self._view.is_own(params.name)),
        )
        return cast("CallToolResult", await self._serve(call))

    async def _read_resource(self, ctx: Context, params: ReadResourceRequestParams) -> Any:
        user, uri = self._principal(ctx), str(params.uri)
        artifact = await self._contents.read_artifact(uri, user)
        if artifact is not None:
            return {**artifact, **_LIST_CACHE, **_COMPLETE}
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
        finish = partial(self._prompt_result, origin=origin, user=user)
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
        """Serve a request about a resource or a prompt by the tool of its source."""
        run = partial(self._box.call, tool_name, arguments, user=user, session=self._session(ctx))
        return await self._serve(_Call(ctx, params, user, tool_name, arguments, run, finish))

    async def _serve(self, call: _Call) -> dict[str, Any]:
        """Run the call of a request, or go on with it, and return what this client can take."""
        connection = connection_of(call.ctx)
        level = _DEFAULT_LOG_LEVEL if connection is None else self._log_levels.get(connection, _DEFAULT_LOG_LEVEL)
        is_tool = isinstance(call.params, CallToolRequestParams)
        # Those of a retry are for the question that it answers, not for what else its call may ask.
        early = _plain_responses(call.params.input_responses) if call.params.request_state is None else {}
        client = RequestClient(
            call.ctx,
            input_responses=early,
            log_level=level,
            relays=not is_tool,
            interactive=self._interactive(call.ctx),
        )
        context = ToolContext(client=client, caller=_caller_id(call.ctx))
        if not (is_tool and knows_tasks(call.ctx)):
            return await self._present(call, await self._outcome(call, client, context), context)
        # Under the key of its run the outcome is kept, for a task that is asked about after a restart.
        run_id = self._box.router.new_id("run")
        call = call._replace(run=partial(call.run, idempotency_key=OutcomeKey(f"run:{run_id}")))
        running = asyncio.get_running_loop().create_task(self._outcome(call, client, context, run_id))
        try:
            await _first(running, client.is_task.wait(), within_s=_TASK_AFTER_S)
            if call.params.request_state is None:  # a retry has no run of its own
                await self._recorded(running, run_id, call.user)
        except BaseException:  # the client has gone, or cannot be told of a task: the call ends with its request
            running.cancel()
            raise
        if running.done() and not (client.is_task.is_set() and isinstance(running.result(), Paused)):
            return await self._present(call, running.result(), context)
        return self._tasks.start(call.ctx, lambda task: self._work(task, call, running, context), run_id=run_id)

    async def _recorded(self, running: asyncio.Task[Outcome], run_id: str, user: str) -> None:
        """Wait until the run of a call is on disk, or the call has ended; of a source that connects there is none yet.

        The next request about the call may reach another worker, which knows it by its run alone.
        """
        while not running.done() and await self._box.run(run_id, user=user) is None:
            await asyncio.wait([running], timeout=_RECORD_S)

    async def _outcome(
        self, call: _Call, client: RequestClient, context: ToolContext, run_id: str | None = None
    ) -> Outcome:
        state = call.params.request_state
        try:
            if state is not None:
                responses = _plain_responses(call.params.input_responses)
                retry = Retry(call.tool_name, call.arguments, state, responses)
                return await self._paused.collect(retry, call.ctx, call.user, context)
            run_id = run_id or self._box.router.new_id("run")
            async with self._relay.to_client(run_id, call.ctx):
                return await call.run(run_id=run_id, context=context)
        finally:
            await client.flush()

    async def _present(self, call: _Call, outcome: Outcome, context: ToolContext) -> dict[str, Any]:
        """Return an outcome as this client can take it; a pause may be asked and collected on the way."""
        ctx = call.ctx
        if isinstance(outcome, Paused):
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                interim = self._paused.input_required(outcome, ctx, call.user, state=call.params.request_state)
                if interim is not None:
                    return interim
            else:
                outcome = await self._paused.ask(ctx, outcome, call.user, context)
        if isinstance(outcome, Failed):
            refuse_missing_capability(outcome.error)
        return {**_COMPLETE, **await call.finish(outcome)}

    async def _work(
        self, task: McpTask, call: _Call, running: asyncio.Task[Outcome], context: ToolContext
    ) -> dict[str, Any]:
        """Finish a call as a task: its client is asked by the task, and a person where the client cannot answer."""
        try:
            outcome = await asyncio.shield(running)
        except asyncio.CancelledError:
            if task.is_cancelled:
                running.cancel()
            raise
        return await self._finish_task(task, call, outcome, context)

    async def _finish_task(self, task: McpTask, call: _Call, outcome: Outcome, context: ToolContext) -> dict[str, Any]:
        while isinstance(outcome, Paused):
            outcome = await self._go_on(task, call, outcome, context)
        if isinstance(outcome, Failed) and (error := protocol_error(outcome.error)) is not None:
            raise error
        return await call.finish(outcome)

    async def _go_on(self, task: McpTask, call: _Call, paused: Paused, context: ToolContext) -> Outcome:
        """Ask the client of a task, or wait for a person, and return what came of it."""
        is_asked = paused.question.requests and self._paused.is_for_client(paused.question, call.ctx)
        requests = self._paused.client_requests(paused, call.ctx, call.user) if is_asked else {}
        try:
            if requests:
                return await self._paused.take(paused, await task.ask(requests), call.ctx, call.user, context)
            task.message = paused.question.prompt
            return await self._paused.decided(paused, call.user)
        except asyncio.CancelledError:
            if task.is_cancelled:
                await self._paused.give_up(paused, call.ctx, call.user)
            raise

    async def _restore_task(self, ctx: Context, run_id: str, user: str) -> Restored | None:
        """Take up a task that another process began, or this one before a restart, by what is kept of its run."""
        run = await self._box.run(run_id, user=user)
        if run is None or f"{run.tenant}:{run.user}" != user or not self._sees(run.tool_name):
            return None
        spec = self._view.spec(run.tool_name)
        params = CallToolRequestParams(name=run.tool_name)
        finish = partial(self._tool_result, user=user, spec=spec)
        call = _Call(ctx, params, user, run.tool_name, {}, partial(self._box.call, run.tool_name), finish)

        async def work(task: McpTask) -> dict[str, Any]:
            outcome = await self._kept_outcome(task, run_id, user)
            return await self._finish_task(task, call, outcome, ToolContext())

        return Restored(McpTask(user, run_id, created_at=run.started_at), work)

    async def _kept_outcome(self, task: McpTask, run_id: str, user: str) -> Outcome:
        """Wait for the outcome of a run that goes on elsewhere, or is gone on with after a restart."""
        try:
            while (run := await self._box.run(run_id, user=user)) is not None:
                outcome = await kept_outcome(self._box.store, run)
                if outcome is not None:
                    return outcome
                if run.status not in ("running", "paused"):
                    break
                await asyncio.sleep(_LOOK_S)
        except asyncio.CancelledError:
            if task.is_cancelled:
                await self._box.cancel(run_id, by=user)
            raise
        raise MCPError(code=INTERNAL_ERROR, message=f"the outcome of run {run_id!r} is not kept")

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
            case Failed():  # of a view's own tool too: it exists, the one that it was asked for may not
                return self._contents.shown(failed_result(outcome), spec.source)
            case Paused():
                pending = self._box.pending
                card = pending.card(await pending.get(outcome.pending_id, by=user))
                return pending_result(outcome, spec, card, answer_options(self._box, user))

    async def _read_result(self, outcome: Outcome, uri: str, origin: Origin, user: str) -> dict[str, Any]:
        if isinstance(outcome, Failed) and is_refusal(outcome.error):
            raise no_resource(uri)
        return {**_LIST_CACHE, **await self._contents.read_result(self._completed(outcome, user), origin, user)}

    async def _prompt_result(self, outcome: Outcome, origin: Origin, user: str) -> dict[str, Any]:
        return await self._contents.prompt_result(self._completed(outcome, user), origin, user)

    def _completed(self, outcome: Outcome, user: str) -> Completed:
        """Return what a server said; raise what went wrong, for there is no result that could tell it."""
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
        return {**_COMPLETE, **await self._contents.complete(plain, self._principal(ctx))}

    async def _set_level(self, ctx: Context, params: SetLevelRequestParams) -> Any:
        if (connection := connection_of(ctx)) is not None:
            self._log_levels[connection] = params.level
        return {}

    async def _subscribe(self, ctx: Context, params: SubscribeRequestParams) -> Any:
        await self._news.subscribe(connection_of(ctx), str(params.uri), self._principal(ctx))
        return {}

    async def _end_subscription(self, ctx: Context, params: UnsubscribeRequestParams) -> Any:
        await self._news.unsubscribe(connection_of(ctx), str(params.uri))
        return {}

    async def _listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        return await self._news.listen(ctx, params, self._principal(ctx))

    @asynccontextmanager
    async def publishing(self) -> AsyncGenerator[None]:
        """Tell clients when the catalog changes, while this is open; several changes at once are told once."""
        try:
            async with self._news.publishing():
                yield
        finally:
            self._unsubscribe()
            self._unsubscribe_contents()
            await self._tasks.close()


class _Call(NamedTuple):
    """A request of a client that is a call: its tool, how it is run, and how its outcome becomes a result."""

    ctx: Context
    params: CallToolRequestParams | ReadResourceRequestParams | GetPromptRequestParams
    user: str
    tool_name: str
    arguments: dict[str, Any]
    run: Callable[..., Awaitable[Outcome]]
    finish: Callable[[Outcome], Awaitable[dict[str, Any]]]


class _ListingServer(Server[Any]):
    """A server that tells clients of both eras that its lists change."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *given: Any, **options: Any
    ) -> Any:
        """Return what older clients get when they initialize."""
        changes = NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(notification_options or changes, *given, **options)


def _caller_id(ctx: Context) -> str:
    """Return the id of the gateway's caller that sent a request; empty over stdin and stdout."""
    caller: Caller | None = None if ctx.request is None else ctx.request.scope.get(CALLER)
    return "" if caller is None else caller.id


async def _first(running: asyncio.Task[Any], signal: Coroutine[Any, Any, Any], *, within_s: float) -> None:
    """Wait for a call to end, or for a signal, or some time."""
    signalled = asyncio.get_running_loop().create_task(signal)
    try:
        await asyncio.wait({running, signalled}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        signalled.cancel()


def _plain_responses(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return responses as they were on the wire."""
    plain: dict[str, Any] = {}
    for key, one in (given or {}).items():
        dump: Any = getattr(one, "model_dump", None)
        plain[key] = one if dump is None else dump(by_alias=True, mode="json", exclude_none=True)
    return plain
