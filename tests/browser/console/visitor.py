"""A person in front of the console in a real browser, who notes everything that a page must not do."""

import asyncio
import json
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Locator, Page, Request, expect

from tests.parts import ROOT

AXE = ROOT / "console/node_modules/axe-core/axe.min.js"
# Violations of WCAG A and AA, and of what axe calls best practice.
AXE_RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(
  (found) => `${found.id}: ${found.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", ")}`)"""
WATCHES = """
addEventListener("securitypolicyviolation", (event) =>
  noteComplaint(`CSP: ${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
window.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((entry) => entry.duration)))
  .observe({ type: "longtask", buffered: true });
"""
# What lies beyond the right edge of the screen, without the boxes that scroll by themselves.
OVERFLOWING = """() => {
  const own = (node) => /(auto|scroll|hidden|clip)/.test(getComputedStyle(node).overflowX);
  const scrolls = (node) => node && (own(node) || scrolls(node.parentElement));
  const isWide = (node) => node.getBoundingClientRect().right > innerWidth + 1 && !scrolls(node.parentElement);
  const wide = [...document.body.querySelectorAll("*")].filter(isWide);
  return [...(document.documentElement.scrollWidth > innerWidth ? ["the page scrolls sideways"] : []),
          ...wide.slice(0, 3).map((node) => node.outerHTML.slice(0, 120))];
}"""
STILL = """() => {
  const moves = (one) => one.playState === "running" && one.effect.getTiming().iterations !== Infinity;
  return !document.querySelector('[aria-busy="true"]') && !document.getAnimations().some(moves);
}"""
# Scrolls a list by several screens a frame, until it was at its end for a while; gives the number of the last row.
SCROLL = """async ([label, most]) => {
  const list = document.querySelector(`ul[aria-label="${label}"]`);
  let view = list;
  while (!/(auto|scroll)/.test(getComputedStyle(view).overflowY)) view = view.parentElement;
  let last = 0;
  for (let waited = 0; waited < 100 && last < most;) {
    const before = view.scrollTop;
    view.scrollTop += 5 * view.clientHeight;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, view.scrollTop > before ? 0 : 20)));
    waited = view.scrollTop > before ? 0 : waited + 1;
    for (const row of list.children) last = Math.max(last, Number(row.getAttribute("aria-posinset")));
  }
  return last;
}"""
REFUSAL = "Failed to load resource: the server responded"
UNREACHABLE = "Failed to load resource: net::ERR_"


class ConsoleVisitor:
    """Somebody with a browser of their own at one console; `allowed` are other hosts that their pages may ask."""

    def __init__(self, context: BrowserContext, home: str) -> None:
        self.context = context
        self.home = home
        self.complaints: list[str] = []
        self.allowed = {urlsplit(home).netloc}
        self.expects_outage = False
        self.expects_refusals = True
        self._loading: set[Request] = set()
        self._idle = asyncio.Event()

    async def watch(self) -> None:
        """Note violations of the CSP, errors, dialogs and requests to other hosts, on every page from now on."""
        self.context.on("console", self._note)
        self.context.on("weberror", lambda error: self.complaints.append(f"error: {error.error}"))
        self.context.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.context.on("request", self._begin)
        self.context.on("requestfinished", self._end)
        self.context.on("requestfailed", self._end)
        await self.context.expose_binding("noteComplaint", self._note_text)
        await self.context.add_init_script(WATCHES)

    async def opens(self, path: str = "/") -> Page:
        """A page of the console, or one behind a whole link, in a tab of its own."""
        tab = await self.context.new_page()
        await tab.goto(path if path.startswith("http") else f"{self.home}{path}")
        return tab

    async def signs_in(self, link: str) -> Page:
        """Open the console by the link of a ticket."""
        tab = await self.opens(link)
        await expect(live(tab)).to_be_visible()
        return tab

    async def signs_in_with(self, key: str, path: str = "/") -> Page:
        """Open a page of the console and sign in there with a key."""
        tab = await self.opens(path)
        await enters(tab, key)
        await expect(live(tab)).to_be_visible()
        return tab

    def _note_text(self, _source: Any, text: str) -> None:
        self.complaints.append(text)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning", "assert") or not self._is_own(message.location["url"]):
            return
        refused = self.expects_refusals and message.text.startswith(REFUSAL)
        expected = refused or (self.expects_outage and message.text.startswith(UNREACHABLE))
        if not expected:
            self.complaints.append(f"{message.type}: {message.text}")

    async def settles(self, tab: Page) -> None:
        """Wait until a page has what it asked for, and nothing on it loads or moves any more."""
        await expect(tab.locator("h1").first).to_be_attached()
        async with asyncio.timeout(30):
            await self._idle.wait()
        await tab.wait_for_function(STILL)

    def _end(self, request: Request) -> None:
        self._loading.discard(request)
        if not self._loading:
            self._idle.set()

    def _begin(self, request: Request) -> None:
        asked = urlsplit(request.url)
        if not asked.path.endswith("/events"):  # the stream of events never ends
            self._loading.add(request)
            self._idle.clear()
        if asked.scheme in ("http", "https", "ws", "wss") and asked.netloc not in self.allowed:
            self.complaints.append(f"a request to another host: {request.url}")

    def _is_own(self, url: str) -> bool:
        return urlsplit(url).netloc in ("", urlsplit(self.home).netloc)


async def press(what: Locator) -> None:
    """Press an answer of a card: for so long that the card was on the screen for a while, before which none counts."""
    await what.click(delay=450)


def answer(tab: Page, decision: str) -> Locator:
    """The button of an answer below a card."""
    return tab.locator(f"[data-answer={decision}]")


def menu(tab: Page, page: str) -> Locator:
    """The link to a page in the main navigation."""
    return tab.get_by_role("navigation", name="Main").get_by_role("link", name=page)


def live(tab: Page) -> Locator:
    """The mark that events arrive; a phone has none, so there it is the bar, or on a card the way back."""
    button = partial(tab.get_by_role, "button", exact=True)
    return button(name="Live").or_(button(name="More")).or_(button(name="Back")).first


async def enters(tab: Page, key: str) -> None:
    """Sign in with a key, where the page asks for one."""
    await tab.get_by_label("Key", exact=True).fill(key)
    await tab.get_by_role("button", name="Sign in", exact=True).click()


async def consents(tab: Page, home: str) -> None:
    """Sign in at oidc-provider as alice and agree, until the browser is sent home."""
    for _ in range(6):
        if tab.url.startswith(home):
            return
        if await tab.locator("[name=login]").count():
            await tab.locator("[name=login]").fill("alice")
            await tab.locator("[name=password]").fill("x")
        async with tab.expect_navigation():
            await tab.locator("button[type=submit]").click()
    raise AssertionError(f"the sign-in never ended: {tab.url}")


async def axe(tab: Page) -> list[str]:
    """What axe finds on a page."""
    if not await tab.evaluate("() => 'axe' in window"):
        await tab.evaluate(_axe_source())
    found: list[str] = await tab.evaluate(AXE_RUN)
    return found


async def overflowing(tab: Page) -> list[str]:
    """What of a page lies beyond its right edge."""
    found: list[str] = await tab.evaluate(OVERFLOWING)
    return found


async def longest_task(tab: Page) -> float:
    """The longest task since the page was opened, in milliseconds; 0 if none took 50."""
    found: float = await tab.evaluate("() => Math.max(0, ...longTasks)")
    return found


async def scrolls(tab: Page, label: str, rows: int) -> int:
    """Scroll a list over so many rows; gives the number of the last one on the screen."""
    found: int = await tab.evaluate(SCROLL, [label, rows])
    return found


async def storage(tab: Page) -> dict[str, Any]:
    """All that a page keeps in the browser."""
    text: str = await tab.evaluate("() => JSON.stringify({...localStorage, ...sessionStorage})")
    found: dict[str, Any] = json.loads(text)
    return found


@cache
def _axe_source() -> str:
    return f"{AXE.read_text(encoding='utf-8')};0"
