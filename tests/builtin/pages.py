"""A site on loopback that answers by path, and the guarded way to it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.wire.site import Received, Site, reply
from toolpost.builtin.providers.config import ProviderSettings
from toolpost.builtin.web_client import WebClient
from toolpost.wire.network import NetworkPolicy

HTML = "text/html; charset=utf-8"


@asynccontextmanager
async def site(answers: Mapping[str, bytes] | None = None) -> AsyncGenerator[Site]:
    """Each path (without its query) has an answer; all others are 404."""
    known = answers or {}

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(known.get(received.path.partition("?")[0], reply(404, b"nothing here", content_type="text/plain")))
        await writer.drain()

    async with Site(answer=answer) as running:
        yield running


def allowed(*sites: Site) -> NetworkPolicy:
    """A policy that lets through these sites alone."""
    return NetworkPolicy(allow_hosts=frozenset(f"{one.host}:{one.port}" for one in sites))


@asynccontextmanager
async def web_to(*sites: Site, **limits: Any) -> AsyncGenerator[WebClient]:
    web = WebClient(allowed(*sites), **limits)
    try:
        yield web
    finally:
        await web.close()


def as_json(value: Any, status: int = 200) -> bytes:
    return reply(status, json.dumps(value).encode(), content_type="application/json")


def as_html(text: str, status: int = 200) -> bytes:
    return reply(status, text.encode(), content_type=HTML)


def provider(name: str, **facts: Any) -> ProviderSettings:
    """A provider as configuration names it."""
    return ProviderSettings.model_validate({"provider": name, **facts})
