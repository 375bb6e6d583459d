"""Sources in the console: added by address, command and preset; not found, mute, changed and accepted again."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.console.busy import CATALOG
from tests.browser.console.conftest import Guest
from tests.browser.console.trial_journeys import link_of
from tests.browser.console.visitor import ConsoleVisitor, answer, axe, menu, overflowing, press
from tests.gateway.running import Gateway, running
from tests.gateway.serving import served
from tests.gateway.test_definitions import POISON, Place, place
from tests.wire.site import Received, Site, reply

__all__ = ["place"]  # a fixture
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

CONFIG = "builtins: []\npolicy: exploratory\n# our sources\nsources: []\n"
SERVER = """
from mcp.server import MCPServer

server = MCPServer("shop")


@server.tool()
def stock(product: str) -> int:
    '''Count a product.'''
    return 7


server.run()
"""


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(tmp_path: Path, closing: AsyncExitStack) -> Gateway:
    (tmp_path / "toolpost.yaml").write_text(CONFIG)
    return closing.enter_context(running(tmp_path))


@pytest_asyncio.fixture(loop_scope="session")
async def drawer(gateway: Gateway, guest: Guest) -> Page:
    """The page of sources with the drawer that adds one."""
    ann: ConsoleVisitor = await guest(gateway.address.removesuffix("/mcp"), viewport={"width": 1280, "height": 900})
    tab = await ann.signs_in(await link_of(gateway))
    await menu(tab, "Sources").click()
    await tab.get_by_role("button", name="Add a source").first.click()
    return tab


@pytest_asyncio.fixture(loop_scope="session")
async def api(closing: AsyncExitStack) -> AsyncIterator[Site]:
    async def reply_to(received: Received, writer: asyncio.StreamWriter) -> None:
        info = {"title": "Catalog", "version": "1"}
        document = {"openapi": "3.1.0", "info": info, "servers": [{"url": site.url}], "paths": CATALOG}
        found = received.path == "/openapi.json"
        body = json.dumps(document if found else {"error": "there is nothing here"}).encode()
        writer.write(reply(200 if found else 404, body, content_type="application/json"))

    async with Site(answer=reply_to) as site:
        yield site


async def looks_at(drawer: Page, what: str) -> None:
    """Give an address, a command or a preset, and let the gateway look."""
    await drawer.get_by_label("A URL, a command, or the name of a preset").fill(what)
    await drawer.get_by_role("button", name="Continue").click()


async def test_an_address_is_detected_tried_and_written_to_the_file(drawer: Page, api: Site, tmp_path: Path) -> None:
    await looks_at(drawer, f"{api.url}/openapi.json")
    await drawer.get_by_label("Name", exact=True).fill("catalog")
    await drawer.get_by_label("Name", exact=True).blur()
    await drawer.get_by_role("button", name="Connect once to look").click()
    await expect(drawer.get_by_text("catalog.create_order")).to_be_visible()
    before = (tmp_path / "toolpost.yaml").read_text()
    await drawer.get_by_role("button", name="Add it", exact=True).click()
    await expect(drawer.get_by_role("row", name="catalog")).to_contain_text("up")

    written = (tmp_path / "toolpost.yaml").read_text()
    assert before == CONFIG
    assert "# our sources" in written
    assert f"{api.url}/openapi.json" in written


async def test_a_command_is_shown_whole_and_started_only_by_a_press(
    drawer: Page, tmp_path: Path, gateway: Gateway
) -> None:
    (tmp_path / "shop.py").write_text(f"open({str(tmp_path / 'started')!r}, 'w').close()\n{SERVER}")
    await looks_at(drawer, shlex.join([sys.executable, str(tmp_path / "shop.py")]))
    await expect(drawer.get_by_text("The gateway starts exactly this program")).to_be_visible()
    words = await drawer.locator("code").all_inner_texts()
    started = (tmp_path / "started").exists()
    await drawer.get_by_role("button", name="Start it once to look").click()
    await expect(drawer.get_by_text("shop.stock")).to_be_visible()
    await drawer.get_by_role("button", name="Only until a restart").click()
    await expect(drawer.get_by_role("row", name="shop")).to_contain_text("up")

    assert [sys.executable, str(tmp_path / "shop.py")] == words[:2]
    assert not started
    assert (tmp_path / "toolpost.yaml").read_text() == CONFIG


async def test_a_preset_shows_its_command_and_its_requirements(drawer: Page) -> None:
    await drawer.get_by_text("Presets", exact=True).click()
    await drawer.get_by_role("button", name="github").click()
    await drawer.get_by_role("button", name="Continue").click()

    await expect(drawer.get_by_text("npx", exact=True)).to_be_visible()
    await expect(drawer.get_by_text("GITHUB_PERSONAL_ACCESS_TOKEN").first).to_be_visible()
    await expect(drawer.get_by_text("Nothing has been started yet.").last).to_be_visible()


async def test_a_failed_detection_names_the_attempts_and_the_next_steps(drawer: Page) -> None:
    async with Site(reply(404, b"there is nothing here")) as site:
        await looks_at(drawer, f"{site.url}/nothing")
        await expect(drawer.get_by_text("With requests that change nothing.")).to_be_visible()
        found = [await axe(drawer), await overflowing(drawer)]

    await expect(drawer.get_by_text(f"{site.url}/nothing/openapi.json")).to_be_visible()
    await expect(drawer.get_by_text("give the address of an API document")).to_be_visible()
    assert found == [[], []]


async def test_a_program_that_never_answers_is_not_added_and_the_page_says_why(drawer: Page, tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text("import time\ntime.sleep(600)\n")
    await looks_at(drawer, shlex.join([sys.executable, str(tmp_path / "mute.py")]))
    await drawer.get_by_role("button", name="Start it once to look").click()

    await expect(drawer.get_by_text("did not answer in time; nothing was added")).to_be_visible(timeout=90_000)


async def test_a_changed_definition_is_compared_accepted_and_the_waiting_call_continues(
    place: Place, guest: Guest, closing: AsyncExitStack
) -> None:
    gate = await closing.enter_async_context(served(place.folder / "data", **place.settings))
    ann: ConsoleVisitor = await guest(gate.url, viewport={"width": 1280, "height": 900})
    call = {"tool": "srv.look"}
    asked = await gate.http.post("/api/v1/calls", json=call, headers=await gate.key("acme:bot", "call"))
    pending = asked.json()["pending"]["id"]
    tab = await ann.signs_in((await gate.http.post("/api/v1/tickets")).json()["url"])
    await menu(tab, "Sources").click()
    await expect(tab.get_by_text("Blocked until the definitions are accepted")).to_be_visible()
    await expect(tab.get_by_text(POISON).first).to_be_visible()
    await ann.settles(tab)
    found = [await axe(tab), await overflowing(tab)]
    await tab.get_by_role("button", name="Accept: srv.look").click()
    await expect(tab.get_by_text("Blocked until the definitions are accepted")).to_have_count(0)
    await tab.goto(f"{gate.url}/approvals/{pending}")
    await expect(tab.get_by_text("Completed in")).to_be_visible()

    assert found == [[], []]


async def test_a_changed_definition_is_accepted_on_the_card_of_the_call(
    place: Place, guest: Guest, closing: AsyncExitStack
) -> None:
    gate = await closing.enter_async_context(served(place.folder / "data", **place.settings))
    ann: ConsoleVisitor = await guest(gate.url, viewport={"width": 1280, "height": 900})
    asked = await gate.http.post("/api/v1/calls", json={"tool": "srv.look"})
    tab = await ann.signs_in((await gate.http.post("/api/v1/tickets")).json()["url"])
    await tab.goto(f"{gate.url}/approvals/{asked.json()['pending']['id']}")
    await expect(tab.get_by_text(POISON).first).to_be_visible()
    await press(answer(tab, "approve"))

    await expect(tab.get_by_text("Completed in")).to_be_visible()
