"""Who may answer a question: anybody of the tenant by default, fewer where a rule or the settings say so."""

from typing import Any

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, Failed, Paused, ToolContext, tool
from toolpost.errors import ToolPermissionError

ANN, BOB, OPS, AGENT = "acme:ann", "acme:bob", "acme:ops-eva", "acme:agent"
FOUR_EYES: dict[str, Any] = {"four_eyes": True}
OPS_ONLY: dict[str, Any] = {"answerers": ["acme:ops-*"]}


@tool(destructive=True)
def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


@tool(destructive=True)
def drop(table: str) -> str:
    """Drop a table."""
    return f"dropped {table}"


async def test_by_default_the_person_behind_the_agent_may_approve(make_box: MakeBox) -> None:
    async with make_box(pay) as box:
        paused = await box.call("pay", {"amount": 9}, user=ANN)
        assert isinstance(await box.approve(paused.pending_id, by=ANN), Completed)


@pytest.mark.parametrize("asker", [AGENT, "acme:Agent", "acme: agent", "acme:\uff41gent"])
async def test_with_four_eyes_whoever_asked_may_not_approve_however_they_write_their_name(
    make_box: MakeBox, asker: str
) -> None:
    async with make_box(pay, approvals=FOUR_EYES) as box:
        paused = await box.call("pay", {"amount": 9}, user=AGENT)
        with pytest.raises(ToolPermissionError, match="the requester may not answer") as refused:
            await box.approve(paused.pending_id, by=asker)
        assert refused.value.error_code == "not_an_answerer"
        assert isinstance(await box.approve(paused.pending_id, by=BOB), Completed)


async def test_a_name_with_characters_that_no_one_sees_answers_nothing(make_box: MakeBox) -> None:
    async with make_box(pay, approvals=FOUR_EYES) as box:
        paused = await box.call("pay", {"amount": 9}, user=AGENT)
        with pytest.raises(ValueError, match="in characters that can be seen"):
            await box.approve(paused.pending_id, by="acme:\u200bagent")
        assert isinstance(await box.approve(paused.pending_id, by=BOB), Completed)


async def test_with_four_eyes_the_asker_may_still_take_the_call_back(make_box: MakeBox) -> None:
    async with make_box(pay, approvals=FOUR_EYES) as box:
        paused = await box.call("pay", {"amount": 9}, user=AGENT)
        assert isinstance(await box.deny(paused.pending_id, by=AGENT), Failed)


@pytest.mark.parametrize("decide", ["approve", "deny"])
async def test_only_those_named_may_answer(make_box: MakeBox, decide: str) -> None:
    async with make_box(pay, approvals=OPS_ONLY) as box:
        paused = await box.call("pay", {"amount": 9}, user=AGENT)
        assert paused.question.answerers == ("acme:ops-*",)
        with pytest.raises(ToolPermissionError, match=r"only acme:ops-\* may"):
            await getattr(box, decide)(paused.pending_id, by=BOB)
        await getattr(box, decide)(paused.pending_id, by=OPS)


async def test_a_rule_says_for_its_tools_what_the_settings_say_for_all(make_box: MakeBox) -> None:
    rules = [{"tools": ["pay"], "action": "ask", "approvals": OPS_ONLY}]
    async with make_box(pay, drop, policy=rules, approvals=FOUR_EYES) as box:
        payment = await box.call("pay", {"amount": 9}, user=OPS)
        other = await box.call("drop", {"table": "t"}, user=ANN)
        for by in (BOB, OPS):  # one is not named, the other one asked
            with pytest.raises(ToolPermissionError):
                await box.approve(payment.pending_id, by=by)
        assert isinstance(await box.approve(other.pending_id, by=BOB), Completed)
        assert isinstance(await box.approve(payment.pending_id, by="acme:ops-max"), Completed)


async def test_what_a_tool_asks_its_caller_is_for_the_caller_to_answer(make_box: MakeBox) -> None:
    @tool
    async def greet(ctx: ToolContext) -> str:
        return f"Hello {await ctx.pause('name_needed', prompt='Your name?')}"

    async with make_box(greet, approvals={**FOUR_EYES, **OPS_ONLY}) as box:
        paused = await box.call("greet", user=ANN)
        done = await box.answer(paused.pending_id, "Ann", by=ANN)
    assert isinstance(done, Completed)


async def test_who_may_answer_is_kept_with_the_question(disk_box: MakeBox) -> None:
    async with disk_box(pay, approvals=FOUR_EYES) as first:
        paused = await first.call("pay", {"amount": 9}, user=AGENT)
    async with disk_box(pay) as second:  # a file that says nothing of it
        with pytest.raises(ToolPermissionError):
            await second.approve(paused.pending_id, by=AGENT)


async def test_two_waiting_calls_of_one_tool_are_distinguished(make_box: MakeBox) -> None:
    announced: list[Any] = []
    async with make_box(drop, on_pending=announced.append) as box:
        for table in ("orders", "customers"):
            await box.call("drop", {"table": table}, user=ANN)
        events = [event.payload for event in await box.events(user=ANN) if "pending_id" in event.payload]
    assert [one.question.arguments for one in announced] == [{"table": "orders"}, {"table": "customers"}]
    assert [event["arguments"] for event in events] == [{"table": "orders"}, {"table": "customers"}]
    assert {event["target"]["kind"] for event in events} == {"python"}


async def test_a_question_masks_secrets_and_cuts_what_is_long(make_box: MakeBox) -> None:
    @tool(destructive=True)
    def send(text: str, api_key: str, to: list[str]) -> None:
        """Send something."""

    people = [f"person-{number}@example.com" for number in range(500)]
    async with make_box(send) as box:
        paused = await box.call("send", {"text": "x" * 5000, "api_key": "hush-hush", "to": people}, user=ANN)
    shown = paused.question.arguments
    assert shown["text"] == f"{'x' * 400}… (4600 more characters)"
    assert shown["api_key"] == "[redacted]"
    assert shown["to"][-1] == f"… {500 - len(shown['to']) + 1} more"
    assert len(str(shown)) < 6000


async def test_a_paused_call_asked_about_again_shows_the_same_question(disk_box: MakeBox) -> None:
    async with disk_box(pay) as box:
        first = await box.call("pay", {"amount": 9}, user=ANN, idempotency_key="k")
        again = await box.call("pay", {"amount": 9}, user=ANN, idempotency_key="k")
    assert isinstance(again, Paused)
    assert (again.pending_id, again.question.arguments, again.question.target) == (
        first.pending_id,
        {"amount": 9},
        first.question.target,
    )


@pytest.mark.parametrize(("policy", "asked"), [("standard", False), ("regulated", True)])
async def test_what_an_author_declared_external_is_asked_about_only_where_that_is_the_policy(
    make_box: MakeBox, policy: str, asked: bool
) -> None:
    @tool(side_effects="external")
    def tweet(text: str) -> str:
        """Publish something."""
        return text

    async with make_box(tweet, policy=policy) as box:
        outcome = await box.call("tweet", {"text": "Hi"}, user=ANN)
    assert isinstance(outcome, Paused) is asked
    if isinstance(outcome, Paused):
        assert outcome.question.prompt.endswith("it reaches outside this machine.")


async def test_an_approver_does_not_see_where_the_asker_signs_in(make_box: MakeBox) -> None:
    link = "https://login.example/start?ticket=for-ann-alone"

    @tool(destructive=True)
    async def read_mail(ctx: ToolContext) -> str:
        """Read the mail of whoever has signed in."""
        await ctx.pause("sign in", auth_request={"auth_url": link, "provider": "mail", "state": "for-ann"})
        return "no news"

    async with make_box(read_mail) as box:
        approvals = [await box.call("read_mail", user=ANN, run_id=run) for run in ("r1", "r2")]
        by_bob, by_ann = [
            await box.approve(one.pending_id, by=by) for one, by in zip(approvals, (BOB, ANN), strict=True)
        ]

    assert isinstance(by_bob, Paused)
    assert (by_bob.question.kind, by_bob.question.payload["provider"]) == ("consent", "mail")
    assert not {"auth_url", "state"} & set(by_bob.question.payload)
    assert by_ann.question.payload["auth_url"] == link
