"""A person in front of a real browser."""

import os
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Locator, Page, Request

from tests.auth.oauth.provider import Browser as Feet
from tests.parts import ROOT
from tests.toolbox.signing_in import CLIENT

# The service is at 127.0.0.1: to a browser that is another site, as it is in life.
SITE = "localhost"
BROWSER_CLIENT = {**CLIENT, "redirect_uris": [f"http://{SITE}/oauth/callback/notes", "http://127.0.0.1/callback/notes"]}
BUTTON = "Continue to sign-in"
MOST_STEPS = 6
PICTURES = ROOT / "docs" / "images"


class Visitor:
    """Somebody with a browser of their own; each page of theirs is a tab."""

    def __init__(self, context: BrowserContext, home: str) -> None:
        self.context = context
        self.home = home
        self.complaints: list[str] = []
        self.callbacks: list[str] = []
        self.sent: list[str] = []
        context.on("console", self._note)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))
        context.on("request", self._remember)

    async def tab(self) -> Page:
        return await self.context.new_page()

    async def opens(self, link: str) -> Page:
        """The page behind a link, in a tab of its own."""
        tab = await self.tab()
        await tab.goto(link)
        return tab

    async def begins(self, link: str) -> Page:
        """As far as the first page of the service."""
        tab = await self.opens(link)
        await press(button(tab))
        return tab

    async def connects(self, link: str) -> Page:
        """All the way, from the link to the last page."""
        tab = await self.begins(link)
        await self.consents(tab)
        return tab

    async def consents(self, tab: Page, *, home: str = "") -> None:
        """Sign in at the service and say yes to everything, until the browser is sent home."""
        for _ in range(MOST_STEPS):
            if tab.url.startswith(home or self.home):
                return
            if await tab.locator("[name=login]").count():
                await tab.locator("[name=login]").fill("alice")
                await tab.locator("[name=password]").fill("x")
            await press(tab.locator("button[type=submit]"))
        raise AssertionError(f"the sign-in never ended: {tab.url}")

    async def comes_as_far_as(self, link: str) -> str:
        """Begin in the browser and sign in at the service; the callback that is then still to be opened."""
        await self.begins(link)
        callback = f"{self.home}/oauth/callback/notes"
        return f"{callback}?{urlencode(await Feet(callback).visit(self.sent[-1]))}"

    async def declines(self, tab: Page) -> None:
        await press(tab.get_by_role("link", name="Cancel"))

    def _note(self, message: ConsoleMessage) -> None:
        ours = message.location["url"].startswith(self.home)
        if ours and not message.text.startswith("Failed to load resource: the server responded"):
            self.complaints.append(message.text)

    def _remember(self, request: Request) -> None:
        brought = dict(parse_qsl(urlsplit(request.url).query))
        if "code_challenge" in brought:
            self.sent.append(request.url)
        elif "state" in brought:
            self.callbacks.append(request.url)


def button(tab: Page) -> Locator:
    return tab.get_by_role("button", name=BUTTON)


async def press(what: Locator) -> None:
    """Press something that leads to another page."""
    async with what.page.expect_navigation():
        await what.click()


async def heading(tab: Page) -> str:
    return await tab.get_by_role("heading", level=1).inner_text()


async def spoken(tab: Page) -> str:
    """The page as a screen reader has it."""
    return await tab.locator("body").aria_snapshot()


async def past_addresses(tab: Page) -> list[str]:
    """All that the tab's history keeps."""
    session = await tab.context.new_cdp_session(tab)
    found = await session.send("Page.getNavigationHistory")
    return [entry["url"] for entry in found["entries"]]


async def secrets_in_page(tab: Page, callback: str) -> list[str]:
    """What a callback brought and the page, its address or its history still has."""
    brought = dict(parse_qsl(urlsplit(callback).query))
    kept = [await tab.content(), tab.url, *await past_addresses(tab)]
    return [name for name in ("code", "state") if any(brought.get(name, "-") in text for text in kept)]


def picture(name: str, folder: Path) -> Path:
    """Where a picture goes: beside the documents when TOOLPOST_SHOTS is 1, and otherwise away."""
    if os.environ.get("TOOLPOST_SHOTS") == "1":
        PICTURES.mkdir(exist_ok=True)
        return PICTURES / name
    return folder / name
