"""The seam between whoever judges where a WebSocket leads, and whoever opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from toolpost.wire.headers import Pairs
    from toolpost.wire.proxies import Proxy
    from toolpost.wire.transports import Route


class Opening(NamedTuple):
    """One handshake with one judged address; `path` is what the request line says."""

    route: Route
    path: str
    headers: Pairs
    subprotocols: tuple[str, ...]
    max_message_bytes: int
    ping_s: float | None
    proxy: Proxy | None

    @property
    def subject(self) -> str:
        """What an error may tell of it: a path or a query may hold a key."""
        return f"{self.route.scheme}://{self.route.host}"
