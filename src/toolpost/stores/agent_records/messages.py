"""Chat messages as records of agents store them.

In memory a message has the shape of Chat Completions. In a file it is `{role, content, toolCallId?, toolCalls?,
metadata?}`, and a call is `{id, name, arguments}`, the arguments as data if they are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from toolpost.schema.json_values import is_array, is_object

Message = dict[str, Any]
_ROLES = ("system", "user", "assistant", "tool")


def store_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message from the form in memory to the form in files."""
    stored: dict[str, Any] = {"role": message["role"], "content": message.get("content")}
    if message.get("tool_call_id"):
        stored["toolCallId"] = message["tool_call_id"]
    if message.get("tool_calls"):
        stored["toolCalls"] = [_flat_call(call) for call in message["tool_calls"]]
    if message.get("metadata"):
        stored["metadata"] = message["metadata"]
    return stored


def load_message(stored: Mapping[str, Any]) -> Message | None:
    """Convert a message from the form in files to the form in memory; None if it is not a message."""
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


def _flat_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function: Any = call.get("function") or {}
    arguments: Any = function.get("arguments")
    with suppress(ValueError, RecursionError):  # as data, to mask values under secret names
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    return {"id": call.get("id"), "name": function.get("name"), "arguments": arguments}


def _nested_call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": str(call.get("id")), "type": "function", "function": {"name": call.get("name"), "arguments": text}}
