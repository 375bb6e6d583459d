"""Figures and the audit log of a gateway after a month: plots, filters, export, verification, and a long list."""

import csv
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.console.conftest import Figure, Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import ConsoleVisitor, axe, longest_task, menu, overflowing, scrolls
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.storage import EventLog

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

DAYS_S = 30 * 24 * 3600
CALLS = 2_000
EVENTS = 100_000
CODES = ("timeout", "rate_limited", "server_error")


async def write_log(log: EventLog, calls: int) -> None:
    """Write calls over the last 30 days, of which every tenth failed."""
    began, codes = time.time() - DAYS_S, cycle(CODES)
    for number in range(calls):
        at = began + DAYS_S * number / calls
        name = "shop.stock" if number % 10 == 0 else f"shop.tool_{number % 7}"
        call = CallRef(f"run_{number}", f"call_{number}", name, "acme", f"user_{number % 5}", "", dict)
        log.emit(RunEvent(EventCode.TOOL_CALL_REQUESTED, at, call, {"params": {"number": number}}))
        log.emit(RunEvent(EventCode.TOOL_CALL_STARTED, at, call, {"input": {"number": number}}))
        failed = number % 10 == 0
        code = EventCode.TOOL_CALL_FAILED if failed else EventCode.TOOL_CALL_COMPLETED
        facts: dict[str, Any] = {"duration_ms": 20.0 + number % 50}
        log.emit(RunEvent(code, at + 0.5, call, {**facts, "error_code": next(codes)} if failed else facts))
        if log.congested:
            await log.drain()
    await log.flush()


@pytest_asyncio.fixture(loop_scope="session")
async def month(tmp_path: Path, closing: AsyncExitStack) -> Desk:
    """A gateway with the calls of a month, all counted."""
    desk = await closing.enter_async_context(open_desk(tmp_path))
    await write_log(desk.gate.box.store.events, CALLS)
    while await desk.gate.box.store.metrics.count():
        pass
    return desk


@pytest_asyncio.fixture(loop_scope="session")
async def tab(month: Desk, guest: Guest) -> AsyncIterator[Page]:
    ann: ConsoleVisitor = await guest(month.url, viewport={"width": 1280, "height": 900}, accept_downloads=True)
    yield await ann.signs_in(await month.ticket())


async def test_the_plots_show_the_month_and_the_tables_have_its_figures(month: Desk, tab: Page) -> None:
    await tab.goto(f"{month.url}/insight?range=30d")
    await expect(tab.get_by_role("heading", name="Duration of calls")).to_be_visible()
    plots = await tab.locator("canvas").count()
    await expect(tab.get_by_text(f"{CALLS:,} in 30 d")).to_be_visible()
    await expect(tab.get_by_text("200 failed in 30 d")).to_be_visible()
    found = [await axe(tab), await overflowing(tab)]
    await tab.get_by_role("button", name="As a table").click()
    await expect(tab.get_by_role("table", name="Errors by code")).to_be_visible()
    async with tab.expect_download() as saving:
        await tab.get_by_role("region", name="Calls").first.get_by_role("button", name="CSV").click()
    table = [*csv.reader(io.StringIO((await (await saving.value).path()).read_text()))]

    assert plots >= 3
    assert found == [[], []]
    assert sum(int(row[1] or 0) for row in table[1:]) == CALLS


async def test_a_plot_is_zoomed_and_filtered_and_the_address_keeps_it(month: Desk, tab: Page) -> None:
    await tab.goto(f"{month.url}/insight?range=30d")
    canvas = tab.locator("canvas").first
    box = await canvas.bounding_box()
    assert box is not None
    await tab.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2)
    await tab.mouse.down()
    await tab.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2, steps=5)
    await tab.mouse.up()
    await tab.wait_for_url("**since=**until=**")
    await tab.reload()
    await expect(tab.get_by_title("Reset the zoom")).to_be_visible()
    await tab.get_by_title("Reset the zoom").click()
    await tab.goto(f"{month.url}/insight?range=30d&tool=shop.stock")

    await expect(tab.get_by_text("200 in 30 d")).to_be_visible()


async def test_the_audit_log_is_filtered_exported_and_verified(month: Desk, tab: Page) -> None:
    await menu(tab, "Audit").click()
    await tab.get_by_label("Tool, * for any text").fill("shop.stock")
    await tab.get_by_label("User", exact=True).fill("user_0")
    await tab.wait_for_url("**tool=shop.stock**user=user_0**")
    await expect(tab.get_by_role("button", name="TOOL_CALL_FAILED").first).to_be_visible()
    await tab.get_by_role("button", name="TOOL_CALL_FAILED").first.click()
    await expect(tab.get_by_text("error_code").first).to_be_visible()
    found = [await axe(tab), await overflowing(tab)]
    await tab.get_by_role("button", name="Export").click()
    async with tab.expect_download() as saving:
        await tab.get_by_role("menuitem", name="JSON lines").click()
    lines = [json.loads(line) for line in (await (await saving.value).path()).read_text().splitlines()]
    await tab.get_by_role("button", name="Verify").click()
    await expect(tab.get_by_text("The event log is unchanged.")).to_be_visible()

    assert found == [[], []]
    assert {event["user"] for event in lines} == {"user_0"}
    assert len(lines) == 3 * CALLS // 10


async def test_a_changed_log_is_said(month: Desk, tab: Page, tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415 - this is what a person would do who changes the log
    from contextlib import closing  # noqa: PLC0415 - shadows the fixture of the others

    with closing(sqlite3.connect(tmp_path / "data" / "toolpost.db")) as database, database:
        database.execute("UPDATE segments SET user = 'eve' WHERE last_id = (SELECT min(last_id) FROM segments)")
    await menu(tab, "Audit").click()
    await tab.get_by_role("button", name="Verify").click()

    await expect(tab.get_by_text("The event log was changed outside Toolpost.")).to_be_visible()


async def test_a_hundred_thousand_events_scroll(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack, figure: Figure
) -> None:
    desk = await closing.enter_async_context(open_desk(tmp_path))
    await write_log(desk.gate.box.store.events, EVENTS // 3)
    ann: ConsoleVisitor = await guest(desk.url, viewport={"width": 1280, "height": 900})
    tab = await ann.signs_in(await desk.ticket())
    await menu(tab, "Audit").click()
    await expect(tab.get_by_role("button", name="TOOL_CALL_COMPLETED").first).to_be_visible()
    began = time.monotonic()
    seen = await scrolls(tab, "Events", EVENTS - 3)
    took = time.monotonic() - began
    figure(f"{seen:,} events scrolled in {took:.0f} s: longest task", await longest_task(tab), 100)

    assert seen >= EVENTS - 3
