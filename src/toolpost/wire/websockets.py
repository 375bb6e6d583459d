"""Guarded WebSocket connections: the guard judges a URL's addresses before connecting; redirects are not followed."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolValidationError
from toolpost.wire.messages import HeaderInput, Pairs, clean_headers, request_path
from toolpost.wire.network import (
    NEXT_ADDRESS_S,
    WEBSOCKET_SCHEMES,
    NetworkPolicy,
    Resolver,
    Route,
    parse_proxy,
    parse_target,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolpost.wire.aiohttp_websockets import WebSocket

    Opener = Callable[..., Awaitable[WebSocket]]

MESSAGE_BYTES = 16 * 1024 * 1024
CONNECT_S = 10.0
PING_S = 30.0

_OWN_HEADERS = "sec-websocket-"
_DEFAULT_HEADERS = (("Accept-Encoding", "identity"), ("User-Agent", "toolpost"))
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


async def connect_websocket(
    url: str,
    *,
    policy: NetworkPolicy,
    headers: HeaderInput = (),
    subprotocols: Sequence[str] = (),
    timeout_s: float = CONNECT_S,
    max_message_bytes: int = MESSAGE_BYTES,
    ping_s: float | None = PING_S,
    resolver: Resolver | None = None,
) -> WebSocket:
    """Connect to a `ws` or `wss` URL; its name is looked up once, and only an address that was judged is connected to.

    Uses the policy's proxy, if it has one. `timeout_s` covers the look-up, the connection and the handshake;
    `max_message_bytes` limits each received message after decompression; a server that is silent for `ping_s`
    is sent a ping.

    Raises a ToolPermissionError when the address is refused, the error of the status (such as a ToolAuthError) when
    the server refuses the handshake, and otherwise a ToolConnectionError with `sent=False`: a handshake is a GET,
    and no message has left.
    """
    opener = require_websockets()
    target = parse_target(url, schemes=WEBSOCKET_SCHEMES)
    fields, offered = _sendable(headers, subprotocols)
    path = request_path(url)
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await policy.resolve(target, resolver=resolver, timeout_s=timeout_s)
            proxy = None if policy.proxy is None else parse_proxy(policy.proxy)
            open_at = partial(
                opener,
                path=path,
                headers=fields,
                subprotocols=offered,
                max_message_bytes=max_message_bytes,
                ping_s=ping_s,
                proxy=proxy,
            )
            return await _open_first([Route.to(target, address) for address in addresses], open_at)
    except TimeoutError:
        message = f"{target.scheme}://{target.host_header}: no connection within {timeout_s:g} s"
        raise ToolConnectionError(message, sent=False) from None


def require_websockets() -> Opener:
    """Import aiohttp and return what opens connections; a ConfigError says how to install it."""
    try:
        from toolpost.wire.aiohttp_websockets import open_websocket  # noqa: PLC0415 - an extra, 0.2 s to import
    except ImportError as missing:
        raise ConfigError("WebSockets need aiohttp; run: pip install 'toolpost[websocket]'") from missing
    return open_websocket


def _sendable(headers: HeaderInput, subprotocols: Sequence[str]) -> tuple[Pairs, tuple[str, ...]]:
    """Return header fields and subprotocols as they may be sent; callers cannot set the handshake's own fields."""
    fields = clean_headers(headers, defaults=_DEFAULT_HEADERS)
    issues = [
        f"header {name!r} belongs to the handshake; subprotocols have a setting of their own"
        for name, _ in fields
        if name.lower().startswith(_OWN_HEADERS)
    ]
    if not all(map(_TOKEN.fullmatch, subprotocols)):
        issues.append("a subprotocol has a character that none may have; letters, digits, dots and dashes are safe")
    if issues:
        raise ToolValidationError(issues)
    return fields, tuple(subprotocols)


async def _open_first(routes: list[Route], open_at: Opener) -> WebSocket:
    """Open a connection to the first address that answers."""
    for route in routes[:-1]:
        try:
            async with asyncio.timeout(NEXT_ADDRESS_S):
                return await open_at(route)
        except TimeoutError:
            continue
        except ToolConnectionError as failed:
            if not failed.is_retryable:
                raise
    return await open_at(routes[-1])
