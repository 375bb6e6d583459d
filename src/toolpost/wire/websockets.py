"""Guarded WebSocket connections: a URL is judged before anything is connected to, and nothing leads elsewhere."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Protocol

from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolValidationError
from toolpost.wire.guard import WEBSOCKET_SCHEMES, parse_target
from toolpost.wire.headers import clean_headers
from toolpost.wire.network import host_header
from toolpost.wire.openings import Opening
from toolpost.wire.proxies import proxy_at
from toolpost.wire.steps import request_path
from toolpost.wire.transports import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import NoReturn

    from toolpost.wire.guard import Resolver
    from toolpost.wire.headers import HeaderInput, Pairs
    from toolpost.wire.network import NetworkPolicy

    Opener = Callable[[Opening], Awaitable["WebSocket"]]

MESSAGE_BYTES = 16 * 1024 * 1024
CONNECT_S = 10.0
PING_S = 30.0

_NEXT_ADDRESS_S = 2.0  # an address that swallows packets must not use up the time of the others
_OWN_HEADERS = "sec-websocket-"
_DEFAULT_HEADERS = (("Accept-Encoding", "identity"), ("User-Agent", "toolpost"))
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class WebSocket(Protocol):
    """One open connection, for one reader and any number of senders."""

    @property
    def subprotocol(self) -> str | None:
        """The one that the server chose of those that were offered, if it chose one."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        ...

    @property
    def ended_well(self) -> bool:
        """Whether the server has said, by a close frame, that all is over and as it should be."""
        ...

    def post(self, message: str) -> bool:
        """Send a short text without waiting, as `send` does; False, and nothing sent, when it has to be waited for."""
        ...

    async def send(self, message: str | bytes) -> None:
        """Send a text or a binary message, in its turn.

        A ToolConnectionError has `sent=False` when the connection was closed before any of it could leave. Of a
        message that is given up before `send` is done, nothing has left, and nobody else's message is touched.
        """
        ...

    async def receive(self) -> str | bytes:
        """The next message, whole: a text or a binary one; pings are answered meanwhile.

        It waits for as long as it takes; being cancelled loses no message. A closed or broken connection is a
        ToolConnectionError (`sent=True`) that tells the close code and its reason, a message above the limit is
        a ToolClientError with the code `response_too_large`, and closes the connection.
        """
        ...

    async def listen(self, take: Callable[[str | bytes], object]) -> NoReturn:
        """Hand out every message as it comes, without a turn of the loop between; `take` may neither wait nor fail.

        It ends as `receive` does, whom it takes the place of.
        """
        ...

    async def close(self) -> None:
        """Say goodbye, wait a moment for the server's, and let go; safe to call twice."""
        ...


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

    A proxy that the policy names carries it there. Redirects are not followed. `timeout_s` is for all of it, the
    handshake included; `max_message_bytes` limits each message that comes, after decompression; after `ping_s` of
    silence the server is asked whether it is there.

    What fails is a ToolPermissionError where the address is refused, a ToolAuthError or whatever else a status stands
    for where the server refuses the handshake, a ToolConnectionError with `sent=False` otherwise: a handshake is
    a GET, and no message has left.
    """
    opener = require_websockets()
    target = parse_target(url, schemes=WEBSOCKET_SCHEMES)
    fields, offered = _sendable(headers, subprotocols)
    path = request_path(url)
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await policy.resolve(target, resolver=resolver, timeout_s=timeout_s)
            proxy = None if policy.proxy is None else proxy_at(policy.proxy)
            rest = (path, fields, offered, max_message_bytes, ping_s, proxy)
            return await _first_of([Opening(Route.to(target, address), *rest) for address in addresses], opener)
    except TimeoutError:
        message = f"{target.scheme}://{host_header(target)}: no connection within {timeout_s:g} s"
        raise ToolConnectionError(message, sent=False) from None


def require_websockets() -> Opener:
    """What opens connections; a ConfigError where it is not installed."""
    try:
        from toolpost.wire.aiohttp_websockets import open_websocket  # noqa: PLC0415 - an extra, 0.2 s to import
    except ImportError as missing:
        raise ConfigError("WebSockets need aiohttp; run: pip install 'toolpost[websocket]'") from missing
    return open_websocket


def _sendable(headers: HeaderInput, subprotocols: Sequence[str]) -> tuple[Pairs, tuple[str, ...]]:
    """Header fields and subprotocols as they may be sent; what belongs to the handshake is not for callers to say."""
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


async def _first_of(openings: list[Opening], opener: Opener) -> WebSocket:
    """The connection to the first address that answers."""
    for opening in openings[:-1]:
        try:
            async with asyncio.timeout(_NEXT_ADDRESS_S):
                return await opener(opening)
        except TimeoutError:
            continue
        except ToolConnectionError as failed:
            if not failed.is_retryable:
                raise
    return await opener(openings[-1])
