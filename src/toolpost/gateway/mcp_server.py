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
from toolpost.contracts.errors import PendingNotFoundError, ToolError, ToolNotFoundError
from toolpost.contracts.events import EventCode
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.contracts.principal import Principal
from toolpost.gateway.mcp_results import (
    ARTIFACTS,
    META,
    completed_result,
    failed_result,
    resource_contents,
    tool_definition,
)
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from mcp.server.connection import Connection
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp_types import CallToolResult, InputRequiredResult, ReadResourceResult

    from toolpost.contracts.events import RunEvent
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import PendingAction, Question
    from toolpost.contracts.spec import ToolSpec
    from toolpost.toolbox.box import Toolbox

    Context = ServerRequestContext[Any, Any]

_COMPLETE = {"resultType": "complete"}  # dropped where the protocol is older
_LIST_CACHE = {"ttlMs": 60_000, "cacheScope": "private"}
_COLLECT_S = 25.0  # a retry waits this long for a person before it says again what is missing
_ANSWER = "answer"
_STATUS, _WAIT = "pending_status", "pending_wait"
_LONGEST_WAIT_S = 120.0
_SETTLE_S = 0.1
_INSTRUCTIONS = (
    "Tools of many sources under one policy. Some calls wait until a person has agreed; the result says so, and the "
    "same call is never carried out twice."
)
_PENDING_ID = {"pending_id": {"type": "string", "description": "The id that the waiting call's result named"}}
_PENDING_TOOLS: list[dict[str, Any]] = [
    {
        "name": _STATUS,
        "description": "Say what came of an earlier call of yours that waits for a person.",
        "inputSchema": {"type": "object", "properties": _PENDING_ID, "required": ["pending_id"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": _WAIT,
        "description": "Wait until a person has decided about an earlier call of yours, and return its result.",
        "inputSchema": {
            "type": "object",
            "properties": {**_PENDING_ID, "timeout_s": {"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S}},
            "required": ["pending_id"],
        },
        "annotations": {"readOnlyHint": True},
    },
]


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

    `relay` must be among the sinks of the Toolbox for progress to reach clients.
    """

    def __init__(
        self,
        box: Toolbox,
        *,
        principal: Callable[[Context], str],
        relay: ProgressRelay | None = None,
        name: str = "toolpost",
    ) -> None:
        self._box = box
        self._principal = principal
        self._relay = relay or ProgressRelay()
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._lists: dict[str, dict[str, Any]] = {}
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
        box.registry.subscribe(self._catalog_changed)

    @property
    def initialization(self) -> Any:
        """The options that older clients get when they initialize."""
        return self.server.create_initialization_options(NotificationOptions(tools_changed=True))

    # ------------------------------------------------------------------ lists

    def _catalog_changed(self, _change: object) -> None:
        self._lists.clear()
        self._changed.set()

    async def _serve_cached_list(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer `tools/list` from the cache, which is validated once for each protocol version."""
        if ctx.method == "notifications/initialized":
            connection = ctx.session._connection  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no other way
            self._connections.add(connection)
            connection.exit_stack.callback(self._connections.discard, connection)
        if ctx.method != "tools/list" or (ctx.params or {}).get("cursor"):
            return await call_next(ctx)
        cached = self._lists.get(ctx.protocol_version)
        if cached is None:
            cached = self._lists[ctx.protocol_version] = cast("dict[str, Any]", await call_next(ctx))
        return cached

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        registry = self._box.registry
        shown = [(tool.name, registry.find(tool.name).spec) for tool in registry.to_llm_tools()]
        tools = [tool_definition(name, spec) for name, spec in shown]
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            tools += _PENDING_TOOLS
        return cast("ListToolsResult", {"tools": tools, **_LIST_CACHE, **_COMPLETE})

    # ------------------------------------------------------------------ calls

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        user = self._principal(ctx)
        if params.name in (_STATUS, _WAIT) and not self._box.registry.has(params.name):
            result = await self._pending_tool(params, user)
        elif params.request_state is not None:
            result = await self._collect(ctx, params, user)
        else:
            result = await self._present(ctx, await self._call(ctx, params, user), user)
        return cast("CallToolResult", {**_COMPLETE, **result})

    async def _call(self, ctx: Context, params: CallToolRequestParams, user: str) -> Outcome:
        run_id = self._box.router.new_id("run")
        async with self._relay.to_client(run_id, ctx):
            return await self._box.call(params.name, params.arguments, user=user, run_id=run_id)

    async def _present(self, ctx: Context, outcome: Outcome, user: str) -> dict[str, Any]:
        """Return an outcome as this client can take it; a pause may be asked and collected on the way."""
        if isinstance(outcome, Paused):
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return _input_required(outcome, ctx)
            asked = await self._elicit(ctx, outcome, user)
            outcome = outcome if asked is None else asked
        return await self._result(outcome, user)

    async def _result(self, outcome: Outcome, user: str) -> dict[str, Any]:
        match outcome:
            case Completed():
                spec = self._box.registry.find(outcome.tool_name).spec
                tenant = Principal.parse(user).tenant
                return await completed_result(outcome, spec, self._box.store.artifacts, tenant=tenant)
            case Failed(error=ToolNotFoundError() as error):
                raise MCPError(code=INVALID_PARAMS, message=str(error))
            case Failed():
                return failed_result(outcome)
            case Paused():
                return _pending_result(outcome, self._box.registry.find(outcome.tool_name).spec)

    async def _collect(self, ctx: Context, params: CallToolRequestParams, user: str) -> dict[str, Any]:
        """Answer a retry: hand in what the client's user filled in, and return what came of the call."""
        paused = await self._own_pause(str(params.request_state), user)
        if paused is None or not self._is_same_call(paused, params):
            raise MCPError(code=INVALID_PARAMS, message="Invalid or expired requestState: call the tool without it")
        responses: Mapping[str, Any] = params.input_responses or {}
        if paused.question.kind == "input" and _ANSWER in responses:
            outcome = await self._hand_in(paused, _plain(responses[_ANSWER]), user)
        else:
            outcome = await self._box.pending.outcome(paused.id, by=user, wait_s=_COLLECT_S)
        return await self._present(ctx, outcome, user)

    async def _own_pause(self, pending_id: str, user: str) -> PendingAction | None:
        """Return the pending action of this user's own call; None for all others, which are not told apart."""
        try:
            action = await self._box.pending.get(pending_id, by=user)
        except (PendingNotFoundError, ValueError):
            return None
        return action if str(action.asked_by) == user else None

    def _is_same_call(self, action: PendingAction, params: CallToolRequestParams) -> bool:
        registry = self._box.registry
        canonical = registry.find(params.name).spec.name if registry.has(params.name) else params.name
        return action.tool_name == canonical and dict(action.arguments) == (params.arguments or {})

    async def _hand_in(self, action: PendingAction, response: dict[str, Any], user: str) -> Outcome:
        """Hand in a form that the client's user filled in, declined or closed."""
        pending = self._box.pending
        try:
            match response.get("action"):
                case "accept":
                    return await pending.answer(action.id, response.get("content") or {}, by=user)
                case "decline":
                    return await pending.deny(action.id, by=user, reason="declined in the client")
                case _:
                    return await pending.outcome(action.id, by=user, wait_s=0)
        except ToolError as error:
            if error.error_code == "already_answered":
                return await pending.outcome(action.id, by=user, wait_s=_COLLECT_S)
            return Failed(action.call_id, action.run_id, action.tool_name, error)

    async def _elicit(self, ctx: Context, paused: Paused, user: str) -> Outcome | None:
        """Ask the user of an older client that can ask; None where the client cannot, or nobody decided in time."""
        request = _elicitation(paused, ctx)
        if request is None or not ctx.session.can_send_request:
            return None
        related = ctx.request_id
        if request["mode"] == "url":
            reply = await ctx.session.elicit_url(
                request["message"], request["url"], request["elicitationId"], related_request_id=related
            )
        else:
            reply = await ctx.session.elicit_form(request["message"], request["requestedSchema"], related)
        action = await self._box.pending.get(paused.pending_id, by=user)
        if paused.question.kind == "input":
            return await self._hand_in(action, _plain(reply), user)
        return await self._box.pending.outcome(action.id, by=user, wait_s=_COLLECT_S if reply.action == "accept" else 0)

    async def _pending_tool(self, params: CallToolRequestParams, user: str) -> dict[str, Any]:
        """Tell the caller of a pending call what came of it; `pending_wait` waits for a person for a while."""
        given = params.arguments or {}
        pending_id, wait_s = given.get("pending_id"), given.get("timeout_s", _COLLECT_S)
        if not isinstance(pending_id, str) or not isinstance(wait_s, int | float):
            raise MCPError(code=INVALID_PARAMS, message=f"{params.name} takes pending_id, a text, and timeout_s")
        action = await self._own_pause(pending_id, user)
        if action is None:
            raise MCPError(code=INVALID_PARAMS, message=f"none of your calls waits as {pending_id!r}")
        wait = min(max(0.0, wait_s), _LONGEST_WAIT_S) if params.name == _WAIT else 0
        return await self._result(await self._box.pending.outcome(pending_id, by=user, wait_s=wait), user)

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
        """Tell clients when the catalog changes, while this is open; several changes at once are told once."""
        task = asyncio.get_running_loop().create_task(self._publish_changes())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._listen.close()

    async def _publish_changes(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SETTLE_S)
            self._changed.clear()
            await self._bus.publish(ToolsListChanged())
            for connection in list(self._connections):
                await connection.send_tool_list_changed()


def _input_required(paused: Paused, ctx: Context) -> dict[str, Any]:
    """Return the interim result of a call that waits; its state is the id of the pending action."""
    result: dict[str, Any] = {"resultType": "input_required", "requestState": paused.pending_id}
    request = _elicitation(paused, ctx)
    if request is not None:
        result["inputRequests"] = {_ANSWER: {"method": "elicitation/create", "params": request}}
    return result


def _elicitation(paused: Paused, ctx: Context) -> dict[str, Any] | None:
    """Return what the client's user is asked: a form for input, a page to sign in, or news of an approval.

    An approval is only told of: whoever may decide does so elsewhere, and the client's user says when to look again.
    """
    question, offered = paused.question, _elicitation_modes(ctx)
    address = question.payload.get("auth_url")
    if question.kind == "consent" and isinstance(address, str):
        if "url" not in offered:
            return None
        return {"mode": "url", "message": question.prompt, "url": address, "elicitationId": paused.pending_id}
    if "form" not in offered:
        return None
    if question.kind == "input":
        return {"mode": "form", "message": question.prompt, "requestedSchema": _form(question)}
    return {"mode": "form", "message": _where_to_answer(paused), "requestedSchema": _EMPTY_FORM}


_EMPTY_FORM: dict[str, Any] = {"type": "object", "properties": {}}


def _form(question: Question) -> dict[str, Any]:
    schema = question.answer_schema
    if schema is not None and schema.get("type") == "object":
        return dict(schema)
    return {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


def _elicitation_modes(ctx: Context) -> set[str]:
    capabilities = ctx.session.client_capabilities
    offered = None if capabilities is None else capabilities.elicitation
    if offered is None:
        return set()
    modes = {mode for mode in ("form", "url") if getattr(offered, mode, None) is not None}
    return modes or {"form"}  # an empty capability means forms, as before there were modes


def _where_to_answer(paused: Paused) -> str:
    question = paused.question
    target = question.target.get("summary", "")
    shown = f"{question.prompt}\narguments: {dict(question.arguments)}" + (f"\ntarget: {target}" if target else "")
    return f"{shown}\nWhoever may decide runs: toolpost pending approve {paused.pending_id}"


def _pending_result(paused: Paused, spec: ToolSpec) -> dict[str, Any]:
    """Return the result for clients that can be asked nothing: what waits, where it is answered, how to collect it.

    Clients refuse a result without structured content where the tool has an output schema, unless it is an error.
    """
    text = (
        f"This call waits for a person. {_where_to_answer(paused)}\nThen call {_WAIT}, pending_id: {paused.pending_id}"
    )
    meta = {f"{META}pending_id": paused.pending_id, f"{META}run_id": paused.run_id, f"{META}kind": paused.question.kind}
    return {"content": [{"type": "text", "text": text}], "isError": spec.output_schema is not None, "_meta": meta}


def _plain(response: Any) -> dict[str, Any]:
    data: Any = response if is_object(response) else response.model_dump(by_alias=True, mode="json")
    return cast("dict[str, Any]", data)
