"""Journeys that take longer: figures, killed gateways, hostile tools, and a connection that is lost."""

import json
import signal
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Page, expect

from tests.browser.console.conftest import Figure, Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import (
    ConsoleVisitor,
    answer,
    axe,
    live,
    longest_task,
    menu,
    overflowing,
    press,
)
from tests.gateway.running import Gateway, running
from tests.parts import reserved_port
from toolpost import tool

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

OURS_MS = 300
CONFIG = "builtins: []\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
TOOLS = '''
import asyncio
from pathlib import Path

from toolpost import tool


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table, and say so in a file."""
    with Path(__file__).with_name("dropped").open("a") as file:
        print(name, file=file)
    if name == "hangs":
        await asyncio.Event().wait()
    return f"{name} is gone"
'''
# Notes when a text appears, and when the mouse was released, in milliseconds since 1970.
STOPWATCH = """() => {
  window.times = {};
  const now = () => performance.timeOrigin + performance.now();
  new MutationObserver(() => {
    const shown = document.body.innerText;
    for (const name of Object.keys(times)) if (times[name] === 0 && shown.includes(name)) times[name] = now();
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
  addEventListener("click", () => { window.clicked = now(); }, true);
}"""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.exe\u202c\u200b{{7*7}}"


async def appeared(tab: Page, text: str) -> float:
    """When a text that the stopwatch waits for appeared."""
    await tab.wait_for_function("(text) => times[text] > 0", arg=text)
    found: float = await tab.evaluate("(text) => times[text]", text)
    return found


async def test_cards_and_resumed_calls_come_in_time(desk: Desk, ann: ConsoleVisitor, figure: Figure) -> None:
    tab = await ann.signs_in(await desk.ticket())
    await menu(tab, "Approvals").click()
    await expect(tab.get_by_text("Nothing waits for an answer.")).to_be_visible()
    await tab.evaluate(STOPWATCH)
    cards, calls = [], []
    for number in range(10):
        name = f"Lamps {number} Ltd"
        await tab.evaluate("(text) => { times[text] = 0; }", name)
        began = time.time() * 1000
        pending = await desk.asks("bank.transfer", to=name, euro=number)
        cards.append(await appeared(tab, name) - began)
        await tab.get_by_role("link", name=name).click()
        await press(answer(tab, "approve"))
        await desk.outcome(pending)
        calls.append(desk.effects[-1][2] * 1000 - await tab.evaluate("() => clicked"))
    for what, found in (("call to card", cards), ("click to resumed call", calls)):
        figure(f"{what}, median of {len(found)}", statistics.median(found), OURS_MS)


async def link_of(gateway: Gateway) -> str:
    """A link that signs in the operator of a gateway in a process of its own."""
    async with httpx2.AsyncClient(trust_env=False, headers=gateway.headers) as http:
        made = await http.post(gateway.address.replace("/mcp", "/api/v1/tickets"))
    return str(made.json()["url"])


async def drops(gateway: Gateway, name: str) -> str:
    """Let the operator's program call the tool that pauses."""
    async with httpx2.AsyncClient(trust_env=False, headers=gateway.headers) as http:
        body = {"tool": "local.drop", "arguments": {"name": name}}
        asked = await http.post(gateway.address.replace("/mcp", "/api/v1/calls"), json=body)
    return str(asked.json()["pending"]["id"])


async def test_a_gateway_killed_before_the_answer_runs_the_call_once(tmp_path: Path, guest: Guest) -> None:
    (tmp_path / "toolpost.yaml").write_text(CONFIG)
    (tmp_path / "tools.py").write_text(TOOLS)
    with reserved_port() as port:
        pass
    with running(tmp_path, "--port", str(port), stopping=True) as gateway:
        ann: ConsoleVisitor = await guest(gateway.address.removesuffix("/mcp"))
        ann.expects_outage = True
        tab = await ann.signs_in(await link_of(gateway))
        pending = await drops(gateway, "orders")
        await tab.goto(f"{ann.home}/approvals/{pending}")
        await expect(answer(tab, "approve")).to_be_visible()
        gateway.process.send_signal(signal.SIGKILL)
    with running(tmp_path, "--port", str(port)) as gateway:
        await expect(tab.get_by_role("heading", name="Your session ended")).to_be_visible()
        tab = await ann.signs_in(await link_of(gateway))
        await tab.goto(f"{ann.home}/approvals/{pending}")
        await press(answer(tab, "approve"))
        await expect(tab.get_by_text("orders is gone")).to_be_visible()

    assert (tmp_path / "dropped").read_text() == "orders\n"


async def test_a_gateway_killed_inside_a_call_asks_whether_it_happened(tmp_path: Path, guest: Guest) -> None:
    (tmp_path / "toolpost.yaml").write_text(CONFIG)
    (tmp_path / "tools.py").write_text(TOOLS)
    with running(tmp_path, stopping=True) as gateway:
        ann: ConsoleVisitor = await guest(gateway.address.removesuffix("/mcp"))
        ann.expects_outage = True
        tab = await ann.signs_in(await link_of(gateway))
        await tab.goto(f"{ann.home}/approvals/{await drops(gateway, 'hangs')}")
        await press(answer(tab, "approve"))
        await expect(tab.get_by_text("Running…")).to_be_visible()
        gateway.process.send_signal(signal.SIGKILL)
    with running(tmp_path) as gateway:
        ben: ConsoleVisitor = await guest(gateway.address.removesuffix("/mcp"))
        tab = await ben.signs_in(await link_of(gateway))
        await menu(tab, "Approvals").click()
        await expect(tab.get_by_text("Outcome unknown").first).to_be_visible()
        await press(tab.get_by_role("button", name="It did not happen"))
        await expect(tab.get_by_text("Answered", exact=True).last).to_be_visible()

    assert (tmp_path / "dropped").read_text() == "hangs\n"


async def test_a_page_that_was_offline_shows_what_it_missed(desk: Desk, ann: ConsoleVisitor) -> None:
    ann.expects_outage = True
    tab = await ann.signs_in(await desk.ticket())
    await menu(tab, "Approvals").click()
    await expect(tab.get_by_text("Nothing waits for an answer.")).to_be_visible()
    await ann.context.set_offline(True)
    await desk.asks("bank.transfer", to="missed", euro=1)
    await ann.context.set_offline(False)

    await expect(tab.get_by_role("article", name="bank.transfer")).to_be_visible()
    await expect(live(tab)).to_be_visible()


async def test_what_a_hostile_tool_writes_is_shown_and_never_run(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack, figure: Figure
) -> None:
    @tool(name="shop.hostile", side_effects="pure", desc=HOSTILE)
    async def hostile(size: int = 5_000_000) -> Any:
        return {"markup": HOSTILE, "long": "x" * size, "rows": [{HOSTILE: HOSTILE}]}

    desk = await closing.enter_async_context(open_desk(tmp_path, hostile))
    ann: ConsoleVisitor = await guest(desk.url, viewport={"width": 1280, "height": 800})
    pending = await desk.asks("mail.send", to=HOSTILE, subject=HOSTILE * 9, text=HOSTILE + "word" * 100_000)
    tab = await ann.signs_in(await desk.ticket())
    await tab.goto(f"{desk.url}/approvals/{pending}")
    await expect(tab.get_by_text("U+202E").first).to_be_visible()
    await ann.settles(tab)
    card = await longest_task(tab)
    found = [await axe(tab), await overflowing(tab)]
    await tab.goto(f"{desk.url}/tools/shop.hostile")
    await tab.get_by_role("button", name="Call", exact=False).first.click()
    await expect(tab.get_by_text("onerror=alert(1)").last).to_be_visible()
    found += [await overflowing(tab)]
    figure("an argument of 400 KB: longest task", card, 100)

    assert json.dumps(found) == "[[], [], []]"
