"""A call inside another waits for a person, and the outer one goes on once it has ended."""

import asyncio
from typing import Any

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, Failed, Paused, ToolContext, ToolError, tool
from toolpost.errors import ToolConflictError

ANN = "acme:ann"


class Shop:
    """Tools that count what they do: a note, then a deletion that a person has to allow."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Any]:
        @tool(side_effects="write")
        async def note(text: str) -> str:
            self.done.append(f"note {text}")
            return f"noted {text}"

        @tool(side_effects="write", destructive=True)
        async def delete(name: str) -> str:
            self.done.append(f"delete {name}")
            return f"{name} is gone"

        @tool(side_effects="write")
        async def clean(names: list[str], ctx: ToolContext) -> list[str]:
            """Write a note and delete some things."""
            await ctx.call("note", {"text": "begin"})
            outcomes = await asyncio.gather(*(ctx.call("delete", {"name": name}, key=name) for name in names))
            if waiting := [one for one in outcomes if isinstance(one, Paused)]:
                ctx.wait_for(*waiting)
            for one in outcomes:
                if isinstance(one, Failed):
                    raise ToolError(f"could not clean: {one.error.message}")
            return [str(one.content) for one in outcomes if isinstance(one, Completed)]

        @tool(side_effects="write")
        async def spring(ctx: ToolContext) -> Any:
            """Clean from within one more call."""
            outcome = await ctx.call("clean", {"names": ["attic"]})
            if isinstance(outcome, Paused):
                ctx.wait_for(outcome)
            return outcome.content if isinstance(outcome, Completed) else None

        return [note, delete, clean, spring]


async def test_the_answer_of_the_inner_call_runs_the_outer_one_to_its_end(make_box: MakeBox) -> None:
    shop = Shop()
    async with make_box(*shop.tools()) as box:
        paused = await box.call("clean", {"names": ["old"]}, user=ANN)
        listed = await box.pending.list(by=ANN)
        done = await box.approve(paused.pending_id, by=ANN)

    assert isinstance(paused, Paused)
    assert (paused.tool_name, paused.question.kind, dict(paused.question.arguments)) == (
        "clean",
        "approval",
        {"name": "old"},
    )
    assert [action.id for action in listed] == [paused.pending_id]
    assert (done.tool_name, done.content) == ("clean", ["old is gone"])
    assert shop.done == ["note begin", "delete old"]


async def test_another_process_answers_and_what_was_done_is_not_repeated(disk_box: MakeBox) -> None:
    shop = Shop()
    async with disk_box(*shop.tools()) as box:
        paused = await box.call("clean", {"names": ["old"]}, user=ANN, idempotency_key="k")
    async with disk_box(*shop.tools()) as box:
        done = await box.approve(paused.pending_id, by=ANN)
        again = await box.call("clean", {"names": ["old"]}, user=ANN, idempotency_key="k")
        seen = await box.pending.get(paused.pending_id, by=ANN)

    assert done.content == again.content == seen.outcome["content"] == ["old is gone"]
    assert shop.done == ["note begin", "delete old"]


async def test_each_of_several_inner_questions_is_answered_by_itself(make_box: MakeBox) -> None:
    shop = Shop()
    async with make_box(*shop.tools()) as box:
        await box.call("clean", {"names": ["a", "b"]}, user=ANN)
        second, first = await box.pending.list(by=ANN)
        between = await box.approve(second.id, by=ANN)
        done = await box.approve(first.id, by=ANN)

    assert isinstance(between, Paused)
    assert between.pending_id == first.id
    assert done.content == ["a is gone", "b is gone"]
    assert sorted(shop.done) == ["delete a", "delete b", "note begin"]


async def test_inner_questions_that_are_answered_at_once_run_the_outer_call_once(make_box: MakeBox) -> None:
    shop = Shop()
    names = [f"n{number}" for number in range(6)]
    async with make_box(*shop.tools()) as box:
        paused = await box.call("clean", {"names": names}, user=ANN)
        asked = await box.pending.list(by=ANN)
        await asyncio.gather(*(box.approve(one.id, by=ANN) for one in asked))
        (run,) = [one for one in await box.runs(user=ANN) if one.run_id == paused.run_id]

    assert run.status == "completed"
    assert sorted(shop.done) == [*(f"delete {name}" for name in names), "note begin"]


async def test_a_denied_inner_call_is_a_failure_for_the_outer_one(make_box: MakeBox) -> None:
    shop = Shop()
    async with make_box(*shop.tools()) as box:
        paused = await box.call("clean", {"names": ["old"]}, user=ANN)
        done = await box.deny(paused.pending_id, by=ANN, reason="still needed")

    assert isinstance(done, Failed)
    assert "still needed" in done.error.message
    assert shop.done == ["note begin"]


async def test_calls_within_calls_within_calls_continue_one_after_the_other(make_box: MakeBox) -> None:
    shop = Shop()
    async with make_box(*shop.tools()) as box:
        paused = await box.call("spring", user=ANN)
        done = await box.approve(paused.pending_id, by=ANN)

    assert (done.tool_name, done.content) == ("spring", ["attic is gone"])
    assert shop.done == ["note begin", "delete attic"]


async def test_an_outer_call_that_its_process_could_not_resume_is_resumed_by_the_next(disk_box: MakeBox) -> None:
    shop = Shop()
    async with disk_box(*shop.tools()) as box:
        paused = await box.call("clean", {"names": ["old"]}, user=ANN)
    async with disk_box(*shop.tools()[:2]) as box:  # it has the inner tool alone
        inner = await box.approve(paused.pending_id, by=ANN)
    async with disk_box(*shop.tools()) as box:
        seen = await box.pending.get(paused.pending_id, by=ANN)

    assert inner.content == "old is gone"
    assert seen.outcome["content"] == ["old is gone"]
    assert shop.done == ["note begin", "delete old"]


async def test_an_outer_tool_that_changed_meanwhile_does_not_continue(disk_box: MakeBox) -> None:
    shop = Shop()

    @tool(name="clean", side_effects="write")
    async def other(names: list[str]) -> str:
        return "something else"

    async with disk_box(*shop.tools()) as box:
        paused = await box.call("clean", {"names": ["old"]}, user=ANN)
    async with disk_box(*shop.tools()[:2], other) as box:
        done = await box.approve(paused.pending_id, by=ANN)

    assert isinstance(done, Failed)
    assert done.error.error_code == "tool_changed"
    assert shop.done == ["note begin", "delete old"]


@pytest.mark.parametrize("end", ["cancel", "deny"])
async def test_an_outer_call_is_ended_with_its_inner_one(make_box: MakeBox, end: str) -> None:
    shop = Shop()
    async with make_box(*shop.tools()) as box:
        paused = await box.call("clean", {"names": ["old"]}, user=ANN)
        if end == "cancel":
            await box.cancel(paused.run_id, by=ANN)
        else:
            await box.deny(paused.pending_id, by=ANN)
        (run,) = [one for one in await box.runs(user=ANN) if one.run_id == paused.run_id]
        left = await box.pending.list(by=ANN)

    assert (run.status, left) == ("failed", [])


class Safe:
    """A safe that is opened with leave and a code, from within two calls; the calls in it can be held up."""

    def __init__(self) -> None:
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    def tools(self) -> list[Any]:
        @tool(side_effects="write", destructive=True)
        async def unlock(name: str, ctx: ToolContext) -> str:
            return f"{name} opened by {await ctx.pause('code', prompt=f'What is the code of {name}?')}"

        @tool(side_effects="write")
        async def both(ctx: ToolContext) -> list[str]:
            outcomes = [await ctx.call("unlock", {"name": name}) for name in ("left", "right")]
            self.arrived.set()
            await self.go_on.wait()
            if waiting := [one for one in outcomes if isinstance(one, Paused)]:
                ctx.wait_for(*waiting)
            return [str(one.content) for one in outcomes if isinstance(one, Completed)]

        @tool(side_effects="write")
        async def fetch(ctx: ToolContext) -> Any:
            outcome = await ctx.call("both", {})
            if isinstance(outcome, Paused):
                ctx.wait_for(outcome)
            return outcome.content if isinstance(outcome, Completed) else None

        return [unlock, both, fetch]


async def test_the_next_question_of_an_inner_call_takes_the_place_of_the_answered_one(make_box: MakeBox) -> None:
    async with make_box(*Safe().tools()) as box:
        paused = await box.call("fetch", user=ANN, idempotency_key="k")
        left, right = (one.pending_id for one in paused.questions)
        approved = await box.approve(left, by=ANN)
        looked = await box.pending.outcome(left, by=ANN, wait_s=10)
        again = await box.call("fetch", user=ANN, idempotency_key="k")
        rest = await box.answer(looked.pending_id, "12", by=ANN)
        code = await box.approve(right, by=ANN)
        done = await box.answer(code.pending_id, "34", by=ANN)

    for one in (approved, looked, again):
        assert (one.tool_name, one.question.prompt) == ("fetch", "What is the code of left?")
        assert [asked.pending_id for asked in one.questions] == [approved.pending_id, right]
    assert [asked.pending_id for asked in rest.questions] == [right]
    assert [asked.question.prompt for asked in code.questions] == ["What is the code of right?"]
    assert (done.tool_name, done.content) == ("fetch", ["left opened by 12", "right opened by 34"])


async def test_a_waiting_caller_is_notified_of_the_next_question_once_the_calls_between_wait_again(
    make_box: MakeBox,
) -> None:
    safe = Safe()
    async with make_box(*safe.tools()) as box:
        paused = await box.call("fetch", user=ANN)
        left, right = (one.pending_id for one in paused.questions)
        code = await box.approve(left, by=ANN)
        safe.arrived.clear()
        safe.go_on.clear()
        denying = asyncio.create_task(box.deny(right, by=ANN))  # which runs the call between, and holds it up
        await safe.arrived.wait()
        waiting = asyncio.create_task(box.pending.outcome(left, by=ANN, wait_s=10))
        early, _ = await asyncio.wait([waiting], timeout=0.01)
        safe.go_on.set()
        told = await waiting
        await denying

    assert early == set()
    assert [asked.pending_id for asked in told.questions] == [code.pending_id]


class Fleet:
    """Ships that each need leave to sail; without one of them none is to sail any more."""

    def __init__(self) -> None:
        self.sailed: list[str] = []

    def tools(self) -> list[Any]:
        @tool(side_effects="write", destructive=True)
        async def sail(ship: str) -> str:
            self.sailed.append(ship)
            return f"{ship} has sailed"

        @tool(side_effects="write")
        async def sail_all(ships: list[str], ctx: ToolContext) -> str:
            outcomes = [await ctx.call("sail", {"ship": ship}) for ship in ships]
            if "" in ships or any(isinstance(one, Failed) for one in outcomes):
                raise ToolError("the fleet is not complete")
            ctx.wait_for(*(one for one in outcomes if isinstance(one, Paused)))

        return [sail, sail_all]


async def test_a_caller_that_waits_for_one_answer_learns_that_another_has_ended_the_call(make_box: MakeBox) -> None:
    async with make_box(*Fleet().tools()) as box:
        paused = await box.call("sail_all", {"ships": ["a", "b"]}, user=ANN)
        first, second = (one.pending_id for one in paused.questions)
        waiting = asyncio.create_task(box.pending.outcome(first, by=ANN, wait_s=10))
        await box.deny(second, by=ANN)
        told = await waiting

    assert (told.tool_name, told.error.message) == ("sail_all", "the fleet is not complete")


@pytest.mark.parametrize("ships", [["a", "b"], ["a", "b", ""]])
async def test_a_question_inside_a_call_that_has_failed_can_only_be_denied(make_box: MakeBox, ships: list[str]) -> None:
    fleet = Fleet()
    async with make_box(*fleet.tools()) as box:
        outcome = await box.call("sail_all", {"ships": ships}, user=ANN)
        first, *others = reversed(await box.pending.list(by=ANN))
        if isinstance(outcome, Paused):
            await box.deny(others[0].id, by=ANN)
        with pytest.raises(ToolConflictError, match="nested call of 'sail_all', which has failed; deny it") as refused:
            await box.approve(first.id, by=ANN)
        denied = await box.deny(first.id, by=ANN)

    assert refused.value.error_code == "outer_failed"
    assert (denied.status, fleet.sailed) == ("failed", [])
