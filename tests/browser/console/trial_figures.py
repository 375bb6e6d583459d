"""Figures with their goals: the first page, and what the gateway needs for long lists."""

import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.console.conftest import Figure, Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import ConsoleVisitor
from toolpost import tool

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

# From the navigation to the first card that can be opened, in milliseconds.
USABLE = """() => new Promise((done) => {
  const look = () => document.querySelector('main a[href*="/approvals/ask_"], main a[href*="approvals/ask_"]')
    ? done(performance.now()) : requestAnimationFrame(look);
  look();
})"""


async def test_the_first_page_can_be_used_soon(desk: Desk, ann: ConsoleVisitor, guest: Guest, figure: Figure) -> None:
    for number in range(20):
        await desk.asks("bank.transfer", to=f"Lamps {number} Ltd", euro=number)
    state = await (await ann.signs_in(await desk.ticket())).context.storage_state()
    await ann.context.close()
    took: list[float] = []
    for _ in range(5):  # each with an empty cache
        other: ConsoleVisitor = await guest(desk.url, storage_state=state, viewport={"width": 1440, "height": 900})
        tab = await other.opens("/approvals")
        took.append(await tab.evaluate(USABLE))
        await expect(tab.get_by_role("article").first).to_be_visible()
        await other.context.close()

    figure(f"from the address to the list of approvals, median of {len(took)}", statistics.median(took), 1000)


async def test_ten_thousand_tools_are_listed_small_and_soon(
    tmp_path: Path, closing: AsyncExitStack, figure: Figure
) -> None:
    async def look(number: int = 0) -> int:
        return number

    many = [
        tool(name=f"shelf_{number % 40}.read_{number}", side_effects="read", desc=f"Read shelf {number}.")(look)
        for number in range(10_000)
    ]
    desk = await closing.enter_async_context(open_desk(tmp_path, *many))
    took: list[float] = []
    size = 0
    for _ in range(5):
        began = time.perf_counter()
        async with desk.gate.http.stream(
            "GET",
            "/api/v1/tools",
            params={"view": "summary", "limit": 20_000, "facets": "source,tag,side_effects"},
            headers={"Accept-Encoding": "gzip"},
        ) as answer:
            size = sum([len(part) async for part in answer.aiter_raw()])
        took.append((time.perf_counter() - began) * 1000)
    figure("10,000 tools as summaries, compressed", size / 1e6, 0.5, "MB")
    figure("10,000 tools as summaries", min(took[1:]), 300)

    assert size < 500_000
