"""Messages of conversations as files keep them, and the repair of a conversation that a crash cut off.

In memory a message has the shape of Chat Completions. In a file it is
`{role, content, toolCallId?, toolCalls?: [{id, name, arguments}], metadata?}`, with arguments as data if they are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from toolpost.schema.json_values import is_array, is_object

Message = dict[str, Any]
CANCELLED = '{"cancelled": true, "reason": "process restarted"}'
_ROLES = ("system", "user", "assistant", "tool")


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
