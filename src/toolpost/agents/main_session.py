"""The conversation of a main agent: stored in its session, and compacted when it is long."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.agents.agent_model import message_chars
from toolpost.agents.conversation import close_tool_calls
from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.errors import StoreError, ToolError
from toolpost.schema.json_values import is_array, is_object
from toolpost.stores.agent_records.sessions import SessionFile

if TYPE_CHECKING:
    from toolpost.agents.agent_model import AgentModel

_log = logging.getLogger("toolpost.agents")
SUMMARY = """Summarize the conversation below for yourself, because it will not be shown to you again: who is on which
channel, what they want, what was decided and promised, which tasks run and the results of others. At most 500 words."""
WAITS, ANSWERED = "waits", "answered"  # in the metadata of messages: pending actions of the agent's own calls
_FULL = 0.8  # of the prompt's capacity; beyond it the session is compacted
_LAST_WORDS = 10


class MainSession:
    """The messages of a main agent, with a `folder` also in a file.

    `waiting` contains the pending actions of the agent's own calls with their tools. `channels` is the set of known
    channels, which `open` extends by those of a stored session.
    """

    def __init__(self, model: AgentModel, folder: str | Path | None, channels: set[str]) -> None:
        self.messages: list[dict[str, Any]] = []
        self.waiting: dict[str, str] = {}
        self.folder = None if folder is None else str(folder)
        self._model = model
        self._channels = channels
        self._file = None if folder is None else SessionFile(Path(folder), model.redactor.value)

    async def open(self) -> None:
        """Lock the session and read its messages."""
        if self._file is None:
            return
        stored = await run_in_thread(self._file.open)
        self.messages = close_tool_calls(stored)  # after a crash, calls may lack their results
        if self.messages[: len(stored)] == stored and len(self.messages) > len(stored):
            self._file.append(self.messages[len(stored) :])
        for message in self.messages:
            metadata: dict[str, Any] = message.get("metadata", {})
            channels: Any = metadata.get("channels")
            self._channels.update(map(str, channels) if is_array(channels) else ())
            waits: Any = metadata.get(WAITS)
            self.waiting |= waits if is_object(waits) else {}
            self.waiting.pop(str(metadata.get(ANSWERED)), None)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def prompt(self, instructions: str) -> list[dict[str, Any]]:
        """Return the messages after the instructions, which include the summary of a compacted session."""
        messages = self.messages
        if messages and messages[0]["role"] == "system":
            instructions = f"{instructions}\n\nWhat was said before:\n{messages[0]['content']}"
            messages = messages[1:]
        return [{"role": "system", "content": instructions}, *messages]

    def add(self, *messages: dict[str, Any]) -> None:
        """Add messages; if the file cannot be written, the session continues in memory."""
        self.messages += messages
        if self._file is not None and messages:
            try:
                self._file.append(messages)
            except StoreError as error:
                _log.warning("the session is not kept: %s", error)

    async def compact_if_full(self) -> None:
        """Archive a long session and continue with a summary."""
        if message_chars(self.messages) <= self._model.most_chars * _FULL:
            return
        summary = self._model.redactor.text(await self._summarize())
        if self._file is None:
            self.messages = [{"role": "system", "content": summary}]
            return
        state = {"channels": sorted(self._channels), WAITS: self.waiting}
        try:
            self.messages = await run_in_thread(partial(self._file.compact, summary, **state))
        except StoreError as error:
            _log.warning("the session is not archived: %s", error)

    async def _summarize(self) -> str:
        lines = [f"{one['role']}: {one.get('content') or one.get('tool_calls')}" for one in self.messages]
        room = self._model.most_chars // 2
        messages = [{"role": "system", "content": SUMMARY}, {"role": "user", "content": "\n".join(lines)[-room:]}]
        try:
            reply = await self._model.request(messages)
            if text := str(reply.message.get("content") or ""):
                return text
        except ToolError as error:
            _log.warning("the session is compacted without a summary: %s", error)
        return "The last words of the conversation before:\n" + "\n".join(lines[-_LAST_WORDS:])[-room:]
