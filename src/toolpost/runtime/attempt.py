"""One way of a call through the pipeline, from where it was asked or resumed to where it ends or pauses."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from urllib.parse import quote

from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import PauseSignal
from toolpost.contracts.events import EventCode, JsonText
from toolpost.contracts.outcomes import Failed
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.questions import Question
from toolpost.contracts.storage import JournalEntry
from toolpost.runtime.contexts import keep_context
from toolpost.runtime.results import artifact_of
from toolpost.runtime.revive import recorded_outcome
from toolpost.runtime.teller import as_told, why

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from pathlib import Path

    from toolpost.contracts.calls import AuthorizedCall, RequestedCall, ValidatedCall
    from toolpost.contracts.context import ProtectedPath
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.events import CallRef
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import CallPreview
    from toolpost.contracts.storage import Store
    from toolpost.policy.rules import Verdict
    from toolpost.runtime.lane import Lane
    from toolpost.runtime.teller import Teller


_now = time.monotonic
Stop = Literal["timeout", "cancelled"]


class ContextDefaults(NamedTuple):
    """What a tool's context holds when the caller gave none: folders below one for each tenant."""

    allowed_paths: tuple[str, ...] | None = None
    data_dir: Path | None = None
    protected_paths: Callable[[], tuple[ProtectedPath, ...]] = tuple

    def folder(self, name: str, tenant: str) -> str | None:
        """A tenant's folder; the local one's is the data folder's own, and none lies within another's."""
        if self.data_dir is None:
            return None
        if tenant == LOCAL_TENANT:
            return str(self.data_dir / name)
        return str(self.data_dir / "tenants" / quote(tenant, safe="").replace(".", "%2E") / name)


class Runtime(Protocol):
    """The part of the router that a running call needs."""

    store: Store
    teller: Teller
    context_defaults: ContextDefaults

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | str,
        *,
        principal: Principal,
        run_id: str,
        task_id: str,
        context: ToolContext | None,
        held: tuple[object, ...],
        call_id: str | None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool."""
        ...


class Attempt:
    """What the router knows of a call while it runs, and what it lends to the tool."""

    __slots__ = (
        "announced",
        "began",
        "call",
        "cancelling",
        "cancels",
        "deadline",
        "invoked",
        "journaled",
        "lane",
        "preview",
        "request",
        "router",
        "saved",
        "started",
        "stopped",
        "summary",
        "task",
        "timeout_s",
        "told",
        "verdict",
    )

    task: asyncio.Task[Any] | None
    timeout_s: float
    deadline: float
    cancelling: int  # how often the task had been asked to stop before this call began

    def __init__(self, router: Runtime, request: RequestedCall, lane: Lane | None, call: CallRef, told: Any) -> None:
        self.router = router
        self.request = request
        self.lane = lane
        self.call = call
        self.began = _now()
        self.announced = False
        self.cancels = 0
        self.invoked = False
        self.started = request.started
        self.stopped: Stop | None = None
        self.journaled = False
        self.saved: tuple[str, ...] = ()
        self.summary: Any = None
        self.told = told
        self.preview: CallPreview | None = None
        self.verdict: Verdict | None = None  # the tool's own, unless a preview called for another

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the attempt began."""
        return (_now() - self.began) * 1000

    @property
    def began_at(self) -> float:
        """When the attempt began, by the clock on the wall."""
        return time.time() - self.elapsed_ms / 1000

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - asyncio.get_running_loop().time()

    def stop(self, why: Stop) -> None:
        """Cancel the call and remember why, so that its end can be told right."""
        self.stopped = self.stopped or why
        if self.task is not None:
            self.cancels += 1
            self.task.cancel()

    @property
    def is_cancelled(self) -> bool:
        """Whether anyone asked the task to stop since the call began; a tool can raise CancelledError by itself."""
        return self.task is not None and self.task.cancelling() > self.cancelling

    def take_back(self) -> bool:
        """Undo our own cancellations of the task, which others share; whether somebody else wants it stopped, too."""
        if self.task is None:
            return False
        for _ in range(self.cancels):
            self.task.uncancel()
        self.began = _now()
        self.cancels = 0
        return self.task.cancelling() > self.cancelling

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments exactly as they were asked for, whatever the tool has done to them since."""
        asked: dict[str, Any] = json.loads(self.told) if isinstance(self.told, JsonText) else self.request.arguments
        return asked

    def input_of(self, call: ValidatedCall | AuthorizedCall) -> Any:
        """The arguments for the record; told once more only where validation changed them."""
        if call.arguments is self.request.arguments and self.told is not None:
            return self.told
        return as_told(call.arguments)

    def context(self) -> ToolContext:
        """The context that a tool sees; made only for tools that ask for one."""
        request, given = self.request, self.request.context
        defaults, tenant = self.router.context_defaults, request.principal.tenant
        return ToolContext(
            request.task_id or request.run_id,
            user_id=given.user_id if given and given.user_id else str(request.principal),
            tenant_id=tenant,
            trace_id=(given.trace_id if given else "") or request.run_id,
            correlation_id=request.correlation_id or request.call_id,
            call_id=request.call_id,
            idempotency_key=request.idempotency_key or request.call_id,
            allowed_paths=given.allowed_paths if given and not given.inherits_paths else defaults.allowed_paths,
            protected_paths=(*defaults.protected_paths(), *(given.protected_paths if given else ())),
            memory_dir=(given.memory_dir if given else None) or defaults.folder("memory", tenant),
            session_dir=(given.session_dir if given else None) or defaults.folder("sessions", tenant),
            llm_context=given.llm_context if given else None,
            tool_context=given.tool_context if given else None,
            answers=request.answers,
            services=LentServices(self),
            preview=self.preview,
        )

    def described(self) -> dict[str, Any]:
        """The call as the journal keeps it: enough to run it again or to ask a person about it."""
        request = self.request
        return {
            "arguments": self.asked,
            "answers": {key: _answer_dict(answer) for key, answer in request.answers.items()},
            "correlation_id": request.correlation_id,
            "task_id": request.task_id,
            "timeout_s": request.timeout_s,
            "idempotency_key": request.idempotency_key,
            "context": keep_context(request.context),
            "replay": self.lane.spec.replay if self.lane else "unsafe",
            "tool": self.lane.called if self.lane else (),
        }

    def journal_entry(self, step: str) -> JournalEntry:
        """The intent of this call, or of a step inside it."""
        request = self.request
        return JournalEntry(
            call_id=request.call_id,
            step=step,
            run_id=request.run_id,
            tool_name=request.tool_name,
            principal=request.principal,
            call=self.described(),
            at=time.time(),
        )


def _answer_dict(answer: Any) -> dict[str, Any]:
    return {
        "decision": answer.decision,
        "value": answer.value,
        "reason": answer.reason,
        "arguments": None if answer.arguments is None else dict(answer.arguments),
        "state": answer.state,
    }


class LentServices:
    """What a running tool can ask of the runtime through its context."""

    __slots__ = ("_attempt", "_made", "_turns")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._made: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]]) -> Any:
        """Run `fn` the first time, return its recorded result ever after; two at once take turns."""
        if not key:
            raise ValueError("ctx.once needs a key that names the step")
        async with self._turns.setdefault(key, asyncio.Lock()):
            return await self._once(key, fn)

    async def _once(self, key: str, fn: Callable[[], Awaitable[Any]]) -> Any:
        attempt, journal = self._attempt, self._attempt.router.store.journal
        call_id = attempt.request.call_id
        kept = await journal.find(call_id, key)
        if kept is not None and kept.done:
            return kept.result
        if kept is not None:
            answer = attempt.request.answers.get(f"once:{key}")
            if answer is None:
                raise PauseSignal(_step_unknown(attempt.request.tool_name, key))
            if answer.decision == "happened":
                await journal.finish(call_id, key, answer.value)
                return answer.value
        await journal.begin(attempt.journal_entry(key))
        try:
            result = await fn()
        except (Exception, PauseSignal):
            await journal.forget(call_id, key)  # the step said itself that it did not happen
            raise
        await journal.finish(call_id, key, result)
        return result

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        """Tell what the call is doing."""
        self._attempt.router.teller.tell(
            self._attempt.call, EventCode.SUBAGENT_ACTION, {"text": text, "fraction": fraction}
        )

    def fell_back(self, name: str, *, to: str, error: ToolError) -> None:
        """Tell that one provider failed and the next is asked."""
        facts = {"provider": name, "next": to, **why(error)}
        self._attempt.router.teller.tell(self._attempt.call, EventCode.FALLBACK_USED, facts)

    async def call(self, tool_name: str, arguments: Mapping[str, Any] | str) -> Outcome:
        """Call another tool as part of the same run, under the same policy.

        A tool that runs again gets what came of the calls with effects that it made before: like `once`.
        """
        attempt, request = self._attempt, self._attempt.request
        call_id = self._inner_id(tool_name, arguments)
        if request.answers:  # it is not the first time that the tool runs
            known = await recorded_outcome(attempt.router.store, call_id, tenant=request.principal.tenant)
            if known is not None and not _is_interrupted(known):
                return known
        held = attempt.lane.limiters if attempt.lane else ()
        return await attempt.router.call(
            tool_name,
            arguments,
            principal=request.principal,
            run_id=request.run_id,
            task_id=request.task_id,
            context=request.context,
            held=(*request.held, *held),
            call_id=call_id,
        )

    def _inner_id(self, tool_name: str, arguments: Mapping[str, Any] | str) -> str:
        """An id that the same call gets whenever the tool runs: of the tool, the arguments, and how often before."""
        try:
            text = json.dumps([tool_name, arguments], sort_keys=True, default=str)
        except (TypeError, ValueError, RecursionError):  # it will be refused
            text = json.dumps([str(tool_name)])
        self._made[text] += 1
        digest = sha256(f"{self._made[text]}|{text}".encode()).hexdigest()
        return f"{self._attempt.request.call_id}.{digest[:16]}"

    async def save_artifact(self, data: bytes, *, media_type: str, name: str) -> str:
        """Keep bytes as an artifact of this call and return its id."""
        call = self._attempt.call
        ref = await self._attempt.router.store.artifacts.put(data, artifact_of(call, media_type=media_type, name=name))
        self._attempt.saved += (ref.id,)
        facts = {"artifact_id": ref.id, "media_type": media_type, "size": ref.size}
        self._attempt.router.teller.tell(call, EventCode.ARTIFACT_STORED, facts)
        return ref.id


def _is_interrupted(outcome: Outcome) -> bool:
    """Whether a call lost its process and may be made again."""
    return isinstance(outcome, Failed) and outcome.error.error_code == "interrupted"


def _step_unknown(tool_name: str, key: str) -> Question:
    prompt = f"{tool_name} was interrupted during step {key!r}. Did that step happen?"
    return Question(kind="unknown", prompt=prompt, reason="outcome_unknown", payload={"step": key}, key=f"once:{key}")
