"""Sessions of main agents: a folder with `current.jsonl`, and archives such as `20260225T143000.jsonl`.

An archive is made when the conversation is compacted. A line is a message with the time `ts` in milliseconds.
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
from toolpost.stores.agent_records.json_lines import append_lines, read_lines
from toolpost.stores.agent_records.messages import Message, load_message, store_message
from toolpost.stores.durable_files import make_private_folder, sync_file, sync_folder, try_lock

MAIN_RUN = "main_agent"
"""The prefix of the run ids of a main agent."""
CURRENT = "current.jsonl"
_NEXT = "current.next"  # the session after a compaction, before it takes its place
_LOCK = "lock"
_LARGEST_SESSION = 64 << 20


class SessionFile:
    """The session in a folder, for the agent that has locked it; `redact` masks secrets before they are written."""

    def __init__(self, folder: Path, redact: Callable[[Any], Any] = lambda data: data) -> None:
        self.folder = folder
        self._redact = redact
        self._descriptor = -1

    def open(self) -> list[Message]:
        """Lock the session and return its messages; raise a ConfigError if another agent has locked it."""
        self._take_lock()
        current, following = self.folder / CURRENT, self.folder / _NEXT
        if following.exists():  # a process was killed in the middle of a compaction
            if current.exists():
                following.unlink()
            else:
                following.replace(current)
        lines = read_lines(current, max_bytes=_LARGEST_SESSION)
        return [message for line in lines if (message := load_message(line))]

    def append(self, messages: Sequence[Message]) -> None:
        """Append messages to the session."""
        append_lines(self.folder / CURRENT, [self._line(message) for message in messages])

    def compact(self, summary: str, **metadata: Any) -> list[Message]:
        """Archive the session and start another with a summary of it; return the messages of the new one.

        If the process is killed, the old session or the new one is complete.
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
        """Delete the session and its archives that were last written `before`; return their number.

        A session that an agent has open stays, with its folder.
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
            raise ConfigError(f"{where} is open in another agent; stop that agent, or set another session_dir")

    def _try_lock(self) -> bool:
        lock = self.folder / _LOCK
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        is_mine = try_lock(descriptor, shared=False)
        if is_mine and lock.exists() and os.path.samestat(os.fstat(descriptor), lock.stat()):
            self._descriptor = descriptor
            return True
        os.close(descriptor)
        return is_mine and self._try_lock()  # the file was removed with its folder before it was locked

    def _remove_folder(self) -> None:
        """Remove the folder unless archives are left in it."""
        (self.folder / _NEXT).unlink(missing_ok=True)
        if not any(self.folder.glob("*.jsonl")):
            with suppress(OSError):  # it has other files, or the system does not delete open files
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
