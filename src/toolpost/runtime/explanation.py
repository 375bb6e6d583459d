"""Explain the verdict of the policy about a call, without making the call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import RequestedCall
from toolpost.contracts.errors import ToolNotFoundError, ToolSchemaError, ToolValidationError
from toolpost.policy.call_hashes import CalledTool
from toolpost.policy.redaction import secret_values
from toolpost.runtime.attempt import Attempt
from toolpost.runtime.event_emitter import snapshot_arguments
from toolpost.runtime.failures import failure_of
from toolpost.runtime.pauses import describe_call, with_answerers
from toolpost.runtime.tool_context import build_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import CallPreview, Question
    from toolpost.policy.rules import Verdict
    from toolpost.runtime.services import RuntimeServices
    from toolpost.runtime.tool_context import RouterServices
    from toolpost.runtime.tool_runtime import ToolRuntime, ToolRuntimes

LONGEST_PREVIEW_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict about a call, the problems of its arguments, and the question for its approver, redacted.

    `destructive` is that of the tool's preview, if it decides. The question describes the call even if the verdict is
    to allow it.
    """

    verdict: Verdict
    issues: Sequence[str] = ()
    destructive: bool | None = None
    question: Question | None = None


class Explainer:
    """Explains verdicts about calls without running, recording or connecting anything."""

    def __init__(self, runtimes: ToolRuntimes, router: RouterServices, services: RuntimeServices) -> None:
        self._runtimes = runtimes
        self._router = router  # for calls that the tool's preview makes
        self._redactor = services.redactor
        self._ids = services.ids
        self._clock = services.clock

    async def explain(
        self, tool_name: str, arguments: Mapping[str, Any] | None = None, *, principal: Principal
    ) -> Explanation:
        """Return the verdict about a call.

        Without `arguments`, the verdict applies to all calls of the tool. A preview of the tool may change it for
        these arguments.
        """
        runtime = await self._runtimes.prepare(tool_name)
        verdict = runtime.verdict
        if arguments is None:
            return Explanation(verdict=verdict)
        random_part = self._ids.random_part()
        request = RequestedCall(f"call_{random_part}", f"run_{random_part}", tool_name, dict(arguments), principal)
        redactor, preview, destructive = runtime.redactor_for(request), None, None
        try:
            validated = runtime.validate(request)
            if verdict.action != "deny":
                preview = await self._preview(runtime, request, validated.arguments)
        except ToolValidationError as error:
            issues = [redactor.message(issue) for issue in error.issues]
            return Explanation(verdict=verdict, issues=issues)
        except Exception as raised:  # noqa: BLE001 - the tool's own preview
            return Explanation(verdict=verdict, issues=[redactor.message(failure_of(raised, tool_name).message)])
        if preview is not None and preview.destructive is not None and runtime.verdicts is not None:
            destructive = preview.destructive
            verdict = runtime.verdicts[destructive]
        if verdict.action == "deny":
            return Explanation(verdict=verdict, destructive=destructive)
        asked = with_answerers(verdict.ask(preview), verdict.approvals)
        question = describe_call(asked, runtime.called, request.arguments, redactor)
        return Explanation(verdict=verdict, destructive=destructive, question=question)

    async def describe_interrupted(
        self, asked: Question, tool_name: str, call: Mapping[str, Any]
    ) -> tuple[Question, str]:
        """Return a question with the details of an interrupted call in the journal, and the tool's hash.

        The hash is that of the tool in the catalog, or of the called tool if it is missing.
        """
        arguments = call["arguments"]
        try:
            tool = (await self._runtimes.prepare(tool_name)).called
        except (ToolNotFoundError, ToolSchemaError):
            tool = CalledTool(*call.get("tool", ()))
        redactor = self._redactor.with_secrets(secret_values(arguments, tool.secret_paths))
        shown = describe_call(asked, tool, arguments, redactor)
        return with_answerers(shown, self._runtimes.approvals(tool_name)), tool.digest

    async def _preview(
        self, runtime: ToolRuntime, request: RequestedCall, arguments: dict[str, Any]
    ) -> CallPreview | None:
        """Return the tool's preview of a call, if it has one."""
        if runtime.previewer is None:
            return None
        now, limit_s = self._clock.monotonic(), min(LONGEST_PREVIEW_S, runtime.deadline_s)
        call, snapshot = runtime.call_ref(request), snapshot_arguments(request.arguments)
        attempt = Attempt(
            request, runtime, call, snapshot, now, now + limit_s, limit_s, None, 0, started=False, clock=self._clock
        )
        async with asyncio.timeout(limit_s):
            return await runtime.previewer(arguments, build_context(self._router, attempt))
