"""Keys, rules and people of other tenants."""

import time

import pytest
from msgspec.structs import replace
from playwright.async_api import expect

from tests.browser.console.conftest import Guest
from tests.browser.console.desk import Desk
from tests.browser.console.visitor import ConsoleVisitor, axe, menu, overflowing, storage
from tests.gateway.serving import OPERATOR

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]


async def test_a_key_is_shown_once_works_and_is_revoked(desk: Desk, ann: ConsoleVisitor) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/settings/keys")
    await tab.get_by_role("button", name="Create a key").click()
    await tab.get_by_label("Name", exact=True).fill("pricing-bot")
    await tab.get_by_label("For the user").fill("acme:pricing-bot")
    await tab.get_by_role("button", name="Create", exact=True).click()
    await expect(tab.get_by_text("This key is shown once and not stored.")).to_be_visible()
    found = [await axe(tab), await overflowing(tab)]
    key = await tab.get_by_text("tpk_").first.inner_text()
    await tab.get_by_role("button", name="Done").click()
    bearer = {"Authorization": f"Bearer {key}"}
    works = await desk.gate.http.get("/api/v1/tools", headers=bearer)
    await expect(tab.get_by_role("row", name="pricing-bot")).to_be_visible()
    await tab.get_by_role("row", name="pricing-bot").get_by_role("button", name="Revoke").click()
    await tab.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await expect(tab.get_by_role("dialog")).to_have_count(0)
    await expect(tab.get_by_role("row", name="pricing-bot")).to_have_count(0)
    revoked = await desk.gate.http.get("/api/v1/tools", headers=bearer)

    assert (works.status_code, revoked.status_code) == (200, 401)
    assert key not in await tab.content() + str(await storage(tab))
    assert found == [[], []]


async def test_a_key_for_a_person_signs_in_with_all_its_scopes(desk: Desk, ann: ConsoleVisitor, guest: Guest) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/settings/keys")
    await tab.get_by_role("button", name="Create a key").click()
    await tab.get_by_label("Name", exact=True).fill("bob")
    await tab.get_by_label("For the user").fill("acme:bob")
    await tab.get_by_role("switch", name="For a person").click()
    await tab.get_by_role("checkbox", name="answer").check()
    await tab.get_by_role("button", name="Create", exact=True).click()
    key = await tab.get_by_text("tpk_").first.inner_text()
    bob = await guest(desk.url)
    his = await bob.signs_in_with(key)

    await expect(his.get_by_role("button", name="bob").first).to_be_visible()


async def test_the_explainer_names_the_rule_and_why_the_others_do_not_decide(desk: Desk, ann: ConsoleVisitor) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/settings/policy")
    await tab.get_by_label("Tool", exact=True).fill("files.set_rate")
    await tab.get_by_role("radio", name="Form").click()
    await tab.get_by_label("rate").fill("21")
    await tab.get_by_label("As the user (optional)").fill("acme:pricing-bot")
    await tab.get_by_role("button", name="Explain", exact=True).click()
    await expect(tab.get_by_text("Needs approval", exact=True)).to_be_visible()
    await expect(tab.get_by_text("money, files and mail need a person").first).to_be_visible()
    await expect(tab.get_by_text("the name matches none of: bank.refund")).to_be_visible()
    await expect(tab.get_by_text("standard = 21")).to_be_visible()
    await tab.get_by_label("Tool", exact=True).fill("shop.close")
    await tab.get_by_role("button", name="Explain", exact=True).click()
    await expect(tab.get_by_text("the shop stays open").first).to_be_visible()

    await expect(tab.get_by_text("Denied", exact=True)).to_be_visible()
    assert desk.ran("files.set_rate") == []


async def test_a_person_of_another_tenant_sees_nothing_and_gets_nowhere(desk: Desk, guest: Guest) -> None:
    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    run = (await desk.gate.http.get(f"/api/v1/pending/{pending}")).json()["run_id"]
    eve: ConsoleVisitor = await guest(desk.url)
    key = await desk.person("other:eve", "call", "answer", "admin")
    tab = await eve.signs_in_with(key, f"/approvals/{pending}")
    await expect(tab.get_by_text("or you cannot see it.").first).to_be_visible()
    await tab.goto(f"{desk.url}/runs/{run}")
    await expect(tab.get_by_text("or you cannot see it.").first).to_be_visible()
    for page in ("approvals?mine=no", "runs", "audit", "settings/keys", "settings/sessions"):
        await tab.goto(f"{desk.url}/{page}")
        await eve.settles(tab)
        assert "bank" not in await tab.locator("main").inner_text(), page
    await tab.goto(f"{desk.url}/sources")
    await eve.settles(tab)

    await expect(tab.get_by_role("button", name="Add a source")).to_have_count(0)


async def test_a_session_with_only_calls_tries_tools_and_sees_the_missing_rights(desk: Desk, guest: Guest) -> None:
    bob: ConsoleVisitor = await guest(desk.url)
    tab = await bob.signs_in_with(await desk.person("acme:bob", "call"))
    await menu(tab, "Tools").click()
    await tab.get_by_role("link", name="bank.transfer").click()
    await tab.get_by_role("textbox", name="to*", exact=True).fill("ACME")
    await tab.get_by_label("euro").fill("20")
    await tab.get_by_role("button", name="Call Ctrl").click()
    await tab.get_by_role("link", name="Open the approval").click()
    await expect(tab.get_by_text("this needs a caller with the scope").first).to_be_visible()
    await expect(tab.get_by_role("article").get_by_text("acme:bob").first).to_be_visible()
    await expect(tab.locator("[data-answer]")).to_have_count(0)
    for page in ("insight", "audit", "settings/keys", "settings/policy"):
        await tab.goto(f"{desk.url}/{page}")
        await expect(tab.get_by_text("scope", exact=False).first).to_be_visible()
        await bob.settles(tab)
        assert await axe(tab) == [], page

    assert desk.ran("bank.transfer") == []


async def let_expire(desk: Desk, ticket: str) -> None:
    """Make a ticket older than it may be."""
    store = desk.gate.box.store.sessions
    found = await store.find_ticket(ticket.split("_")[1])
    assert found is not None
    await store.add_ticket(replace(found[0], expires_at=time.time() - 1))


async def test_an_expired_ticket_says_so_and_a_new_one_signs_in(desk: Desk, guest: Guest) -> None:
    ann: ConsoleVisitor = await guest(desk.url)
    link = await desk.ticket()
    await let_expire(desk, link.partition("#t=")[2])
    tab = await ann.opens(link)
    await expect(tab.get_by_role("heading", name="The sign-in link did not work")).to_be_visible()
    await expect(tab.get_by_text("older than two minutes")).to_be_visible()
    tab = await ann.signs_in(await desk.ticket())

    await expect(tab.get_by_role("button", name=OPERATOR)).to_be_visible()
