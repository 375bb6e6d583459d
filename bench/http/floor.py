"""The floor of an HTTP call: by hand, for this one server, with no limits and no care.

Not a product, and standard library only, so that every environment of peers can run it too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit


class RawApi:
    """An API over kept connections: the last that was given back is taken first."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._rest = f" HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: application/json\r\n\r\n"
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def get(self, path: str, query: Mapping[str, str]) -> Any:
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
        writer.write(f"GET {path}?{urlencode(query)}{self._rest}".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        at = head.index(b"Content-Length: ") + 16
        answer = await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
        self._free.append((reader, writer))
        return json.loads(answer)

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def raw_api(url: str) -> AsyncGenerator[RawApi]:
    api = RawApi(url)
    try:
        yield api
    finally:
        await api.close()
