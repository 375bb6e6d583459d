"""HTTP between processes of this machine over Unix sockets."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence
    from pathlib import Path

_CONNECT_S = 5.0
UnixHttpError = (httpx2.HTTPError, OSError)
"""Errors of a request that gets no reply."""


def listen_unix(path: Path) -> socket.socket:
    """Open a socket at a path, which must be short and free; every user with access to its folder may connect."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen(128)
    return listening


class StreamedReply(NamedTuple):
    """The reply to a request, with a body that is not read yet."""

    status: int
    headers: list[tuple[bytes, bytes]]
    chunks: AsyncIterator[bytes]


@asynccontextmanager
async def unix_request(
    path: Path,
    method: str,
    target: str,
    *,
    headers: Sequence[tuple[str, str]],
    body: bytes = b"",
    timeout_s: float | None = None,
) -> AsyncGenerator[StreamedReply]:
    """Send a request unchanged and yield the reply as it arrives; raise one of `UnixHttpError` if there is none."""
    request = httpx2.Request(method, f"http://localhost{target}", headers=list(headers), content=body or None)
    async with httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(uds=str(path)), timeout=httpx2.Timeout(timeout_s, connect=_CONNECT_S)
    ) as client:
        reply = await client.send(request, stream=True)
        try:
            yield StreamedReply(reply.status_code, list(reply.headers.raw), reply.aiter_raw())
        finally:
            await reply.aclose()
