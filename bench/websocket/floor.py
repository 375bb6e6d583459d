"""The floor of a multiplexed call: a bare `websockets` client, and a dict of futures by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect


class RawLink:
    """One connection, and who waits for which id on it."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last = 0

    async def ask(self, message: Mapping[str, str]) -> Any:
        self._last = number = self._last + 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._connection.send(json.dumps({**message, "id": number}))
        return await answer

    async def read(self) -> None:
        async for message in self._connection:
            answer = json.loads(message)
            self._waiting.pop(answer["id"]).set_result(answer)


@asynccontextmanager
async def raw_link(url: str) -> AsyncGenerator[RawLink]:
    async with connect(url) as connection:
        link = RawLink(connection)
        reader = asyncio.create_task(link.read())
        try:
            yield link
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
