"""What stands in for the network in tests of the guard."""

import errno
import socket
from collections.abc import Collection
from ipaddress import ip_address
from typing import Any

import pytest

from toolpost.wire.addresses import refusal_reason


class StubResolver:
    """Answers like `loop.getaddrinfo`, one list of addresses a look-up; the last one stays."""

    def __init__(self, *lookups: list[str]) -> None:
        self.lookups = list(lookups)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int, /, *, type: int) -> list[tuple[Any, ...]]:
        self.asked.append((host, port))
        addresses = self.lookups.pop(0) if len(self.lookups) > 1 else self.lookups[0]
        return [(0, type, 6, "", (address, port)) for address in addresses]


class Dialled:
    """Notes every address that a socket is told to connect to, and lets only some of the connections happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, real: Collection[int] = ()) -> None:
        self.addresses: list[str] = []
        connect = socket.socket.connect

        def spy(sock: socket.socket, address: Any) -> None:
            if address[1] in real:
                connect(sock, address)
                return
            self.addresses.append(address[0])
            raise ConnectionRefusedError(errno.ECONNREFUSED, "a test lets nobody through")

        monkeypatch.setattr(socket.socket, "connect", spy)

    def leaks(self) -> list[str]:
        """Those that are not public."""
        return [address for address in self.addresses if refusal_reason(ip_address(address))]
