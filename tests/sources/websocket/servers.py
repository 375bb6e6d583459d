"""Real WebSocket servers on loopback, and boxes that reach them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.patient_settings import PatientSettings
from toolpost import ExternalToolConfig, Toolbox

Handler = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[str]:
    """A server; gives its address."""

    async def handled(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            await handler(connection)

    async with serve(handled, "127.0.0.1", 0, close_timeout=0.1, **options) as server:
        scheme = "wss" if options.get("ssl") else "ws"
        yield f"{scheme}://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def soon(event: asyncio.Event) -> None:
    """Wait for an event, but not for ever: a test that fails has to end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10):
            await event.wait()


async def echo(connection: ServerConnection) -> None:
    """Says every message again, as it came."""
    async for message in connection:
        await connection.send(message)


async def said(connection: ServerConnection) -> None:
    """Says what it was told, as a value under `got`, with the id beside it."""
    async for message in connection:
        got = json.loads(message)
        await connection.send(json.dumps({"id": got.pop("id", None), "got": got}))


def tool(**fields: Any) -> dict[str, Any]:
    return {"side_effects": "read", **fields}


def source(url: str, tools: dict[str, Any], **options: Any) -> ExternalToolConfig:
    """A source named `api`; what is no option of WebSockets is one of the source."""
    own = ("mode", "id_field", "id_type", "reply_id_field", "subprotocols", "format", "max_message_bytes")
    websocket = {"tools": tools, **{key: options.pop(key) for key in own if key in options}}
    return ExternalToolConfig(
        name="api",
        transport="websocket",
        connection=url,
        options=websocket,
        retry_policy={"max_attempts": options.pop("tries", 1)},
        **options,
    )


def toolbox(one: ExternalToolConfig, **more: Any) -> Any:
    return Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[one], **more))


def shared(url: str, tools: dict[str, Any] | None = None, **options: Any) -> Any:
    return source(url, tools or {"ask": tool()}, **{"mode": "multiplexed", "max_concurrency": 100, **options})


class Held:
    """A server that answers when it is told to; `asked` gives its connection with each message."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[ServerConnection, dict[str, Any]]] = asyncio.Queue()
        self.connections: list[ServerConnection] = []

    async def __call__(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        async for message in connection:
            await self.asked.put((connection, json.loads(message)))

    async def next(self) -> tuple[ServerConnection, dict[str, Any]]:
        async with asyncio.timeout(5):
            return await self.asked.get()
