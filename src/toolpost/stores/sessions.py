"""Sessions of main agents: the conversation as JSON lines, archived when it is compacted, repaired after a crash.

A folder has `current.jsonl` and archives such as `20260225T143000.jsonl`. A line is
`{ts, role, content, toolCallId?, toolCalls?, metadata?}`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.stores.json_lines import append_lines, read_lines
from toolpost.stores.liveness import try_lock
from toolpost.stores.messages import Message, close_tool_calls, load_message, store_message

CURRENT = "current.jsonl"
_NEXT = "current.next"  # the session after a compaction, before it takes its place
_LOCK = "lock"
_LARGEST = 64 << 20


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
        lines = read_lines(current, max_bytes=_LARGEST)
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
            _sync(following)
            (self.folder / CURRENT).rename(self.folder / archive)
            following.replace(self.folder / CURRENT)
        except OSError as error:
            raise self._unwritable(error) from error
        with suppress(OSError):  # not every system opens folders
            _sync(self.folder)
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
        """Let go of the session; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_lock(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
