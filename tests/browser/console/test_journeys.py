"""The most important ways through the console, from sign-in to the result of an approved call."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.browser.console.conftest import Guest
from tests.browser.console.desk import Desk
from tests.browser.console.visitor import ConsoleVisitor, answer, axe, enters, live, menu, overflowing, press, storage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs]


@pytest.mark.req("WEB-02")
async def test_the_link_of_the_terminal_signs_in_once_and_leaves_the_address(desk: Desk, guest: Guest) -> None:
    ann, eve = await guest(desk.url), await guest(desk.url)
    link = await desk.ticket()
    tab = await ann.signs_in(link)
    late = await eve.opens(link)

    await expect(late.get_by_role("heading", name="The sign-in link did not work")).to_be_visible()
    assert (tab.url, late.url) == (f"{desk.url}/", f"{desk.url}/")
    assert link.partition("#t=")[2] not in str(await storage(tab))


async def test_a_key_signs_in_and_is_not_kept(desk: Desk, guest: Guest) -> None:
    bob = await guest(desk.url)
    key = await desk.person("acme:bob")
    tab = await bob.signs_in_with(key, "/approvals")

    await expect(tab.get_by_role("heading", name="Approvals", level=1)).to_be_visible()
    await expect(tab.get_by_text("acme", exact=True)).to_be_visible()
    assert key not in str(await storage(tab))


@pytest.mark.req("WEB-03")
async def test_the_key_of_an_agent_is_refused_and_the_page_says_why(desk: Desk, guest: Guest) -> None:
    bot = await guest(desk.url)
    agent = (await desk.gate.key("acme:bot", "call"))["Authorization"].removeprefix("Bearer ")
    tab = await bot.opens("/")
    await enters(tab, agent)

    await expect(tab.get_by_text("toolpost keys create")).to_be_visible()
    await expect(live(tab)).not_to_be_visible()
    assert await storage(tab) == {}


@pytest.mark.req("WEB-06")
async def test_a_call_that_pauses_appears_automatically_and_an_approval_shows_its_result(
    desk: Desk, ann: ConsoleVisitor
) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await menu(tab, "Approvals").click()
    await expect(tab.get_by_text("Nothing waits for an answer.")).to_be_visible()

    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    await expect(tab.get_by_role("article", name="bank.transfer")).to_be_visible()
    await press(answer(tab, "approve"))
    await expect(tab.get_by_text("Completed in")).to_be_visible()

    assert desk.ran("bank.transfer") == [{"to": "ACME", "euro": 20, "password": ""}]
    assert (await desk.outcome(pending))["content"] == {"transferred": 20, "to": "ACME"}


@pytest.mark.req("WEB-07")
async def test_a_call_approved_with_changes_keeps_the_secret_that_no_one_saw(desk: Desk, ann: ConsoleVisitor) -> None:
    pending = await desk.asks("bank.transfer", to="ACME", euro=20, password="hunter2")
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/approvals/{pending}")
    await press(answer(tab, "modify"))
    await expect(tab.get_by_text("kept as requested", exact=False).first).to_be_visible()
    await tab.get_by_label("euro").fill("15")
    seen = await tab.content()
    await tab.get_by_role("button", name="Approve with 1 change").click()
    await expect(tab.get_by_text("Completed in")).to_be_visible()

    assert desk.ran("bank.transfer") == [{"to": "ACME", "euro": 15, "password": "hunter2"}]
    assert "hunter2" not in seen + await tab.content() + str(await storage(tab))


async def test_a_denial_gives_its_reason_to_the_agent(desk: Desk, ann: ConsoleVisitor) -> None:
    pending = await desk.asks("mail.send", to="a@b.example", subject="Hello", text="Buy!")
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/approvals/{pending}")
    await press(answer(tab, "deny"))
    await tab.get_by_label("Reason (optional)").fill("not on a Sunday")
    await tab.get_by_role("button", name="Deny").click()
    await expect(tab.get_by_text("not on a Sunday").first).to_be_visible()

    assert "not on a Sunday" in (await desk.outcome(pending))["error"]["message"]
    assert desk.ran("mail.send") == []


@pytest.mark.req("WEB-06")
async def test_two_tabs_and_two_clicks_make_one_call(desk: Desk, ann: ConsoleVisitor) -> None:
    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    one = await ann.signs_in(await desk.ticket())
    other = await ann.opens(f"/approvals/{pending}")
    await one.goto(f"{desk.url}/approvals/{pending}")
    await asyncio.gather(*(expect(answer(tab, "approve")).to_be_visible() for tab in (one, other)))
    await asyncio.gather(*(answer(tab, "approve").dblclick(delay=450) for tab in (one, other)), return_exceptions=True)
    await asyncio.gather(*(expect(tab.get_by_text("Completed in")).to_be_visible() for tab in (one, other)))

    assert len(desk.ran("bank.transfer")) == 1


async def test_who_made_a_call_cannot_answer_it_where_two_are_needed(desk: Desk, guest: Guest) -> None:
    bob, eve = await guest(desk.url), await guest(desk.url)
    pending = await desk.asks("bank.refund", by="acme:bob", order=7, euro=12)
    his = await bob.signs_in_with(await desk.person("acme:bob"), f"/approvals/{pending}")
    hers = await eve.signs_in_with(await desk.person("acme:eve"), f"/approvals/{pending}")
    await expect(his.get_by_text("You can only deny this call:")).to_be_visible()
    await expect(answer(his, "approve")).to_have_count(0)
    await press(answer(hers, "approve"))

    await expect(hers.get_by_text("12 EUR for order 7 refunded")).to_be_visible()
    await expect(his.get_by_text("acme:eve: approved").first).to_be_visible()


@pytest.mark.req("WEB-15")
async def test_a_phone_approves_after_the_end_of_the_preview_was_seen(desk: Desk, guest: Guest) -> None:
    phone = await guest(desk.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab = await phone.signs_in(await desk.ticket())
    await menu(tab, "Approvals").tap()
    await desk.asks("files.set_rate", rate=21)
    await tab.get_by_role("link", name="files.set_rate").tap()
    await answer(tab, "approve").scroll_into_view_if_needed()
    await expect(answer(tab, "approve")).to_be_enabled()
    size = await answer(tab, "approve").bounding_box()
    await phone.settles(tab)
    found = [await axe(tab), await overflowing(tab)]
    await press(answer(tab, "approve"))
    await expect(tab.get_by_text("Completed in")).to_be_visible()

    assert size is not None
    assert size["height"] >= 44
    assert found == [[], []]
    assert desk.ran("files.set_rate") == [{"rate": 21}]
