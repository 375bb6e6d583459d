"""Tools that read what earlier work left: tasks and runs, archived sessions, and artifacts of large results."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, display_path
from toolpost.catalog.function import FunctionTool, tool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError, ToolClientError, ToolPermissionError
from toolpost.contracts.events import EventCode, RunSummary, StoredEvent
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.spec import ToolCategory
from toolpost.contracts.storage import ArtifactRef, ArtifactStore, EventLog
from toolpost.stores.agent_files import (
    CURRENT,
    MAIN_RUN,
    REFLECTION_RUN,
    LoggedTask,
    Message,
    TaskLogs,
    store_message,
)
from toolpost.stores.agent_folders import TASK_FOLDER
from toolpost.web.untrusted import mark_untrusted

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
    Field(validation_alias=either("data_dir"), description="Another data folder; only where the host allows it"),
]
_LARGEST_ARCHIVE = 10 << 20
_NAME = "session_archive_read"
_CHUNK = 1 << 20
_EXCERPT = 80


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
    """The earlier work that a context may see, that of its user: tasks of agents by their logs, and runs of calls.

    `folder` returns the folder of a tenant's task logs. `open_log` opens the event log of another data folder.
    """

    def __init__(self, events: EventLog, folder: TaskFolder, open_log: OpenLog | None = None) -> None:
        self._events = events
        self._folder = folder
        self._open_log = open_log

    def task_logs(self, ctx: ToolContext, data_dir: str | None, *, tool_name: str) -> TaskLogs | None:
        """Return the task logs of the context's tenant, or those of another data folder where the host allows it."""
        if data_dir is None:
            folder = self._folder(_tenant(ctx))
            return None if folder is None else TaskLogs(Path(folder))
        if ctx.tool_context.get(OVERRIDE) is not True:
            message = "data_dir is not for callers to choose; leave it out"
            raise ToolPermissionError(message, tool_name=tool_name, code="data_dir_refused")
        return TaskLogs(Path(data_dir) / TASK_FOLDER)

    @asynccontextmanager
    async def log(self, data_dir: str | None) -> AsyncGenerator[EventLog | None]:
        """Open the event log to read, flushed; None where another data folder has none that can be opened."""
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
        logs = records.task_logs(ctx, data_dir, tool_name="task_list")
        read_day = None if logs is None else partial(logs.of_day, day, may_see=_visible_users(ctx))
        tasks = [] if read_day is None else await run_cancellable(lambda _: read_day())
        async with records.log(data_dir) as log:
            runs = [] if log is None else await log.runs(tenant=_tenant(ctx), limit=_MOST_RUNS)
        run_ids = {ctx.trace_id, *(task.task_id for task in tasks)}  # the run of this call is not an earlier one
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
        logs = records.task_logs(ctx, data_dir, tool_name="task_replay")
        if logs is not None:
            task = await run_cancellable(lambda _: _find_task(logs, task_id, ctx))
            if task is not None:
                return _replay_task(task)
        async with records.log(data_dir) as log:
            run = None if log is None else await log.run(task_id, tenant=_tenant(ctx))
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

    return task_replay


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
    """Return a message of a task in the form of those that are made of events."""
    stored = store_message(message)
    flat = {"role": stored["role"], "content": stored["content"] or ""}
    if "toolCalls" in stored:
        flat["tool_calls"] = stored["toolCalls"]
    return {**flat, "tool_call_id": stored["toolCallId"]} if "toolCallId" in stored else flat


async def _all_events(log: EventLog, run: RunSummary) -> tuple[list[StoredEvent], bool]:
    """Read the events of a run in order, and whether some cannot be read: those are left out, or say nothing."""
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


def _tenant(ctx: ToolContext) -> str:
    """Return the caller's tenant; a context without one is local, never of all tenants."""
    return ctx.tenant_id or LOCAL_TENANT


def _is_own(run: RunSummary, ctx: ToolContext) -> bool:
    """Return whether a run is of the caller's user; other users of the tenant have their own."""
    return _user(ctx) in (None, run.user)


def _user(ctx: ToolContext) -> str | None:
    """Return the caller's user within the tenant; None for a context of nobody in particular."""
    if not ctx.user_id:
        return None
    try:
        return Principal.parse(ctx.user_id).user
    except ValueError:
        return ctx.user_id


def _is_of_agent(run: RunSummary) -> bool:
    """Return whether a run is no task: the calls that a main agent makes itself, or the reflection after a task."""
    return run.run_id.startswith(f"{MAIN_RUN}_") or run.run_id.endswith(REFLECTION_RUN)


def _visible_users(ctx: ToolContext) -> Callable[[str], bool]:
    """Return whether the caller may see a user's tasks: their own; those of nobody in particular are local."""
    if not ctx.user_id:
        return lambda _: True
    own = str(Principal.parse(ctx.user_id)) if ":" in ctx.user_id else f"{_tenant(ctx)}:{ctx.user_id}"
    return lambda user: user == own or (not user and _tenant(ctx) == LOCAL_TENANT)


def _day(text: str | None) -> date:
    if text is None:
        return datetime.now(UTC).date()
    try:
        return date.fromisoformat(text)
    except ValueError:
        message = f"{text[:40]!r} is no day; write it like 2026-11-16"
        raise ToolClientError(message, tool_name="task_list", code="date_invalid") from None


def session_tools() -> list[FunctionTool]:
    """Return session_archive_read; the folder is the context's `session_dir`."""
    return [session_archive_read]


@tool(side_effects="read", file=True, category=ToolCategory.SYSTEM, tags=["builtin", "session"], timeout_s=30)
async def session_archive_read(
    file: Annotated[
        str, Field(min_length=1, max_length=1000, description="An archive's name, such as 20260225T143000.jsonl")
    ],
    ctx: ToolContext,
) -> str:
    """Read an earlier session that was archived, as lines of JSON."""
    if not ctx.session_dir:
        message = "there is no folder for sessions; set `data_dir` in the configuration, or session_dir in the context"
        raise ConfigError(message, tool_name=_NAME, code="session_dir_missing")
    return await run_cancellable(partial(_read_archive, ctx.session_dir, file))


def _read_archive(session_dir: str, file: str, _: Callable[[], None]) -> str:
    folder = os.path.realpath(session_dir)
    path = _resolve_archive(folder, file)
    if os.path.basename(path) == CURRENT:  # noqa: PTH119 - a path as text, like all here
        message = f"Cannot read {CURRENT} — it is the active session, not an archive"
        raise ToolClientError(message, tool_name=_NAME, code="session_active")
    access = FileAccess(tool_name=_NAME, allowed_paths=(folder,))
    try:
        with access.open_file(path) as opened:
            if opened.status.st_size > _LARGEST_ARCHIVE:
                message = f"{display_path(file)!r} has more than 10 MB; read it with read_file, in parts"
                raise access.refusal(message, "file_too_large")
            return opened.read().decode("utf-8", "backslashreplace")
    except ToolClientError as failed:
        if failed.error_code != "file_not_found":
            raise
        message = (
            f"Session archive not found: {display_path(file)!r}; the first line of a session names the one before it"
        )
        raise access.refusal(message, failed.error_code) from None


def _resolve_archive(folder: str, file: str) -> str:
    try:
        path = os.path.realpath(os.path.join(folder, file))  # noqa: PTH118 - an absolute one must show
    except ValueError:
        path = ""
    if "\0" in file or not path.startswith(folder.rstrip(os.sep) + os.sep):
        message = f'Path "{display_path(file)}" escapes session directory'
        raise ToolPermissionError(message, tool_name=_NAME, code="path_refused")
    return path


def artifact_tools(artifacts: ArtifactStore) -> list[FunctionTool]:
    """Return the artifact tools over one store."""
    return [_reader(artifacts), _searcher(artifacts)]


# What an artifact holds is mostly a source's, so that a model reads it as untrusted.
_artifact_tool = tool(
    side_effects="read",
    category=ToolCategory.DATA,
    tags=["builtin", "artifact"],
    timeout_s=30,
    output_schema={"additionalProperties": True, "type": "object"},
)


def _reader(artifacts: ArtifactStore) -> FunctionTool:
    @_artifact_tool
    async def artifact_read(
        artifact_id: Annotated[str, Field(description="The artifact's id, as a completed call gave it")],
        ctx: ToolContext,
        offset: Annotated[int, Field(ge=0, description="Where to begin, in bytes")] = 0,
        limit: Annotated[int, Field(ge=4, le=20_000, description="The most bytes to read")] = 16_000,
    ) -> ToolOutput:
        """Read part of a result that was too large to hand on; `next_offset` is where to go on, null at the end."""
        ref = await _find_artifact(artifacts, artifact_id, ctx)
        data = await artifacts.read(artifact_id, tenant=ref.tenant, offset=offset, limit=limit)
        text = _decode_whole(data) if _is_text(ref.media_type) else None
        end = offset + (len(data) if text is None else len(text.encode("utf-8", "surrogatepass")))
        content = {
            "artifact_id": artifact_id,
            "media_type": ref.media_type,
            "size": ref.size,
            "offset": offset,
            "next_offset": end if end < ref.size else None,
            "encoding": "base64" if text is None else "utf-8",
            "content": base64.b64encode(data).decode() if text is None else text,
        }
        return mark_untrusted(content, origin=f"artifact {artifact_id}")

    return artifact_read


def _searcher(artifacts: ArtifactStore) -> FunctionTool:
    @_artifact_tool
    async def artifact_search(
        artifact_id: Annotated[str, Field(description="The artifact's id, as a completed call gave it")],
        query: Annotated[
            str,
            Field(min_length=1, max_length=1000, description="The text to find; the case of A to Z does not matter"),
        ],
        ctx: ToolContext,
        max_results: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> ToolOutput:
        """Find a text in a large result. Each match has its offset in bytes and some text around it."""
        ref = await _find_artifact(artifacts, artifact_id, ctx)
        needle, matches, begin = query.encode("utf-8", "surrogatepass").lower(), list[dict[str, Any]](), 0
        while begin < ref.size and len(matches) <= max_results:
            data = await artifacts.read(artifact_id, tenant=ref.tenant, offset=begin, limit=_CHUNK + len(needle) - 1)
            matches += _matches(data, needle, begin, room=max_results + 1 - len(matches))
            begin += _CHUNK
        found = matches[:max_results]
        content = {"artifact_id": artifact_id, "matches": found, "truncated": len(matches) > max_results}
        return mark_untrusted(content, origin=f"artifact {artifact_id}")

    return artifact_search


async def _find_artifact(artifacts: ArtifactStore, artifact_id: str, ctx: ToolContext) -> ArtifactRef:
    """Find an artifact of the caller's user."""
    ref = await artifacts.info(artifact_id, tenant=_tenant(ctx), user=_user(ctx))
    if ref is None:
        msg = f"no artifact {artifact_id!r} for this user; a completed call names its artifacts"
        raise ToolClientError(msg, code="artifact_not_found")
    return ref


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or "json" in media_type or "xml" in media_type


def _decode_whole(data: bytes) -> str | None:
    """Decode the longest prefix that is whole UTF-8; None when there is none."""
    for cut in range(4):  # a character may be cut in its middle at the end
        try:
            text = data[: len(data) - cut].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            continue
        return text if text or not data else None
    return None


def _matches(data: bytes, needle: bytes, begin: int, *, room: int) -> list[dict[str, Any]]:
    matches: list[dict[str, Any]] = []
    lowered, at = data.lower(), 0
    while len(matches) < room and (at := lowered.find(needle, at)) >= 0:
        around = data[max(0, at - _EXCERPT) : at + len(needle) + _EXCERPT]
        matches.append({"offset": begin + at, "excerpt": around.decode("utf-8", "replace")})
        at += len(needle)
    return matches
