"""A provider's reply with tool calls, answered in one line."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, Failed, Paused, Toolbox, tool


@tool(side_effects="pure", name="math.add")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="write", destructive=True)
async def wipe(disk: str, password: str) -> str:
    """Wipe a disk."""
    return f"{disk} wiped"


# What the model asks for: a call that works, one that is cut off, one that needs a person, one that is not there.
WISHES = [
    ("c1", "math__add", '{"a": 2}'),
    ("c2", "math__add", '{"a": 2'),
    ("c3", "wipe", '{"disk": "sdb", "password": "hunter2"}'),
    ("c4", "math__ad", ""),
]
CHAT = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in WISHES],
}
OUTPUT: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "r1", "summary": []},
    *({"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": n, "arguments": a} for i, n, a in WISHES),
]
BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "Let me see."},
    {"type": "tool_use", "id": "c1", "name": "math__add", "input": {"a": 2}},
    {"type": "tool_use", "id": "c2", "name": "math__add", "input": {"a": "two"}},
    {"type": "tool_use", "id": "c3", "name": "wipe", "input": {"disk": "sdb", "password": "hunter2"}},
    {"type": "tool_use", "id": "c4", "name": "math__ad", "input": {}},
]
CLAUDE = {"type": "message", "role": "assistant", "stop_reason": "tool_use", "content": BLOCKS}


class Sdk(BaseModel):
    """An object of a client's own, as all of them are made."""

    model_config = {"extra": "allow"}
    refusal: str | None = None


REPLIES: list[Any] = [
    pytest.param(CHAT, id="chat message"),
    pytest.param({"object": "chat.completion", "choices": [{"message": CHAT}]}, id="chat reply"),
    pytest.param(Sdk(choices=[Sdk(message=Sdk(**CHAT))]), id="chat object"),
    pytest.param({"choices": [Sdk(message=Sdk(**CHAT))]}, id="chat object in a dict"),
    pytest.param({"object": "response", "output": OUTPUT}, id="response"),
    pytest.param(OUTPUT, id="output of a response"),
    pytest.param([Sdk(**item) for item in OUTPUT], id="output objects"),
    pytest.param(CLAUDE, id="anthropic"),
    pytest.param(BLOCKS, id="anthropic content"),
    pytest.param({"role": "assistant", "content": [Sdk(**block) for block in BLOCKS]}, id="anthropic objects"),
]


@pytest.mark.parametrize("reply", REPLIES)
async def test_every_call_of_a_reply_has_its_outcome_and_its_message_in_order(make_box: MakeBox, reply: Any) -> None:
    async with make_box(add, wipe) as box:
        outcomes, messages = await box.answer_tool_calls(reply, user="acme:ann", run_id="turn")
        waiting = await box.pending.list(by="acme:boss")
    assert [type(outcome) for outcome in outcomes] == [Completed, Failed, Paused, Failed]
    assert {outcome.run_id for outcome in outcomes} == {"turn"}
    assert [action.tool_name for action in waiting] == ["wipe"]
    texts = [text for text, _ in map(_read, _answers(messages))]
    assert [_id for _, _id in map(_read, _answers(messages))] == ["c1", "c2", "c3", "c4"]
    assert texts[0] == "3"
    assert "validation_failed" in texts[1]
    assert "waits for a person" in texts[2]
    assert 'Did you mean "math.add"?' in texts[3]
    assert "hunter2" not in str(messages)


async def test_anthropic_gets_one_message_that_marks_what_failed(make_box: MakeBox) -> None:
    async with make_box(add, wipe) as box:
        answered = await box.answer_tool_calls(CLAUDE)
    (message,) = answered.messages
    assert message["role"] == "user"
    assert [block.get("is_error", False) for block in message["content"]] == [False, True, False, True]
    assert [paused.tool_name for paused in answered.paused] == ["wipe"]


async def test_calls_of_one_reply_run_at_the_same_time() -> None:
    both = asyncio.Barrier(2)

    @tool(side_effects="pure")
    async def meet() -> str:
        """Wait for the other call."""
        await both.wait()
        return "met"

    wishes = [{"type": "tool_use", "id": str(n), "name": "meet", "input": {}} for n in range(2)]
    async with Toolbox(tools=[meet]) as box:
        answered = await box.answer_tool_calls(wishes)
    assert [block["content"] for block in answered.messages[0]["content"]] == ["met", "met"]


@pytest.mark.parametrize(
    "reply",
    [
        {"role": "assistant", "content": "Hello."},
        {"role": "assistant", "content": "Hello.", "tool_calls": []},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
        {"output": [{"type": "message", "content": []}]},
        {"choices": []},
        [],
    ],
)
async def test_a_reply_without_calls_needs_no_answer(make_box: MakeBox, reply: Any) -> None:
    async with make_box(add) as box:
        assert await box.answer_tool_calls(reply) == ([], [])


@pytest.mark.parametrize("reply", ["Hello.", None, {"error": {"message": "no credit"}}])
async def test_an_invalid_reply_is_reported_with_a_valid_form(make_box: MakeBox, reply: Any) -> None:
    async with make_box(add) as box:
        with pytest.raises(TypeError, match="give the reply of Chat Completions"):
            await box.answer_tool_calls(reply)


async def test_definitions_come_in_the_shape_of_each_provider(make_box: MakeBox) -> None:
    async with make_box(add) as box:
        (definition,) = box.registry.to_llm_tools(["math.add"])
    schema = definition.parameters
    assert definition.to_openai_responses() == {
        "type": "function",
        "name": "math__add",
        "description": "Add two numbers.",
        "parameters": schema,
        "strict": False,
    }
    assert definition.to_openai()["function"]["parameters"] == definition.to_anthropic()["input_schema"] == schema


def _answers(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return messages[0]["content"] if messages[0].get("role") == "user" else messages


def _read(answer: dict[str, Any]) -> tuple[str, str]:
    id_key = next(key for key in ("tool_call_id", "call_id", "tool_use_id") if key in answer)
    return answer.get("content") or answer["output"], answer[id_key]
