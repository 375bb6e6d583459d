"""State of a running call from request or resume to its end or pause, the deadlines of all calls in flight, and ids."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import time
from collections import Counter
from hashlib import sha256
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from weakref import WeakSet

from msgspec import Struct

from toolpost.contracts.context import ProtectedPath, ToolContext
from toolpost.contracts.errors import PauseSignal, ToolConflictError, ToolError
from toolpost.contracts.events import CallRef, EventCode, JsonText
from toolpost.contracts.lines import RateLimit
from toolpost.contracts.outcomes import Failed, Outcome
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import CallPreview, Question
from toolpost.contracts.storage import JournalEntry, Store
from toolpost.policy.paths import AllowedPaths
from toolpost.runtime.event_emitter import EventEmitter, describe_value, error_facts
from toolpost.runtime.persistence import dump_context, recorded_outcome
from toolpost.runtime.results import artifact_ref
from toolpost.schema.json_values import finite_number
from toolpost.stores.agent_folders import SHARED_MEMORY, USER_MEMORY, session_folder, tenant_folder, user_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
    from pathlib import Path

    from toolpost.contracts.calls import RequestedCall
    from toolpost.contracts.sources import ToolSource
    from toolpost.policy.rules import Verdict
    from toolpost.runtime.tool_runtime import ToolRuntime

_now = time.monotonic
Stop = Literal["timeout", "cancelled", "stopping"]
PARKED = "restart"  # the key under which a parked call has its answer
_VALUES_AT_ONCE, _VALUES_PER_SECOND = 1000, 100.0  # of a stream; a fast one must not fill the log
_MOST_NESTED = 20  # calls within one another; a tool that calls itself without end goes no deeper
_OUTER_S = 0.5
NEVER = float("inf")
_CANCEL_AGAIN_S = 1.0  # a tool that swallowed the cancellation is cancelled again after this long
_OTHER_LOOP = (
    "this Toolbox was opened in another event loop, and its connections live there: open one in this loop, or hand "
    "the call over with asyncio.run_coroutine_threadsafe(box.call(...), loop)"
)
_ENDINGS = tuple(f"{number:03x}" for number in range(0x1000))  # of the ids on a page
_CLOSED = "this Toolbox is closed: its `async with` is over; make the call within it, or open a new one"


class ContextDefaults(NamedTuple):
    """Values of a tool's context where the caller gave none."""

    allowed_paths: AllowedPaths = AllowedPaths(None)
    data_dir: Path | None = None
    protected_paths: Callable[[], tuple[ProtectedPath, ...]] = tuple

    def folder(self, name: str, tenant: str) -> str | None:
        """Return a tenant's folder, if there is a data folder."""
        return None if self.data_dir is None else str(tenant_folder(self.data_dir, name, tenant))

    def user_folder(self, name: str, person: Principal) -> str | None:
        """Return the folder of a user, if there is a data folder."""
        return None if self.data_dir is None else str(user_folder(self.data_dir, name, person))

    def session_folder(self, person: Principal) -> str | None:
        """Return the folder of a person's sessions, if there is a data folder."""
        return None if self.data_dir is None else str(session_folder(self.data_dir, person))


class RouterServices(Protocol):
    """The parts of the router that a running call needs."""

    store: Store
    emitter: EventEmitter
    context_defaults: ContextDefaults
    inflight: InFlightCalls

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
        """Call a tool as part of another call."""
        ...


class Attempt(Struct, eq=False):
    """State of one call while it runs, and the context that its tool gets."""

    router: RouterServices
    request: RequestedCall
    runtime: ToolRuntime | None
    call: CallRef
    snapshot: Any
    began: float  # by the monotonic clock, as the deadline
    deadline: float
    timeout_s: float
    task: asyncio.Task[Any] | None
    cancelling: int  # cancellations of the task before this call began
    started: bool
    cancels: int = 0
    stopped: Stop | None = None
    expires: float = NEVER  # when the current try ends, where it has a bound of its own
    expiries: int = 0  # cancellations of the task because the current try expired
    announced: bool = False
    invoked: bool = False
    joined: bool = False  # the same call waits already, and this one waits for that
    renewals: int = 0  # of a credential that was refused
    journaled: bool = False
    intent_written: bool = False  # unlike `journaled`, only once the store has confirmed it
    artifact_ids: tuple[str, ...] = ()
    summary: Any = None
    preview: CallPreview | None = None
    verdict: Verdict | None = None  # None for the tool's own; a preview may choose another
    result_json: str | None = None  # of the content, where the search for credentials has encoded it

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the attempt began."""
        return (_now() - self.began) * 1000

    @property
    def began_at(self) -> float:
        """Wall-clock time at which the attempt began."""
        return time.time() - self.elapsed_ms / 1000

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - _now()

    def stop(self, reason: Stop) -> None:
        """Cancel the call's task and remember the reason for its error."""
        self.stopped = self.stopped or reason
        if self.task is not None:
            self.cancels += 1
            self.task.cancel()

    def expire(self) -> None:
        """Cancel the current try; the call goes on."""
        if self.task is not None:
            self.expiries += 1
            self.task.cancel()

    def end_try(self) -> bool:
        """Undo the cancellations of a try that expired; return whether it did."""
        expiries, self.expires, self.expiries = self.expiries, NEVER, 0
        if self.task is None or not expiries:
            return False
        for _ in range(expiries):
            self.task.uncancel()
        return True

    @property
    def may_be_parked(self) -> bool:
        """Whether the call can go on in another process: it is to stop here, and may run from the top once more."""
        runtime = self.runtime
        is_stopping = self.stopped == "stopping" and self.started and runtime is not None
        return is_stopping and (not self.invoked or (runtime is not None and runtime.spec.replay != "unsafe"))

    @property
    def is_cancelled(self) -> bool:
        """Whether the task was cancelled since the call began; a tool can also raise CancelledError by itself."""
        return self.task is not None and self.task.cancelling() > self.cancelling

    def uncancel(self) -> bool:
        """Undo our own cancellations of the caller's task; return whether others have cancelled it, too."""
        if self.task is None:
            return False
        for _ in range(self.cancels):
            self.task.uncancel()
        self.began = _now()
        self.cancels = 0
        return self.task.cancelling() > self.cancelling

    @property
    def original_arguments(self) -> dict[str, Any]:
        """The arguments as requested, whatever the tool has done to them since."""
        arguments: dict[str, Any] = self.request.arguments
        if isinstance(self.snapshot, JsonText):
            arguments = json.loads(self.snapshot)
        return arguments

    def context(self) -> ToolContext:
        """Build the context of a tool; called only for tools that take one."""
        request, given = self.request, self.request.context
        defaults, tenant = self.router.context_defaults, request.principal.tenant
        memory, shared = (given.memory_dir, given.shared_memory_dir) if given else (None, None)
        if memory is None:
            memory = defaults.user_folder(USER_MEMORY, request.principal)
            shared = shared or defaults.folder(SHARED_MEMORY, tenant)
        return ToolContext(
            request.task_id or request.run_id,
            user_id=given.user_id if given and given.user_id else str(request.principal),
            tenant_id=tenant,
            trace_id=(given.trace_id if given else "") or request.run_id,
            correlation_id=request.correlation_id or request.call_id,
            call_id=request.call_id,
            idempotency_key=request.idempotency_key or request.call_id,
            allowed_paths=given.allowed_paths
            if given and not given.inherits_paths
            else defaults.allowed_paths.of(request.principal),
            protected_paths=(*defaults.protected_paths(), *(given.protected_paths if given else ())),
            memory_dir=memory,
            shared_memory_dir=shared,
            session_dir=(given.session_dir if given else None) or defaults.session_folder(request.principal),
            llm_context=given.llm_context if given else None,
            tool_context=given.tool_context if given else None,
            answers=request.answers,
            services=AttemptServices(self),
            preview=self.preview,
            client=given.client if given else None,
        )

    def journal_data(self) -> dict[str, Any]:
        """Return the call as the journal keeps it: enough to run it again or to ask a person about it."""
        request = self.request
        return {
            "arguments": self.original_arguments,
            "answers": {key: _answer_dict(answer) for key, answer in request.answers.items()},
            "correlation_id": request.correlation_id,
            "task_id": request.task_id,
            "timeout_s": request.timeout_s,
            "idempotency_key": request.idempotency_key,
            "context": dump_context(request.context),
            "replay": self.runtime.spec.replay if self.runtime else "unsafe",
            "resumes": self.runtime is not None and self.runtime.spec.resumes,
            "tool": self.runtime.called if self.runtime else (),
        }

    def journal_entry(self, step: str) -> JournalEntry:
        """Build the journal entry of this call, or of a step inside it, which is run again by its call alone."""
        request = self.request
        return JournalEntry(
            call_id=request.call_id,
            step=step,
            run_id=request.run_id,
            tool_name=self.call.tool_name,
            principal=request.principal,
            call={} if step else self.journal_data(),
            at=time.time(),
        )


def _answer_dict(answer: Any) -> dict[str, Any]:
    return {
        "decision": answer.decision,
        "value": answer.value,
        "reason": answer.reason,
        "changes": None if answer.changes is None else [dict(change) for change in answer.changes],
        "state": answer.state,
    }


class AttemptServices:
    """Services of the runtime that a tool uses through its context."""

    __slots__ = ("_attempt", "_counts", "_locks", "_values")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._values: RateLimit | None = None
        self._counts: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]], *, repeatable: bool) -> Any:
        """Run `fn` once per call and key, and return its recorded result from then on; concurrent uses wait.

        Where `fn` raises an Exception, it did not happen. Where it is cut off by anything else, such as a cancellation
        or SystemExit, it may have: its intent stays, as after a crash, and a person is asked before it runs again.
        """
        if not key:
            raise ValueError("ctx.once needs a key that names the step")
        async with self._locks.setdefault(key, asyncio.Lock()):
            return await self._once(key, fn, repeatable=repeatable)

    async def _once(self, key: str, fn: Callable[[], Awaitable[Any]], *, repeatable: bool) -> Any:
        attempt, journal = self._attempt, self._attempt.router.store.journal
        call_id = attempt.request.call_id
        entry = await journal.find(call_id, key)
        if entry is not None and entry.done:
            return entry.result
        if entry is not None and not repeatable:
            question = _step_question(attempt.request.tool_name, entry)
            answer = attempt.request.answers.get(question.key)
            if answer is None:
                raise PauseSignal(question)
            if answer.decision == "happened":
                await journal.finish(call_id, key, answer.value)
                return answer.value
        await journal.begin(attempt.journal_entry(key))
        try:
            result = await fn()
        except (Exception, PauseSignal):
            await journal.forget(call_id, key)
            raise
        await journal.finish(call_id, key, result)
        return result

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        """Emit the progress of the call."""
        facts = {"text": text, "fraction": finite_number(fraction)}
        self._attempt.router.emitter.emit(self._attempt.call, EventCode.SUBAGENT_ACTION, facts)

    def stream(self, value: Any) -> None:
        """Emit one value of a stream; one that comes too fast is counted in `left_out` of the next."""
        if self._values is None:
            self._values = RateLimit(burst=_VALUES_AT_ONCE, per_second=_VALUES_PER_SECOND)
        if not self._values.allows():
            return
        facts = describe_value(value, self._attempt.call)
        if self._values.dropped:
            facts["left_out"], self._values.dropped = self._values.dropped, 0
        self._attempt.router.emitter.emit(self._attempt.call, EventCode.SUBAGENT_ACTION, facts)

    def extend_deadline(self, timeout_s: float) -> None:
        """Give the call this long in all, where that is longer than it has."""
        attempt = self._attempt
        if timeout_s > attempt.timeout_s:
            attempt.router.inflight.move_deadline(attempt, timeout_s)
        attempt.expires = max(attempt.expires, attempt.began + timeout_s)

    def fell_back(self, name: str, *, to: str, error: ToolError) -> None:
        """Emit that one provider failed and the next is used."""
        facts = {"provider": name, "next": to, **error_facts(error)}
        self._attempt.router.emitter.emit(self._attempt.call, EventCode.FALLBACK_USED, facts)

    async def call(self, tool_name: str, arguments: Mapping[str, Any] | str, *, key: str) -> Outcome:
        """Call another tool as part of the same run, under the same policy.

        A tool that runs again after a pause gets the recorded outcomes of its earlier calls with effects, as by `once`.
        """
        attempt, request = self._attempt, self._attempt.request
        call_id = self._inner_call_id(tool_name, arguments, key)
        if call_id.count(".") > _MOST_NESTED:
            message = f"calls are nested more than {_MOST_NESTED} deep; does {tool_name!r} call itself?"
            error = ToolConflictError(message, tool_name=tool_name, code="nested_too_deep")
            return Failed(call_id, request.run_id, tool_name, error, 0.0)
        if request.answers:  # the tool runs again after a pause
            known = await recorded_outcome(attempt.router.store, call_id, tenant=request.principal.tenant)
            if known is not None and not _is_interrupted(known):
                return known
        held = attempt.runtime.limiters if attempt.runtime else ()
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

    def _inner_call_id(self, tool_name: str, arguments: Mapping[str, Any] | str, key: str) -> str:
        """Return an id that the same inner call gets in every run: of tool, arguments, key and count so far."""
        try:
            text = json.dumps([tool_name, arguments, *([key] if key else [])], sort_keys=True, default=str)
        except (TypeError, ValueError, RecursionError):  # validation will refuse the call
            text = json.dumps([str(tool_name)])
        self._counts[text] += 1
        digest = sha256(f"{self._counts[text]}|{text}".encode()).hexdigest()
        return f"{self._attempt.request.call_id}.{digest[:16]}"

    async def save_artifact(self, data: bytes, *, media_type: str, name: str) -> str:
        call = self._attempt.call
        ref = await self._attempt.router.store.artifacts.put(data, artifact_ref(call, media_type=media_type, name=name))
        self._attempt.artifact_ids += (ref.id,)
        facts = {"artifact_id": ref.id, "media_type": media_type, "size": ref.size}
        self._attempt.router.emitter.emit(call, EventCode.ARTIFACT_STORED, facts)
        return ref.id

    async def read_artifact(self, artifact_id: str) -> bytes:
        tenant, user = self._attempt.request.principal
        return await self._attempt.router.store.artifacts.read(artifact_id, tenant=tenant, user=user)


def _is_interrupted(outcome: Outcome) -> bool:
    """Return whether a call lost its process and may be made again."""
    return isinstance(outcome, Failed) and outcome.error.error_code == "interrupted"


def _step_question(tool_name: str, entry: JournalEntry) -> Question:
    """Return the question about a step that began and has no result.

    Its key names the time, because an answer is about that time alone: a step that then runs and is cut off again is
    asked about again.
    """
    prompt = f"{tool_name} was interrupted during step {entry.step!r}. Did that step happen?"
    key, payload = f"once:{entry.step}:{entry.at}", {"step": entry.step}
    return Question(kind="unknown", prompt=prompt, reason="outcome_unknown", payload=payload, key=key)


class InFlightCalls:
    """All running calls of one Toolbox; one loop timer is armed for the earliest deadline.

    After `bind` calls may only be made in that event loop; after `close`, in none.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None  # of the loop
        self._is_closed = False
        self._attempts: set[Attempt] = set()
        self.leave = self._attempts.discard  # removes a call; the timer stays armed and checks the calls left
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = NEVER

    def __len__(self) -> int:
        return len(self._attempts)

    def bind(self) -> None:
        """Refuse calls in other event loops than the current one."""
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()

    def begin(
        self,
        router: RouterServices,
        request: RequestedCall,
        runtime: ToolRuntime | None,
        call: CallRef,
        snapshot: Any,
        timeout_s: float,
    ) -> Attempt:
        """Add a call of the current task, with its deadline, and return its state."""
        # In the thread of the loop nothing else can run a task of it; asking for the running loop takes longer.
        task = asyncio.current_task(self._loop) if get_ident() == self._thread else None
        if task is None:
            self.check_loop()
            task = asyncio.current_task()
        began = _now()
        deadline, cancelling = began + timeout_s, 0 if task is None else task.cancelling()
        attempt = Attempt(
            router, request, runtime, call, snapshot, began, deadline, timeout_s, task, cancelling, request.started
        )
        self._attempts.add(attempt)
        if deadline < self._armed_for:
            self._arm(deadline)
        return attempt

    def move_deadline(self, attempt: Attempt, timeout_s: float) -> None:
        """Change the timeout of a running call, counted from its beginning."""
        attempt.deadline += timeout_s - attempt.timeout_s
        attempt.timeout_s = timeout_s
        if attempt.deadline < self._armed_for:
            self._arm(attempt.deadline)

    def bound_try(self, attempt: Attempt, expires: float) -> None:
        """Cancel the current try of a call at a time, if it has not ended by then."""
        attempt.expires = expires
        if expires < self._armed_for:
            self._arm(expires)

    def check_loop(self) -> None:
        """Raise RuntimeError when calls cannot be made in the current event loop, or not any more."""
        if self._is_closed:
            raise RuntimeError(_CLOSED)
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError(_OTHER_LOOP)

    def close(self) -> None:
        """Refuse further calls."""
        self._is_closed, self._thread = True, None

    def cancel(self, target_id: str, *, tenant: str | None = None, before: float = float("inf")) -> int:
        """Cancel a call, or every call of a run that began before a time, and return their number."""
        self.check_loop()  # a task belongs to its loop
        found = [a for a in self._attempts if target_id in (a.call.call_id, a.call.run_id)]
        mine = [a for a in found if tenant in (None, a.call.tenant) and a.began_at <= before]
        for attempt in mine:
            attempt.stop("cancelled")
        return len(mine)

    def ids(self) -> list[str]:
        """Return the call and run ids by which running calls can be cancelled."""
        return [an_id for a in self._attempts for an_id in (a.call.call_id, a.call.run_id)]

    def tool_names(self) -> list[str]:
        """Return the tool of each running call."""
        return [attempt.call.tool_name for attempt in self._attempts]

    async def stop_all(self, *, patience_s: float = 5.0) -> None:
        """Cancel every call but that of the current task, and wait until they have ended."""
        loop, me = asyncio.get_running_loop(), asyncio.current_task()
        until = loop.time() + patience_s
        others = [attempt for attempt in self._attempts if attempt.task is not me]
        for attempt in others:
            attempt.stop("stopping" if PARKED in attempt.request.answers else "cancelled")
        while loop.time() < until and not self._attempts.isdisjoint(others):  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.005)  # the tasks belong to the callers and go on, so they cannot be awaited

    async def finish(self, *, within_s: float) -> None:
        """Wait until no call runs any more, for at most `within_s` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while loop.time() < until and self._attempts:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)

    async def park_all(self, *, patience_s: float = 5.0) -> None:
        """Stop every call so that those that may be repeated go on in another process, and wait for that.

        A call that waits for one inside it has a moment to pause or fail by what came of that one.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        outer_at: dict[str, float] = {}  # when a call was last seen to wait for one inside it
        while (now := loop.time()) < until and self._attempts:
            running = {attempt.call.call_id: attempt for attempt in self._attempts}
            outer_at |= {call_id.rpartition(".")[0]: now for call_id in running}
            for call_id, attempt in running.items():
                if attempt.stopped is None and now - outer_at.get(call_id, 0.0) > _OUTER_S:
                    attempt.stop("stopping")
            await asyncio.sleep(0.005)

    async def finish_on(self, source: ToolSource, *, within_s: float) -> None:
        """Wait until no call runs on a source any more, for at most `within_s` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while loop.time() < until and any(_runs_on(attempt, source) for attempt in self._attempts):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = asyncio.get_running_loop().call_later(when - _now(), self._check)

    def _check(self) -> None:
        now = _now()
        self._timer, self._armed_for = None, NEVER
        for attempt in list(self._attempts):
            if attempt.deadline <= now:
                attempt.stop("timeout")
                attempt.deadline = now + _CANCEL_AGAIN_S
            elif attempt.expires <= now:
                attempt.expire()
                attempt.expires = now + _CANCEL_AGAIN_S
        if self._attempts:
            self._arm(min(min(attempt.deadline, attempt.expires) for attempt in self._attempts))


def _runs_on(attempt: Attempt, source: ToolSource) -> bool:
    return attempt.runtime is not None and attempt.runtime.entry.source is source


class IdMaker:
    """Make ids of calls, runs and questions from the time, a random mark and a number; an id grants no access.

    The time comes first, so that people who type an id need only its beginning.
    """

    def __init__(self) -> None:
        self.renew()
        _MAKERS.add(self)

    def renew(self) -> None:
        """Choose a new mark and restart the count."""
        self._mark = secrets.token_hex(4)
        self._pages = itertools.count()
        self._ids: Iterator[str] = iter(())
        self._since, self._until = 0.0, 0.0

    def make(self, prefix: str) -> str:
        """Return a new id."""
        return f"{prefix}_{self.tick()}"

    def tick(self) -> str:
        """Return an id without prefix; a call and the run that it opens share one."""
        now = time.time()
        if not self._since <= now < self._until:  # many calls begin within a millisecond
            self._open_page(now)
        while (made := next(self._ids, None)) is None:
            self._open_page(now)
        return made

    def _open_page(self, now: float) -> None:
        """Begin the ids of another millisecond, or more ids of this one; formatting a number for each takes longer."""
        ms = int(now * 1000)
        stem = f"{ms:011x}{self._mark}{next(self._pages):03x}"
        self._ids = map(stem.__add__, _ENDINGS)  # one iterator, so that two threads never get the same id
        self._since, self._until = ms / 1000, (ms + 1) / 1000


_MAKERS: WeakSet[IdMaker] = WeakSet()


def _renew_all() -> None:
    """Renew all makers in a forked child, which would otherwise repeat the ids of its parent."""
    for maker in _MAKERS:
        maker.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
