"""A run in the console: retries, a pause, calls inside calls and calls at the same time, as its events tell them."""

import asyncio
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.console.conftest import Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import ConsoleVisitor, axe, menu, overflowing
from toolpost import Paused, ToolContext, tool
from toolpost.errors import ToolServerError

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]


async def row(tab: Page, tool_name: str) -> str:
    """A call of the waterfall as a screen reader has it."""
    found = tab.get_by_role("treegrid").get_by_role("row").filter(has_text=tool_name).first
    await expect(found).to_be_visible()
    return await found.inner_text()


@pytest.fixture
def shop() -> list[Any]:
    """Tools of which one calls others, at the same time, one of them busy at first, and one that pauses."""
    tries = count()

    @tool(name="shop.price", side_effects="read")
    async def price(product: str) -> float:
        """Read a price; busy at first."""
        if next(tries) < 2:
            raise ToolServerError("the shelf is busy")
        return 49.5

    @tool(name="shop.order_all", side_effects="external")
    async def order_all(ctx: ToolContext) -> Any:
        """Read a price and the products at the same time, then pay."""
        await asyncio.gather(ctx.call("shop.price", {"product": "lamp"}), ctx.call("shop.products", {"count": 2}))
        paid = await ctx.call("bank.transfer", {"to": "supplier", "euro": 40})
        if isinstance(paid, Paused):
            ctx.wait_for(paid)
        return paid

    return [price, order_all]


async def test_the_waterfall_shows_retries_a_pause_and_calls_inside_and_beside_each_other(
    tmp_path: Path, shop: list[Any], guest: Guest, closing: AsyncExitStack
) -> None:
    desk = await closing.enter_async_context(open_desk(tmp_path, *shop))
    ann: ConsoleVisitor = await guest(desk.url, viewport={"width": 1440, "height": 900})
    pending = await desk.asks("shop.order_all")
    tab = await ann.signs_in(await desk.ticket())
    await menu(tab, "Runs").click()
    await tab.get_by_role("link", name="shop.order_all").first.click()
    waits = await row(tab, "bank.transfer")
    await desk.gate.http.post(f"/api/v1/pending/{pending}/answer", json={"decision": "approve"})
    await expect(tab.get_by_text("Completed", exact=True).first).to_be_visible()
    outer, retried, beside, paid = [
        await row(tab, name) for name in ("shop.order_all", "shop.price", "shop.products", "bank.transfer")
    ]
    levels = (
        await tab.get_by_role("treegrid")
        .get_by_role("row")
        .evaluate_all("(rows) => rows.map((row) => row.getAttribute('aria-level'))")
    )
    await ann.settles(tab)
    found = [await axe(tab), await overflowing(tab)]

    assert "Wait for a person" in waits
    assert retried.count("Failed attempt") == retried.count("Wait before a retry") == 2
    assert "2 in parallel" in retried + beside + outer
    assert "waited for olga" in paid or "waited for acme:olga" in paid
    assert levels == ["1", "2", "2", "2"]
    assert found == [[], []]


async def test_a_call_of_a_run_shows_its_arguments_its_result_and_its_approval(desk: Desk, ann: ConsoleVisitor) -> None:
    pending = await desk.asks("bank.transfer", to="Lamps Ltd", euro=40, password="hunter2")
    await desk.gate.http.post(f"/api/v1/pending/{pending}/answer", json={"decision": "approve"})
    run_id = (await desk.gate.http.get(f"/api/v1/pending/{pending}")).json()["run_id"]
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/runs/{run_id}")
    await tab.get_by_role("treegrid").get_by_role("button", name="bank.transfer").last.click()
    await tab.get_by_role("tab", name="Arguments").click()
    await expect(tab.get_by_text("Lamps Ltd").first).to_be_visible()
    await tab.get_by_role("tab", name="Result").click()
    await expect(tab.get_by_text("transferred").first).to_be_visible()
    await tab.get_by_role("button", name="Verify").click()
    await expect(tab.get_by_text("Log verified")).to_be_visible()

    assert "hunter2" not in await tab.content()


async def test_a_call_whose_result_is_not_stored_shows_the_summary_of_the_log(desk: Desk, ann: ConsoleVisitor) -> None:
    run_id = (await desk.calls("shop.products", count=2))["run_id"]
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/runs/{run_id}")
    await tab.get_by_role("treegrid").get_by_role("button", name="shop.products").last.click()
    await tab.get_by_role("tab", name="Result").click()

    await expect(tab.get_by_text("The full result is not stored.")).to_be_visible()


async def test_a_running_call_is_cancelled_on_its_page(tmp_path: Path, guest: Guest, closing: AsyncExitStack) -> None:
    @tool(name="shop.wait", side_effects="pure")
    async def wait(ctx: ToolContext) -> None:
        """Wait for ever."""
        ctx.progress("half of it", fraction=0.5)
        await asyncio.Event().wait()

    desk = await closing.enter_async_context(open_desk(tmp_path, wait))
    ann: ConsoleVisitor = await guest(desk.url)
    begun = (await desk.gate.http.post("/api/v1/calls", json={"tool": "shop.wait", "mode": "async"})).json()
    tab = await ann.signs_in(await desk.ticket())
    await expect(tab.get_by_text("half of it").first).to_be_visible()
    await tab.goto(f"{desk.url}/runs/{begun['run_id']}")
    await tab.get_by_role("button", name="Cancel the run").click()

    await expect(tab.get_by_text("cancelled").first).to_be_visible()
