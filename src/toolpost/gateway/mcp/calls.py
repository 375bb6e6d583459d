"""Requests of MCP clients that are calls: run them, present pauses to the client, and continue long calls as tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolRequestParams, GetPromptRequestParams, ReadResourceRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolpost.contracts.calls import OutcomeKey
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import Failed, Paused
from toolpost.gateway.access import CALLER
from toolpost.gateway.mcp.client import RequestClient
from toolpost.gateway.mcp.notifications import connection_of
from toolpost.gateway.mcp.pauses import PausedCalls, Retry
from toolpost.gateway.mcp.results import protocol_error, refuse_missing_capability
from toolpost.gateway.mcp.tasks import McpTask, Restored, Tasks, knows_tasks
from toolpost.runtime.job_runs import find_outcome

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from mcp.server.connection import Connection

    from toolpost.contracts.callers import Caller
    from toolpost.contracts.outcomes import Outcome
    from toolpost.gateway.mcp.client import Context
    from toolpost.gateway.mcp.progress import ProgressRelay
    from toolpost.toolbox.box import Toolbox

COMPLETE = {"resultType": "complete"}  # dropped for protocol 2025-11-25 and earlier
_LOOK_S = 2.0  # in case that an outcome is stored without an event
_STORING_S = 0.5
_RECORD_S = 0.02
_TASK_AFTER_S = 5.0  # a call that takes longer becomes a task if the client supports tasks
_DEFAULT_LOG_LEVEL = "info"  # of session-based clients that have set none


class ClientCall(NamedTuple):
    """A request that is a call: its tool, the function that runs it, and the one that renders its outcome."""

    ctx: Context
    params: CallToolRequestParams | ReadResourceRequestParams | GetPromptRequestParams
    user: str
    tool_name: str
    arguments: dict[str, Any]
    run: Callable[..., Awaitable[Outcome]]
    finish: Callable[[Outcome], Awaitable[dict[str, Any]]]


class ClientCalls:
    """Run the calls of MCP clients.

    A call that needs a person returns `input_required` to stateless clients; session-based clients are prompted. Calls
    of clients that support tasks continue in the background. `restore` returns the call of a run that another process
    started, or None if the user of the request may not see it.
    """

    def __init__(
        self,
        box: Toolbox,
        paused: PausedCalls,
        relay: ProgressRelay,
        *,
        principal: Callable[[Context], str],
        interactive: Callable[[Context], bool],
        restore: Callable[[Context, Any, str], ClientCall | None],
    ) -> None:
        self._box = box
        self._paused = paused
        self._relay = relay
        self._interactive = interactive
        self._restore = restore
        self.tasks = Tasks(principal, self._restore_task, interactive=interactive)
        self._log_levels: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()

    def set_log_level(self, connection: Connection | None, level: str) -> None:
        """Set the least level of log messages that a session-based client receives."""
        if connection is not None:
            self._log_levels[connection] = level

    async def serve(self, call: ClientCall) -> dict[str, Any]:
        """Run or resume the call of a request, and return a result that this client supports."""
        connection = connection_of(call.ctx)
        level = _DEFAULT_LOG_LEVEL if connection is None else self._log_levels.get(connection, _DEFAULT_LOG_LEVEL)
        is_tool = isinstance(call.params, CallToolRequestParams)
        # The responses of a retry are for the question that it answers, not for later questions of the call.
        early = _plain_responses(call.params.input_responses) if call.params.request_state is None else {}
        client = RequestClient(
            call.ctx,
            input_responses=early,
            log_level=level,
            relays=not is_tool,
            interactive=self._interactive(call.ctx),
        )
        # A call over stdio has no request.
        caller: Caller | None = None if call.ctx.request is None else call.ctx.request.scope.get(CALLER)
        context = ToolContext(client=client, caller="" if caller is None else caller.id)
        if not (is_tool and knows_tasks(call.ctx)):
            return await self._present(call, await self._outcome(call, client, context), context)
        # The key of its run stores the outcome, for a task that is polled after a restart.
        run_id = self._box.router.new_id("run")
        call = call._replace(run=partial(call.run, idempotency_key=OutcomeKey(f"run:{run_id}")))
        running = asyncio.get_running_loop().create_task(self._outcome(call, client, context, run_id))
        try:
            await _first(running, client.is_task.wait(), within_s=_TASK_AFTER_S)
            if call.params.request_state is None:  # a retry has no new run
                await self._recorded(running, run_id, call.user)
        except BaseException:  # the client is gone, or cannot get a task: the call ends with its request
            running.cancel()
            raise
        if running.done() and not (client.is_task.is_set() and isinstance(running.result(), Paused)):
            return await self._present(call, running.result(), context)
        return self.tasks.start(call.ctx, lambda task: self._work(task, call, running, context), run_id=run_id)

    async def _recorded(self, running: asyncio.Task[Outcome], run_id: str, user: str) -> None:
        """Wait until the run of a call is stored or the call has ended.

        The next request about the call may reach another worker, which finds it only by its run. A call that waits for
        its source to connect has no run yet.
        """
        while not running.done() and await self._box.run(run_id, user=user) is None:
            await asyncio.wait([running], timeout=_RECORD_S)

    async def _outcome(
        self, call: ClientCall, client: RequestClient, context: ToolContext, run_id: str | None = None
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

    async def _present(self, call: ClientCall, outcome: Outcome, context: ToolContext) -> dict[str, Any]:
        """Return an outcome in a form that this client supports; prompt a session-based client about a pause."""
        ctx = call.ctx
        if isinstance(outcome, Paused):
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                interim = self._paused.input_required(outcome, ctx, call.user, state=call.params.request_state)
                if interim is not None:
                    return interim
            else:
                outcome = await self._paused.prompt(ctx, outcome, call.user, context)
        if isinstance(outcome, Failed):
            refuse_missing_capability(outcome.error)
        return {**COMPLETE, **await call.finish(outcome)}

    # ------------------------------------------------------------------ calls as tasks

    async def _work(
        self, task: McpTask, call: ClientCall, running: asyncio.Task[Outcome], context: ToolContext
    ) -> dict[str, Any]:
        try:
            outcome = await asyncio.shield(running)
        except asyncio.CancelledError:
            if task.is_cancelled:
                running.cancel()
            raise
        return await self._finish_task(task, call, outcome, context)

    async def _finish_task(
        self, task: McpTask, call: ClientCall, outcome: Outcome, context: ToolContext
    ) -> dict[str, Any]:
        while isinstance(outcome, Paused):
            outcome = await self._resume(task, call, outcome, context)
        if isinstance(outcome, Failed) and (error := protocol_error(outcome.error)) is not None:
            raise error
        return await call.finish(outcome)

    async def _resume(self, task: McpTask, call: ClientCall, paused: Paused, context: ToolContext) -> Outcome:
        """Prompt the client of a task, or wait for another answer if the client cannot answer."""
        is_asked = paused.question.requests and self._paused.is_for_client(paused.question, call.ctx)
        requests = self._paused.client_requests(paused, call.ctx, call.user) if is_asked else {}
        try:
            if requests:
                responses = await task.request_input(requests)
                return await self._paused.take(paused, responses, call.ctx, call.user, context)
            task.message = paused.question.prompt
            return await self._paused.decided(paused, call.user)
        except asyncio.CancelledError:
            if task.is_cancelled:
                await self._paused.give_up(paused, call.ctx, call.user)
            raise

    async def _restore_task(self, ctx: Context, run_id: str, user: str) -> Restored | None:
        """Return a task that another process started, or this one before a restart, from its stored run."""
        run = await self._box.run(run_id, user=user)
        if run is None or f"{run.tenant}:{run.user}" != user:
            return None
        call = self._restore(ctx, run, user)
        if call is None:
            return None

        async def work(task: McpTask) -> dict[str, Any]:
            outcome = await self._stored_outcome(task, run_id, user)
            return await self._finish_task(task, call, outcome, ToolContext())

        return Restored(McpTask(user, run_id, created_at=run.started_at), work)

    async def _stored_outcome(self, task: McpTask, run_id: str, user: str) -> Outcome:
        """Wait for the outcome of a run in another process."""
        position, was_over = 0, False
        try:
            while (run := await self._box.run(run_id, user=user)) is not None:
                outcome = await find_outcome(self._box.store, run)
                if outcome is not None:
                    return outcome
                if run.status in ("running", "paused"):
                    position = await self._box.store.events.wait(
                        position, timeout_s=_LOOK_S, run=(run.tenant, run.run_id)
                    )
                elif was_over:
                    break
                else:  # the outcome is stored shortly after the last event
                    was_over = True
                    await asyncio.sleep(_STORING_S)
        except asyncio.CancelledError:
            if task.is_cancelled:
                await self._box.cancel(run_id, by=user)
            raise
        raise MCPError(code=INTERNAL_ERROR, message=f"the outcome of run {run_id!r} is not stored")


async def _first(running: asyncio.Task[Any], signal: Coroutine[Any, Any, Any], *, within_s: float) -> None:
    """Wait for a call to end, for a signal, or for a time limit."""
    signalled = asyncio.get_running_loop().create_task(signal)
    try:
        await asyncio.wait({running, signalled}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        signalled.cancel()


def _plain_responses(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return responses as on the wire."""
    plain: dict[str, Any] = {}
    for key, one in (given or {}).items():
        dump: Any = getattr(one, "model_dump", None)
        plain[key] = one if dump is None else dump(by_alias=True, mode="json", exclude_none=True)
    return plain
