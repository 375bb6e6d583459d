"""A conversation goes on with its messages, and is followed as it happens."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.stores.state_stores import DatabaseState, EventsOnly
from toolpost import ConfigError, EventCode, PlannerFinish, PlannerPause, ReactPlanner, Settings, Toolbox, tool
from toolpost.agents import (
    CallEnded,
    CallProgress,
    CallStarted,
    ModelReplied,
    ModelText,
    PlannerEvent,
    RunFinished,
    RunPaused,
)
from toolpost.contracts.chat import Usage
from toolpost.contracts.context import ToolContext
from toolpost.testing import ScriptedModel, tool_calls

MEMORY = Settings(data_dir=None)
ANN = {"user_id": "acme:ann", "trace_id": "trace-1"}


@tool(side_effects="pure")
async def add(a: int, b: int, password: str = "") -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="write")
async def seat(ctx: ToolContext) -> str:
    """Find a seat."""
    return f"seat {await ctx.pause('await_input', {'free': [3, 4]}, prompt='Which seat?')}"


def planner(model: Any, **options: Any) -> ReactPlanner:
    return ReactPlanner(catalog=[add, seat], llm=model, settings=MEMORY, **options)


async def test_a_conversation_continues_with_the_messages_of_the_last_turn() -> None:
    model = ScriptedModel(tool_calls(("add", {"a": 1, "b": 2})), "3", "It was 3.")
    async with planner(model) as made:
        first = await made.run("What is 1+2?", llm_context={"lang": "en"})
        assert isinstance(first, PlannerFinish)
        second = await made.run("What was it?", messages=first.messages, llm_context={"lang": "de"})
    assert isinstance(second, PlannerFinish)
    roles = [message["role"] for message in model.requests[-1]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    head = model.requests[-1][0]["content"]
    assert (head.count("What is known"), '{"lang": "de"}' in head, "en" in head.split("known")[1]) == (1, True, False)
    assert [message["content"] for message in second.messages[-2:]] == ["What was it?", "It was 3."]
    assert len(first.messages) == 5


async def test_a_conversation_that_was_cut_short_is_closed_before_it_continues() -> None:
    model = ScriptedModel("Hello.")
    asked = tool_calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
    before = [{"role": "system", "content": "Be brief."}, asked, {"role": "tool", "tool_call_id": "c0", "content": "3"}]
    async with planner(model) as made:
        await made.run("Hello?", messages=before)
    (sent,) = model.requests
    assert [message["role"] for message in sent] == ["system", "assistant", "tool", "tool", "user"]
    assert sent[0]["content"] == "Be brief."
    assert sent[3] == {"role": "tool", "tool_call_id": "c1", "content": "This call was not made."}


@pytest.mark.parametrize("messages", [[{"role": "robot"}], ["text"], [{"role": "user", "content": object()}]])
async def test_messages_that_are_none_are_refused(messages: Sequence[Any]) -> None:
    async with planner(ScriptedModel()) as made:
        with pytest.raises(ConfigError, match="messages"):
            await made.run("Hello?", messages=messages)


async def test_a_run_is_followed_as_it_happens() -> None:
    model = ScriptedModel(
        tool_calls(("add", {"a": 1, "b": 2, "password": "canary"})), "It is three.", usage=Usage(90, 10, 0.5)
    )
    async with planner(model) as made:
        events = [event async for event in made.stream("What is 1+2?", tool_context=ANN)]
    first, call, ended, *texts, last, finish = events
    assert first == ModelReplied(run_id="trace-1", steps=1, usage=Usage(90, 10, 0.5))
    assert last.to_dict()["usage"] == {"input_tokens": 180, "output_tokens": 20, "cost": 1.0}
    assert isinstance(call, CallStarted)
    assert (call.tool_name, dict(call.arguments)) == ("add", {"a": 1, "b": 2, "password": "[redacted]"})
    assert isinstance(ended, CallEnded)
    assert (ended.call_id, ended.status, ended.text) == (call.call_id, "completed", "3")
    assert len(texts) > 1
    assert "".join(text.text for text in texts if isinstance(text, ModelText)) == "It is three."
    assert isinstance(finish, RunFinished)
    assert finish.result.answer == "It is three."
    told = [event.to_dict() for event in events]
    assert {each["run_id"] for each in told} == {"trace-1"}
    assert [each["type"] for each in told if each["type"] != "text"] == [
        *("replied", "call_started", "call_ended", "replied", "finished")
    ]
    assert "canary" not in repr(told[1])


async def test_values_of_a_tool_that_streams_are_in_the_stream_of_the_run() -> None:
    @tool(side_effects="pure")
    def tail(lines: int) -> Iterator[str]:
        yield from (f"line {number}" for number in range(lines))

    model = ScriptedModel(tool_calls(("tail", {"lines": 2})), "Two lines.")
    async with ReactPlanner(catalog=[tail], llm=model, settings=Settings(data_dir=None)) as made:
        events = [event async for event in made.stream("What is new?")]

    _, started, *values, ended, _, _ = [event for event in events if not isinstance(event, ModelText)]
    assert isinstance(started, CallStarted)
    assert isinstance(ended, CallEnded)
    assert ended.text == "line 1"
    assert [(event.call_id, event.value) for event in values if isinstance(event, CallProgress)] == [
        (started.call_id, "line 0"),
        (started.call_id, "line 1"),
    ]


async def test_a_pause_ends_the_stream_and_another_continues_without_what_resumes_it() -> None:
    model = ScriptedModel(tool_calls(("seat", {})), "Done.")
    async with planner(model) as made:
        first = [event async for event in made.stream("Sit.")]
        paused = first[-1]
        assert isinstance(paused, RunPaused)
        assert [getattr(event, "status", "") for event in first] == ["", "", "paused", ""]
        second = [event async for event in made.stream_resume(paused.result.resume_token, 4)]
    assert paused.to_dict()["questions"][0]["prompt"] == "Which seat?"
    assert paused.result.resume_token not in repr((paused.to_dict(), first))
    assert [event.type for event in second] == ["call_ended", "text", "replied", "finished"]


async def test_whoever_stops_listening_stops_the_run_and_an_error_ends_the_stream() -> None:
    stopped = asyncio.Event()

    @tool(side_effects="read")
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    model = ScriptedModel(tool_calls(("hang", {})), OSError("no credit"))
    async with ReactPlanner(catalog=[hang], llm=model, settings=MEMORY) as made:
        stream = made.stream("Hang.")
        assert [(await anext(stream)).type for _ in range(2)] == ["replied", "call_started"]
        await stream.aclose()
        assert stopped.is_set()
        with pytest.raises(Exception, match="the language model failed: OSError: no credit"):
            [event async for event in made.stream("Again.")]


async def test_a_listener_of_the_planner_hears_every_run_and_one_that_fails_disturbs_no_one() -> None:
    heard: list[PlannerEvent] = []

    def listen(event: PlannerEvent) -> None:
        heard.append(event)
        raise RuntimeError("no ears")

    async with planner(ScriptedModel("One.", "Two.", "Three."), on_event=listen) as made:
        await made.run("1")
        assert [event.type async for event in made.stream("2")] == ["text", "replied", "finished"]
        own: list[PlannerEvent] = []
        await made.run("3", on_event=own.append)
    assert [event.result.answer for event in heard if isinstance(event, RunFinished)] == ["One.", "Two."]
    assert [event.type for event in own] == ["text", "replied", "finished"]


@pytest.mark.req("STATE-01")
@pytest.mark.parametrize("given", ["tools", "toolbox"])
async def test_a_state_store_of_others_receives_the_events_of_the_runs(given: str, tmp_path: Any) -> None:
    theirs = DatabaseState(tmp_path / "theirs.db")
    model = ScriptedModel(tool_calls(("seat", {})), "Done.")
    async with Toolbox(tools=[add, seat], settings=MEMORY) as box:
        over_box = ReactPlanner(catalog=box, llm=model, state_store=theirs)
        async with over_box if given == "toolbox" else planner(model, state_store=theirs) as made:
            pause = await made.run("Sit.", tool_context=ANN)
            assert isinstance(pause, PlannerPause)
            asked = [event.code for event in await theirs.load_history("trace-1")]
            await box.call("add", {"a": 1, "b": 2}, user="acme:ann", run_id="another")
            await made.resume(pause.resume_token, 4)
        whole = [event.code for event in await theirs.load_history("trace-1")]
        other = await theirs.load_history("another")
        first = (await theirs.load_history("trace-1"))[0]
    theirs.close()
    assert (first.trace_id, first.kind, first.node_name) == ("trace-1", "TOOL_CALL_REQUESTED", "seat")
    assert (first.ts, first.node_id) == (first.at, first.call_id)
    assert asked == [EventCode.TOOL_CALL_REQUESTED, EventCode.TOOL_CALL_STARTED, EventCode.CALL_PAUSED]
    assert whole[3:] == [EventCode.CALL_RESUMED, EventCode.TOOL_CALL_COMPLETED]
    assert other == []


async def test_a_state_store_that_hangs_does_not_hold_a_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolpost.agents.planner._FLUSH_S", 0.01)

    class Hanging(EventsOnly):
        async def save_event(self, event: Any) -> None:
            await asyncio.Event().wait()

    async with planner(ScriptedModel(tool_calls(("add", {"a": 1, "b": 2})), "3"), state_store=Hanging()) as made:
        assert (await made.run("What is 1+2?")).payload == {"answer": "3"}
    assert "the state store has not saved all events" in caplog.text
