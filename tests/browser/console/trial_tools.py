"""Tools in the console: search in a large catalog, and calls with arguments in every form."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.console.conftest import Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import ConsoleVisitor, longest_task, menu
from toolpost import tool

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]


async def test_a_tool_is_called_with_a_list_and_a_choice(desk: Desk, ann: ConsoleVisitor) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/tools/shop.order")
    await tab.get_by_role("button", name="Add an item").click()
    await tab.get_by_label("product").fill("lamp")
    await tab.get_by_text("Transfer", exact=True).click()
    await tab.get_by_label("iban").fill("DE00")
    await tab.get_by_role("button", name="Call Ctrl").click()

    await expect(tab.get_by_text("Completed in").or_(tab.get_by_text("Completed", exact=True)).first).to_be_visible()
    await expect(tab.get_by_text("DE00").last).to_be_visible()


async def test_a_tool_among_ten_thousand_is_found(tmp_path: Path, guest: Guest, figure: Callable[[str], None]) -> None:
    async def look(number: int = 0) -> int:
        return number

    many = [
        tool(name=f"shelf.read_{number}", side_effects="pure", desc=f"Read shelf {number}.")(look)
        for number in range(10_000)
    ]
    async with open_desk(tmp_path, *many) as desk:
        ann: ConsoleVisitor = await guest(desk.url, viewport={"width": 1280, "height": 800})
        tab = await ann.signs_in(await desk.ticket())
        await menu(tab, "Tools").click()
        await tab.get_by_role("searchbox", name="Search tools").fill("shelf 7321")
        await tab.get_by_role("link", name="shelf.read_7321").click()
        await expect(tab.get_by_role("heading", name="shelf.read_7321")).to_be_visible()
        figure(f"longest task with 10,000 tools: {await longest_task(tab):.0f} ms")
