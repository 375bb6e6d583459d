"""The same server over streamable HTTP: `python -m bench.mcp.http_server` prints its address and serves.

Every request has a length, every answer is JSON and never a stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from bench.mcp.server import Answers

SESSION = b"bench"


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._waiting = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        while (taken := request_in(self._waiting)) is not None:
            method, body, size = taken
            self._waiting = self._waiting[size:]
            reply = self._reply(method, body)
            if reply is not None:
                self._transport.write(reply)

    def _reply(self, method: bytes, body: bytes) -> bytes | None:
        if method != b"POST":
            return http_answer(b"200 OK" if method == b"DELETE" else b"405 Method Not Allowed")
        message = json.loads(body)
        answer = self._answers.to(message)
        if answer is not None:
            return http_answer(b"200 OK", answer)
        return http_answer(b"202 Accepted") if "id" not in message else None


def request_in(data: bytes) -> tuple[bytes, bytes, int] | None:
    """Method, body and size of the first whole request."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end].lower()
    at = head.find(b"content-length:")
    length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    size = end + 4 + length
    return (data[: data.index(b" ")], data[end + 4 : size], size) if len(data) >= size else None


def http_answer(status: bytes, body: bytes = b"") -> bytes:
    kind = b"Content-Type: application/json\r\n" if body else b""
    return b"HTTP/1.1 %b\r\n%bMcp-Session-Id: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        kind,
        SESSION,
        len(body),
        body,
    )


async def onhttp_answer(answers: Answers) -> None:
    """Serve on a free port of loopback until stdin ends, so that no server outlives who started it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answers), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=2, help="how many tools there are")
    asyncio.run(onhttp_answer(Answers(parser.parse_args().tools)))


if __name__ == "__main__":
    main()
