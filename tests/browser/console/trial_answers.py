"""Answers that come late, twice, from others, or over a connection that breaks."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.console.conftest import Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.relay import relayed
from tests.browser.console.visitor import ConsoleVisitor, answer, enters, live, menu, press

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

LIFETIME_S = 8
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
EXPIRED = "No one answered in time, so the call was denied."


async def test_a_card_expires_on_the_screen_by_the_clock_of_the_gateway(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack
) -> None:
    desk = await closing.enter_async_context(open_desk(tmp_path, limits={"pending_ttl": LIFETIME_S}))
    ann: ConsoleVisitor = await guest(desk.url)
    await ann.context.clock.install(time=(time.time() + 3600) * 1000)
    tab = await ann.signs_in(await desk.ticket())
    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    await tab.goto(f"{desk.url}/approvals/{pending}")
    await expect(answer(tab, "approve")).to_be_visible()
    await expect(tab.get_by_text(EXPIRED, exact=True)).to_be_visible()

    await expect(answer(tab, "approve")).to_have_count(0)
    assert desk.ran("bank.transfer") == []
    assert (await desk.outcome(pending))["error"]["error_code"] == "question_expired"


async def test_a_card_that_another_person_answers_says_who_and_offers_nothing_more(desk: Desk, guest: Guest) -> None:
    ann: ConsoleVisitor = await guest(desk.url)
    bob: ConsoleVisitor = await guest(desk.url)
    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    hers = await ann.signs_in(await desk.ticket())
    his = await bob.signs_in_with(await desk.person("acme:bob"), f"/approvals/{pending}")
    await hers.goto(f"{desk.url}/approvals/{pending}")
    await press(answer(hers, "modify"))
    await hers.get_by_label("euro").fill("15")
    await press(answer(his, "approve"))

    await expect(hers.get_by_text("Someone answered while you were editing.")).to_be_visible()
    await expect(hers.get_by_text("acme:bob: approved").first).to_be_visible()
    await expect(answer(hers, "approve")).to_have_count(0)
    assert [one["euro"] for one in desk.ran("bank.transfer")] == [20]


async def test_an_action_is_passed_on_or_hidden_on_a_phone(desk: Desk, guest: Guest) -> None:
    phone: ConsoleVisitor = await guest(desk.url, **PHONE)
    eve: ConsoleVisitor = await guest(desk.url)
    one, other = [await desk.asks("bank.transfer", to=name, euro=20) for name in ("ACME", "Lamps")]
    tab = await phone.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/approvals/{one}")
    await tab.get_by_role("button", name="More actions").tap()
    await tab.get_by_role("menuitem", name="Pass on").tap()
    await tab.get_by_role("textbox").first.fill("acme:eve")
    await tab.get_by_role("textbox").last.fill("you know them")
    await tab.get_by_role("button", name="Pass on").tap()
    await expect(answer(tab, "approve")).to_be_visible()  # in place of the form
    await tab.goto(f"{desk.url}/approvals/{other}")
    await tab.get_by_role("button", name="More actions").tap()
    await tab.get_by_role("menuitem", name="Hide for 1 hour").tap()
    await tab.goto(f"{desk.url}/approvals")
    hers = await eve.signs_in_with(await desk.person("acme:eve"), f"/approvals/{one}")
    await expect(hers.get_by_text("you know them").first).to_be_visible()
    await press(answer(hers, "approve"))
    await expect(hers.get_by_text("Completed in")).to_be_visible()

    await expect(tab.get_by_role("link", name="Lamps")).to_have_count(0)
    assert [run["to"] for run in desk.ran("bank.transfer")] == ["ACME"]


async def test_of_two_people_who_press_at_the_same_time_one_answers(desk: Desk, guest: Guest) -> None:
    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    people: list[ConsoleVisitor] = [await guest(desk.url) for _ in range(3)]
    tabs = [
        await one.signs_in_with(await desk.person(f"acme:person-{number}"), f"/approvals/{pending}")
        for number, one in enumerate(people)
    ]
    await asyncio.gather(*(expect(answer(tab, "approve")).to_be_visible() for tab in tabs))
    await asyncio.gather(*(press(answer(tab, "approve")) for tab in tabs), return_exceptions=True)
    await asyncio.gather(*(expect(tab.get_by_text("Completed in")).to_be_visible() for tab in tabs))

    assert len(desk.ran("bank.transfer")) == 1


async def test_an_answer_whose_confirmation_was_lost_runs_the_call_once(
    desk: Desk, guest: Guest, closing: AsyncExitStack
) -> None:
    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    relay = await closing.enter_async_context(relayed(desk.url))
    ann: ConsoleVisitor = await guest(relay.url)
    ann.expects_outage = True
    tab = await ann.signs_in((await desk.ticket()).replace(desk.url, relay.url))
    await tab.goto(f"{relay.url}/approvals/{pending}")
    await expect(answer(tab, "approve")).to_be_visible()
    await ann.settles(tab)  # requests without an answer would take all connections of the browser
    relay.swallow()
    await press(answer(tab, "approve"))
    await desk.outcome(pending)
    relay.cut()
    await expect(tab.get_by_text("Sent. Not confirmed yet.")).to_be_visible()
    relay.mend()
    await expect(tab.get_by_text("Completed in")).to_be_visible()

    assert len(desk.ran("bank.transfer")) == 1


async def test_an_answer_that_never_arrived_is_sent_again_automatically(
    desk: Desk, guest: Guest, closing: AsyncExitStack
) -> None:
    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    relay = await closing.enter_async_context(relayed(desk.url))
    ann: ConsoleVisitor = await guest(relay.url)
    ann.expects_outage = True
    tab = await ann.signs_in((await desk.ticket()).replace(desk.url, relay.url))
    await tab.goto(f"{relay.url}/approvals/{pending}")
    await expect(answer(tab, "approve")).to_be_visible()
    await ann.settles(tab)  # requests without an answer would take all connections of the browser
    relay.cut()
    await press(answer(tab, "approve"))
    await expect(tab.get_by_text("Sent. Not confirmed yet.")).to_be_visible()
    assert desk.ran("bank.transfer") == []
    relay.mend()
    await expect(tab.get_by_text("Completed in")).to_be_visible()

    assert len(desk.ran("bank.transfer")) == 1


async def test_a_broken_stream_is_shown_and_missed_events_arrive_automatically(
    desk: Desk, guest: Guest, closing: AsyncExitStack
) -> None:
    relay = await closing.enter_async_context(relayed(desk.url))
    ann: ConsoleVisitor = await guest(relay.url)
    ann.expects_outage = True
    tab = await ann.signs_in((await desk.ticket()).replace(desk.url, relay.url))
    await menu(tab, "Approvals").click()
    await expect(tab.get_by_text("Nothing waits for an answer.")).to_be_visible()
    relay.cut()
    await expect(tab.get_by_text("Reconnecting in")).to_be_visible()
    await desk.asks("bank.transfer", to="missed", euro=1)
    await expect(tab.get_by_role("button", name="Offline", exact=True)).to_be_visible()
    await expect(tab.get_by_text("Offline. What you see is from")).to_be_visible()
    relay.mend()

    await expect(tab.get_by_role("article", name="bank.transfer")).to_be_visible()
    await expect(live(tab)).to_be_visible()
    await expect(tab.get_by_text("Offline. What you see is from")).to_have_count(0)


async def test_two_tabs_share_one_stream_and_the_second_continues_when_the_first_closes(
    desk: Desk, ann: ConsoleVisitor
) -> None:
    streams: list[str] = []
    ann.context.on(
        "request", lambda request: streams.append(request.url) if request.url.endswith("/api/v1/events") else None
    )
    first = await ann.signs_in(await desk.ticket())
    second = await ann.opens("/approvals")
    await expect(second.get_by_text("Nothing waits for an answer.")).to_be_visible()
    await expect(live(second)).to_be_visible()
    before = len(streams)
    await first.close()
    await desk.asks("bank.transfer", to="ACME", euro=20)

    await expect(second.get_by_role("article", name="bank.transfer")).to_be_visible()
    assert (before, len(streams)) == (1, 2)


async def test_an_old_page_on_a_new_gateway_says_so_and_its_missing_files_break_no_other_page(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await closing.enter_async_context(open_desk(tmp_path / "old"))
    relay = await closing.enter_async_context(relayed(old.url))
    bob: ConsoleVisitor = await guest(relay.url)
    bob.expects_outage = True
    tab = await bob.signs_in_with(await old.person("acme:bob"), "/approvals")
    await expect(tab.get_by_text("Nothing waits for an answer.")).to_be_visible()
    monkeypatch.setattr("toolpost.gateway.rest.sessions.console_build", lambda: "of a newer console")
    new = await closing.enter_async_context(open_desk(tmp_path / "new"))
    relay.lead_to(new.url)
    await expect(tab.get_by_role("heading", name="Your session ended")).to_be_visible()
    await enters(tab, await new.person("acme:bob"))
    await expect(tab.get_by_text("A newer version of the console is available.")).to_be_visible()
    await bob.context.route("**/InsightPage-*.js", lambda route: route.fulfill(status=404))
    await menu(tab, "Insight").click()
    await expect(tab.get_by_role("alert").get_by_role("button", name="Reload")).to_be_visible()
    bob.complaints.clear()  # of the file that is missing
    await menu(tab, "Tools").click()

    await expect(tab.get_by_role("link", name="bank.transfer")).to_be_visible()
