"""The main agent: what people write comes in over channels, and only `reply` goes out."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP

from tests.patient_settings import PatientSettings
from toolpost import EventBus, EventCode, Settings, Toolbox, tool
from toolpost.agents import MainAgent, Reply
from toolpost.errors import ConfigError
from toolpost.testing import ScriptedModel, tool_calls

ANN = "acme:ann"
SAYS_NOW = {"text": "on it", "channel_id": "web"}


@tool(side_effects="write", destructive=True)
async def wipe(name: str) -> str:
    return f"wiped {name}"


def says(text: str, channel: str = "web") -> dict[str, Any]:
    return tool_calls(("reply", {"text": text, "channelId": channel}))


def spawns(*inputs: str) -> dict[str, Any]:
    return tool_calls(*(("spawn_task", {"description": "work", "input": text}) for text in inputs))


class Rules:
    """A model that looks at the last message alone: whatever comes first, it says the same."""

    def __init__(self, *rules: tuple[str, Any]) -> None:
        self.rules = rules
        self.requests: list[list[Any]] = []

    async def complete(self, messages: Any, *, tools: Any = ()) -> Any:
        self.requests.append([*messages])
        last = str(messages[-1]["content"])
        found = next((line for part, line in self.rules if part in last), {"content": ""})
        return found(last) if callable(found) else found

    @property
    def heard(self) -> list[str]:
        return [str(message["content"]) for message in self.requests[-1] if message["role"] != "assistant"]


@asynccontextmanager
async def main_agent(
    *lines: Any, task: tuple[Any, ...] = (), data_dir: Path | None = None, **options: Any
) -> AsyncGenerator[tuple[MainAgent, Any, list[Reply]]]:
    said = list[Reply]()
    model = lines[0] if lines and isinstance(lines[0], Rules) else ScriptedModel(*lines)
    async with (
        Toolbox(tools=[wipe], settings=Settings(data_dir=data_dir)) as box,
        MainAgent(
            box, model, user=ANN, task_llm=ScriptedModel(*task), on_reply=said.append, reflect=False, **options
        ) as agent,
    ):
        yield agent, model, said


async def idle(agent: MainAgent) -> None:
    await asyncio.wait_for(agent.idle(), 10)


@pytest.mark.req("PMAIN-02")
async def test_text_of_a_model_outside_of_reply_reaches_no_one() -> None:
    async with main_agent("I shout!", says("hello"), "and I mutter") as (agent, model, said):
        await agent.send("web", "hi")
        await idle(agent)
        before = list(said)
        await agent.send("web", "are you there?")
        await idle(agent)

    assert (before, said) == ([], [Reply(channel_id="web", text="hello")])
    assert model.requests[0][-1]["content"].endswith("] hi")
    assert "[channel web, message event_" in model.requests[0][-1]["content"]


@pytest.mark.req("PMAIN-01")
async def test_a_task_runs_in_the_background_and_its_end_is_heard() -> None:
    spawning = tool_calls(("spawn_task", {"description": "sum", "input": "add"}), ("reply", SAYS_NOW))
    rules = Rules(("1 + 2", spawning), ("completed]", says("3")))
    async with main_agent(rules, task=("It is 3.",)) as (agent, model, said):
        await agent.send("web", "what is 1 + 2?")
        await idle(agent)
        (task,) = agent.tasks

    assert [reply.text for reply in said] == ["on it", "3"]
    assert (task.state, task.description, task.context.input_text) == ("completed", "sum", "add")
    assert f"[task {task.id} completed] It is 3." in model.heard


async def test_a_reply_to_a_channel_that_no_one_wrote_on_fails() -> None:
    async with main_agent(says("hello", "elsewhere"), "") as (agent, model, said):
        await agent.send("web", "hi")
        await idle(agent)

    assert said == []
    assert "unknown channel 'elsewhere'; the channels are: web" in model.results[0]


async def test_a_receiver_that_fails_is_reported_to_the_model() -> None:
    def refuse(_: Reply) -> None:
        raise RuntimeError("the line is cut")

    model = ScriptedModel(says("hello"), "")
    async with Toolbox(settings=Settings(data_dir=None)) as box, MainAgent(box, model, on_reply=refuse) as agent:
        await agent.send("web", "hi")
        await idle(agent)

    assert "the line is cut" in model.results[0]


async def test_replies_are_iterated_over_by_channel_until_the_agent_stops() -> None:
    model = ScriptedModel(tool_calls(*(("reply", {"text": name, "channel_id": name}) for name in ("web", "cli"))), "")
    async with Toolbox(settings=Settings(data_dir=None)) as box, MainAgent(box, model) as agent:
        cli = agent.replies("cli")
        everything = agent.replies()
        await agent.send("web", "hi")
        await agent.send("cli", "hi")
        await idle(agent)

    assert [reply.text async for reply in cli] == ["cli"]
    assert sorted([reply.text async for reply in everything]) == ["cli", "web"]


async def test_a_model_that_spawns_two_hundred_tasks_gets_as_many_as_it_may() -> None:
    rules = Rules(("go wild", spawns(*map(str, range(200)))), ("200 concurrent calls", spawns(*map(str, range(50)))))
    waiting = tool_calls(("wipe", {"name": "x"}))
    async with main_agent(rules, task=(waiting,) * 4, max_tasks=4) as (agent, model, _):
        await agent.send("web", "go wild")
        await idle(agent)

    refused = sum("4 tasks are active, which is the maximum" in text for text in model.heard)
    assert "200 concurrent calls are too many, and none of them was made; the maximum is 50" in model.heard
    assert (len(agent.tasks), refused) == (4, 46)


async def test_a_model_that_loops_ends_its_turn_and_the_agent_continues() -> None:
    bus = EventBus(keep_history=True)
    loop = tool_calls(("current_time", {}))
    async with main_agent(*[loop] * 3, says("sorry"), "", max_rounds=3, bus=bus) as (agent, _, said):
        await agent.send("web", "think")
        await idle(agent)
        await agent.send("web", "and?")
        await idle(agent)

    assert [reply.text for reply in said] == ["sorry"]
    (failed,) = [event for event in bus.history if event.code is EventCode.TURN_FAILED]
    assert failed.payload["error_code"] == "loop"


async def test_a_model_that_fails_does_not_take_the_agent_down(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="toolpost.agents"):
        async with main_agent(RuntimeError("down"), says("back"), "") as (agent, _, said):
            await agent.send("web", "hi")
            await idle(agent)
            await agent.send("web", "hi again")
            await idle(agent)

    assert [reply.text for reply in said] == ["back"]
    assert "a turn of the main agent failed: the language model failed: RuntimeError: down" in caplog.text


async def test_a_task_that_fails_is_heard_and_nothing_else_happens() -> None:
    rules = Rules(("please", spawns("work")), ("failed]", says("it failed")))
    async with main_agent(rules, task=(RuntimeError("no model"),)) as (agent, model, said):
        await agent.send("web", "work please")
        await idle(agent)

    assert [reply.text for reply in said] == ["it failed"]
    assert any("failed] the language model failed: RuntimeError: no model" in text for text in model.heard)


async def test_a_task_that_needs_information_is_resumed_by_the_main_agent() -> None:
    asked = tool_calls(("need_more_info", {"question": "Which one?"}))

    def resume(last: str) -> dict[str, Any]:
        return tool_calls(("resume_task", {"taskId": last.split()[1], "input": "the red one"}))

    rules = Rules(
        ("please", spawns("paint")),
        ("needs information] Which one?", resume),
        ("completed] painted red", says("painted")),
    )
    own = ["main_agent_tools", "resume_task"]
    options: dict[str, Any] = {"own_tools": own, "task_extras": ["need_more_info"]}
    async with main_agent(rules, task=(asked, "painted red"), **options) as (agent, _, said):
        await agent.send("web", "paint it, please")
        await idle(agent)

    assert [reply.text for reply in said] == ["painted"]


@pytest.mark.req("PCOL-02")
async def test_beyond_its_eight_tools_an_agent_has_what_it_was_given_alone() -> None:
    async with main_agent(tool_calls(("wipe", {"name": "x"}), ("resume_task", {})), "") as (agent, model, _):
        names = [spec.name for spec in agent.registry.specs()]
        await agent.send("web", "wipe x")
        await idle(agent)

    assert names[-2:] == ["spawn_task", "reply"]
    assert len(names) == 8
    assert {"spawn_task", "reply"}.isdisjoint(spec.name for spec in agent.agent.registry.specs())
    assert all("not found" in text for text in model.results)


async def test_a_session_continues_after_a_restart_with_open_calls_closed(tmp_path: Path) -> None:
    async with main_agent(says("hello"), "", data_dir=tmp_path) as (agent, _, __):
        await agent.send("web", "hi")
        await idle(agent)
    current = tmp_path / "tenants" / "acme" / "sessions" / "ann" / "current.jsonl"
    lines = current.read_text().splitlines()
    current.write_text("\n".join(lines[:2]) + "\n")  # as if it was killed before the reply was recorded

    async with main_agent(says("again"), "", data_dir=tmp_path) as (agent, model, said):
        await agent.send("web", "still there?")
        await idle(agent)

    roles = [message["role"] for message in model.requests[0]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert json.loads(model.requests[0][3]["content"]) == {"cancelled": True, "reason": "process restarted"}
    assert [reply.text for reply in said] == ["again"]


async def test_a_long_session_is_archived_and_summarized(tmp_path: Path) -> None:
    lines = ("x" * 3000, "They greeted each other.", says("hello"), "")
    async with main_agent(*lines, data_dir=tmp_path, context_tokens=1000) as (agent, model, _):
        await agent.send("web", "hi")
        await idle(agent)
        await agent.send("web", "and now?")
        await idle(agent)

    folder = tmp_path / "tenants" / "acme" / "sessions" / "ann"
    (archive,) = folder.glob("2*.jsonl")
    opening = json.loads((folder / "current.jsonl").read_text().splitlines()[0])
    assert opening["metadata"]["previousSession"] == archive.name
    assert "What was said before:\nThey greeted each other." in model.requests[2][0]["content"]
    assert "x" * 3000 in archive.read_text()


async def test_a_session_is_compacted_even_when_the_model_is_down() -> None:
    lines = ("x" * 3000, RuntimeError("down"), says("hello"), "")
    async with main_agent(*lines, context_tokens=1000) as (agent, model, said):
        await agent.send("web", "hi")
        await idle(agent)
        await agent.send("web", "and now?")
        await idle(agent)

    assert [reply.text for reply in said] == ["hello"]
    assert "The last words of the conversation before" in model.requests[2][0]["content"]


async def test_a_second_agent_cannot_take_the_same_session(tmp_path: Path) -> None:
    async with main_agent(data_dir=tmp_path) as (agent, _, __):
        with pytest.raises(ConfigError, match="another agent"):
            await MainAgent(agent.box, ScriptedModel(), user=ANN).start()
        other = MainAgent(agent.box, ScriptedModel(), user="acme:bob")
        await other.start()
        await other.stop()


async def test_a_task_that_waits_for_approval_is_reported_and_continues() -> None:
    rules = Rules(
        ("hello", spawns("wipe x")),
        ("waits for a person] Allow wipe?", says("please approve")),
        ("completed] It is gone.", says("wiped")),
    )
    wiping = (tool_calls(("wipe", {"name": "x"})), "It is gone.")
    async with main_agent(rules, task=wiping) as (agent, _, said):
        await agent.send("web", "hello")
        await idle(agent)
        (task,) = agent.tasks
        await agent.box.approve(task.waiting[0].pending_id, by=ANN)
        await asyncio.wait_for(task.wait(), 10)
        await idle(agent)

    assert [reply.text for reply in said] == ["please approve", "wiped"]


async def test_a_call_of_the_main_agent_itself_waits_for_a_person_and_its_end_is_heard() -> None:
    server = FastMCP("abacus")
    server.tool(_add, name="add")
    source = {"name": "abacus", "transport": "mcp", "connection": "memory:abacus"}
    rules = Rules(("hello", tool_calls(("abacus__add", {"a": 1, "b": 2}))), ("has answered", says("3")))
    said = list[Reply]()
    settings = PatientSettings.model_validate({"data_dir": None, "lock": None, "sources": [source]})
    async with (
        Toolbox(settings=settings, servers={"abacus": server}) as box,
        MainAgent(box, rules, user=ANN, on_reply=said.append) as agent,
    ):
        await box.wait_for_sources()
        await agent.send("web", "hello")
        await idle(agent)
        (asked,) = await box.pending.list(by=ANN)
        await box.approve(asked.id, by=ANN)
        async with asyncio.timeout(10):
            async for reply in agent.replies():
                assert reply.text == "3"
                break

    assert any("This call waits for a person: Allow abacus.add?" in text for text in rules.heard)
    assert [reply.text for reply in said] == ["3"]


async def test_what_came_of_a_call_of_its_own_is_heard_after_a_restart(tmp_path: Path) -> None:
    server = FastMCP("abacus")
    server.tool(_add, name="add")
    source = {"name": "abacus", "transport": "mcp", "connection": "memory:abacus"}
    settings = PatientSettings.model_validate({"data_dir": tmp_path, "lock": None, "sources": [source]})
    rules = Rules(("hello", tool_calls(("abacus__add", {"a": 1, "b": 2}))), ("has answered", says("3")))
    said = list[Reply]()
    async with Toolbox(settings=settings, servers={"abacus": server}) as box:
        await box.wait_for_sources()
        async with MainAgent(box, rules, user=ANN) as agent:
            await agent.send("web", "hello")
            await idle(agent)
        (asked,) = await box.pending.list(by=ANN)
        await box.approve(asked.id, by=ANN)  # while no agent runs
        for _ in range(2):  # the second has heard it before
            async with MainAgent(box, rules, user=ANN, on_reply=said.append) as agent:
                await agent.send("web", "well?")
                await idle(agent)
                while agent._session.waiting:  # noqa: SLF001
                    await asyncio.sleep(0.01)
                await idle(agent)

    assert [reply.text for reply in said] == ["3"]


def _add(a: int, b: int) -> int:
    return a + b


async def test_messages_of_people_come_before_reports_of_tasks() -> None:
    rules = Rules(("hello", spawns("one")), ("completed]", says("done")))
    async with main_agent(rules, task=("done",)) as (agent, model, _):
        await agent.send("web", "hello")
        await idle(agent)
        for _ in range(2):  # in one moment, before the agent takes its turn
            agent._receive(agent.tasks[0].last_event)  # type: ignore[arg-type] # noqa: SLF001
        await agent.send("web", "me first")
        await idle(agent)

    told = [text for text in model.heard if "me first" in text or "completed]" in text]
    assert "me first" in told[-3]


async def test_what_a_person_writes_before_the_start_is_refused() -> None:
    with pytest.raises(RuntimeError, match="start the MainAgent first"):
        await MainAgent(Settings(data_dir=None), ScriptedModel()).send("web", "hi")


@pytest.mark.parametrize("given", ["settings", "file", "mapping"])
async def test_settings_are_enough_to_start_one(tmp_path: Path, given: str) -> None:
    (tmp_path / "toolpost.yaml").write_text("data_dir: null\n")
    made: Any = {
        "settings": Settings(data_dir=None),
        "file": tmp_path / "toolpost.yaml",
        "mapping": {"data_dir": None},
    }[given]
    async with MainAgent(made, ScriptedModel(says("hello"), "")) as agent:
        stream = agent.replies()
        await agent.send("web", "hi")
        assert (await anext(stream)).text == "hello"
        assert agent.agent.registry.has("read_file")


async def test_a_stream_that_no_one_reads_any_more_takes_no_replies() -> None:
    async with MainAgent(Settings(data_dir=None), ScriptedModel(says("hello"), ""), reflect=False) as agent:
        for _ in range(3):
            agent.replies("web")  # of a connection that is closed
        await agent.send("web", "hi")
        await idle(agent)
        assert (await asyncio.wait_for(anext(agent.replies()), 10)).text == "hello"


async def test_others_of_the_tenant_do_not_see_the_tasks(tmp_path: Path) -> None:
    rules = Rules(("please", spawns("secret plan")))
    async with main_agent(rules, task=("done",), data_dir=tmp_path) as (agent, _, __):
        await agent.send("web", "plan please")
        await idle(agent)
        task_id = agent.tasks[0].id
        seen: dict[str, list[Any]] = {}
        for user in (ANN, "acme:bob"):
            model = ScriptedModel(tool_calls(("task_list", {}), ("task_replay", {"taskId": task_id})), "")
            async with MainAgent(agent.box, model, user=user, session_dir=tmp_path / user.partition(":")[2]) as other:
                await other.send("web", "what was done?")
                await idle(other)
            seen[user] = model.results

    assert "secret plan" in seen[ANN][0]
    assert "done" in seen[ANN][1]
    assert "secret plan" not in str(seen["acme:bob"])
