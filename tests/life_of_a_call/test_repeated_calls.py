"""A call that is repeated while it waits for a person is the same call: one pending action, which runs once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, Failed, Paused, Settings, Toolbox, ToolContext, ToolExecutor, ToolRegistry, tool
from toolpost.errors import PauseSignal
from toolpost.events import EventCode
from toolpost.runtime.event_bus import EventBus
from toolpost.sources import Workflow, WorkflowFunction

ANN, BOB = "acme:ann", "acme:bob"
ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool(side_effects="write", destructive=True)
async def pay(amount: int) -> str:
    """Pay."""
    ran.append(amount)
    return f"{amount} paid"


@tool(side_effects="write", destructive=False)
async def order(ctx: ToolContext, item: str) -> str:
    """Reserve, ask a person, then order."""
    ran.append(f"reserve {item}")
    color = await ctx.pause("color", prompt="Which color?")
    ran.append(f"order {item} in {color}")
    return "ordered"


def flow(side_effects: str) -> WorkflowFunction:
    steps = "steps: {money: {tool: pay, arguments: {amount: 5}}}"
    return WorkflowFunction(Workflow.parse(f"{{name: flow, side_effects: {side_effects}, {steps}}}"))


async def test_a_repeated_call_that_waits_returns_the_same_pending_action_and_runs_once(make_box: MakeBox) -> None:
    asked: list[Any] = []
    async with make_box(pay, on_pending=asked.append) as box:
        pauses = [await box.call("pay", {"amount": 5}, user=ANN) for _ in range(3)]
        waiting = await box.pending.list(by=BOB)
        await box.approve(waiting[0].id, by=BOB)
        after = await box.pending.outcome(pauses[2].pending_id, by=ANN, wait_s=0)

    assert {pause.pending_id for pause in pauses} == {one.id for one in waiting} == {one.id for one in asked}
    assert (after.content, ran) == ("5 paid", [5])


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_call_after_the_answer_is_another_call(make_box: MakeBox, decision: str) -> None:
    async with make_box(pay) as box:
        first = await box.call("pay", {"amount": 5}, user=ANN)
        await box.pending.answer(first.pending_id, by=BOB, decision=decision)
        again = await box.call("pay", {"amount": 5}, user=ANN)

    assert isinstance(again, Paused)
    assert again.pending_id != first.pending_id


@pytest.mark.parametrize(
    "other",
    [
        {"idempotency_key": "k2"},
        {"idempotency_key": None},
        {"idempotency_key": "k1", "user": BOB},
        {"idempotency_key": None, "run_id": "r2"},
        {"idempotency_key": None, "session": "s2"},
    ],
)
async def test_another_key_user_run_or_session_makes_another_call(make_box: MakeBox, other: dict[str, Any]) -> None:
    async with make_box(pay) as box:
        first = await box.call("pay", {"amount": 5}, user=ANN, idempotency_key="k1", run_id="r1")
        second = await box.call("pay", {"amount": 5}, **{"user": ANN, **other})
        again = await box.call("pay", {"amount": 5}, **{"user": ANN, **other})

    assert second.pending_id != first.pending_id
    assert again.pending_id == second.pending_id


async def test_a_call_that_is_listed_twice_at_once_is_meant_twice(make_box: MakeBox) -> None:
    calls = [("pay", {"amount": 5}), ("pay", {"amount": 5}), ("pay", {"amount": 6})]
    async with make_box(pay) as box:
        first = [pause.pending_id for pause in await box.call_many(calls, user=ANN, run_id="r1")]
        again = [pause.pending_id for pause in await box.call_many(calls, user=ANN, run_id="r1")]

    assert len(set(first)) == 3
    assert again == first


async def test_of_calls_at_once_in_two_programs_one_asks(tmp_path: Path) -> None:
    def opened() -> Toolbox:
        return Toolbox(tools=[pay], settings=Settings(data_dir=tmp_path))

    async with opened() as one, opened() as two:
        calls = [box.call("pay", {"amount": 5}, user=ANN) for box in (one, two) for _ in range(20)]
        pauses = await asyncio.gather(*calls)
        waiting = await one.pending.list(by=BOB)
        await two.approve(waiting[0].id, by=BOB)

    assert {pause.pending_id for pause in pauses if isinstance(pause, Paused)} == {waiting[0].id}
    assert (len(pauses), len(waiting), ran) == (40, 1, [5])


async def test_a_tool_that_asked_midway_is_not_begun_again(make_box: MakeBox) -> None:
    async with make_box(order) as box:
        first = await box.call("order", {"item": "vase"}, user=ANN)
        again = await box.call("order", {"item": "vase"}, user=ANN)
        begun = list(ran)
        await box.answer(first.pending_id, "blue", by=ANN)

    assert again.pending_id == first.pending_id
    assert begun == ["reserve vase"]
    assert ran[-1] == "order vase in blue"


@pytest.mark.parametrize("side_effects", ["write", "read"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_repeated_workflow_asks_once_for_the_call_inside_it(
    make_box: MakeBox, side_effects: str, at_once: bool
) -> None:
    async with make_box(pay, flow(side_effects)) as box:
        calls = [box.call("flow", user=ANN) for _ in range(2)]
        pauses = await asyncio.gather(*calls) if at_once else [await call for call in calls]
        waiting = await box.pending.list(by=BOB)
        outcome = await box.approve(waiting[0].id, by=BOB)

    assert [pause.pending_id for pause in pauses] == [waiting[0].id] * 2
    assert (len(waiting), ran) == (1, [5])
    assert isinstance(outcome, Completed)


async def test_the_next_question_of_a_call_is_what_a_repeated_call_waits_for(make_box: MakeBox) -> None:
    @tool(side_effects="write", destructive=True)
    async def wipe(ctx: ToolContext, disk: str) -> str:
        """Wipe a disk, once it is named twice."""
        return str(await ctx.pause("again", prompt="Name it again."))

    async with make_box(wipe) as box:
        first = await box.call("wipe", {"disk": "a"}, user=ANN)
        second = await box.approve(first.pending_id, by=BOB)
        again = await box.call("wipe", {"disk": "a"}, user=ANN)

    assert second.question.kind == again.question.kind == "input"
    assert second.pending_id == again.pending_id != first.pending_id


async def test_a_repeated_call_that_waits_for_a_sign_in_gets_a_new_link(make_box: MakeBox) -> None:
    links = iter(["https://login.example/1", "https://login.example/2"])

    @tool(side_effects="read")
    async def mail(ctx: ToolContext) -> str:
        """Read mail."""
        await ctx.pause("sign in", auth_request={"auth_url": next(links), "provider": "mail"})
        return "none"

    async with make_box(mail) as box:
        first = await box.call("mail", user=ANN)
        again = await box.call("mail", user=ANN)
        stored = await box.pending.get(first.pending_id, by=ANN)

    assert again.pending_id == first.pending_id
    assert again.question.payload["auth_url"] == stored.question.payload["auth_url"] == "https://login.example/2"


async def test_the_log_has_an_end_for_each_repeated_call(make_box: MakeBox) -> None:
    async with make_box(pay) as box:
        first = await box.call("pay", {"amount": 5}, user=ANN)
        await box.call("pay", {"amount": 5}, user=ANN)
        keyed = [await box.call("pay", {"amount": 6}, user=ANN, idempotency_key="k") for _ in range(2)]
        await box.store.events.flush()
        failed = [event for event in await box.events(user=ANN) if event.code == EventCode.TOOL_CALL_FAILED]
        runs = {run.run_id: run.status for run in await box.runs(user=ANN)}

    assert [event.payload["error_code"] for event in failed] == ["already_waiting"] * 2
    assert first.pending_id in json.dumps(failed[0].payload)
    assert {runs[first.run_id], runs[keyed[0].run_id]} == {"paused"}
    assert sorted(runs.values()) == ["failed", "failed", "paused", "paused"]


async def test_an_expired_question_is_not_waited_for(make_box: MakeBox) -> None:
    async with make_box(pay, limits={"pending_ttl": 0.000001}) as box:
        first = await box.call("pay", {"amount": 5}, user=ANN)
        again = await box.call("pay", {"amount": 5}, user=ANN)

    assert not isinstance(again, Failed)
    assert again.pending_id != first.pending_id


@tool(side_effects="external", destructive=False)
async def post(ctx: ToolContext, text: str) -> str:
    """Post, once the host has signed in."""
    if not (ctx.tool_context or {}).get("signed_in"):
        await ctx.pause("external_event", {"auth_url": "https://login.example"})
    return f"posted {text}"


async def test_a_call_with_another_context_is_another_call(make_box: MakeBox) -> None:
    async with make_box(post) as box:
        first = await box.call("post", {"text": "hi"}, context=ToolContext(tool_context={"signed_in": False}))
        again = await box.call("post", {"text": "hi"}, context=ToolContext(tool_context={"signed_in": False}))
        done = await box.call("post", {"text": "hi"}, context=ToolContext(tool_context={"signed_in": True}))

    assert first.pending_id == again.pending_id
    assert done.content == "posted hi"


async def test_a_host_without_pending_actions_continues_by_calling_again() -> None:
    registry, signed_in = ToolRegistry(), list[str]()
    registry.register(order_after(signed_in))
    executor = ToolExecutor(registry, EventBus())
    context = ToolContext("task_1", user_id=ANN)
    with pytest.raises(PauseSignal):
        await executor.execute("order_now", {}, context)
    signed_in.append("ann")

    assert (await executor.execute("order_now", {}, context)).result == "ordered"


def order_after(signed_in: list[str]) -> Any:
    @tool(side_effects="write", destructive=False)
    async def order_now(ctx: ToolContext) -> str:
        """Order, once somebody has signed in."""
        if not signed_in:
            await ctx.pause("external_event", {"auth_url": "https://login.example"})
        return "ordered"

    return order_now


async def test_a_call_that_waits_for_one_that_is_cancelled_while_it_asks_ends_too(
    make_box: MakeBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_added, may_go_on = asyncio.Event(), asyncio.Event()
    async with make_box(pay) as box:
        add = box.store.pending.add

        async def add_slowly(action: Any, **options: Any) -> Any:
            added = await add(action, **options)
            if not is_added.is_set():
                is_added.set()
                await may_go_on.wait()
            return added

        monkeypatch.setattr(box.store.pending, "add", add_slowly)
        first = asyncio.create_task(box.call("pay", {"amount": 5}, user=ANN))
        await is_added.wait()
        again = await box.call("pay", {"amount": 5}, user=ANN)
        first.cancel()
        may_go_on.set()
        await asyncio.wait([first])
        outcome = await box.pending.outcome(again.pending_id, by=ANN, wait_s=5)

    assert isinstance(outcome, Failed)
    assert (outcome.error.error_code, ran) == ("cancelled", [])
