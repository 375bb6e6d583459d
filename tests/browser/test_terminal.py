"""`toolpost accounts connect` with a real browser that comes back to this machine, and strays that come before it."""

import asyncio
import re
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.browser.conftest import Newcomer
from tests.browser.visitor import Visitor, heading, spoken
from tests.cli.program import child_environment, command
from tests.toolbox.signing_in import NotesApi, notes_source

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs]
STRAYS = ("", "?a=1&a=1", "?state=x&code=y", "?" + "a=1&" * 99, "?state=x&error=access_denied&error_description=No?")
NO_SCREEN = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}


@asynccontextmanager
async def connecting(home: Path) -> AsyncIterator[tuple[Process, str]]:
    """The program while it waits for a browser, and the address that it shows."""
    line = command("accounts", "connect", "notes", "--json")
    process = await asyncio.create_subprocess_exec(
        *line, cwd=home, env=child_environment(**NO_SCREEN), stdout=PIPE, stderr=PIPE
    )
    try:
        yield process, await asyncio.wait_for(_address(process), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _address(process: Process) -> str:
    assert process.stderr is not None
    said = ""
    async for line in process.stderr:
        said += line.decode()
        if found := re.search(r"http://\S+", said):
            return found[0]
    raise AssertionError(said)


@pytest.mark.req("OAUTH-25")
async def test_strays_spoil_nothing_and_the_browser_of_the_person_connects(
    api: NotesApi, newcomer: Newcomer, tmp_path: Path
) -> None:
    config = {"policy": "exploratory", "sources": [notes_source(api, tmp_path)]}
    (tmp_path / "toolpost.yaml").write_text(yaml.safe_dump(config))
    async with connecting(tmp_path) as (process, address):
        callback = parse_qs(urlsplit(address).query)["redirect_uri"][0]
        ann: Visitor = await newcomer(base_url=callback)
        tab = await ann.tab()
        for stray in STRAYS:
            await tab.goto(f"{callback}{stray}")
            assert await heading(tab) == "This sign-in is not in progress"
        await tab.goto(address)
        await ann.consents(tab)
        out, _ = await asyncio.wait_for(process.communicate(), 60)

    assert (process.returncode, b'"status": "connected"' in out) == (0, True)
    assert 'heading "Connected, you can close this page" [level=1]' in await spoken(tab)
    assert ann.complaints == []
