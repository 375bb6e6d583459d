"""An HTTP proxy that an operator names: a tunnel through it to the very address that was judged.

Plain HTTP goes through a tunnel too: a proxy that is given a URL looks its host up by itself, and may find another.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from toolpost.wire.addresses import Address

LONGEST_HEAD = 64 * 1024
_OPENED = re.compile(r"HTTP/1\.[01] 2\d\d(?: |$)")
END_OF_HEAD = b"\r\n\r\n"


class ProxyError(OSError):
    """A proxy that did not open a tunnel; the text says what it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """Where a proxy is, and what it wants to see."""

    host: str
    port: int
    login: str = field(default="", repr=False)

    def request(self, address: Address, port: int) -> bytes:
        """What asks for a tunnel to this address (RFC 9110 section 9.3.6)."""
        there = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
        shown = f"Proxy-Authorization: Basic {self.login}\r\n" if self.login else ""
        return f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{shown}\r\n".encode()

    async def dial(self, address: Address, port: int) -> socket.socket:
        """A connection through the tunnel, on which nothing was sent yet."""
        loop = asyncio.get_running_loop()
        dialled = await self._reached(loop)
        try:
            await loop.sock_sendall(dialled, self.request(address, port))
            head = b""
            while END_OF_HEAD not in head:
                head += await self._more(loop, dialled, len(head))
            check_tunnel(head)
        except BaseException:
            dialled.close()
            raise
        return dialled

    async def _reached(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """A connection to the proxy itself, at the first of its addresses that answers."""
        failed: OSError | None = None
        try:
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ProxyError(f"the proxy {self.host!r} could not be found ({error})") from None
        for family, kind, number, _, where in found:
            dialled = socket.socket(family, kind, number)
            try:
                dialled.setblocking(False)  # noqa: FBT003 - the standard library's way to say it
                await loop.sock_connect(dialled, where)
            except OSError as error:
                failed = error
                dialled.close()
            except BaseException:
                dialled.close()
                raise
            else:
                return dialled
        raise ProxyError(f"no connection to the proxy {self.host}:{self.port} ({failed})")

    async def _more(self, loop: asyncio.AbstractEventLoop, dialled: socket.socket, had: int) -> bytes:
        """One byte at a time: what comes behind the head is not the proxy's to read."""
        piece = await loop.sock_recv(dialled, 1)
        if not piece or had > LONGEST_HEAD:
            raise ProxyError("the proxy closed the connection before it opened a tunnel")
        return piece


@lru_cache(maxsize=64)
def proxy_at(url: str) -> Proxy:
    """Read `network.proxy`; a wrong one is a ConfigError that does not quote its password."""
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
    """Raise what a proxy's answer says, unless it opened the tunnel."""
    line = head.partition(b"\r\n")[0].decode("latin-1")
    if not _OPENED.match(line):
        raise ProxyError(f"the proxy answered {line[:80]!r}, which opens no tunnel")
