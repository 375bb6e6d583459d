"""The tools task_list and task_replay, for earlier tasks and runs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.catalog.function import FunctionTool, tool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ToolClientError, ToolPermissionError
from toolpost.contracts.events import EventCode, RunSummary, StoredEvent
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.spec import ToolCategory
from toolpost.contracts.storage import EventLog
from toolpost.stores.agent_records.folders import TASK_FOLDER
from toolpost.stores.agent_records.messages import Message, store_message
from toolpost.stores.agent_records.sessions import MAIN_RUN
from toolpost.stores.agent_records.task_logs import REFLECTION_RUN, LoggedTask, TaskLogs

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext

TaskFolder = Callable[[str], str | None]
OpenLog = Callable[[str], AbstractAsyncContextManager[EventLog]]
OVERRIDE = "allow_data_dir_override"
"""Key of `tool_context` that lets a call name another data folder; for tests."""
_TAGS = ("builtin", "task")
_TIMEOUT_S = 30.0
_MOST_RUNS = 10_000
_PAGE = 1000
_MOST_EVENTS = 10_000
DataDir = Annotated[
    str | None,
    Field(validation_alias=either("data_dir"), description="Another data folder, if the host allows it"),
]


class TaskEntry(TypedDict):
    """Summary of a task; times are in milliseconds since 1970."""

    task_id: str
    input_text: str
    status: str
    created_at: int
    updated_at: int


class Replay(TypedDict):
    """The messages of a task, in order; `truncated`: some are omitted, `damaged`: some records cannot be read."""

    task_id: str
    status: str
    messages: list[dict[str, Any]]
    truncated: bool
    damaged: bool


class TaskRecords:
    """Earlier work that a context may see: its user's tasks from their logs, and runs of calls.

    `folder` returns the folder of a tenant's task logs. `open_log` opens the event log of another data folder.
    """

    def __init__(self, events: EventLog, folder: TaskFolder, open_log: OpenLog | None = None) -> None:
        self._events = events
        self._folder = folder
        self._open_log = open_log

    def task_logs(self, ctx: ToolContext, data_dir: str | None, *, tool_name: str) -> TaskLogs | None:
        """Return the task logs of the context's tenant, or of another data folder if the host allows it."""
        if data_dir is None:
            folder = self._folder(tenant_of(ctx))
            return None if folder is None else TaskLogs(Path(folder))
        if ctx.tool_context.get(OVERRIDE) is not True:
            message = "callers may not choose data_dir; omit it"
            raise ToolPermissionError(message, tool_name=tool_name, code="data_dir_refused")
        return TaskLogs(Path(data_dir) / TASK_FOLDER)

    @asynccontextmanager
    async def log(self, data_dir: str | None) -> AsyncGenerator[EventLog | None]:
        """Open the event log for reading, flushed; None if another data folder has none that can be opened."""
        if data_dir is None:
            await self._events.flush()
            yield self._events
        elif self._open_log is None:
            yield None
        else:
            async with self._open_log(data_dir) as other:
                yield other


def task_tools(
    events: EventLog, *, folder: TaskFolder = lambda _: None, open_log: OpenLog | None = None
) -> list[FunctionTool]:
    """Return task_list and task_replay over one event log and the task logs in a tenant's `folder`.

    `open_log` opens the event log of another data folder, for tests.
    """
    records = TaskRecords(events, folder, open_log)

    @tool(side_effects="read", category=ToolCategory.DATA, tags=_TAGS, timeout_s=_TIMEOUT_S)
    async def task_list(
        ctx: ToolContext,
        *,
        date: Annotated[str | None, Field(description="A day in UTC, such as 2026-11-16; default: today")] = None,
        data_dir: DataDir = None,
    ) -> list[TaskEntry]:
        """List the tasks that began on a day, newest first."""
        day = _day(date)
        logs = records.task_logs(ctx, data_dir, tool_name="task_list")
        read_day = None if logs is None else partial(logs.of_day, day, may_see=_visible_users(ctx))
        tasks = [] if read_day is None else await run_cancellable(lambda _: read_day())
        async with records.log(data_dir) as log:
            runs = [] if log is None else await log.runs(tenant=tenant_of(ctx), limit=_MOST_RUNS)
        run_ids = {ctx.trace_id, *(task.task_id for task in tasks)}  # not the run of this call
        own = [
            run
            for run in runs
            if run.run_id not in run_ids
            and not _is_of_agent(run)
            and _is_own(run, ctx)
            and datetime.fromtimestamp(run.started_at, UTC).date() == day
        ]
        entries = [*map(_task_entry, tasks), *map(_run_entry, own)]
        return sorted(entries, key=lambda entry: entry["created_at"], reverse=True)

    @tool(side_effects="read", category=ToolCategory.DATA, tags=_TAGS, timeout_s=_TIMEOUT_S)
    async def task_replay(
        task_id: Annotated[
            str, Field(min_length=1, validation_alias=either("task_id"), description="The ID of a task, from task_list")
        ],
        ctx: ToolContext,
        *,
        data_dir: DataDir = None,
    ) -> Replay:
        """Replay a task: its calls and their outcomes, as messages."""
        logs = records.task_logs(ctx, data_dir, tool_name="task_replay")
        if logs is not None:
            task = await run_cancellable(lambda _: _find_task(logs, task_id, ctx))
            if task is not None:
                return _replay_task(task)
        async with records.log(data_dir) as log:
            run = None if log is None else await log.run(task_id, tenant=tenant_of(ctx))
            if log is None or run is None or not _is_own(run, ctx):
                message = f'Task "{task_id}" not found in index; task_list shows those of a day'
                raise ToolClientError(message, tool_name="task_replay", code="task_not_found")
            events, damaged = await _all_events(log, run)
        messages = [one for event in events if (one := _message(event))]
        return {
            "task_id": task_id,
            "status": _run_entry(run)["status"],
            "messages": messages,
            "truncated": len(events) >= _MOST_EVENTS,
            "damaged": damaged,
        }

    return [with_camel_case(task_list), with_camel_case(task_replay)]


def _find_task(logs: TaskLogs, task_id: str, ctx: ToolContext) -> LoggedTask | None:
    log = logs.find(task_id, may_see=_visible_users(ctx))
    return None if log is None else log.read()


def _replay_task(task: LoggedTask) -> Replay:
    return {
        "task_id": task.task_id,
        "status": task.status,
        "messages": [_flat_message(message) for message in task.messages[:_MOST_EVENTS]],
        "truncated": len(task.messages) > _MOST_EVENTS,
        "damaged": False,
    }


def _flat_message(message: Message) -> dict[str, Any]:
    """Return a message of a task in the same form as messages from events."""
    stored = store_message(message)
    flat = {"role": stored["role"], "content": stored["content"] or ""}
    if "toolCalls" in stored:
        flat["tool_calls"] = stored["toolCalls"]
    return {**flat, "tool_call_id": stored["toolCallId"]} if "toolCallId" in stored else flat


async def _all_events(log: EventLog, run: RunSummary) -> tuple[list[StoredEvent], bool]:
    """Return the readable events of a run in order, and whether some cannot be read."""
    events: list[StoredEvent] = []
    while len(events) < _MOST_EVENTS:
        after = events[-1].id if events else 0
        page = await log.read(tenant=run.tenant, run_id=run.run_id, after=after, limit=_PAGE)
        events += page
        if len(page) < _PAGE:
            break
    last = run.events if len(events) < _MOST_EVENTS else events[-1].seq
    readable = [event for event in events if "unrenderable" not in event.payload]
    return readable, len(readable) < last


def _message(event: StoredEvent) -> dict[str, Any] | None:
    """Convert an event to a message; None for events that only describe the execution of a call."""
    facts, call_id = event.payload, event.call_id
    match event.code:
        case EventCode.TOOL_CALL_REQUESTED:
            call = {"id": call_id, "name": facts.get("tool_name", ""), "arguments": facts.get("params")}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case EventCode.TOOL_CALL_COMPLETED:
            result = facts.get("summary", facts.get("result"))
            return {"role": "tool", "tool_call_id": call_id, "content": _text(result)}
        case EventCode.TOOL_CALL_FAILED:
            return {"role": "tool", "tool_call_id": call_id, "content": _text({"error": facts.get("error_message")})}
        case EventCode.APPROVAL_REQUESTED | EventCode.CALL_PAUSED:
            return {"role": "system", "content": f"asked: {facts.get('prompt', '')}"}
        case EventCode.APPROVAL_GRANTED | EventCode.APPROVAL_DENIED | EventCode.CALL_RESUMED:
            message = ", ".join(str(part) for part in (facts.get("decision"), facts.get("reason")) if part)
            return {"role": "user", "content": f"answered: {message}"}
        case _:
            return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _task_entry(task: LoggedTask) -> TaskEntry:
    return {
        "task_id": task.task_id,
        "input_text": task.input_text,
        "status": task.status,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
    }


def _run_entry(run: RunSummary) -> TaskEntry:
    return {
        "task_id": run.run_id,
        "input_text": run.tool_name,
        "status": "in_progress" if run.status == "running" else run.status,
        "created_at": int(run.started_at * 1000),
        "updated_at": int(run.updated_at * 1000),
    }


def tenant_of(ctx: ToolContext) -> str:
    """Return the caller's tenant; a context without one is local."""
    return ctx.tenant_id or LOCAL_TENANT


def _is_own(run: RunSummary, ctx: ToolContext) -> bool:
    """Return whether a run belongs to the caller's user."""
    return user_of(ctx) in (None, run.user)


def user_of(ctx: ToolContext) -> str | None:
    """Return the caller's user within the tenant, or None for a context without a user."""
    if not ctx.user_id:
        return None
    try:
        return Principal.parse(ctx.user_id).user
    except ValueError:
        return ctx.user_id


def _is_of_agent(run: RunSummary) -> bool:
    """Return whether a run is not a task: the own calls of a main agent, or the reflection after a task."""
    return run.run_id.startswith(f"{MAIN_RUN}_") or run.run_id.endswith(REFLECTION_RUN)


def _visible_users(ctx: ToolContext) -> Callable[[str], bool]:
    """Return a predicate of the users whose tasks the caller may see; tasks without a user are local."""
    if not ctx.user_id:
        return lambda _: True
    own = str(Principal.parse(ctx.user_id)) if ":" in ctx.user_id else f"{tenant_of(ctx)}:{ctx.user_id}"
    return lambda user: user == own or (not user and tenant_of(ctx) == LOCAL_TENANT)


def _day(text: str | None) -> date:
    if text is None:
        return datetime.now(UTC).date()
    try:
        return date.fromisoformat(text)
    except ValueError:
        message = f"{text[:40]!r} is not a day; write it like 2026-11-16"
        raise ToolClientError(message, tool_name="task_list", code="date_invalid") from None
