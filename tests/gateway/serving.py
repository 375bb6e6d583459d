"""The gateway on a real socket, in the process of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from toolpost import Settings, Toolbox, tool
from toolpost.configuration.loading import for_gateway, load_settings
from toolpost.contracts.callers import CallerScope
from toolpost.contracts.principal import Principal
from toolpost.gateway.access import Callers
from toolpost.gateway.caller_keys import new_caller_key
from toolpost.gateway.event_feed import EventFeed
from toolpost.gateway.http import gateway_app, open_callers
from toolpost.gateway.mcp.progress import ProgressRelay
from toolpost.gateway.siblings import Siblings, WorkerPlace
from toolpost.gateway.view_servers import ViewServers
from toolpost.gateway.views import default_view
from toolpost.wire.http_server import listen, serve_until_stopped
from toolpost.wire.unix_http import listen_unix

OPERATOR = "acme:olga"


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    return name


class Served(NamedTuple):
    """A gateway that is being served, and the operator's connection to it."""

    box: Toolbox
    url: str
    http: httpx2.AsyncClient
    feed: EventFeed

    async def key(self, user: str, *scopes: CallerScope, expires_in_s: float | None = None) -> dict[str, str]:
        """The header of a new key."""
        key, text = new_caller_key(user, Principal.parse(user), scopes, by=OPERATOR, expires_in_s=expires_in_s)
        await self.box.store.caller_keys.add(key)
        return {"Authorization": f"Bearer {text}"}


@asynccontextmanager
async def served(
    folder: Path,
    tools: Sequence[Any] = (),
    *,
    sinks: Sequence[Any] = (),
    place: WorkerPlace | None = None,
    config: Path | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve these tools for as long as the test needs; as one of several workers, where it has a `place`.

    With a `config`, the settings are those of this file, which has the `data_dir` of the folder.
    """
    relay, feed = ProgressRelay(), EventFeed()
    with listen("127.0.0.1", 0) as socket, ExitStack() as closing:
        url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        given = Settings(data_dir=folder, **settings) if config is None else for_gateway(load_settings(config))
        opened = Toolbox(tools=tools, settings=given, sinks=[relay, *sinks])
        run = None if place is None else Path(place.folder).name
        async with opened as box, open_callers(box, folder, OPERATOR, host="127.0.0.1", gateway=run) as callers:
            own = () if place is None else (closing.enter_context(listen_unix(place.socket_of(place.number))),)
            siblings = None if place is None else Siblings(place, callers.token)
            if siblings is not None:
                closing.enter_context(siblings.serving())
            app = whole_app(box, callers, url, relay=relay, feed=feed, siblings=siblings)
            bearer = {"Authorization": f"Bearer {(folder / 'token').read_text()}"}
            async with (
                serving(app, socket, *own, on_stop=feed.close, trusted_proxies=box.settings.server.trusted_proxies),
                httpx2.AsyncClient(base_url=url, headers=bearer, trust_env=False, verify=False, timeout=60) as http,
            ):
                yield Served(box, url, http, feed)


def whole_app(
    box: Toolbox,
    callers: Callers,
    url: str,
    *,
    relay: ProgressRelay | None = None,
    feed: EventFeed | None = None,
    siblings: Siblings | None = None,
) -> Any:
    """The application of an open Toolbox, with its default view alone."""
    mcp = ViewServers(box, default_view(box), relay=relay)
    return gateway_app(box, mcp, callers, feed or EventFeed(), public_url=url, siblings=siblings)


@asynccontextmanager
async def listening(app: Any, *, request_s: float = 60) -> AsyncIterator[str]:
    """Serve any application on a free port; gives its address."""
    with listen("127.0.0.1", 0) as socket:
        async with serving(app, socket, request_s=request_s):
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"


@asynccontextmanager
async def serving(
    app: Any,
    *sockets: Any,
    request_s: float = 60,
    on_stop: Callable[[], None] = lambda: None,
    trusted_proxies: Sequence[str] = (),
) -> AsyncIterator[None]:
    """Serve an application on sockets."""
    server = serve_until_stopped(
        app, *sockets, grace_s=1, request_s=request_s, on_stop=on_stop, trusted_proxies=trusted_proxies
    )
    task = asyncio.create_task(server)
    try:
        yield
    finally:
        task.cancel()
        await task
