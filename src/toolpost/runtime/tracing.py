"""Spans of calls, with the attributes of OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.outcomes import Completed, Failed, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from opentelemetry.trace import Tracer

    from toolpost.contracts.calls import RequestedCall
    from toolpost.runtime.tool_runtime import ToolRuntime

_LONGEST_ARGUMENTS = 8192


class CallTracer:
    """Run calls in spans, `execute_tool NAME`; `with_arguments` adds the arguments, redacted."""

    def __init__(
        self, tracer: Tracer, find: Callable[[str], ToolRuntime | None], *, with_arguments: bool = False
    ) -> None:
        self._tracer = tracer
        self._find = find
        self._with_arguments = with_arguments

    async def trace(self, request: RequestedCall, running: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Run a call in a new span below the current one."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - there is a tracer

        name = request.tool_name
        with self._tracer.start_as_current_span(
            f"execute_tool {name}", attributes=self._attributes(request), record_exception=False
        ) as span:
            outcome = await running
            status = "completed" if isinstance(outcome, Completed) else "paused"
            if isinstance(outcome, Failed):
                status, error = "failed", outcome.error
                span.set_attribute("error.type", error.error_code)
                span.set_status(StatusCode.ERROR, str(error))
            span.set_attribute("toolpost.outcome", status)
            return outcome

    def _attributes(self, request: RequestedCall) -> dict[str, Any]:
        runtime = self._find(request.tool_name)
        source = None if runtime is None else runtime.spec.source
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": request.tool_name,
            "gen_ai.tool.call.id": request.call_id,
            "gen_ai.tool.type": "extension" if source else "function",
            "toolpost.run.id": request.run_id,
            "toolpost.principal": str(request.principal),
        }
        if source:
            attributes["toolpost.source"] = source
        if self._with_arguments and runtime is not None:
            shown = runtime.call_ref(request).redact({"params": request.arguments})["params"]
            attributes["gen_ai.tool.call.arguments"] = json.dumps(shown, default=str)[:_LONGEST_ARGUMENTS]
        return attributes
