"""A model without a network: it says its lines in order, and remembers what it was told."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any


class Scripted:
    """A ChatModel; a line is a message, a text for an answer, or an exception to raise."""

    def __init__(self, *lines: Any) -> None:
        self._lines = list(lines)
        self.told: list[list[dict[str, Any]]] = []
        self.tools: list[list[str]] = []

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        self.told.append(copy.deepcopy([dict(message) for message in messages]))
        self.tools.append([tool["function"]["name"] for tool in tools])
        line = self._lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return {"role": "assistant", "content": line} if isinstance(line, str) else line

    @property
    def results(self) -> list[str]:
        """What it was shown of its calls' outcomes, by the last turn."""
        return [message["content"] for message in self.told[-1] if message["role"] == "tool"]


def calls(*wanted: tuple[str, Any]) -> dict[str, Any]:
    """A message that wants tools called; arguments that are text are sent as they are."""
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": _text(arguments)}}
        for number, (name, arguments) in enumerate(wanted)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
