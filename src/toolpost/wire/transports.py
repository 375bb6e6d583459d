"""The seam between the client, which judges, and a transport, which connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from toolpost.wire.addresses import Address
    from toolpost.wire.headers import Headers, Pairs
    from toolpost.wire.network import Target
    from toolpost.wire.requests import Content


class Route(NamedTuple):
    """The way to one judged address; `host` is what the header field says, `name` what TLS has to verify."""

    scheme: str
    host: str
    name: str
    port: int
    address: Address
    base: str

    @classmethod
    def to(cls, target: Target, address: Address) -> Route:
        """The way to a target that was found at this address."""
        literal = f"[{address}]" if address.version == 6 else str(address)
        base = f"{target.scheme}://{literal}:{target.port}"
        return cls(target.scheme, target.host_header, target.ascii_host, target.port, address, base)


class Outgoing(NamedTuple):
    """One request to one judged address; `path` is what the request line says."""

    method: str
    route: Route
    path: str
    headers: Pairs
    body: Content
    connect_s: float

    @property
    def subject(self) -> str:
        """What an error may tell of it: a path or a query may hold a key."""
        return f"{self.method} {self.route.scheme}://{self.route.host}"


class Incoming(Protocol):
    """An answer whose body is still on its way, as it was sent: nothing is decompressed."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Headers:
        """The header fields."""
        ...

    def take(self) -> bytes | None:
        """All of the body when it is here already; else None, and it comes in chunks."""
        ...

    async def chunk(self) -> bytes:
        """The next part of the body; empty at its end, when the connection is given back."""
        ...

    async def close(self) -> None:
        """Give the connection up, unless all of the body was read."""
        ...


class HttpTransport(Protocol):
    """Sends requests to the addresses it is given and to no others; looks nothing up and follows nothing.

    Failures are errors of the tree: a ToolConnectionError whose `sent` is False only when not one byte can have
    left, a ToolPermissionError when the peer is not the address.
    """

    async def send(self, outgoing: Outgoing) -> Incoming:
        """Send one request and wait for the head of its answer."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
