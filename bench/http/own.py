"""The contenders in our own environment: the floor, clients that are reused, ours alone, and Toolpost on top of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import httpx2

from bench.core.harness import Contender
from bench.http import names
from bench.http.floor import raw_api
from bench.http.server import DOCUMENT, ECHO
from bench.mcp.endpoint import ARGUMENTS, target
from bench.mcp.seats import USUAL, Call, seated
from toolpost.configuration.settings import LimitSettings, Settings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.outcomes import Completed
from toolpost.contracts.source_kinds import TransportType
from toolpost.toolbox.box import Toolbox
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy

MAX_CONCURRENCY = 100


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    """All of them on the server that was told."""
    url = target()
    async with AsyncExitStack() as stack:
        raw = await stack.enter_async_context(raw_api(url))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        reused = await stack.enter_async_context(httpx2.AsyncClient())
        guarded = await stack.enter_async_context(HttpClient(NetworkPolicy().for_source(url)))
        yield [
            *await seated(names.FLOOR, lambda: raw.get(f"/{ECHO}", ARGUMENTS)),
            *await seated(names.AIOHTTP, _by_aiohttp(session, f"{url}/{ECHO}")),
            *await seated(names.HTTPX, _by_httpx(reused, f"{url}/{ECHO}")),
            *await seated(names.CLIENT, _guarded(guarded, f"{url}/{ECHO}")),
            *await _boxes(stack, url),
        ]


def _by_aiohttp(session: aiohttp.ClientSession, url: str) -> Call:
    async def call() -> Any:
        async with session.get(url, params=ARGUMENTS) as response:
            return await response.json()

    return call


def _by_httpx(client: httpx2.AsyncClient, url: str) -> Call:
    async def call() -> Any:
        return (await client.get(url, params=ARGUMENTS)).json()

    return call


def _guarded(client: HttpClient, url: str) -> Call:
    async def call() -> Any:
        async with await client.send(Request("GET", f"{url}?{urlencode(ARGUMENTS)}")) as response:
            return json.loads(await response.read())

    return call


async def _boxes(stack: AsyncExitStack, url: str) -> list[Contender]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
    found: list[Contender] = []
    for name, data_dir in ((names.MEMORY, None), (names.SQLITE, folder)):
        box = await stack.enter_async_context(Toolbox(settings=settings(url, data_dir)))
        found += await seated(name, through(box), settle=box.store.events.flush)
    return found


def through(box: Toolbox) -> Call:
    """A call of the operation through a box."""

    async def call() -> Completed:
        outcome = await box.call(f"api.{ECHO}", ARGUMENTS)
        if not isinstance(outcome, Completed):
            raise RuntimeError(f"the call under test {outcome.status}: {outcome}")  # noqa: TRY004 - no caller's mistake
        return outcome

    return call


def settings(url: str, data_dir: Path | None) -> Settings:
    """A box with this one source; as many calls at once as are made, since peers have no limit."""
    source = ExternalToolConfig(
        name="api",
        transport=TransportType.HTTP,
        connection=f"{url}{DOCUMENT}",
        max_concurrency=MAX_CONCURRENCY,
        required=True,
    )
    limits = LimitSettings(absolute_max_parallel=USUAL.callers)
    return Settings(data_dir=data_dir, builtins="none", sources=[source], limits=limits)
