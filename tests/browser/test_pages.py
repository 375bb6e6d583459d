"""The pages themselves: what a screen reader, a phone and a browser's own guards make of them."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from tests.browser.conftest import Newcomer, Opening
from tests.browser.visitor import Visitor, button, picture, press, spoken
from tests.toolbox.signing_in import Program

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs]

GUARDS = {
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
}
START = """
- main:
  - heading "Connect Notes of Ann & Co" [level=1]
  - paragraph: Sign in there. Waiting calls then resume automatically.
  - term: User
  - definition: acme:ann
  - term: Tool
  - definition: notes.read_note
  - term: Scopes
  - definition:
    - list:
      - listitem:
        - code: tools.read
      - listitem:
        - code: offline_access
  - paragraph: "Continue only if you are acme:ann. If another person sent you this link, close the page: \
they would act with your account."
  - button "Continue to sign-in"
"""
CONNECTED = """
- main:
  - heading "Connected, you can close this page" [level=1]
  - paragraph: Your account at Notes of Ann & Co is connected. Waiting calls resume automatically.
"""
USED = """
- main:
  - heading "This link has expired" [level=1]
  - paragraph: This link was used or has expired. If the account is not connected, call the tool again.
"""
DECLINED = """
- main:
  - heading "Nothing was connected" [level=1]
  - paragraph: "The sign-in was declined: End-User aborted interaction. Nothing was connected."
  - paragraph: If you did not want to decline, open the link again.
"""
# The least contrast of any text with what lies behind it (WCAG 2.2, 1.4.3: 4.5 for text of this size).
CONTRAST = """
() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    const color = numbers(getComputedStyle(node).backgroundColor);
    return color.length === 4 && color[3] === 0 ? behind(node.parentElement) : color;
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const texts = [...document.querySelectorAll('main *')].filter((node) => node.textContent.trim());
  return Math.min(...texts.map((node) => ratio(light(numbers(getComputedStyle(node).color)), light(behind(node)))));
}
"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def guarded_open(tab: Page, link: str) -> int:
    """Open a link; its status, once all guards were seen to stand."""
    answer = await tab.goto(link)
    assert answer is not None
    headers = await answer.all_headers()
    rules = headers["content-security-policy"]
    assert rules.startswith("default-src 'none'; style-src 'sha256-")
    assert "base-uri 'none'" in rules
    assert "frame-ancestors 'none'" in rules
    assert {name: headers.get(name) for name in GUARDS} == GUARDS
    has_form = await button(tab).count() == 1  # from a page without a referrer it would come with `Origin: null`
    assert headers["referrer-policy"] == ("strict-origin" if has_form else "no-referrer")
    return answer.status


async def test_every_page_is_guarded_has_a_language_and_makes_no_browser_complain(
    program: Program, ann: Visitor
) -> None:
    _, link = await program.asks()
    tab = await ann.tab()
    expected = {link: 200, f"{program.url}/oauth/start": 410, f"{program.url}/oauth/callback/notes?state=x&code=y": 400}

    for address, status in {**expected, f"{program.url}/oauth/else": 404}.items():
        assert await guarded_open(tab, address) == status
        assert await tab.locator("html").get_attribute("lang") == "en"
        assert await tab.title()
        assert await tab.locator("main h1").count() == 1
    assert ann.complaints == []


async def test_a_screen_reader_is_reported_all_of_every_page(program: Program, ann: Visitor) -> None:
    _, link = await program.asks()

    tab = await ann.opens(link)
    assert await spoken(tab) == START.strip()
    await press(button(tab))
    await ann.declines(tab)
    assert await spoken(tab) == DECLINED.strip()
    tab = await ann.connects(link)
    assert await spoken(tab) == CONNECTED.strip()
    await tab.goto(link)
    assert await spoken(tab) == USED.strip()


async def test_the_keyboard_alone_is_enough(program: Program, ann: Visitor) -> None:
    _, link = await program.asks()
    tab = await ann.opens(link)

    await tab.keyboard.press("Tab")
    focused = await tab.evaluate("document.activeElement.textContent")
    outline = await button(tab).evaluate("node => getComputedStyle(node).outlineStyle")
    async with tab.expect_navigation():
        await tab.keyboard.press("Enter")

    assert (focused, outline) == ("Continue to sign-in", "solid")
    assert tab.url.startswith(program.api.issuer)


async def test_on_a_narrow_phone_nothing_sticks_out_however_long_the_names(
    opening: Opening, newcomer: Newcomer
) -> None:
    user = f"acme:{'a' * 120}"
    small: dict[str, Any] = {"viewport": {"width": 320, "height": 568}, "has_touch": True, "is_mobile": True}
    phone: Visitor = await newcomer(**small, extra_http_headers={"X-User": user})
    scopes = ["x" * 200, *(f"files.readwrite.all.{number}" for number in range(30))]
    async with opening(display_name="Wide" * 60, scopes=scopes) as program:
        _, link = await program.asks(user=user)
        tab = await phone.opens(link)
        size: Any = await button(tab).bounding_box()

        assert await tab.evaluate(OVERFLOW) <= 0
        assert size["height"] >= 44
        await button(tab).tap()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_text_stands_out_by_day_and_by_night(program: Program, newcomer: Newcomer, scheme: str) -> None:
    ann: Visitor = await newcomer(color_scheme=scheme)
    _, link = await program.asks()

    tab = await ann.opens(link)
    ratios = [await tab.evaluate(CONTRAST)]
    await tab.goto(f"{program.url}/oauth/callback/notes?state=x")
    ratios.append(await tab.evaluate(CONTRAST))

    assert min(ratios) >= 4.5


async def test_pages_are_pictured_for_the_documents(program: Program, newcomer: Newcomer, tmp_path: Path) -> None:
    ann: Visitor = await newcomer(viewport={"width": 640, "height": 600})
    phone: Visitor = await newcomer(viewport={"width": 360, "height": 640}, color_scheme="dark")
    _, link = await program.asks()
    pictures = {
        name: picture(f"{name}.png", tmp_path) for name in ("connect", "connect-phone", "declined", "connected")
    }

    tab = await ann.opens(link)
    await tab.screenshot(path=pictures["connect"])
    await (await phone.opens(link)).screenshot(path=pictures["connect-phone"])
    await tab.set_viewport_size({"width": 640, "height": 340})
    await press(button(tab))
    await ann.declines(tab)
    await tab.screenshot(path=pictures["declined"])
    await tab.goto(link)
    await press(button(tab))
    await ann.consents(tab)
    await tab.screenshot(path=pictures["connected"])

    assert all(0 < path.stat().st_size < 80_000 for path in pictures.values())
