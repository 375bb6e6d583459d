"""A connection pooler in transaction mode, as far as Toolpost notices: it passes everything on but notifications."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

_NOTIFICATION, _UNENCRYPTED = b"A", b"N"


@contextmanager
def pooler(port: int) -> Generator[int]:
    """The port of a program before the server at a port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, port), daemon=True).start()
        yield listening.getsockname()[1]
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, port: int) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=_forward, args=(client, server), daemon=True).start()
            threading.Thread(target=_filter, args=(server, client), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with source, target, suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


def _filter(server: socket.socket, client: socket.socket) -> None:
    """Pass messages on: a byte for the type, four for the length of the rest.

    Before them, the server answers each request for encryption with one byte.
    """
    begun = False
    with server, client, suppress(OSError), server.makefile("rb") as messages:
        while kind := messages.read(1):
            begun = begun or kind not in _UNENCRYPTED
            if not begun:
                client.sendall(kind)
                continue
            length = messages.read(4)
            rest = messages.read(int.from_bytes(length, "big") - 4)
            if kind != _NOTIFICATION:
                client.sendall(kind + length + rest)
