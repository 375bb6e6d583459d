"""Serve an ASGI application over HTTP, on a socket that is opened here."""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import uvicorn

from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

    from starlette.types import ASGIApp

ListeningSocket: TypeAlias = socket.socket


@contextmanager
def listen(host: str, port: int) -> Generator[socket.socket]:
    """Open the socket that the gateway listens on; ConfigError where the port is taken."""
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port"
        ) from error
    with listening:
        yield listening


async def serve_until_stopped(app: ASGIApp, listening: socket.socket, *, grace_s: int = 10) -> None:
    """Serve until this task is cancelled; requests under way have `grace_s` seconds, or until it is cancelled again."""
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=grace_s, lifespan="on")
    server = _Server(config)
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]))
    while not serving.done():
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.force_exit = server.should_exit
            server.should_exit = True


class _Server(uvicorn.Server):
    """A server that leaves signals to the program that it is part of."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
