"""One browser for all tests of a process, and a host whose Toolbox needs accounts of people's own."""

import shlex
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fastapi import FastAPI
from playwright.async_api import Browser, async_playwright

from tests import parts
from tests.auth.oauth.provider import provider
from tests.browser.visitor import BROWSER_CLIENT, SITE, Visitor
from tests.toolbox.signing_in import NotesApi, Program, address, logged_in, notes_source, served, toolbox
from toolpost.toolbox.callback_app import callback_app

# Pages of others ask for fonts from elsewhere; nothing leaves this machine. One name is that of a public gateway.
PUBLIC = "console.acme.example"
REACHED = ("localhost", "*.localhost", "127.0.0.1")
NOWHERE = f"--host-resolver-rules=MAP {PUBLIC} 127.0.0.1, MAP * ~NOTFOUND" + "".join(
    f", EXCLUDE {one}" for one in REACHED
)
# Suggestions below the address bar are pages as well, which no test sees and which cost two thirds of each window. The
# last list of features on a command line is the only one, so these go into Playwright's own.
PLAIN = """#!/bin/bash
exec {chromium} "${{@/#--disable-features=/--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,}}"
"""
PATIENCE_MS = 30_000


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    plain = tmp_path_factory.mktemp("browser") / "chromium"
    try:
        plain.write_text(PLAIN.format(chromium=shlex.quote(str(parts.chromium()))))
    except parts.PartMissingError as missing:
        pytest.skip(f"NOT TESTED in a real browser: {missing}")
    plain.chmod(0o700)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=plain, args=[NOWHERE])
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def issuer() -> Iterator[str]:
    with provider(BROWSER_CLIENT) as issuer:
        yield issuer


@pytest_asyncio.fixture(loop_scope="session")
async def api(issuer: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NotesApi]:
    monkeypatch.setenv("NOTES_CLIENT_SECRET", BROWSER_CLIENT["client_secret"])
    async with NotesApi(issuer) as api:
        yield api


@pytest.fixture
def place() -> Iterator[tuple[str, socket.socket]]:
    with address() as (url, listening):
        yield url.replace("127.0.0.1", SITE), listening


Opening = Callable[..., Any]


@pytest.fixture
def opening(api: NotesApi, place: tuple[str, socket.socket], tmp_path: Path) -> Opening:
    """Opens a host; what is given goes into `auth_config`."""
    url, listening = place

    @asynccontextmanager
    async def open_host(accounts: dict[str, Any] | None = None, **auth: Any) -> AsyncIterator[Program]:
        async with toolbox(notes_source(api, tmp_path, **auth), url, **accounts or {}) as box:
            host = FastAPI()
            host.mount("/oauth", callback_app(box, identify=logged_in))
            async with served(host, listening):
                yield Program(box, api, url)

    return open_host


@pytest_asyncio.fixture(loop_scope="session")
async def program(opening: Opening) -> AsyncIterator[Program]:
    async with opening() as program:
        yield program


Newcomer = Callable[..., Any]


@pytest_asyncio.fixture(loop_scope="session")
async def newcomer(chromium: Browser, place: tuple[str, socket.socket]) -> AsyncIterator[Newcomer]:
    """Makes people, each with cookies of their own."""
    async with AsyncExitStack() as leaving:

        async def come(**settings: Any) -> Visitor:
            context = await chromium.new_context(**settings)
            leaving.push_async_callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            return Visitor(context, settings.get("base_url") or place[0])

        yield come


@pytest_asyncio.fixture(loop_scope="session")
async def ann(newcomer: Newcomer) -> Visitor:
    visitor: Visitor = await newcomer()
    return visitor
