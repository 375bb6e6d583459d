"""Logs of tasks: an index of a tenant's tasks, and a file of events for each task."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolpost.contracts.errors import StoreError
from toolpost.contracts.records import represent
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.stores.agent_records.json_lines import append_lines, erase_lines, read_lines
from toolpost.stores.agent_records.messages import Message, load_message, store_message

INDEX = "index.jsonl"
RESTARTED = "restarted"
"""The reason of a task that was resumed because its process had ended."""
REFLECTION_RUN = ".reflection"
"""The suffix of the run ids of reflections, which follow a task."""
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


class TaskLogs:
    """The logs of the tasks of one tenant; `redact` masks secrets before they are written."""

    def __init__(self, folder: Path, redact: Callable[[Any], Any] = lambda data: data) -> None:
        self._folder = folder
        self._redact = redact

    def create(self, task_id: str, *, user: str) -> TaskLog:
        """Add a task of a user to the index and return its log."""
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        append_lines(self._folder / INDEX, [{"taskId": task_id, "date": day, "user": user}])
        return TaskLog(self._path(day, task_id), task_id, self._redact)

    def find(self, task_id: str, *, may_see: Callable[[str], bool]) -> TaskLog | None:
        """Return the log of a task, if the index contains it and `may_see` accepts its user, which may be ""."""
        for entry in self._entries(may_see):
            if entry["taskId"] == task_id:
                return TaskLog(self._path(entry["date"], task_id), task_id, self._redact, user=entry["user"])
        return None

    def of_day(self, day: date, *, may_see: Callable[[str], bool]) -> list[LoggedTask]:
        """Read the tasks that began on a day, the newest first; tasks without a readable log are skipped."""
        entries = [entry for entry in self._entries(may_see) if entry["date"] == day.isoformat()]
        return list(self._read(reversed(entries)))

    def newest(self, count: int, *, may_see: Callable[[str], bool]) -> list[LoggedTask]:
        """Read the newest tasks of all days."""
        return list(self._read(reversed(self._entries(may_see)[-count:])))

    def forget(self, user: str, *, only_ended: bool = False) -> int:
        """Delete the logs of the tasks of a user, or only of ended tasks; return their number."""

        def is_gone(entry: Mapping[str, str]) -> bool:
            if entry["user"] != user or not only_ended:
                return entry["user"] == user
            task = TaskLog(self._path(entry["date"], entry["taskId"]), entry["taskId"]).read()
            return task is None or task.status not in ("in_progress", "paused")

        return self._remove(is_gone)

    def prune(self, before: float) -> int:
        """Delete the logs last written before a time; return their number. Tasks that wait for an answer stay."""
        day = f"{datetime.fromtimestamp(before, UTC):%Y-%m-%d}"

        def is_old(entry: Mapping[str, str]) -> bool:
            path = self._path(entry["date"], entry["taskId"])
            try:
                written = path.stat().st_mtime
            except OSError:
                return entry["date"] < day  # a new task has no log yet
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
        """Append an event with its messages, redacted."""
        added = {"newMessages": [store_message(message) for message in messages]} if messages else {}
        head = {"ts": int(time.time() * 1000), "event": event, "taskId": self._task_id}
        append_lines(self._path, [{**head, "data": self._redact({**data, **added})}])

    def read(self) -> LoggedTask | None:
        """Read the task; unknown events are skipped. Return None if nothing can be read."""
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


class LoggedTask(Struct, frozen=True, kw_only=True):
    """A task as read from its log; times are in milliseconds since 1970. `created` and `last` are data of its events.

    `restarts` counts how often the task was resumed because its process had ended, since its last input from a user.
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


def _messages(added: object) -> list[Message]:
    messages = [one for one in added if is_object(one)] if is_array(added) else []
    return [message for one in messages if (message := load_message(one))]


def _is_entry(entry: Mapping[str, str]) -> bool:
    """Return whether a line of the index names a file within the folder; other programs can write lines, too."""
    return bool(_ID.fullmatch(entry["taskId"]) and _DAY.fullmatch(entry["date"]))
