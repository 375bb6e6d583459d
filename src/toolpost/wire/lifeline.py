"""The host's end of the line to a keeper: one order, one answer, and then silence until either side is gone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Self

_LONGEST_ANSWER = 64


class Lifeline:
    """A socket whose end tells the keeper that its host is gone, and the host that both keepers are.

    Its descriptor is not inherited by any program, so only this process keeps it open.
    """

    def __init__(self, host: socket.socket) -> None:
        self._socket = host

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """The host's end, and the one that the keeper inherits."""
        host, keeper = socket.socketpair()
        host.settimeout(0)
        return cls(host), keeper

    async def ask(self, order: bytes) -> list[str]:
        """Send the order and return the words of the answer; none when the keeper is gone before it has any."""
        loop = asyncio.get_running_loop()
        answer = b""
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(self._socket, order)
            while not answer.endswith(b"\n") and (chunk := await loop.sock_recv(self._socket, _LONGEST_ANSWER)):
                answer += chunk
        return answer.decode("ascii", "replace").split()

    async def ended(self) -> None:
        """Wait until both keepers are gone."""
        with contextlib.suppress(ConnectionError):
            while await asyncio.get_running_loop().sock_recv(self._socket, _LONGEST_ANSWER):
                pass

    def hang_up(self) -> None:
        """Have the keeper end everything; in force even if a forked copy of this process holds the socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up, and stop listening."""
        self.hang_up()
        self._socket.close()
