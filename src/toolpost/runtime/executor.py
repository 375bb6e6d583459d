"""Run tools for a host that emits the end of a call itself."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolpost.auth.credentials import Authorizer
from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, ToolResult, pause_signal
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.policy.redaction import Redactor
from toolpost.policy.rules import Policy
from toolpost.runtime.model_messages import model_text
from toolpost.runtime.results import summary_of
from toolpost.runtime.router import CallLimits, ToolRouter
from toolpost.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.storage import EventSink

TIMEOUT_S = 30.0
_MOST_EVENTS = 10_000


class ToolExecutor:
    """Run tools for an agent that updates its own state before the end of a call is emitted.

    `execute` emits TOOL_CALL_REQUESTED immediately and never the completion: the host calls `emit_completion` when its
    state is up to date; subscribers then never see the end of a call with an outdated state. Failures are results; only
    a pause and cancellation are raised. At most `max_concurrent` tools run concurrently.

    `Toolbox.executor` creates one with the policy and the store of a Toolbox. With your own registry, nothing is stored
    and no approval is required; validation, deadlines, retries and redaction are the same.
    """

    def __init__(
        self,
        tools: ToolRegistry | ToolRouter,
        bus: EventSink,
        *,
        max_concurrent: int = 3,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._router = _bare_router(tools, timeout_s).for_host(bus) if isinstance(tools, ToolRegistry) else tools
        self._bus = bus
        self._limiter = asyncio.Semaphore(max_concurrent)

    async def execute(
        self,
        tool_name: str,
        params: Mapping[str, Any] | str | None,
        context: ToolContext,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> ToolResult:
        """Run a tool; PauseSignal if an answer is required first. `params` may be JSON text."""
        started = time.time() * 1000
        async with self._limiter:
            outcome = await self._router.call(
                tool_name,
                params,
                principal=_principal(context),
                run_id=context.trace_id or context.task_id or None,
                task_id=context.task_id,
                timeout_s=timeout_s,
                idempotency_key=idempotency_key,
                correlation_id=context.correlation_id,
                context=context,
            )
        return tool_result(outcome, started)

    def emit_completion(
        self, tool_name: str, result: ToolResult, context: ToolContext, *, resumed: bool = False
    ) -> None:
        """Emit the end of a call: TOOL_CALL_COMPLETED with the result, or TOOL_CALL_FAILED with the error.

        The end of a call that was `resumed` by an answer is in the log already, and is emitted only to the bus.
        """
        code = EventCode.TOOL_CALL_COMPLETED if result.success else EventCode.TOOL_CALL_FAILED
        facts: dict[str, Any] = {"duration_ms": result.duration_ms}
        if result.success:
            facts["result"] = result.result
        else:
            info = result.error_info or {}
            facts |= {"error": result.error, "error_message": result.error, "error_code": info.get("error_code")}
        who = _principal(context)
        run_id = result.run_id or context.trace_id or context.task_id
        call_id = result.call_id or context.call_id
        call = CallRef(
            run_id,
            call_id,
            tool_name,
            who.tenant,
            who.user,
            context.correlation_id or call_id,
            self._router.redactor.plain,
        )
        self._bus.emit(RunEvent(code, time.time(), call, facts))
        if resumed:
            return
        logged = {key: fact for key, fact in facts.items() if key != "result"}
        if result.success:  # the log contains a summary, never the complete result
            logged["summary"] = summary_of(result.result)
        self._router.store.events.emit(RunEvent(code, time.time(), call, logged))


def _bare_router(registry: ToolRegistry, timeout_s: float) -> ToolRouter:
    return ToolRouter.create(
        registry,
        store=MemoryStore(max_events=_MOST_EVENTS),
        policy=Policy("exploratory"),  # no approver exists
        authorizer=Authorizer(),
        redactor=Redactor(),
        limits=CallLimits(timeout_s=timeout_s),
        joins_repeated=False,
    )


def tool_result(outcome: Outcome, started: float) -> ToolResult:
    """Return an outcome as a result of a call that began at `started`; PauseSignal for a pause."""
    base = ToolResult(
        success=False,
        started_at=started,
        completed_at=time.time() * 1000,
        duration_ms=outcome.duration_ms,
        call_id=outcome.call_id,
        run_id=outcome.run_id,
    )
    match outcome:
        case Completed(content=content):
            text = model_text(outcome) if "trust" in outcome.meta else outcome.text
            return replace(base, success=True, result=content, content_text=text, artifacts=outcome.artifacts)
        case Failed(error=error):
            return replace(base, error=str(error), error_info=error.to_dict(), content_text=model_text(outcome))
        case Paused():
            raise pause_signal(outcome)


def _principal(context: ToolContext) -> Principal:
    if context.user_id is None:
        return Principal(context.tenant_id or LOCAL_TENANT, "agent")
    if context.tenant_id is not None and ":" not in context.user_id:
        return Principal(context.tenant_id, context.user_id)
    return Principal.parse(context.user_id)
