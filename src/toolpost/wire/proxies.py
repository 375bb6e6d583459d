"""HTTP proxies: every connection is a tunnel, also for plain HTTP.

A proxy that gets a URL resolves the host itself, perhaps to an address that the guard has not checked.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.records import represent

if TYPE_CHECKING:
    from toolpost.wire.addresses import Address

MAX_HEAD_BYTES = 64 * 1024
_OPENED = re.compile(r"HTTP/1\.[01] 2\d\d(?: |$)")
END_OF_HEAD = b"\r\n\r\n"


class Proxy(Struct, frozen=True, kw_only=True):
    """Host, port and login of a proxy."""

    host: str
    port: int
    login: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("login",))

    def connect_request(self, address: Address, port: int) -> bytes:
        """Build the CONNECT request for a tunnel to an address (RFC 9110 section 9.3.6)."""
        there = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
        shown = f"Proxy-Authorization: Basic {self.login}\r\n" if self.login else ""
        return f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{shown}\r\n".encode()

    async def dial(self, address: Address, port: int) -> socket.socket:
        """Open a tunnel to an address and return its socket, on which nothing is sent yet."""
        loop = asyncio.get_running_loop()
        connection = await self._connect(loop)
        try:
            await loop.sock_sendall(connection, self.connect_request(address, port))
            head = b""
            while END_OF_HEAD not in head:
                head += await self._read_byte(loop, connection, len(head))
            check_tunnel(head)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Connect to the first address of the proxy that answers."""
        failed: OSError | None = None
        try:
            addresses = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ProxyError(f"the proxy {self.host!r} could not be found ({error})") from None
        for family, kind, number, _, where in addresses:
            connection = socket.socket(family, kind, number)
            try:
                connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
                await loop.sock_connect(connection, where)
            except OSError as error:
                failed = error
                connection.close()
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        raise ProxyError(f"no connection to the proxy {self.host}:{self.port} ({failed})")

    async def _read_byte(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, had: int) -> bytes:
        """Read one byte: bytes after the head belong to the tunnel."""
        piece = await loop.sock_recv(connection, 1)
        if not piece or had > MAX_HEAD_BYTES:
            raise ProxyError("the proxy closed the connection before it opened a tunnel")
        return piece


class ProxyError(OSError):
    """Raised if a proxy does not open a tunnel; the text contains the proxy's answer."""


@lru_cache(maxsize=64)
def parse_proxy(url: str) -> Proxy:
    """Parse `network.proxy`; raise a ConfigError that does not quote the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    odd = parts.path not in ("", "/") or parts.query or parts.fragment or not url.isprintable() or port == 0
    if parts.scheme != "http" or not parts.hostname or odd:
        raise ConfigError("network.proxy: write it as http://host:port, or http://user:password@host:port")
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username else ""
    return Proxy(host=parts.hostname, port=port or 3128, login=base64.b64encode(pair.encode()).decode())


def check_tunnel(head: bytes) -> None:
    """Raise ProxyError unless the response of a proxy opened the tunnel."""
    line = head.partition(b"\r\n")[0].decode("latin-1")
    if not _OPENED.match(line):
        raise ProxyError(f"the proxy answered {line[:80]!r}, which opens no tunnel")
