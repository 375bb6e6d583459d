"""A run that needs a person waits, and goes on with the very call that waited, once, in whichever process."""

import asyncio
import json
from typing import Any

import pytest

from tests.stores.state_stores import OverwritingState
from toolpost import PlannerFinish, PlannerPause, ReactPlanner, Settings, Toolbox, ToolContext, tool
from toolpost.configuration.settings import ApprovalSettings
from toolpost.errors import ConfigError, PendingNotFoundError
from toolpost.sources import Answer
from toolpost.testing import ScriptedModel, tool_calls

QUIET = Settings(data_dir=None, policy="exploratory")
ANN = {"user_id": "acme:ann", "trace_id": "trace-1"}
CONSENT = {
    "pause_type": "oauth",
    "provider": "demo",
    "display_name": "Demo OAuth",
    "auth_url": "https://example.invalid/oauth?state=demo",
    "state": "demo",
    "scopes": ["read"],
}

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool(desc="A tool that requires OAuth", side_effects="external")
async def oauth_tool(ctx: ToolContext) -> dict[str, bool]:
    if not ctx.tool_context.get("oauth_ready"):
        await ctx.pause("external_event", CONSENT)
    return {"ok": True, "ready": bool(ctx.tool_context.get("oauth_ready"))}


@tool(side_effects="write")
async def book(guests: int, ctx: ToolContext) -> str:
    """Book a table."""

    async def charge() -> int:
        ran.append(f"charge {guests}")
        return guests

    await ctx.once("charge", charge)
    when = await ctx.pause("await_input", prompt=f"When, for {guests}?")
    ran.append(f"book {guests}")
    return f"{guests} at {when} with {ctx.tool_context.get('waiter_token', 'nobody')}"


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    ran.append(f"drop {name}")
    return f"{name} dropped"


async def paused(planner: ReactPlanner, **context: Any) -> PlannerPause:
    result = await planner.run("Do it.", tool_context={**ANN, **context})
    assert isinstance(result, PlannerPause)
    return result


@pytest.mark.req("OAUTH-31", "OAUTH-33", "MISC-22")
async def test_a_run_pauses_for_a_sign_in_and_continues_when_it_is_done() -> None:
    model, seen = ScriptedModel(tool_calls(("oauth_tool", {})), "It is done."), list[PlannerPause]()
    async with Toolbox(tools=[oauth_tool], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        result = await planner.run("Call oauth_tool", tool_context={"session_id": "demo"})
        while isinstance(result, PlannerPause):
            seen.append(result)
            result = await planner.resume(
                result.resume_token,
                user_input="oauth_completed",
                tool_context={"session_id": "demo", "oauth_ready": True},
            )
    assert [(pause.reason, pause.payload) for pause in seen] == [("external_event", CONSENT)]
    assert result.reason == "answer_complete"
    assert model.results == ['{"ok": true, "ready": true}']
    assert "example.invalid" not in repr((model.requests, seen))
    assert seen[0].resume_token not in repr(seen)


@pytest.mark.req("STATE-05")
async def test_the_call_that_waited_runs_even_if_the_model_never_asks_again() -> None:
    async with Toolbox(tools=[book], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=ScriptedModel(tool_calls(("book", {"guests": 2})), "It is booked."))
        pause = await paused(planner, waiter_token="first")
        assert (pause.kind, pause.prompt, pause.tool_name) == ("input", "When, for 2?", "book")
        result = await planner.resume(pause.resume_token, "19:30", tool_context={"waiter_token": "second"})
        told = [event.code.value for event in await box.events(user="acme:ann", run_id="trace-1")]
    assert isinstance(result, PlannerFinish)
    assert ran == ["charge 2", "book 2"]
    assert told == [400, 405, 440, 441, 410]


async def test_with_four_eyes_the_user_of_the_run_does_not_approve_its_calls() -> None:
    settings = Settings(data_dir=None, approvals=ApprovalSettings(four_eyes=True))
    async with Toolbox(tools=[drop], settings=settings) as box:
        planner = ReactPlanner(catalog=box, llm=ScriptedModel(tool_calls(("drop", {"name": "orders"})), "It is gone."))
        asked = await paused(planner)
        refused = await planner.resume(asked.resume_token, "approve")
        assert isinstance(refused, PlannerPause)
        assert (ran, "the requester may not answer" in refused.refused) == ([], True)
        result = await planner.resume(refused.resume_token, "approve", by="acme:bob")
    assert isinstance(result, PlannerFinish)
    assert ran == ["drop orders"]
    assert asked.arguments == {"name": "orders"}
    assert asked.target["summary"] == "Python function drop in test_planner_pauses.py"


async def test_the_context_of_the_resumption_is_laid_over_what_was_kept_of_the_first() -> None:
    @tool(side_effects="read")
    async def look(ctx: ToolContext) -> list[Any]:
        await ctx.pause("await_input")
        return [ctx.tool_context.get(name) for name in ("user_id", "lang", "colour", "auth", "db_password")]

    model, store = ScriptedModel(tool_calls(("look", {})), "done"), OverwritingState()
    async with Toolbox(tools=[look], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=model, state_store=store)
        first = {
            "lang": "de",
            "colour": "red",
            "auth": {"token": "canary", "n": 1, "more": ({"api_key": "canary"}, 2)},
            "db_password": "canary",
            "x": object(),
        }
        pause = await paused(planner, **first)
        (asked,) = await box.pending.list(by="acme:ann")
        assert "canary" not in json.dumps([store.kept, asked.context])
        await planner.resume(pause.resume_token, tool_context={"colour": "blue"})
    assert model.results == ['["acme:ann", "de", "blue", {"n": 1, "more": [{}, 2]}, null]']


@pytest.mark.req("STATE-10")
async def test_a_token_resumes_one_run_once() -> None:
    async with Toolbox(tools=[book], settings=QUIET) as box:
        planner = ReactPlanner(
            catalog=box, llm=ScriptedModel(tool_calls(("book", {"guests": 2})), "Booked.", "Booked twice.")
        )
        token = (await paused(planner)).resume_token
        tried = await asyncio.gather(*(planner.resume(token, "8") for _ in range(5)), return_exceptions=True)
        assert sorted(type(each).__name__ for each in tried) == [*["KeyError"] * 4, "PlannerFinish"]
        for other in ("", "unknown", "unknown.mark", token):
            with pytest.raises(KeyError):
                await planner.resume(other, "8")
    assert ran == ["charge 2", "book 2"]


async def test_a_token_that_is_too_old_resumes_nothing() -> None:
    async with Toolbox(tools=[book], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=ScriptedModel(tool_calls(("book", {"guests": 2}))), pause_ttl_s=1e-9)
        token = (await paused(planner)).resume_token
        with pytest.raises(KeyError):
            await planner.resume(token, "8")


async def test_someone_else_cannot_resume_and_does_not_use_the_token_up() -> None:
    async with Toolbox(tools=[book], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=ScriptedModel(tool_calls(("book", {"guests": 2})), "Booked."))
        token = (await paused(planner)).resume_token
        for other in ("acme:bob", "other:ann", "ann"):
            with pytest.raises(KeyError, match="no pause of this user"):
                await planner.resume(token, "8", tool_context={"user_id": other})
        result = await planner.resume(token, "8", tool_context={"user_id": "acme:ann"})
    assert isinstance(result, PlannerFinish)


async def test_two_calls_that_wait_are_two_questions_and_what_is_done_is_not_done_again() -> None:
    model = ScriptedModel(
        tool_calls(("book", {"guests": 2}), ("drop", {"name": "logs"}), ("book", {"guests": 3})), "Booked."
    )
    async with Toolbox(tools=[book, drop], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        first = await paused(planner)
        second = await planner.resume(first.resume_token, "19:00")
        assert isinstance(second, PlannerPause)
        result = await planner.resume(second.resume_token, "20:00")
    assert [first.prompt, second.prompt] == ["When, for 2?", "When, for 3?"]
    assert isinstance(result, PlannerFinish)
    assert sorted(model.results) == ["2 at 19:00 with nobody", "3 at 20:00 with nobody", "logs dropped"]
    assert sorted(ran) == ["book 2", "book 3", "charge 2", "charge 3", "drop logs"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first-first", "last-first"])
async def test_two_branches_that_wait_are_one_pause_and_answered_in_either_order(order: tuple[int, int]) -> None:
    model = ScriptedModel(tool_calls(("book", {"guests": 2}), ("oauth_tool", {}), ("drop", {"name": "a"})), "Done.")
    async with Toolbox(tools=[book, oauth_tool, drop], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        both = await paused(planner)
        assert [(each.tool_name, each.kind) for each in both.questions] == [
            ("book", "input"),
            ("oauth_tool", "consent"),
        ]
        assert [both.questions[0].payload, both.questions[1].payload] == [{}, CONSENT]
        one, other = (both.questions[at] for at in order)
        rest = await planner.resume(both.resume_token, answers={one.pending_id: "19:00"})
        assert isinstance(rest, PlannerPause)
        assert [each.pending_id for each in rest.questions] == [other.pending_id]
        result = await planner.resume(rest.resume_token, answers={other.pending_id: "19:00"})
    assert isinstance(result, PlannerFinish)
    assert sorted(model.results) == ["2 at 19:00 with nobody", "a dropped", '{"ok": true, "ready": false}']
    assert sorted(ran) == ["book 2", "charge 2", "drop a"]


async def test_all_questions_of_a_pause_are_answered_at_once_and_each_by_itself() -> None:
    model = ScriptedModel(tool_calls(*(("drop", {"name": name}) for name in "abc")), "Done.")
    async with Toolbox(tools=[drop], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        asked = await paused(planner)
        ids = [each.pending_id for each in asked.questions]
        with pytest.raises(PendingNotFoundError, match="ask_unknown"):
            await planner.resume(asked.resume_token, answers={ids[0]: "approve", "ask_unknown": "approve"})
        with pytest.raises(ConfigError, match="not both"):
            await planner.resume(asked.resume_token, "approve", answers={ids[0]: "approve"})
        said = {ids[0]: "approve", ids[1]: Answer(decision="deny", reason="not b"), ids[2]: "perhaps"}
        rest = await planner.resume(asked.resume_token, answers=said)
        assert isinstance(rest, PlannerPause)
        assert [each.pending_id for each in rest.questions] == ids[2:]
        assert "takes approve, deny, not 'perhaps'" in rest.refused
        await planner.resume(rest.resume_token, "approve")
    assert sorted(ran) == ["drop a", "drop c"]
    assert "not b" in "".join(model.results)


async def test_a_tool_that_asks_twice_pauses_twice() -> None:
    @tool(side_effects="read")
    async def order(ctx: ToolContext) -> list[Any]:
        return [await ctx.pause("await_input", prompt="Soup?"), await ctx.pause("await_input", prompt="Fish?")]

    model = ScriptedModel(tool_calls(("order", {})), "Ordered.")
    async with Toolbox(tools=[order], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        first = await paused(planner)
        second = await planner.resume(first.resume_token, {"size": "large"})
        assert isinstance(second, PlannerPause)
        assert second.prompt == "Fish?"
        await planner.resume(second.resume_token, False)
    assert model.results == ['[{"size": "large"}, false]']


RENAMED = {"op": "replace", "path": "/name", "value": "old"}


@pytest.mark.parametrize(
    ("user_input", "shown", "dropped"),
    [
        ("approve", "logs dropped", ["drop logs"]),
        (Answer(decision="approve", changes=[RENAMED]), "old dropped", ["drop old"]),
        ("deny", "acme:ann refused drop", []),
        (Answer(decision="deny", reason="keep them"), "keep them", []),
    ],
    ids=["approve", "other-arguments", "deny", "why"],
)
async def test_a_call_that_needs_a_yes_gets_it_or_not(user_input: Any, shown: str, dropped: list[str]) -> None:
    model = ScriptedModel(tool_calls(("drop", {"name": "logs"})), "Done.")
    async with Toolbox(tools=[drop], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        pause = await paused(planner)
        assert (pause.reason, pause.kind) == ("approval_required", "approval")
        await planner.resume(pause.resume_token, user_input)
    assert shown in model.results[0]
    assert ran == dropped


@pytest.mark.parametrize(
    "user_input",
    [
        None,
        "sure",
        True,
        {"decision": "approve"},
        Answer(decision="approve", changes=[{**RENAMED, "value": "[redacted]"}]),
    ],
    ids=["none", "word", "true", "object", "mask"],
)
async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(user_input: Any) -> None:
    async with Toolbox(tools=[drop], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=ScriptedModel(tool_calls(("drop", {"name": "logs"})), "Done."))
        pause = await paused(planner)
        again = await planner.resume(pause.resume_token, user_input)
        assert isinstance(again, PlannerPause)
        assert (pause.refused, again.pending_id) == ("", pause.pending_id)
        says = "represents a masked secret" if isinstance(user_input, Answer) else "takes approve, deny, not"
        assert says in again.refused
        assert ran == []
        assert isinstance(await planner.resume(again.resume_token, "approve"), PlannerFinish)
    assert ran == ["drop logs"]


async def test_what_a_person_decided_at_the_desk_is_not_done_again() -> None:
    model = ScriptedModel(
        tool_calls(("drop", {"name": "a"}), ("drop", {"name": "b"}), ("book", {"guests": 2})), "Done."
    )
    async with Toolbox(tools=[drop, book], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        pause = await paused(planner)
        open_ids = {str(dict(action.arguments)): action.id for action in await box.pending.list(by="acme:boss")}
        await box.approve(open_ids["{'name': 'a'}"], by="acme:boss")
        await box.deny(open_ids["{'name': 'b'}"], by="acme:boss", reason="not b")
        waiting = await planner.resume(pause.resume_token, "deny")
        assert isinstance(waiting, PlannerPause)
        assert waiting.tool_name == "book"
        await planner.resume(waiting.resume_token, "8")
    assert model.results[0] == "a dropped"
    assert "not b" in model.results[1]
    assert ran == ["charge 2", "drop a", "book 2"]


async def test_a_call_that_was_approved_elsewhere_and_then_asked_on_waits_for_that() -> None:
    @tool(side_effects="write", destructive=True)
    async def order(ctx: ToolContext) -> str:
        return f"{await ctx.pause('await_input', {'menu': ['soup']}, prompt='What?')} ordered"

    model = ScriptedModel(tool_calls(("order", {})), "Done.")
    async with Toolbox(tools=[order], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        pause = await paused(planner)
        await box.approve(pause.pending_id, by="acme:boss")
        asked = await planner.resume(pause.resume_token, "approve")
        assert isinstance(asked, PlannerPause)
        assert (asked.kind, asked.prompt, asked.payload) == ("input", "What?", {"menu": ["soup"]})
        await planner.resume(asked.resume_token, "soup")
    assert model.results == ["soup ordered"]


@pytest.mark.parametrize(("limit_s", "shown"), [(60.0, "at last"), (0.05, "resumed and has not ended yet")])
async def test_an_answer_that_is_being_carried_out_elsewhere_is_waited_for_but_not_for_ever(
    limit_s: float, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.agents.planner._RESUMED_S", limit_s)
    began, go = asyncio.Event(), asyncio.Event()

    @tool(side_effects="write", destructive=True)
    async def slow() -> str:
        ran.append("slow")
        began.set()
        await go.wait()
        return "at last"

    model = ScriptedModel(tool_calls(("slow", {})), "Done.")
    async with Toolbox(tools=[slow], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        pause = await paused(planner)
        elsewhere = asyncio.create_task(box.approve(pause.pending_id, by="acme:boss"))
        await began.wait()
        resumed = asyncio.create_task(planner.resume(pause.resume_token))
        await asyncio.wait([resumed], timeout=20 if limit_s < 1 else 0.01)
        go.set()
        await asyncio.gather(elsewhere, resumed)
    assert shown in model.results[0]
    assert ran == ["slow"]


async def test_a_question_that_has_expired_is_reported_to_the_model() -> None:
    settings = Settings.model_validate({"data_dir": None, "limits": {"pending_ttl": 0.01}})
    model = ScriptedModel(tool_calls(("drop", {"name": "logs"})), "Too late.")
    async with Toolbox(tools=[drop], settings=settings) as box:
        planner = ReactPlanner(catalog=box, llm=model, pause_ttl_s=3600)
        pause = await paused(planner)
        await asyncio.sleep(0.02)
        result = await planner.resume(pause.resume_token, "approve")
    assert isinstance(result, PlannerFinish)
    assert "The call failed (question_expired)" in model.results[0]
    assert ran == []


async def test_a_run_that_was_cancelled_while_it_waited_is_reported() -> None:
    model = ScriptedModel(tool_calls(("drop", {"name": "logs"})), "Pity.")
    async with Toolbox(tools=[drop], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        pause = await paused(planner)
        assert await box.cancel("trace-1", by="acme:ann")
        await planner.resume(pause.resume_token, "approve")
    assert "The call failed (cancelled)" in model.results[0]
    assert ran == []


async def test_the_budget_counts_what_was_used_before_the_pause() -> None:
    model = ScriptedModel(*(tool_calls(("book", {"guests": n})) for n in (2, 3, 4)))
    async with Toolbox(tools=[book], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=model, max_iters=2)
        pause = await paused(planner)
        result = await planner.resume(pause.resume_token, "8")
    assert isinstance(result, PlannerFinish)
    assert (result.reason, result.metadata["iterations"]) == ("budget_exhausted", 2)
    assert ran == ["charge 2", "book 2"]


async def test_two_equal_calls_of_one_step_are_two_pending_actions() -> None:
    model = ScriptedModel(tool_calls(("drop", {"name": "t"}), ("drop", {"name": "t"})), "Both are gone.")
    async with Toolbox(tools=[drop], settings=Settings(data_dir=None)) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        await paused(planner)
        waiting = await box.pending.list(by="acme:bob")
        for one in waiting:
            await box.approve(one.id, by="acme:bob")

    assert (len(waiting), ran) == (2, ["drop t", "drop t"])
