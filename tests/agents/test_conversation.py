"""Conversations: every tool call has a result, as providers require."""

from typing import Any

from toolpost.agents.conversation import close_tool_calls

CALL = {"id": "c1", "type": "function", "function": {"name": "reply", "arguments": '{"text": "hi"}'}}
USER: dict[str, Any] = {"role": "user", "content": "hello"}
ASKED: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}


def test_a_call_left_open_in_the_middle_is_closed_where_it_stands() -> None:
    later = {"role": "user", "content": "and?"}

    closed = close_tool_calls([USER, ASKED, later, {"role": "tool", "tool_call_id": "lost", "content": "x"}])

    assert [message["role"] for message in closed] == ["user", "assistant", "tool", "user"]
