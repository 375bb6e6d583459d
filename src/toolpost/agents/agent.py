"""An agent that runs tasks in the background: each reasons, plans, acts and reflects until it has a result."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.agents.catalogs import agent_registry, has_effects
from toolpost.agents.conversation import (
    MISTAKES,
    TOO_MANY_CALLS,
    Budget,
    Conversation,
    check_at_least_one,
    too_many_calls,
)
from toolpost.agents.models.names import open_model
from toolpost.agents.reflection import PostTaskReflector, Reflector
from toolpost.agents.tasks import Task, TaskRecorder, WaitingStep, pause_prompt, wait_for_outcome
from toolpost.agents.turns import CONTEXT_TOKENS, ActionResult, Actor, ModelTurns, PlanStep, TaskContext, Turn
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
from toolpost.contracts.outcomes import now_ms
from toolpost.contracts.principal import PrincipalCache
from toolpost.policy.secret_shapes import MASK
from toolpost.runtime.concurrency import BackgroundTasks, map_concurrent
from toolpost.runtime.event_bus import EventBus
from toolpost.runtime.event_emitter import error_facts
from toolpost.runtime.executor import tool_result
from toolpost.runtime.router import failure_of
from toolpost.schema.json_values import is_array, is_object
from toolpost.stores.agent_files import CANCELLED, RESTARTED, LoggedTask, TaskLogs, close_tool_calls
from toolpost.stores.agent_folders import TASK_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.spec import ToolSpec
    from toolpost.contracts.storage import EventSink
    from toolpost.toolbox.box import Toolbox

_log = logging.getLogger("toolpost.agents")
INSTRUCTIONS = (
    "You work on one task, in the background and without a person to talk to. Call tools where they help. When the "
    "task is done, or cannot be done, say what came of it without calling a tool: that text is the result of the task."
)
BUDGET = Budget(steps=25, time_s=3600.0)
NEED_INFO = "need_more_info"
_REPAIR_ATTEMPTS = 3
_MAX_STORED_TASKS = 1000
_MOST_ADOPTED = 200
_MOST_RESTARTS = 3  # of a task that may be what ends its process
_PATIENCE_S = 1.0


class Agent:
    """Runs tasks in the background, each until it has a result, and at most `max_tasks` at a time.

    `tools` are the names, patterns or collections that tasks may use of the Toolbox; None is all. `extras` adds tools
    that act inside the agent, such as `notify`. Each task may use up to `budget`, whose time is looked at between
    turns. `on_event` is called with every event of a task, besides the `bus`.

    A step that pauses suspends its task until a person has answered, wherever they do. What happens is emitted on the
    bus and, with a data folder, logged. A task that fails affects nothing else. With a `reflector`, a task that
    completed is reflected on, in the background.
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
        model = open_model(llm)
        self._turns = ModelTurns(
            model, self.registry, box.redactor, context_tokens=context_tokens, timeout_s=llm_timeout_s
        )
        self._steps_reflector = Reflector(self._turns)
        self._recorder = TaskRecorder(self.user, box.redactor, self._emit)
        folder = box.router.context_defaults.folder(TASK_FOLDER, self.user.tenant)
        self._logs = None if folder is None else TaskLogs(Path(folder), box.redactor.value)
        self._background = BackgroundTasks()
        self._tasks: OrderedDict[str, Task] = OrderedDict()
        self._stopping = False

    @property
    def tasks(self) -> list[Task]:
        """The tasks of this process, the oldest first; of very many that ended, the newest."""
        return list(self._tasks.values())

    async def submit(self, input_text: str, *, description: str = "", source: str = "", cause: str = "") -> Task:
        """Start a task and return it at once; ToolConflictError when too many tasks are under way.

        `source` says whose task it is, for `adopt`; `cause` is the id of the event that the task is for.
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
        """Give a task the information that it waits for, or go on with one that ended, also in another process.

        ToolClientError for an unknown task, ToolConflictError for one that cannot take it now.
        """
        task = self._tasks.get(task_id)
        if task is None:
            restored = await run_in_thread(partial(self._restore, task_id))
            task = self._tasks.get(task_id) or restored  # another call may have been faster
        text = self._box.redactor.text(input_text)
        if task.state == "running":
            raise ToolConflictError(f"task {task_id!r} is under way; wait until it has ended", code="task_running")
        if task.state == "suspended":
            if not task.needs_info:
                why = f"task {task_id!r} waits for a person, who answers the question of its call"
                raise ToolConflictError(why, code="task_waits_for_person")
            task.inputs.put_nowait(text)
            return task
        self._check_room()
        message = {"role": "user", "content": text}
        task.conversation.messages.append(message)
        task.conversation.turns, task.conversation.mistakes, task.conversation.seconds = 0, 0, 0.0
        self._recorder.record(task, EventCode.TASK_RESUMED, {"reason": "input", "input": text}, [message])
        self._start(task)
        return task

    async def cancel(self, task_id: str) -> bool:
        """Cancel a task with its calls and questions; return False when none of this id is under way."""
        task = self._tasks.get(task_id)
        if task is None or task.work is None or not task.is_active:
            return False
        task.work.cancel()
        await task.wait()
        await self._box.cancel(task_id, by=str(self.user))
        return True

    def notify(self, task_id: str, text: str) -> None:
        """Emit the notification of a task."""
        task = self._tasks.get(task_id)
        if task is not None:
            self._recorder.record(task, EventCode.TASK_NOTIFY, {"text": text})

    async def adopt(self, source: str) -> None:
        """Go on with the tasks of a process that was stopped or killed: those that were suspended, and those that ran.

        Calls with effects that had ended are not repeated, and one whose end is unknown waits for a person. A task
        whose process is killed again and again fails. The caller makes sure that no process runs tasks of the same
        user and source.
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
            await self._box.recovery.sweep()  # what came of the calls of the process that died is then known
        for logged in left:
            task = await run_in_thread(partial(self._restore, logged.task_id))
            task.conversation.turns = sum(message["role"] == "assistant" for message in task.conversation.messages)
            was_killed = logged.status == "in_progress"
            task.waiting = [] if was_killed else _waiting_of(logged)
            if was_killed and logged.restarts >= _MOST_RESTARTS:
                self._fail(task, ToolExecutionError("its process ended again and again", code="interrupted"))
                continue
            if not task.waiting:
                task.interrupted = self._interrupted_turn(task, logged.messages)
                self._recorder.record(task, EventCode.TASK_RESUMED, {"reason": RESTARTED if was_killed else "started"})
            open_ids = {waiting.call_id for waiting in task.waiting}
            if task.interrupted is not None:
                open_ids |= set(task.interrupted.call_ids.values())
            task.conversation.messages = [
                one for one in task.conversation.messages if not _is_placeholder(one, open_ids)
            ]
            self._start(task)

    def _interrupted_turn(self, task: Task, messages: Sequence[dict[str, Any]]) -> Turn | None:
        """Return the calls of the last reply that have no result; those with masked arguments stay cancelled."""
        at = max((at for at, message in enumerate(messages) if message["role"] != "tool"), default=-1)
        if at < 0:
            return None
        last, ended = messages[at], {message.get("tool_call_id") for message in messages[at + 1 :]}
        task.conversation.calls -= len(last.get("tool_calls") or ())  # they get the same keys again
        left = [call for call in task.conversation.read_calls(last) if call.id not in ended]
        calls = [call for call in left if MASK not in str(call.arguments)]
        return self._turns.turn(calls) if calls else None

    async def stop(self) -> None:
        """Stop all tasks; in their logs they are suspended, for `adopt`, and without logs they have failed.

        Safe to call twice.
        """
        self._stopping = True
        working = [task.work for task in self._tasks.values() if task.work is not None and not task.work.done()]
        for work in working:
            work.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        await self._background.finish(patience_s=_PATIENCE_S)
        self._unfollow()

    def _emit(self, event: RunEvent) -> None:
        for emit in self._receivers:
            try:
                emit(event)
            except Exception:  # noqa: BLE001 - foreign code
                _log.exception("a receiver of events failed on %s", event.code.name)

    def _check_room(self) -> None:
        if self._stopping:
            raise ToolConflictError("the agent was stopped", code="agent_stopped")
        active = sum(task.is_active for task in self._tasks.values())
        if active >= self._max_tasks:
            message = f"{active} tasks are under way, which is the most; wait until one has ended"
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
        self._tasks[task.id] = task
        self._tasks.move_to_end(task.id)
        ended = [one.id for one in self._tasks.values() if not one.is_active]
        for old in ended[: max(0, len(self._tasks) - _MAX_STORED_TASKS)]:
            del self._tasks[old]
        task.work = self._background.start(self._work(task))

    async def _work(self, task: Task) -> None:
        """Run a task to its end, whatever happens in it."""
        try:
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
        except Exception as raised:  # noqa: BLE001 - models and subscribers are foreign code; one task ends, not the agent
            self._fail(task, failure_of(raised, ""))
        else:
            self._complete(task, result)

    async def _advance(self, task: Task) -> str:
        """Reason, plan, act and reflect until there is a result."""
        while True:
            await self._wait_for_answers(task)
            turn, task.interrupted = task.interrupted or await self._reason(task), None
            if not turn.steps:
                if turn.text:
                    return turn.text
                raise ToolExecutionError("the language model said nothing and called nothing", code="no_answer")
            self._check_limits(task)  # nobody would read what comes of these calls
            failed = await self._act(task, turn)
            if failed and not task.waiting and (ended := await self._reflect(task, failed)):
                return ended

    async def _reason(self, task: Task) -> Turn:
        """Ask the model what to do next."""
        conversation, context = task.conversation, task.context
        self._check_limits(task)
        turn = await self._turns.ask(conversation)
        context.iteration += 1
        context.plan = turn.steps
        steps = [step.tool_name for step in turn.steps]
        self._recorder.record(
            task, EventCode.REASON_DONE, {"text": turn.text, "steps": steps}, [conversation.messages[-1]]
        )
        return turn

    def _check_limits(self, task: Task) -> None:
        conversation = task.conversation
        if conversation.mistakes >= _REPAIR_ATTEMPTS:
            raise ToolExecutionError(
                f"the language model's calls cannot be used: {conversation.problem}", code="no_answer"
            )
        if used := conversation.used_up(task.seconds):
            raise ToolExecutionError(f"the task has used up its budget ({used})", code="budget_exhausted")

    async def _act(self, task: Task, turn: Turn) -> list[ActionResult]:
        """Run the steps of a plan, which the executor limits, and return those that failed."""
        conversation = task.conversation
        if refusal := too_many_calls(len(turn.steps), self._most_calls):
            facts = {"error": refusal, "errorCode": TOO_MANY_CALLS}
            self._add(task, "TOOL_CALL_FAILED", facts, turn.results(refusal))
            conversation.mistakes, conversation.problem = conversation.mistakes + 1, refusal
            return []
        step = partial(self._step, task, turn)
        done = await map_concurrent(turn.steps, step, max_concurrency=len(turn.steps))
        task.waiting = [one for one in done if isinstance(one, WaitingStep)]
        failed = [one for one in done if not isinstance(one, WaitingStep) and not one.success]
        is_mistake = len(failed) == len(done) and all(one.error_code in MISTAKES for one in failed)
        conversation.mistakes = conversation.mistakes + 1 if is_mistake else 0
        conversation.problem = str(failed[-1].error) if is_mistake else ""
        return failed

    async def _step(self, task: Task, turn: Turn, step: PlanStep) -> ActionResult | WaitingStep:
        call_id = turn.call_ids[step.id]
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
        """Add the result of a step to the conversation and the log."""
        event = "TOOL_CALL_COMPLETED" if action.success else "TOOL_CALL_FAILED"
        data = {"toolName": action.tool_name, "durationMs": action.duration_ms, "error": action.error}
        self._add(task, event, data, [self._turns.result_message(call_id, action)])

    def _add(self, task: Task, event: str, data: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        task.conversation.messages += messages
        self._recorder.log(task, event, data, messages)

    async def _reflect(self, task: Task, failed: list[ActionResult]) -> str | None:
        """Decide what follows from steps that failed; return the result of a task that is finished despite them."""
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

    async def _wait_for_answers(self, task: Task) -> None:
        """Suspend a task until what it waits for is there."""
        if not task.waiting:
            return
        task.conversation.seconds = task.seconds
        task.state = "suspended"
        for waiting in task.waiting:
            if not waiting.pending_id:
                self._recorder.record(task, EventCode.NEED_MORE_INFO, {"question": waiting.question})
        reason = "need_more_info" if task.needs_info else "waiting_for_person"
        facts = {"reason": reason, "waiting": [waiting.to_dict() for waiting in task.waiting]}
        self._recorder.record(task, EventCode.TASK_SUSPENDED, facts)
        answer = partial(self._answer, task)
        await map_concurrent(task.waiting, answer, max_concurrency=len(task.waiting))
        task.waiting = []
        task.state, task.began = "running", time.monotonic()
        self._recorder.record(task, EventCode.TASK_RESUMED, {"reason": "answered"})

    async def _answer(self, task: Task, waiting: WaitingStep) -> None:
        """Wait for the answer to one step, and add it to the conversation."""
        if waiting.pending_id:
            name = waiting.step.tool_name
            outcome = await wait_for_outcome(self._box.pending, waiting.pending_id, by=str(self.user), tool_name=name)
            result = tool_result(outcome, now_ms())
            context = self._context(task)
            action = self._actor.record(waiting.step, task.context, context, result, resumed=True)
            self._add_action(task, waiting.call_id, action)
            return
        text = await task.inputs.get()
        message = {"role": "tool", "tool_call_id": waiting.call_id, "content": text}
        self._add(task, "TOOL_CALL_COMPLETED", {"toolName": waiting.step.tool_name}, [message])

    def _complete(self, task: Task, result: str) -> None:
        task.context.final_result = result
        task.state = "completed"
        self._recorder.record(task, EventCode.TASK_COMPLETED, {"result": result, "iterations": task.context.iteration})
        if self._reflector is not None and self._reflector.should_reflect(task.context):
            self._background.start(self._reflect_afterwards(task, self._reflector))

    def _fail(self, task: Task, error: ToolError) -> None:
        error.conceal(self._box.redactor.message)
        task.state = "cancelled" if isinstance(error, ToolCancelledError) else "failed"
        task.error, task.waiting = error.message, []
        task.conversation.messages = close_tool_calls(task.conversation.messages)
        self._recorder.record(task, EventCode.TASK_FAILED, error_facts(error))

    async def _reflect_afterwards(self, task: Task, reflector: PostTaskReflector) -> None:
        """Reflect on a task that has ended; nothing waits for it and its failure changes nothing."""
        try:
            reflection = await reflector.run(task.context)
        except Exception as raised:  # noqa: BLE001 - whatever it is, the task has ended well
            error = failure_of(raised, "")
            error.conceal(self._box.redactor.message)
            _log.warning("the reflection on task %s failed: %s", task.id, error)
            self._recorder.record(task, EventCode.REFLECTION_FAILED, error_facts(error))
        else:
            facts = {"assessment": reflection.assessment, "tool_calls_count": reflection.tool_calls_count}
            self._recorder.record(task, EventCode.REFLECTION_COMPLETE, facts)

    def _restore(self, task_id: str) -> Task:
        """Return a task that has ended, or whose process has, from its log; ToolClientError when there is none."""
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


def _waiting_of(logged: LoggedTask) -> list[WaitingStep]:
    """Return what a suspended task waits for, with the arguments of the calls."""
    functions = {call["id"]: call["function"] for one in logged.messages for call in one.get("tool_calls") or ()}
    waiting: list[WaitingStep] = []
    records: Any = logged.last.get("waiting")
    for facts in [one for one in records if is_object(one)] if is_array(records) else []:
        call_id, name = str(facts.get("callId")), str(facts.get("toolName"))
        params: dict[str, Any] = json.loads(functions[call_id]["arguments"]) if call_id in functions else {}
        step = PlanStep(id=str(facts.get("stepId")), tool_name=name, params=params)
        waiting.append(WaitingStep(step, call_id, str(facts.get("pendingId")), str(facts.get("question"))))
    return waiting


def _is_placeholder(message: dict[str, Any], open_ids: set[str]) -> bool:
    """Return whether a message closes a call that still waits."""
    return message.get("tool_call_id") in open_ids and message.get("content") == CANCELLED


def collection_members(box: Toolbox, names: Sequence[str]) -> list[str]:
    """Return names with collections replaced by their members."""
    collections = {**COLLECTIONS, **box.settings.collections}
    return [member for name in names for member in collections.get(name, (name,))]


def _accepts(box: Toolbox, tools: Sequence[str] | None) -> Callable[[ToolSpec], bool]:
    """Return which tools of the Toolbox tasks may use; those that act inside another agent never."""
    members = None if tools is None else collection_members(box, tools)

    def accepts(spec: ToolSpec) -> bool:
        if spec.name in AGENT_TOOLS:
            return False
        return members is None or any(belongs(spec, member) for member in members)

    return accepts
