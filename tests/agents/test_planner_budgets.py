"""A run ends when a budget is used up, says which, and gives back what was done."""

import asyncio
from typing import Any

import pytest

from toolpost import ConfigError, PlannerFinish, PlannerPause, ReactPlanner, Settings, ToolContext, tool
from toolpost.agents import Budget, PlanningHints
from toolpost.contracts.chat import ModelReply, Usage
from toolpost.testing import ScriptedModel, tool_calls

MEMORY = Settings(data_dir=None)

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool(side_effects="write")
async def note(text: str) -> str:
    """Note something."""
    ran.append(text)
    return f"{text} noted"


@tool(side_effects="write")
async def hang() -> None:
    """Never return."""
    ran.append("hang")
    await asyncio.Event().wait()


@tool(side_effects="write")
async def seat(ctx: ToolContext) -> str:
    """Find a seat."""
    return f"seat {await ctx.pause('await_input')}"


def planner(model: Any, **options: Any) -> ReactPlanner:
    return ReactPlanner(catalog=[note, hang, seat], llm=model, settings=MEMORY, **options)


async def finished(model: Any, **options: Any) -> PlannerFinish:
    async with planner(model, **options) as made:
        result = await made.run("Go on.")
    assert isinstance(result, PlannerFinish)
    return result


NOTES = [tool_calls(("note", {"text": str(number)})) for number in range(5)]


@pytest.mark.parametrize(
    ("budget", "usage", "which"),
    [
        (Budget(steps=3), Usage(), "steps"),
        (Budget(tokens=300), Usage(90, 10), "tokens"),
        (Budget(cost=0.03), Usage(90, 10, 0.01), "cost"),
    ],
    ids=["steps", "tokens", "cost"],
)
async def test_a_budget_that_is_used_up_ends_the_run_and_its_last_calls_are_not_made(
    budget: Budget, usage: Usage, which: str
) -> None:
    result = await finished(ScriptedModel(*NOTES, usage=usage), budget=budget)
    assert (result.reason, result.metadata["budget"], result.metadata["iterations"]) == ("budget_exhausted", which, 3)
    assert result.metadata["done"] == [{"tool_name": "note", "status": "completed"}] * 2
    assert result.metadata["tool_calls"] == 2
    assert ran == ["0", "1"]
    assert result.messages[-1]["content"] == "This call was not made: the budget of the run was used up."


async def test_an_answer_within_the_last_step_is_an_answer() -> None:
    result = await finished(ScriptedModel(*NOTES[:2], "Done.", usage=Usage(90, 10, 0.5)), budget=Budget(tokens=250))
    assert (result.reason, result.answer) == ("answer_complete", "Done.")
    assert result.metadata["usage"] == {"input_tokens": 270, "output_tokens": 30, "cost": 1.5}


async def test_time_ends_a_tool_that_hangs_and_what_is_done_beside_it_is_kept() -> None:
    result = await finished(
        ScriptedModel(tool_calls(("hang", {}), ("note", {"text": "a"})), "Late."), budget=Budget(time_s=0.2)
    )
    assert (result.reason, result.metadata["budget"]) == ("budget_exhausted", "time")
    assert [each["status"] for each in result.metadata["done"]] == ["failed", "completed"]
    assert "the time of the run is over; the call may have taken effect" in result.messages[-2]["content"]
    assert sorted(ran) == ["a", "hang"]


async def test_time_ends_a_model_that_is_silent() -> None:
    class Silent:
        async def complete(self, messages: Any, *, tools: Any = ()) -> Any:
            await asyncio.Event().wait()

    result = await finished(Silent(), budget=Budget(time_s=0.05))
    assert (result.reason, result.metadata["budget"]) == ("budget_exhausted", "time")


async def test_what_was_used_before_a_pause_counts_after_it() -> None:
    model = ScriptedModel(tool_calls(("seat", {})), *NOTES, usage=Usage(100, 0))
    async with planner(model, budget=Budget(tokens=1000)) as made:
        pause = await made.run("Go on.", budget=Budget(tokens=200))
        assert isinstance(pause, PlannerPause)
        result = await made.resume(pause.resume_token, 4)
    assert (result.reason, ran) == ("budget_exhausted", [])


async def test_a_run_continues_with_another_budget_where_its_own_cannot_be_kept() -> None:
    token = "0123456789-0123456789"
    async with planner(ScriptedModel("Lost.", "Hello.", "Hello.")) as made:
        with pytest.raises(ConfigError, match="the cost"):
            await made.run("Go on.", budget=Budget(cost=1.0), resume_token=token)
        with pytest.raises(ConfigError, match="the cost"):
            await made.resume(token)
        result = await made.resume(token, budget=Budget(tokens=1000))
    assert result.payload == {"answer": "Hello."}


async def test_a_model_that_does_not_count_is_estimated() -> None:
    long = tool_calls(("note", {"text": "x" * 4000}))
    result = await finished(ScriptedModel(long, long, long), budget=Budget(tokens=2000))
    assert (result.metadata["budget"], result.metadata["iterations"]) == ("tokens", 2)


async def test_a_cost_that_no_one_knows_cannot_be_limited() -> None:
    with pytest.raises(ConfigError, match="the cost of model 'scripted' is not known"):
        await finished(ScriptedModel("Hello."), budget=Budget(cost=1.0))


@pytest.mark.req("CONC-01")
@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 50),
        ({"absolute_max_parallel": 60}, 60),
        ({"planning_hints": {"max_parallel": 2}}, 2),
        ({"planning_hints": PlanningHints(max_parallel=70)}, 50),
    ],
    ids=["default", "absolute", "hint", "the-lesser"],
)
async def test_of_more_calls_than_may_be_made_at_once_none_is_made(options: dict[str, Any], most: int) -> None:
    many = [("note", {"text": str(number)}) for number in range(most + 1)]
    model = ScriptedModel(tool_calls(*many), tool_calls(*many[:most]), "Done.")
    result = await finished(model, **options)
    assert result.reason == "answer_complete"
    assert len(ran) == most
    refused = [text for text in model.results if "too_many_calls" in text]
    assert len(refused) == most + 1
    assert f"{most + 1} concurrent calls are too many, and none of them was made; the maximum is {most}" in refused[0]
    hint = most if options.get("planning_hints") == {"max_parallel": 2} else "70"
    told = f"Call at most {hint} tools in one reply." in model.requests[0][0]["content"]
    assert told is ("planning_hints" in options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"absolute_max_parallel": 0}, "absolute_max_parallel must be at least 1, not 0"),
        ({"repair_attempts": 0}, "repair_attempts must be at least 1, not 0"),
        ({"planning_hints": {"max_parallel": 0}}, "max_parallel must be at least 1, not 0"),
        ({"planning_hints": {"max_paralel": 2}}, "unknown hint 'max_paralel'; did you mean 'max_parallel'"),
        ({"mode": "prose"}, "mode is 'native' or 'json', not 'prose'"),
    ],
    ids=["absolute", "repairs", "hint", "unknown-hint", "mode"],
)
def test_limits_that_are_none_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planner(ScriptedModel(), **options)


@pytest.mark.parametrize("limits", [{"steps": 0}, {"time_s": -1.0}, {"tokens": 0}, {"cost": float("nan")}])
def test_a_budget_is_more_than_nothing(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="of a Budget must be more than 0"):
        Budget(**limits)


@pytest.mark.parametrize(("ended", "reason"), [("refusal", "no_path"), ("content_filter", "no_path")])
async def test_a_refusal_is_no_answer(ended: str, reason: str) -> None:
    class Refusing(ScriptedModel):
        async def stream(self, *_: Any, **__: Any) -> Any:
            yield ModelReply({"content": "I will not."}, finish_reason=ended)

    result = await finished(Refusing())
    assert (result.reason, result.answer) == (reason, "I will not.")
    assert result.metadata["problem"] == f"the model ended with {ended}"


async def test_a_reply_that_was_cut_off_is_asked_for_again() -> None:
    class Wordy(ScriptedModel):
        async def stream(self, messages: Any, **_: Any) -> Any:
            self.requests.append(list(messages))
            yield ModelReply({"content": "It is"}, finish_reason="length" if len(self.requests) == 1 else "stop")

    model = Wordy()
    assert (await finished(model)).answer == "It is"
    assert "cut off at its greatest length" in model.requests[1][-1]["content"]
