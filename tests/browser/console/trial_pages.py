"""Every page, in light, in dark and on a phone: nothing to complain about, for axe neither, and a picture of each."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.console.busy import Busy, open_busy_desk
from tests.browser.console.conftest import Guest
from tests.browser.console.visitor import ConsoleVisitor, axe, live, overflowing
from tests.browser.visitor import picture

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs]

SCREEN = {"width": 1440, "height": 900}
DEVICES: dict[str, dict[str, Any]] = {
    "light": {"viewport": SCREEN, "color_scheme": "light"},
    "dark": {"viewport": SCREEN, "color_scheme": "dark"},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "light",
        "has_touch": True,
        "is_mobile": True,
        "device_scale_factor": 2,
    },
}
PAGES = {
    "now": "/",
    "approvals": "/approvals/{pending_id}",
    "approvals-list": "/approvals",
    "runs": "/runs",
    "run": "/runs/{run_id}",
    "tools": "/tools",
    "approvals-change": "/approvals/{change_id}",
    "tool": "/tools/shop.order",
    "tool-schema": "/tools/shop.order?tab=schema",
    "tool-safety": "/tools/bank.transfer?tab=safety",
    "sources": "/sources",
    "source": "/sources/billing",
    "source-add": "/sources/add",
    "accounts": "/accounts",
    "insight": "/insight",
    "audit": "/audit",
    "settings": "/settings/appearance",
    "keys": "/settings/keys",
    "policy": "/settings/policy",
    "sessions": "/settings/sessions",
    "webhooks": "/settings/webhooks",
    "about": "/settings/about",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def busy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Busy]:
    async with open_busy_desk(tmp_path_factory.mktemp("busy")) as busy:
        yield busy


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def signed_in(busy: Busy, chromium: Browser) -> AsyncIterator[Any]:
    """What a browser keeps of a sign-in: one serves all tests, because a gateway takes only some in a minute."""
    async with await chromium.new_context() as context:
        ann = ConsoleVisitor(context, busy.desk.url)
        await ann.signs_in(await busy.desk.ticket())
        yield await context.storage_state()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_clean(
    busy: Busy, guest: Guest, signed_in: Any, name: str, device: str, tmp_path: Path
) -> None:
    ann: ConsoleVisitor = await guest(busy.desk.url, storage_state=signed_in, **DEVICES[device])
    ann.expects_refusals = False
    tab = await ann.opens(PAGES[name].format(pending_id=busy.pending_id, change_id=busy.change_id, run_id=busy.run_id))
    await expect(live(tab).or_(tab.get_by_role("dialog"))).to_be_visible()
    await ann.settles(tab)
    found = [*await axe(tab), *await overflowing(tab)]
    await _take(tab, picture(f"console/{name}-{device}.png", tmp_path))

    assert found == []


async def test_no_page_is_wider_than_320_pixels(busy: Busy, guest: Guest, signed_in: Any) -> None:
    narrow = {"viewport": {"width": 320, "height": 640}, "has_touch": True, "is_mobile": True}
    ann: ConsoleVisitor = await guest(busy.desk.url, storage_state=signed_in, **narrow)
    tab = await ann.opens("/")
    wide: dict[str, list[str]] = {}
    for name, path in PAGES.items():
        await tab.goto(busy.desk.url + path.format(**busy._asdict()))
        await expect(live(tab).or_(tab.get_by_role("dialog"))).to_be_visible()
        await ann.settles(tab)
        if found := await overflowing(tab):
            wide[name] = found

    assert wide == {}


@pytest.mark.parametrize("device", DEVICES)
async def test_the_sign_in_is_clean(busy: Busy, guest: Guest, device: str, tmp_path: Path) -> None:
    stranger: ConsoleVisitor = await guest(busy.desk.url, **DEVICES[device])
    stranger.expects_refusals = False
    tab = await stranger.opens("/")
    await expect(tab.get_by_role("heading", name="Sign in")).to_be_visible()
    await stranger.settles(tab)
    found = [*await axe(tab), *await overflowing(tab)]
    await _take(tab, picture(f"console/sign-in-{device}.png", tmp_path))

    assert found == []


async def _take(tab: Page, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    await tab.screenshot(path=place)
