"""The page of an MCP App: in a frame of another origin, whose calls pass the policy."""

import json
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.console.conftest import Guest
from tests.browser.console.desk import open_desk
from tests.browser.console.visitor import ConsoleVisitor, axe
from tests.gateway.test_app_pages import source

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]


async def test_the_page_of_a_tool_runs_apart_shows_its_result_and_calls_by_the_policy(
    tmp_path: Path, guest: Guest
) -> None:
    rules = [{"action": "ask", "tools": ["wx.rain"], "reason": "rain needs a person"}, {"action": "allow"}]
    async with open_desk(tmp_path, sources=[source()], policy=rules) as desk:
        ann: ConsoleVisitor = await guest(desk.url, viewport={"width": 1440, "height": 900})
        tab = await ann.signs_in(await desk.ticket())
        await tab.goto(f"{desk.url}/tools/wx.forecast")
        await tab.get_by_role("region", name="App of this tool").get_by_role("button", name="Open").click()
        frame = tab.frame_locator("iframe")
        await expect(frame.get_by_text("hello Toolpost")).to_be_visible()
        await tab.get_by_label("city").fill("Oslo")
        await tab.get_by_role("button", name="Call", exact=False).first.click()
        await expect(frame.get_by_text("result forecast in Oslo")).to_be_visible()
        await frame.get_by_role("button", name="Ask for more").click()
        await expect(frame.get_by_text("refused the call waits for an answer")).to_be_visible()
        await expect(tab.get_by_text("A call of the app waits for an answer.")).to_be_visible()
        apart = await frame.locator("html").evaluate("() => [document.title, origin]")
        found = await axe(tab)
        blocked, ann.complaints = ann.complaints, []
        waiting = (await desk.gate.http.get("/api/v1/pending")).json()["items"]

    assert (apart, found) == (["nothing nothing", "null"], [])
    assert [card["tool_name"] for card in waiting] == ["wx.rain"]
    assert all("connect-src" in text or "Content Security Policy" in text for text in blocked), json.dumps(blocked)
