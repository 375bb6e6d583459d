"""Peers that make tools of an OpenAPI document: utcp-http and FastMCP's from_openapi, with the floor beside them."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.request import urlopen

import httpx2
from fastmcp import FastMCP
from utcp.utcp_client import UtcpClient  # type: ignore[import-not-found]

from bench.core.harness import Contender
from bench.http import names
from bench.http.floor import raw_api
from bench.http.server import DOCUMENT, ECHO
from bench.mcp.endpoint import ARGUMENTS, target
from bench.mcp.seats import seated

# utcp has every library tell of every request, on stderr, in its own time and in FastMCP's.
logging.getLogger().setLevel(logging.WARNING)


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    url = target()
    with urlopen(f"{url}{DOCUMENT}") as answer:  # noqa: ASYNC210 - our own server, before anything is measured
        described = json.load(answer)
    manual = {"name": "api", "call_template_type": "http", "http_method": "GET", "url": f"{url}{DOCUMENT}"}
    async with AsyncExitStack() as stack:
        raw = await stack.enter_async_context(raw_api(url))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=url))
        server = FastMCP.from_openapi(described, client=client)
        utcp = await UtcpClient.create(config={"manual_call_templates": [manual]})
        yield [
            *await seated(names.FLOOR_PEERS, lambda: raw.get(f"/{ECHO}", ARGUMENTS)),
            *await seated(names.UTCP, lambda: utcp.call_tool(f"api.{ECHO}", ARGUMENTS)),
            *await seated(names.FASTMCP, lambda: server.call_tool(ECHO, ARGUMENTS)),
        ]
