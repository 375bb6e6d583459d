"""Files of agents below a data folder: the sessions of main agents and the logs of tasks, as JSON lines.

The folder of a session has `current.jsonl` and archives such as `20260225T143000.jsonl`, made when the conversation is
compacted. A line is `{ts, role, content, toolCallId?, toolCalls?, metadata?}`. Tasks have an index and a file each.
In memory a message has the shape of Chat Completions; in a file its calls are `{id, name, arguments}`, the arguments
as data if they are JSON. A conversation that a crash cut off is repaired.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.records import represent
from toolpost.files.durable import make_private_folder, sync_file, sync_folder
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.stores.agent_folders import (
    SESSION_FOLDER,
    TASK_FOLDER,
    TENANTS,
    USER_MEMORY,
    session_folder,
    tenant_folder,
    user_folder,
)
from toolpost.stores.liveness import try_lock

CURRENT = "current.jsonl"
_NEXT = "current.next"  # the session after a compaction, before it takes its place
_LOCK = "lock"
_LARGEST_SESSION = 64 << 20
INDEX = "index.jsonl"
MAIN_RUN = "main_agent"
RESTARTED = "restarted"
"""Why a task was resumed: its process had ended."""
REFLECTION_RUN = ".reflection"
"""Of the ids of runs that belong to an agent: how those of a main agent begin, and those after a task end."""
_LARGEST_INDEX = 16 << 20
_LARGEST_LOG = 64 << 20
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_STATUS = {
    "TASK_CREATED": "in_progress",
    "TASK_RESUMED": "in_progress",
    "TASK_SUSPENDED": "paused",
    "TASK_COMPLETED": "completed",
    "TASK_FAILED": "failed",
}
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
Message = dict[str, Any]
CANCELLED = '{"cancelled": true, "reason": "process restarted"}'
_ROLES = ("system", "user", "assistant", "tool")


class SessionFile:
    """The session in a folder, for the one agent that holds its lock; `redact` masks secrets of what is written."""

    def __init__(self, folder: Path, redact: Callable[[Any], Any] = lambda data: data) -> None:
        self.folder = folder
        self._redact = redact
        self._descriptor = -1

    def open(self) -> list[Message]:
        """Take the session and return its messages; calls that a killed process left without a result get one.

        ConfigError when another agent has it.
        """
        self._take_lock()
        current, following = self.folder / CURRENT, self.folder / _NEXT
        if following.exists():  # a process was killed in the middle of a compaction
            if current.exists():
                following.unlink()
            else:
                following.replace(current)
        lines = read_lines(current, max_bytes=_LARGEST_SESSION)
        messages = [message for line in lines if (message := load_message(line))]
        repaired = close_tool_calls(messages)
        if repaired[: len(messages)] == messages and len(repaired) > len(messages):
            self.append(repaired[len(messages) :])
        return repaired

    def append(self, messages: Sequence[Message]) -> None:
        """Append messages to the session."""
        append_lines(self.folder / CURRENT, [self._line(message) for message in messages])

    def compact(self, summary: str, **metadata: Any) -> list[Message]:
        """Archive the session and begin another with a summary of it; return the messages of the new one.

        Whenever the process is killed, the old session or the new one is whole.
        """
        archive = self._archive_name()
        opening: Message = {
            "role": "system",
            "content": summary,
            "metadata": {"type": "compact", "previousSession": archive, **metadata},
        }
        following = self.folder / _NEXT
        following.unlink(missing_ok=True)
        append_lines(following, [self._line(opening)])
        try:
            sync_file(following)
            (self.folder / CURRENT).rename(self.folder / archive)
            following.replace(self.folder / CURRENT)
        except OSError as error:
            raise self._unwritable(error) from error
        with suppress(OSError):  # not every system opens folders
            sync_folder(self.folder)
        return [opening]

    def remove(self, before: float = math.inf) -> int:
        """Delete the session and its archives where they were last written `before`; return how many.

        A session that an agent has open stays, and so does then the folder.
        """
        current = self.folder / CURRENT
        try:
            old = {path for path in self.folder.glob("*.jsonl") if path.stat().st_mtime < before}
            is_mine = self.folder.is_dir() and (current in old or not current.exists()) and self._try_lock()
            gone = old if is_mine else old - {current}
            try:
                for path in gone:
                    path.unlink(missing_ok=True)
                if is_mine:
                    self._remove_folder()
            finally:
                self.close()
        except OSError as error:
            raise self._unwritable(error) from error
        return len(gone)

    def close(self) -> None:
        """Release the session; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_lock(self) -> None:
        try:
            make_private_folder(self.folder)
            is_mine = self._try_lock()
        except OSError as error:
            raise self._unwritable(error) from error
        if not is_mine:
            where = f"the session in {str(self.folder)!r}"
            raise ConfigError(f"{where} belongs to another agent that runs; stop that one, or give another session_dir")

    def _try_lock(self) -> bool:
        lock = self.folder / _LOCK
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        is_mine = try_lock(descriptor, shared=False)
        if is_mine and lock.exists() and os.path.samestat(os.fstat(descriptor), lock.stat()):
            self._descriptor = descriptor
            return True
        os.close(descriptor)
        return is_mine and self._try_lock()  # it was removed with its folder before it was locked

    def _remove_folder(self) -> None:
        """Remove the folder unless archives are left in it."""
        (self.folder / _NEXT).unlink(missing_ok=True)
        if not any(self.folder.glob("*.jsonl")):
            with suppress(OSError):  # it has files of others, or the system does not delete open ones
                (self.folder / _LOCK).unlink()
                self.folder.rmdir()

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(f"{str(self.folder)!r} cannot be written: {error.strerror}", cause=error)

    def _archive_name(self) -> str:
        """Return a free name; several compactions within a second are numbered."""
        stem = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
        names = [f"{stem}.jsonl", *(f"{stem}-{number}.jsonl" for number in range(1, 1000))]
        return next(name for name in names if not (self.folder / name).exists())

    def _line(self, message: Message) -> dict[str, Any]:
        line: dict[str, Any] = self._redact({"ts": int(time.time() * 1000), **store_message(message)})
        return line


class LoggedTask(Struct, frozen=True, kw_only=True):
    """A task as its log has it; times are in milliseconds since 1970. `created` and `last` are data of its events.

    `restarts` counts how often it went on after its process had ended, since a person last gave it something to do.
    """

    task_id: str
    user: str
    status: str
    created_at: int
    updated_at: int
    restarts: int
    messages: list[Message]
    created: Mapping[str, Any]
    last: Mapping[str, Any]

    def __repr__(self) -> str:
        return represent(self, without=("messages", "created", "last"))

    @property
    def input_text(self) -> str:
        """The text that the task was given."""
        return str(self.created.get("inputText", ""))


class TaskLogs:
    """The logs of one tenant's tasks below a folder; `redact` masks the secrets of what is written."""

    def __init__(self, folder: Path, redact: Callable[[Any], Any] = lambda data: data) -> None:
        self._folder = folder
        self._redact = redact

    def create(self, task_id: str, *, user: str) -> TaskLog:
        """Add a task of a user to the index and return its log."""
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        append_lines(self._folder / INDEX, [{"taskId": task_id, "date": day, "user": user}])
        return TaskLog(self._path(day, task_id), task_id, self._redact)

    def find(self, task_id: str, *, may_see: Callable[[str], bool]) -> TaskLog | None:
        """Return the log of a task, if the index has it and `may_see` its user; a task without one has the user ""."""
        for entry in self._entries(may_see):
            if entry["taskId"] == task_id:
                return TaskLog(self._path(entry["date"], task_id), task_id, self._redact, user=entry["user"])
        return None

    def of_day(self, day: date, *, may_see: Callable[[str], bool]) -> list[LoggedTask]:
        """Read the tasks that began on a day, the newest first; one without a readable log is left out."""
        entries = [entry for entry in self._entries(may_see) if entry["date"] == day.isoformat()]
        return list(self._read(reversed(entries)))

    def newest(self, count: int, *, may_see: Callable[[str], bool]) -> list[LoggedTask]:
        """Read the newest tasks of all days."""
        return list(self._read(reversed(self._entries(may_see)[-count:])))

    def forget(self, user: str, *, only_ended: bool = False) -> int:
        """Delete the logs of a user's tasks, or of those that have ended; return how many."""

        def is_gone(entry: Mapping[str, str]) -> bool:
            if entry["user"] != user or not only_ended:
                return entry["user"] == user
            task = TaskLog(self._path(entry["date"], entry["taskId"]), entry["taskId"]).read()
            return task is None or task.status not in ("in_progress", "paused")

        return self._remove(is_gone)

    def prune(self, before: float) -> int:
        """Delete the logs that were last written before; return how many. Tasks that wait for somebody stay."""
        day = f"{datetime.fromtimestamp(before, UTC):%Y-%m-%d}"

        def is_old(entry: Mapping[str, str]) -> bool:
            path = self._path(entry["date"], entry["taskId"])
            try:
                written = path.stat().st_mtime
            except OSError:
                return entry["date"] < day  # a task that just began has no log yet
            if written >= before:
                return False
            task = TaskLog(path, entry["taskId"]).read()
            return task is None or task.status != "paused"

        return self._remove(is_old)

    def _remove(self, is_gone: Callable[[Mapping[str, str]], bool]) -> int:
        """Delete logs, and their entries in the index."""
        gone = {entry["taskId"]: self._path(entry["date"], entry["taskId"]) for entry in self._all() if is_gone(entry)}
        try:
            for path in gone.values():
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{str(self._folder)!r} cannot be written: {error.strerror}", cause=error) from error
        if gone:
            erase_lines(self._folder / INDEX, lambda line: str(line.get("taskId")) in gone)
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        for folder in {path.parent for path in gone.values() if path.parent.name != today}:
            with suppress(OSError):  # it has other logs
                folder.rmdir()
        return len(gone)

    def _read(self, entries: Iterable[Mapping[str, str]]) -> Iterable[LoggedTask]:
        for entry in entries:
            task = TaskLog(self._path(entry["date"], entry["taskId"]), entry["taskId"], user=entry["user"]).read()
            if task is not None:
                yield task

    def _entries(self, may_see: Callable[[str], bool]) -> list[dict[str, str]]:
        return [entry for entry in self._all(max_bytes=_LARGEST_INDEX) if may_see(entry["user"])]

    def _all(self, *, max_bytes: int | None = None) -> list[dict[str, str]]:
        lines = read_lines(self._folder / INDEX, max_bytes=max_bytes)
        entries = [{name: str(line.get(name, "")) for name in ("taskId", "date", "user")} for line in lines]
        return list({entry["taskId"]: entry for entry in entries if _is_entry(entry)}.values())

    def _path(self, day: str, task_id: str) -> Path:
        return self._folder / day / f"{task_id}.jsonl"


class TaskLog:
    """The log of one task."""

    def __init__(
        self, path: Path, task_id: str, redact: Callable[[Any], Any] = lambda data: data, *, user: str = ""
    ) -> None:
        self._path = path
        self._task_id = task_id
        self._redact = redact
        self._user = user

    def append(self, event: str, data: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()) -> None:
        """Append an event with the messages that came with it, redacted."""
        added = {"newMessages": [store_message(message) for message in messages]} if messages else {}
        line = {"ts": _now_ms(), "event": event, "taskId": self._task_id, "data": self._redact({**data, **added})}
        append_lines(self._path, [line])

    def read(self) -> LoggedTask | None:
        """Read the task; unknown events are skipped. None where nothing can be read."""
        lines = read_lines(self._path, max_bytes=_LARGEST_LOG)
        status, messages, created, last = "in_progress", list[Message](), dict[str, Any](), dict[str, Any]()
        restarts = 0
        for line in lines:
            event, data = str(line.get("event")), as_object(line.get("data"))
            status = _STATUS.get(event, status)
            created = data if event == "TASK_CREATED" else created
            last = data if event in _STATUS else last
            if event == "TASK_RESUMED":
                restarts = restarts + 1 if data.get("reason") == RESTARTED else 0
            messages += _messages(data.get("newMessages"))
        if not lines:
            return None
        times = [int(line["ts"]) for line in lines if isinstance(line.get("ts"), int | float)] or [0]
        return LoggedTask(
            task_id=self._task_id,
            user=self._user,
            status=status,
            created_at=times[0],
            updated_at=times[-1],
            restarts=restarts,
            messages=messages,
            created=created,
            last=last,
        )


def _messages(added: object) -> list[Message]:
    messages = [one for one in added if is_object(one)] if is_array(added) else []
    return [message for one in messages if (message := load_message(one))]


def _is_entry(entry: Mapping[str, str]) -> bool:
    """Whether a line of the index names a file within the folder, whoever wrote the line."""
    return bool(_ID.fullmatch(entry["taskId"]) and _DAY.fullmatch(entry["date"]))


def _now_ms() -> int:
    return int(time.time() * 1000)


class AgentFiles:
    """The task logs and sessions of all tenants below a data folder."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def prune(self, before: float) -> dict[str, int]:
        """Delete task logs and sessions that nobody has written to since; return how many of each.

        Tasks that wait for somebody stay, and so does a session that an agent has open.
        """
        tasks = sum(TaskLogs(folder).prune(before) for folder in self._folders(TASK_FOLDER))
        people = [person for folder in self._folders(SESSION_FOLDER) for person in folder.iterdir() if person.is_dir()]
        return {"tasks": tasks, "sessions": sum(SessionFile(person).remove(before) for person in people)}

    def forget(self, person: Principal) -> dict[str, int]:
        """Delete the task logs, sessions and memory of a person; the memory that the tenant shares stays.

        `under_way` counts a session that an agent has open: it stays, and so do the logs of tasks that have not ended.
        """
        session = SessionFile(session_folder(self._data_dir, person))
        removed, is_open = session.remove(), session.folder.exists()
        logs = TaskLogs(tenant_folder(self._data_dir, TASK_FOLDER, person.tenant))
        tasks = logs.forget(str(person), only_ended=is_open)
        memory = _remove_folder(user_folder(self._data_dir, USER_MEMORY, person))
        return {"tasks": tasks, "sessions": removed, "memory": memory, "under_way": int(is_open)}

    def _folders(self, name: str) -> Iterator[Path]:
        homes = [self._data_dir, *(self._data_dir / TENANTS).glob("*")]
        return (folder for home in homes if (folder := home / name).is_dir())


def _remove_folder(folder: Path) -> int:
    """Delete a folder of memory; return how many files it had, without their earlier versions."""
    files = [path for path in folder.rglob("*.md") if ".history" not in path.parts]
    try:
        if folder.is_dir():
            shutil.rmtree(folder)
    except OSError as error:
        raise StoreError(f"{str(folder)!r} cannot be written: {error.strerror}", cause=error) from error
    return len(files)


def append_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Append records to a file with one write, after whatever a killed process left of its last line.

    The write is done when this returns, so that it survives the end of the process; it is not synced to the disk.
    """
    data = b"".join(_line(record) for record in records)
    try:
        descriptor = _open(path)
        try:
            os.write(descriptor, data if _ends_whole(descriptor) else b"\n" + data)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}", cause=error) from error


def read_lines(path: Path, *, max_bytes: int | None) -> list[dict[str, Any]]:
    """Read the records of a file, or of its last `max_bytes`; what is no record is skipped, and so is a lost file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if max_bytes is not None and size > max_bytes:
                file.seek(size - max_bytes)
                file.readline()  # the rest of a line that began before
            lines = file.readlines(-1 if max_bytes is None else max_bytes)
    except OSError:
        return []
    return [record for line in lines if (record := _record(line)) is not None]


def erase_lines(path: Path, is_gone: Callable[[dict[str, Any]], bool]) -> int:
    """Overwrite the records that `is_gone` accepts with blanks, which readers skip; return how many.

    Nothing moves, so that other processes may append meanwhile, and a crash leaves every other record whole.
    """
    try:
        with path.open("r+b", buffering=0) as file:
            lines = file.readall().splitlines(keepends=True)
            starts = itertools.accumulate(map(len, lines), initial=0)
            gone = [
                (start, len(line.rstrip(b"\n")))
                for start, line in zip(starts, lines, strict=False)
                if (record := _record(line)) is not None and is_gone(record)
            ]
            for start, length in gone:
                file.seek(start)
                file.write(b" " * length)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}", cause=error) from error
    return len(gone)


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if is_object(data) else None


def _open(path: Path) -> int:
    try:
        return os.open(path, _APPEND, 0o600)
    except FileNotFoundError:
        make_private_folder(path.parent)
        return os.open(path, _APPEND, 0o600)


def _ends_whole(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    if size == 0:
        return True
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"


def store_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the form of files."""
    stored: dict[str, Any] = {"role": message["role"], "content": message.get("content")}
    if message.get("tool_call_id"):
        stored["toolCallId"] = message["tool_call_id"]
    if message.get("tool_calls"):
        stored["toolCalls"] = [_flat_call(call) for call in message["tool_calls"]]
    if message.get("metadata"):
        stored["metadata"] = message["metadata"]
    return stored


def load_message(stored: Mapping[str, Any]) -> Message | None:
    """Return a message in the form of memory; None for what is no message."""
    if stored.get("role") not in _ROLES:
        return None
    message: Message = {"role": stored["role"], "content": stored.get("content")}
    calls: Any = stored.get("toolCalls")
    if is_array(calls):
        message["tool_calls"] = [_nested_call(call) for call in calls if is_object(call)]
    if "toolCallId" in stored:
        message["tool_call_id"] = str(stored["toolCallId"])
    if is_object(stored.get("metadata")):
        message["metadata"] = stored["metadata"]
    return message


def close_tool_calls(messages: Sequence[Message], text: str = CANCELLED) -> list[Message]:
    """Return a conversation in which every tool call has a result, which providers demand; `text` where it had none.

    A result without its call is left out.
    """
    closed: list[Message] = []
    open_ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if str(message.get("tool_call_id")) not in open_ids:
                continue  # its call was lost; a provider refuses a result without one
            open_ids.remove(str(message["tool_call_id"]))
        else:
            closed += _results(open_ids, text)
            open_ids = [str(call.get("id")) for call in message.get("tool_calls") or () if is_object(call)]
        closed.append(message)
    return closed + _results(open_ids, text)


def _results(call_ids: Sequence[str], text: str) -> list[Message]:
    return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id in call_ids]


def _flat_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function: Any = call.get("function") or {}
    arguments: Any = function.get("arguments")
    with suppress(ValueError, RecursionError):  # as data, so that what stands under the names of secrets is masked
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    return {"id": call.get("id"), "name": function.get("name"), "arguments": arguments}


def _nested_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": str(call.get("id")), "type": "function", "function": {"name": call.get("name"), "arguments": text}}
