"""Agent that runs tasks in the background: each task reasons, plans, acts and reflects until it has a result."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.agents.agent_model import CONTEXT_TOKENS, AgentModel, reply_text
from toolpost.agents.answer_watch import AnswerWatch
from toolpost.agents.catalogs import agent_registry, has_effects
from toolpost.agents.conversation import (
    CANCELLED,
    MISTAKES,
    TOO_MANY_CALLS,
    Budget,
    Conversation,
    PlannerCall,
    check_at_least_one,
    close_tool_calls,
    run_loop,
    too_many_calls,
    tool_messages,
)
from toolpost.agents.models.names import open_model
from toolpost.agents.reflection import PostTaskReflector, Reflector
from toolpost.agents.steps import ActionResult, Actor, PlanStep, TaskContext
from toolpost.agents.tasks import Task, TaskRecorder, WaitingStep, current_outcome, pause_prompt
from toolpost.builtin.agent_tools import HOST
from toolpost.builtin.specs import AGENT_TOOLS, COLLECTIONS
from toolpost.catalog.registry import belongs
from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import (
    PauseSignal,
    ToolCancelledError,
    ToolClientError,
    ToolConflictError,
    ToolError,
    ToolExecutionError,
)
from toolpost.contracts.events import EventCode, RunEvent
from toolpost.contracts.outcomes import Paused, now_ms
from toolpost.contracts.principal import PrincipalCache
from toolpost.policy.secret_shapes import MASK
from toolpost.runtime.concurrency import BackgroundTasks, map_concurrent
from toolpost.runtime.event_bus import EventBus
from toolpost.runtime.event_emitter import error_facts
from toolpost.runtime.executor import tool_result
from toolpost.runtime.failures import failure_of
from toolpost.schema.json_values import is_array, is_object
from toolpost.stores.agent_records.folders import TASK_FOLDER
from toolpost.stores.agent_records.task_logs import RESTARTED, LoggedTask, TaskLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.contracts.chat import ChatModel, ModelReply
    from toolpost.contracts.spec import ToolSpec
    from toolpost.contracts.storage import EventSink
    from toolpost.policy.redaction import Redactor
    from toolpost.toolbox.box import Toolbox

_log = logging.getLogger("toolpost.agents")
INSTRUCTIONS = (
    "You work on one task, in the background and without a person to talk to. Call tools where they help. When the "
    "task is done, or cannot be done, state the outcome without calling a tool: that text is the result of the task."
)
BUDGET = Budget(steps=25, time_s=3600.0)
NEED_INFO = "need_more_info"
_REPAIR_ATTEMPTS = 3
_MAX_STORED_TASKS = 1000
_MOST_ADOPTED = 200
_MOST_RESTARTS = 3  # of a task that may itself crash the process
_PATIENCE_S = 1.0


class _Suspended:
    """The end of the loop of a task that waits for answers."""


SUSPENDED = _Suspended()


class Agent:
    """Runs tasks in the background, each until it has a result, at most `max_tasks` concurrently.

    `tools` are the names, patterns or collections of the Toolbox's tools that tasks may use; None is all. `extras` adds
    tools that act inside the agent, such as `notify`. Each task is limited by `budget`; its time is checked between
    turns. `on_event` is called with every event of a task, in addition to the `bus`.

    A step that pauses suspends its task until its question is answered, in any process. Events are emitted on the bus
    and, with a data folder, logged. A task that fails does not affect other tasks. With a `reflector`, a completed task
    is reflected on in the background.
    """

    def __init__(  # noqa: PLR0913 - one declaration; all but the first two are keyword-only
        self,
        box: Toolbox,
        llm: str | ChatModel,
        *,
        user: str | None = None,
        bus: EventSink | None = None,
        tools: Sequence[str] | None = None,
        extras: Sequence[str] = (),
        instructions: str = INSTRUCTIONS,
        budget: Budget = BUDGET,
        max_tasks: int = 8,
        reflector: PostTaskReflector | None = None,
        on_event: Callable[[RunEvent], None] | None = None,
        context_tokens: int = CONTEXT_TOKENS,
        llm_timeout_s: float = 120.0,
    ) -> None:
        check_at_least_one("max_tasks", max_tasks)
        self.user = PrincipalCache()[user]
        self.bus = bus or EventBus()
        self.registry, self._unfollow = agent_registry(box, collection_members(box, extras), _accepts(box, tools))
        self._box = box
        self._instructions = instructions
        self._budget = budget
        self._max_tasks = max_tasks
        self._most_calls = box.settings.limits.absolute_max_parallel
        self._reflector = reflector
        self._receivers = [self.bus.emit, *([] if on_event is None else [on_event])]
        self._actor = Actor(box.executor(self.bus, registry=self.registry))
        self._model = AgentModel(
            open_model(llm), self.registry, box.redactor, context_tokens=context_tokens, timeout_s=llm_timeout_s
        )
        self._steps_reflector = Reflector(self._model)
        self._recorder = TaskRecorder(self.user, box.redactor, self._emit)
        folder = box.router.context_defaults.folder(TASK_FOLDER, self.user.tenant)
        self._logs = None if folder is None else TaskLogs(Path(folder), box.redactor.value)
        self._background = BackgroundTasks()
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._stopping = False
        self._answers = AnswerWatch(
            box.store.pending, suspended=partial(_suspended, self._tasks), take=self._take_answers, fail=self._fail
        )

    @property
    def tasks(self) -> list[Task]:
        """The tasks of this process, oldest first; of very many ended tasks, only the newest."""
        return list(self._tasks.values())

    async def submit(self, input_text: str, *, description: str = "", source: str = "", cause: str = "") -> Task:
        """Start a task and return it immediately; raise ToolConflictError if too many tasks are active.

        `source` identifies the owner of the task for `adopt`. `cause` is the ID of the event that caused the task.
        """
        self._check_room()
        task_id = self._box.router.new_id("task")
        log = None if self._logs is None else self._logs.create(task_id, user=str(self.user))
        message = {"role": "user", "content": self._box.redactor.text(input_text)}
        task = self._new_task(task_id, message["content"], [message], description=description)
        task.log, task.cause = log, cause
        facts = {"description": description, "input_text": message["content"], "source": source}
        self._recorder.record(task, EventCode.TASK_CREATED, facts, [message])
        self._start(task)
        return task

    async def resume(self, task_id: str, input_text: str) -> Task:
        """Give a task the information that it waits for, or continue one that ended, also in another process.

        Raise ToolClientError for an unknown task, and ToolConflictError for one that cannot take input now.
        """
        task = self._tasks.get(task_id)
        if task is None:
            restored = await run_in_thread(partial(self._restore, task_id))
            task = self._tasks.get(task_id) or restored  # a concurrent call may have restored it
        text = self._box.redactor.text(input_text)
        if task.state == "running":
            raise ToolConflictError(f"task {task_id!r} is running; wait until it has ended", code="task_running")
        if task.state == "suspended":
            if not task.needs_info:
                why = f"task {task_id!r} waits for a person, who answers the question of its call"
                raise ToolConflictError(why, code="task_waits_for_person")
            self._give_info(task, text)
            return task
        self._check_room()
        message = {"role": "user", "content": text}
        task.conversation.messages.append(message)
        task.conversation.turns, task.conversation.mistakes, task.conversation.seconds = 0, 0, 0.0
        self._recorder.record(task, EventCode.TASK_RESUMED, {"reason": "input", "input": text}, [message])
        self._start(task)
        return task

    async def cancel(self, task_id: str) -> bool:
        """Cancel a task with its calls and questions; return False if no task with this ID is active."""
        task = self._tasks.get(task_id)
        if task is None or not task.is_active:
            return False
        if task.work is not None and not task.work.done():
            task.work.cancel()
            await task.wait()
        elif task.is_active:
            self._fail(task, ToolCancelledError("the task was cancelled"))
        await self._box.cancel(task_id, by=str(self.user))
        return True

    def notify(self, task_id: str, text: str) -> None:
        task = self._tasks.get(task_id)
        if task is not None:
            self._recorder.record(task, EventCode.TASK_NOTIFY, {"text": text})

    async def adopt(self, source: str) -> None:
        """Continue the suspended and running tasks of a process that was stopped or killed.

        Completed calls with effects are not repeated. A call with an unknown outcome waits for an approver. A task
        fails if its process is killed repeatedly. The caller ensures that no other process runs tasks of the same user
        and source.
        """
        logs = self._logs
        if logs is None:
            return
        logged_tasks = await run_in_thread(partial(logs.newest, _MOST_ADOPTED, may_see=str(self.user).__eq__))
        left = [
            one
            for one in logged_tasks
            if one.created.get("source") == source and one.status in ("in_progress", "paused")
        ]
        if left:
            await self._box.recovery.sweep()  # settles the calls of the dead process
        for logged in left:
            task = await run_in_thread(partial(self._restore, logged.task_id))
            task.conversation.turns = sum(message["role"] == "assistant" for message in task.conversation.messages)
            was_killed = logged.status == "in_progress"
            task.waiting = [] if was_killed else _waiting_of(logged)
            if was_killed and logged.restarts >= _MOST_RESTARTS:
                self._fail(task, ToolExecutionError("its process ended again and again", code="interrupted"))
                continue
            if not task.waiting:
                task.interrupted = _interrupted_calls(task, logged.messages)
                self._recorder.record(task, EventCode.TASK_RESUMED, {"reason": RESTARTED if was_killed else "started"})
            open_ids = {*(waiting.call_id for waiting in task.waiting), *(call.id for call in task.interrupted)}
            task.conversation.messages = [  # without the placeholder results of calls that still wait
                one
                for one in task.conversation.messages
                if one.get("tool_call_id") not in open_ids or one.get("content") != CANCELLED
            ]
            self._start(task)

    async def stop(self) -> None:
        """Stop all tasks; in their logs they are suspended, for `adopt`. Without logs they have failed.

        Safe to call twice.
        """
        self._stopping = True
        working = [task.work for task in self._tasks.values() if task.work is not None and not task.work.done()]
        await self._answers.stop()
        for work in working:
            work.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for task in _suspended(self._tasks):
            if task.log is None:
                self._fail(task, ToolCancelledError("the agent was stopped"))
            task.ended.set()
        await self._background.finish(patience_s=_PATIENCE_S)
        self._unfollow()

    def _emit(self, event: RunEvent) -> None:
        for emit in self._receivers:
            try:
                emit(event)
            except Exception:  # noqa: BLE001 - foreign code
                _log.exception("an event receiver failed on %s", event.code.name)

    def _check_room(self) -> None:
        if self._stopping:
            raise ToolConflictError("the agent was stopped", code="agent_stopped")
        active = sum(task.is_active for task in self._tasks.values())
        if active >= self._max_tasks:
            message = f"{active} tasks are active, which is the maximum; wait until one has ended"
            raise ToolConflictError(message, code="too_many_tasks")

    def _new_task(self, task_id: str, input_text: str, messages: list[dict[str, Any]], *, description: str) -> Task:
        conversation = Conversation(
            user=str(self.user),
            run_id=task_id,
            key=task_id,
            messages=[{"role": "system", "content": self._instructions}, *messages],
            budget=self._budget,
        )
        return Task(
            TaskContext(task_id=task_id, input_text=input_text), conversation, description=description, log=None
        )

    def _start(self, task: Task) -> None:
        task.state, task.error, task.began = "running", None, time.monotonic()
        task.ended.clear()
        self._tasks[task.id] = task
        self._tasks.move_to_end(task.id)
        ended = [one.id for one in self._tasks.values() if not one.is_active]
        for old in ended[: max(0, len(self._tasks) - _MAX_STORED_TASKS)]:
            del self._tasks[old]
        task.work = self._background.start(self._work(task))

    async def _work(self, task: Task, *, continues: bool = False) -> None:
        """Run a task until it ends or is suspended; an exception ends only this task."""
        try:
            if not continues:
                self._recorder.record(task, EventCode.TASK_STARTED, {})
            result = await self._advance(task)
        except asyncio.CancelledError:
            if not self._stopping:
                self._fail(task, ToolCancelledError("the task was cancelled"))
            elif task.log is None:
                self._fail(task, ToolCancelledError("the agent was stopped"))
            elif task.state != "suspended":
                task.state = "suspended"
                self._recorder.record(task, EventCode.TASK_SUSPENDED, {"reason": "stopped", "waiting": []})
                task.ended.set()
        except Exception as raised:  # noqa: BLE001 - models and subscribers are foreign code; one task ends, not the agent
            self._fail(task, failure_of(raised, ""))
        else:
            if result is not SUSPENDED:
                self._complete(task, str(result))

    async def _advance(self, task: Task) -> str | _Suspended:
        calls, task.interrupted = task.interrupted, []
        if calls and (result := await self._make_calls(task, calls)) is not None:
            return result
        return await run_loop(
            task.conversation,
            prepare=partial(self._prepare, task),
            request=lambda: self._model.prompt(task.conversation.messages),
            answer=partial(self._take_answer, task),
            act=partial(self._take_calls, task),
        )

    async def _prepare(self, task: Task) -> _Suspended | None:
        if task.waiting:
            self._suspend(task)
            return SUSPENDED
        _check_limits(task)
        return None

    async def _take_answer(self, task: Task, reply: ModelReply) -> str:
        self._recorder.record_reply(task, [])
        if text := reply_text(reply):
            return text
        raise ToolExecutionError("the language model said nothing and called nothing", code="no_answer")

    async def _take_calls(self, task: Task, calls: list[PlannerCall]) -> str | None:
        self._recorder.record_reply(task, [self._model.step(call) for call in calls])
        return await self._make_calls(task, calls)

    async def _make_calls(self, task: Task, calls: list[PlannerCall]) -> str | None:
        """Make the calls of a reply; return the result of a task that is finished despite an error."""
        _check_limits(task)  # beyond them, the results of these calls would not be read
        failed = await self._act(task, calls)
        return await self._reflect(task, failed) if failed and not task.waiting else None

    async def _act(self, task: Task, calls: list[PlannerCall]) -> list[ActionResult]:
        """Run calls concurrently, as far as the executor permits; return the failed ones."""
        conversation = task.conversation
        if refusal := too_many_calls(len(calls), self._most_calls):
            facts = {"error": refusal, "errorCode": TOO_MANY_CALLS}
            self._recorder.add(task, "TOOL_CALL_FAILED", facts, tool_messages([call.id for call in calls], refusal))
            conversation.mistakes, conversation.problem = conversation.mistakes + 1, refusal
            return []
        done = await map_concurrent(calls, partial(self._step, task), max_concurrency=len(calls))
        task.waiting = [one for one in done if isinstance(one, WaitingStep)]
        failed = [one for one in done if not isinstance(one, WaitingStep) and not one.success]
        is_mistake = len(failed) == len(done) and all(one.error_code in MISTAKES for one in failed)
        conversation.mistakes = conversation.mistakes + 1 if is_mistake else 0
        conversation.problem = str(failed[-1].error) if is_mistake else ""
        return failed

    async def _step(self, task: Task, call: PlannerCall) -> ActionResult | WaitingStep:
        step, call_id = self._model.step(call), call.id
        try:
            key = step.id if has_effects(self.registry, step.tool_name) else None
            action = await self._actor.run_step(step, task.context, self._context(task), idempotency_key=key)
        except PauseSignal as pause:
            return WaitingStep(step, call_id, pause.pending_id or "", pause_prompt(pause))
        if step.tool_name == NEED_INFO and action.success:
            return WaitingStep(step, call_id, question=str(action.result["question"]))
        self._add_action(task, call_id, action)
        return action

    def _context(self, task: Task) -> ToolContext:
        return ToolContext(
            task.id,
            user_id=str(self.user),
            tenant_id=self.user.tenant,
            trace_id=task.id,
            correlation_id="" if task.last_event is None else task.last_event.id,
            tool_context={HOST: self},
        )

    def _add_action(self, task: Task, call_id: str, action: ActionResult) -> None:
        event = "TOOL_CALL_COMPLETED" if action.success else "TOOL_CALL_FAILED"
        data = {"toolName": action.tool_name, "durationMs": action.duration_ms, "error": action.error}
        self._recorder.add(task, event, data, [self._model.result_message(call_id, action)])

    async def _reflect(self, task: Task, failed: list[ActionResult]) -> str | None:
        """Prompt for the next move after failed steps; return the result of a task that is finished despite them."""
        reflection = await self._steps_reflector.reflect(task.context, failed)
        task.context.reflections.append(reflection)
        facts = {
            "verdict": reflection.verdict,
            "assessment": reflection.assessment,
            "lessons": reflection.lessons,
            "next_focus": reflection.next_focus,
        }
        notes: list[dict[str, Any]] = []
        if reflection.verdict == "replan":
            focus = f" Focus on: {reflection.next_focus}" if reflection.next_focus else ""
            lessons = "".join(f"\n- {lesson}" for lesson in reflection.lessons)
            text = f"Change your plan: {reflection.assessment}{focus}{lessons}"
            notes.append({"role": "user", "content": self._box.redactor.text(text)})
        task.conversation.messages += notes
        self._recorder.record(task, EventCode.STEPS_REFLECTED, facts, notes)
        if reflection.verdict == "complete":
            return reflection.assessment or "The task was ended after an error."
        return None

    def _suspend(self, task: Task) -> None:
        """Suspend a task until its questions are answered; it ends, and the answers start it again."""
        task.conversation.seconds = task.seconds
        task.state = "suspended"
        for waiting in task.waiting:
            if not waiting.pending_id:
                self._recorder.record(task, EventCode.NEED_MORE_INFO, {"question": waiting.question})
        reason = "need_more_info" if task.needs_info else "waiting_for_person"
        facts = {"reason": reason, "waiting": [waiting.to_dict() for waiting in task.waiting]}
        self._recorder.record(task, EventCode.TASK_SUSPENDED, facts)
        self._answers.add()

    def _give_info(self, task: Task, text: str) -> None:
        """Give a suspended task the information that it waits for."""
        waiting = next(one for one in task.waiting if not one.pending_id)
        task.waiting.remove(waiting)
        message = {"role": "tool", "tool_call_id": waiting.call_id, "content": text}
        self._recorder.add(task, "TOOL_CALL_COMPLETED", {"toolName": waiting.step.tool_name}, [message])
        self._continue_if_answered(task)

    def _continue_if_answered(self, task: Task) -> None:
        if task.waiting or task.state != "suspended" or self._stopping:
            return
        task.state, task.began = "running", time.monotonic()
        self._recorder.record(task, EventCode.TASK_RESUMED, {"reason": "answered"})
        task.work = self._background.start(self._work(task, continues=True))

    async def _take_answers(self, task: Task) -> None:
        """Record the outcomes of answered calls, and continue the task after the last one."""
        for waiting in [one for one in task.waiting if one.pending_id]:
            name = waiting.step.tool_name
            outcome = await current_outcome(self._box.pending, waiting.pending_id, by=str(self.user), tool_name=name)
            if task.state != "suspended" or waiting not in task.waiting:
                return
            at = task.waiting.index(waiting)
            if isinstance(outcome, Paused):  # another question of the same call
                task.waiting[at] = waiting._replace(pending_id=outcome.pending_id)
                continue
            del task.waiting[at]
            result = tool_result(outcome, now_ms())
            action = self._actor.record(waiting.step, task.context, self._context(task), result, resumed=True)
            self._add_action(task, waiting.call_id, action)
        self._continue_if_answered(task)

    def _complete(self, task: Task, result: str) -> None:
        task.context.final_result = result
        task.state = "completed"
        self._recorder.record(task, EventCode.TASK_COMPLETED, {"result": result, "iterations": task.context.iteration})
        task.ended.set()
        if self._reflector is not None and self._reflector.should_reflect(task.context):
            self._background.start(_reflect_afterwards(task, self._reflector, self._recorder, self._box.redactor))

    def _fail(self, task: Task, error: ToolError) -> None:
        error.conceal(self._box.redactor.message)
        task.state = "cancelled" if isinstance(error, ToolCancelledError) else "failed"
        task.error, task.waiting = error.message, []
        task.conversation.messages = close_tool_calls(task.conversation.messages)
        self._recorder.record(task, EventCode.TASK_FAILED, error_facts(error))
        task.ended.set()

    def _restore(self, task_id: str) -> Task:
        """Restore a task from its log; raise ToolClientError if there is none."""
        log = None if self._logs is None else self._logs.find(task_id, may_see=str(self.user).__eq__)
        logged = None if log is None else log.read()
        if logged is None:
            raise ToolClientError(f'Task "{task_id}" not found in index', code="task_not_found")
        messages = close_tool_calls([message for message in logged.messages if message["role"] != "system"])
        description = str(logged.created.get("description", ""))
        task = self._new_task(task_id, logged.input_text, messages, description=description)
        task.conversation.calls = sum(len(message.get("tool_calls") or ()) for message in messages)
        task.log = log
        task.state = "completed" if logged.status == "completed" else "failed"
        return task


def _suspended(tasks: Mapping[str, Task]) -> list[Task]:
    return [task for task in tasks.values() if task.state == "suspended"]


def _check_limits(task: Task) -> None:
    conversation = task.conversation
    if conversation.mistakes >= _REPAIR_ATTEMPTS:
        raise ToolExecutionError(f"the language model's calls cannot be used: {conversation.problem}", code="no_answer")
    if used := conversation.used_up(task.seconds):
        raise ToolExecutionError(f"the task has used up its budget ({used})", code="budget_exhausted")


async def _reflect_afterwards(
    task: Task, reflector: PostTaskReflector, recorder: TaskRecorder, redactor: Redactor
) -> None:
    """Reflect on a task that has ended; a failure does not change the task."""
    try:
        reflection = await reflector.run(task.context)
    except Exception as raised:  # noqa: BLE001 - the task has completed; any error is only logged
        error = failure_of(raised, "")
        error.conceal(redactor.message)
        _log.warning("the reflection on task %s failed: %s", task.id, error)
        recorder.record(task, EventCode.REFLECTION_FAILED, error_facts(error))
    else:
        facts = {"assessment": reflection.assessment, "tool_calls_count": reflection.tool_calls_count}
        recorder.record(task, EventCode.REFLECTION_COMPLETE, facts)


def _interrupted_calls(task: Task, messages: Sequence[dict[str, Any]]) -> list[PlannerCall]:
    """Return the calls of the last reply that have no result, without those with masked arguments."""
    at = max((at for at, message in enumerate(messages) if message["role"] != "tool"), default=-1)
    if at < 0:
        return []
    last, ended = messages[at], {message.get("tool_call_id") for message in messages[at + 1 :]}
    task.conversation.calls -= len(last.get("tool_calls") or ())  # they get the same keys again
    left = [call for call in task.conversation.read_calls(last) if call.id not in ended]
    return [call for call in left if MASK not in str(call.arguments)]


def _waiting_of(logged: LoggedTask) -> list[WaitingStep]:
    """Return the waiting steps of a suspended task, with the arguments of their calls."""
    functions = {call["id"]: call["function"] for one in logged.messages for call in one.get("tool_calls") or ()}
    waiting: list[WaitingStep] = []
    records: Any = logged.last.get("waiting")
    for facts in [one for one in records if is_object(one)] if is_array(records) else []:
        call_id, name = str(facts.get("callId")), str(facts.get("toolName"))
        params: dict[str, Any] = json.loads(functions[call_id]["arguments"]) if call_id in functions else {}
        step = PlanStep(id=str(facts.get("stepId")), tool_name=name, params=params)
        waiting.append(WaitingStep(step, call_id, str(facts.get("pendingId")), str(facts.get("question"))))
    return waiting


def collection_members(box: Toolbox, names: Sequence[str]) -> list[str]:
    """Replace the names of collections by their members."""
    collections = {**COLLECTIONS, **box.settings.collections}
    return [member for name in names for member in collections.get(name, (name,))]


def _accepts(box: Toolbox, tools: Sequence[str] | None) -> Callable[[ToolSpec], bool]:
    """Return a predicate for the tools that tasks may use; tools that act inside another agent never pass."""
    members = None if tools is None else collection_members(box, tools)

    def accepts(spec: ToolSpec) -> bool:
        if spec.name in AGENT_TOOLS:
            return False
        return members is None or any(belongs(spec, member) for member in members)

    return accepts
