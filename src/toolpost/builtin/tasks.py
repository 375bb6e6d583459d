"""Tools that look at earlier tasks: task_list and task_replay, over the record of runs."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.spelling import either, with_camel_case
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolClientError, ToolPermissionError
from toolpost.contracts.events import EventCode
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.spec import ToolCategory
from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from toolpost.contracts.events import RunSummary, StoredEvent
    from toolpost.contracts.storage import EventLog

    OpenLog = Callable[[str], AbstractAsyncContextManager[EventLog]]

OVERRIDE = "allow_data_dir_override"
"""What `tool_context` must say before a call may name another data folder; for tests."""

_TAGS = ("builtin", "task")
_TIMEOUT_S = 30.0
_MOST_RUNS = 10_000
_PAGE = 1000
_MOST_EVENTS = 10_000
DataDir = Annotated[
    str | None,
    Field(validation_alias=either("data_dir"), description="Another data folder; only where the host allows it"),
]


class TaskEntry(TypedDict):
    """A task at a glance; times are in milliseconds since 1970."""

    task_id: str
    input_text: str
    status: str
    created_at: int
    updated_at: int


class Replay(TypedDict):
    """What was said in a task, in order; `truncated`: there was more, `damaged`: some records cannot be read."""

    task_id: str
    status: str
    messages: list[dict[str, Any]]
    truncated: bool
    damaged: bool


class TaskRecords:
    """The runs that a context may see: those of its own person, in its own store unless the host allows another."""

    def __init__(self, events: EventLog, open_log: OpenLog | None = None) -> None:
        self._events = events
        self._open_log = open_log

    @asynccontextmanager
    async def log(self, ctx: ToolContext, data_dir: str | None, *, tool_name: str) -> AsyncGenerator[EventLog]:
        """The log to look into, with everything in it that was told so far."""
        if data_dir is None:
            await self._events.flush()
            yield self._events
            return
        if self._open_log is None or ctx.tool_context.get(OVERRIDE) is not True:
            message = "data_dir is not for callers to choose; leave it out"
            raise ToolPermissionError(message, tool_name=tool_name, code="data_dir_refused")
        async with self._open_log(data_dir) as other:
            yield other


def task_tools(events: EventLog, *, open_log: OpenLog | None = None) -> list[FunctionTool]:
    """The tools of this module over one log; `open_log` opens that of another data folder, for tests."""
    records = TaskRecords(events, open_log)
    return [with_camel_case(_task_list(records)), with_camel_case(_task_replay(records))]


def _task_list(records: TaskRecords) -> FunctionTool:
    @tool(side_effects="read", category=ToolCategory.DATA, tags=_TAGS, timeout_s=_TIMEOUT_S)
    async def task_list(
        ctx: ToolContext,
        *,
        date: Annotated[str | None, Field(description="A day such as 2026-11-16, in UTC; left out, today")] = None,
        data_dir: DataDir = None,
    ) -> list[TaskEntry]:
        """List the tasks that began on a day, the newest first."""
        day = _day(date)
        async with records.log(ctx, data_dir, tool_name="task_list") as log:
            runs = await log.runs(tenant=_tenant(ctx), limit=_MOST_RUNS)
        return [_entry(run) for run in runs if _is_own(run, ctx) and _began(run) == day]

    return task_list


def _task_replay(records: TaskRecords) -> FunctionTool:
    @tool(side_effects="read", category=ToolCategory.DATA, tags=_TAGS, timeout_s=_TIMEOUT_S)
    async def task_replay(
        task_id: Annotated[
            str, Field(min_length=1, validation_alias=either("task_id"), description="A task's id, from task_list")
        ],
        ctx: ToolContext,
        *,
        data_dir: DataDir = None,
    ) -> Replay:
        """Replay a task: the calls that were made in it and what came of them, as messages."""
        async with records.log(ctx, data_dir, tool_name="task_replay") as log:
            run = await log.run(task_id, tenant=_tenant(ctx))
            if run is None or not _is_own(run, ctx):
                message = f'Task "{task_id}" not found in index; task_list shows those of a day'
                raise ToolClientError(message, tool_name="task_replay", code="task_not_found")
            events, damaged = await _all_events(log, run)
        messages = [said for event in events if (said := _message(event))]
        status, truncated = _entry(run)["status"], len(events) >= _MOST_EVENTS
        return {
            "task_id": task_id,
            "status": status,
            "messages": messages,
            "truncated": truncated,
            "damaged": damaged,
        }

    return task_replay


async def _all_events(log: EventLog, run: RunSummary) -> tuple[list[StoredEvent], bool]:
    """The events of a run in order, and whether some could not be read; those are passed over."""
    events: list[StoredEvent] = []
    after, page_size, damaged = 0, _PAGE, False
    for _ in range(_MOST_EVENTS):
        try:
            page = await log.read(tenant=run.tenant, run_id=run.run_id, after=after, limit=page_size)
        except (ValueError, TypeError, KeyError):  # what is kept there is no record
            damaged, after, page_size = True, after + (page_size == 1), 1
            continue
        readable = [event for event in page if is_object(event.payload) and "unrenderable" not in event.payload]
        events += readable
        damaged = damaged or len(readable) < len(page)
        if len(page) < page_size or len(events) >= _MOST_EVENTS:
            break
        after = page[-1].id
    return events, damaged


def _message(event: StoredEvent) -> dict[str, Any] | None:
    """An event as a message; what only tells how a call was carried out says nothing."""
    facts, call_id = event.payload, event.call_id
    match event.code:
        case EventCode.TOOL_CALL_REQUESTED:
            call = {"id": call_id, "name": facts.get("tool_name", ""), "arguments": facts.get("params")}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case EventCode.TOOL_CALL_COMPLETED:
            told = facts.get("summary", facts.get("result"))
            return {"role": "tool", "tool_call_id": call_id, "content": _text(told)}
        case EventCode.TOOL_CALL_FAILED:
            return {"role": "tool", "tool_call_id": call_id, "content": _text({"error": facts.get("error_message")})}
        case EventCode.APPROVAL_REQUESTED | EventCode.CALL_PAUSED:
            return {"role": "system", "content": f"asked: {facts.get('prompt', '')}"}
        case EventCode.APPROVAL_GRANTED | EventCode.APPROVAL_DENIED | EventCode.CALL_RESUMED:
            said = _joined([facts.get("decision"), facts.get("reason")])
            return {"role": "user", "content": f"answered: {said}"}
        case _:
            return None


def _joined(parts: Iterable[Any]) -> str:
    return ", ".join(str(part) for part in parts if part)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _entry(run: RunSummary) -> TaskEntry:
    return {
        "task_id": run.run_id,
        "input_text": run.tool_name,
        "status": "in_progress" if run.status == "running" else run.status,
        "created_at": int(run.started_at * 1000),
        "updated_at": int(run.updated_at * 1000),
    }


def _tenant(ctx: ToolContext) -> str:
    """The caller's tenant; a context without one is local, never everyone's."""
    return ctx.tenant_id or LOCAL_TENANT


def _is_own(run: RunSummary, ctx: ToolContext) -> bool:
    """Whether a run is the caller's own; other people of the same tenant have theirs."""
    if not ctx.user_id:
        return True
    try:
        return run.user == Principal.parse(ctx.user_id).user
    except ValueError:
        return run.user == ctx.user_id


def _began(run: RunSummary) -> date:
    return datetime.fromtimestamp(run.started_at, UTC).date()


def _day(written: str | None) -> date:
    if written is None:
        return datetime.now(UTC).date()
    try:
        return date.fromisoformat(written)
    except ValueError:
        message = f"{written[:40]!r} is no day; write it like 2026-11-16"
        raise ToolClientError(message, tool_name="task_list", code="date_invalid") from None
