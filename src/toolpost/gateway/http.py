"""The gateway over HTTP: MCP at `/mcp`, for callers who show the token of this data folder."""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from toolpost.gateway.mcp_server import McpServer

_MAX_BODY = 4_000_000
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_OPEN = frozenset({"/healthz"})


def local_token(folder: Path) -> str:
    """Return the operator's token of a data folder, which only its owner can read; make one where there is none."""
    path = folder / "token"
    with suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").strip()
    token = secrets.token_urlsafe(32)
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    return path.read_text(encoding="ascii").strip()


def gateway_app(mcp: McpServer, *, token: str | None) -> ASGIApp:
    """Return the ASGI application of the gateway; without a token every caller is let in."""
    hosts = [f"{host}:*" for host in _LOOPBACK]
    sessions = StreamableHTTPSessionManager(
        app=mcp.server,
        max_request_body_size=_MAX_BODY,
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=hosts,
            allowed_origins=[f"http://{host}" for host in hosts],
        ),
    )

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with mcp.publishing(), sessions.run():
            yield

    async def healthz(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    app = Starlette(
        routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(sessions)), Route("/healthz", endpoint=healthz)],
        lifespan=lifespan,
    )
    return app if token is None else RequireToken(app, token)


class RequireToken:
    """ASGI middleware that refuses requests without the bearer token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        body: dict[str, Any] = {"error": "invalid_token", "error_description": "send `Authorization: Bearer TOKEN`"}
        await JSONResponse(body, 401, headers={"WWW-Authenticate": "Bearer"})(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)
