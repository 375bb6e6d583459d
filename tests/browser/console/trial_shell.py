"""What concerns every page: files that are gone, and keys beside a toast."""

from contextlib import AsyncExitStack

import pytest
from playwright.async_api import expect

from tests.browser.console.conftest import Guest
from tests.browser.console.desk import Desk
from tests.browser.console.relay import relayed
from tests.browser.console.visitor import ConsoleVisitor, answer, menu

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

NEWER = "A newer version of the console is available."


async def test_a_page_whose_files_are_gone_offers_to_reload(desk: Desk, ann: ConsoleVisitor) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await ann.settles(tab)
    await ann.context.route("**/assets/AuditPage-*", lambda route: route.fulfill(status=404))
    await menu(tab, "Audit").click()
    await expect(tab.get_by_role("main").get_by_text(NEWER)).to_be_visible()
    await ann.context.unroute("**/assets/AuditPage-*")
    await tab.get_by_role("main").get_by_role("button", name="Reload").click()

    await expect(tab.get_by_role("heading", name="Audit")).to_be_visible()
    ann.complaints = [text for text in ann.complaints if "AuditPage" not in text]


async def test_a_page_that_is_opened_without_a_connection_comes_when_it_is_back(
    desk: Desk, guest: Guest, closing: AsyncExitStack
) -> None:
    relay = await closing.enter_async_context(relayed(desk.url))
    ann: ConsoleVisitor = await guest(relay.url)
    ann.expects_outage = True
    tab = await ann.signs_in((await desk.ticket()).replace(desk.url, relay.url))
    await ann.settles(tab)
    relay.cut()
    await menu(tab, "Audit").click()
    await expect(tab.get_by_role("main").get_by_text("The gateway does not answer.").first).to_be_visible()
    await expect(menu(tab, "Now")).to_be_visible()
    relay.mend()

    await expect(tab.get_by_role("button", name="Export")).to_be_visible()
    ann.complaints = [text for text in ann.complaints if "/assets/" not in text]


async def test_keys_work_while_a_toast_is_shown_and_the_form_previews_the_changed_call(
    desk: Desk, ann: ConsoleVisitor
) -> None:
    pending = await desk.asks("files.set_rate", rate=21)
    await ann.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/approvals/{pending}")
    await expect(answer(tab, "modify")).to_be_enabled()
    await tab.keyboard.press("c")
    await expect(tab.get_by_text("Link copied")).to_be_visible()
    await expect(tab.get_by_text("standard = 21")).to_be_visible()
    await tab.wait_for_function("() => performance.now() > 3000")  # nothing is pressed by mistake: a card waits 400 ms
    await tab.keyboard.press("e")
    await tab.get_by_role("textbox").first.fill("23")

    await expect(tab.get_by_role("region", name="With the changes")).to_contain_text("standard = 23")
    assert desk.ran("files.set_rate") == []
