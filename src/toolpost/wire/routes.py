"""Routes to the addresses that the guard allowed, with TLS, peer checks and errors of connecting."""

from __future__ import annotations

import os
import ssl
from functools import cache
from ipaddress import ip_address
from typing import Any, NamedTuple

from toolpost.contracts.errors import ErrorCategory, ToolConnectionError, ToolPermissionError
from toolpost.wire.addresses import Address, unmap_ipv4
from toolpost.wire.proxies import Proxy, ProxyError
from toolpost.wire.targets import REFUSED, Target

NEXT_ADDRESS_S = 2.0  # an address that drops packets must not use up the time of the others
_SECURE = frozenset({"https", "wss"})


class Route(NamedTuple):
    """A target at one address that the guard allowed; TLS verifies `name`, `host` is the Host header field."""

    scheme: str
    host: str
    name: str
    port: int
    address: Address
    base: str

    @classmethod
    def to(cls, target: Target, address: Address) -> Route:
        """Build the route to a target at one of its addresses."""
        literal = f"[{address}]" if address.version == 6 else str(address)
        base = f"{target.scheme}://{literal}:{target.port}"
        return cls(target.scheme, target.host_header, target.ascii_host, target.port, address, base)

    async def connect_options(self, proxy: Proxy | None) -> dict[str, Any]:
        """Return the arguments of `create_connection`: the address or a tunnel to it, and TLS if needed."""
        secure = {"ssl": ssl_context(), "server_hostname": self.name} if self.scheme in _SECURE else {}
        if proxy is None:
            return {"host": str(self.address), "port": self.port, **secure}
        return {"sock": await proxy.dial(self.address, self.port), **secure}


@cache
def ssl_context() -> ssl.SSLContext:
    """Return the process's only SSL context, because creating one takes 20 ms; it offers HTTP/1.1 by ALPN."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def check_peer(peer: tuple[Any, ...] | None, address: Address) -> None:
    """Raise ToolPermissionError unless a connection's peer has the address that the guard allowed."""
    if peer is None or (peer[0] != str(address) and unmap_ipv4(ip_address(peer[0])) != address):
        message = f"the peer {peer and peer[0]} is not {address}, the address that was checked"
        raise ToolPermissionError(message, code=REFUSED)


def connect_error(failed: OSError, subject: str, route: Route, timeout_s: float) -> ToolConnectionError:
    """Build the error of a failed connect; nothing was sent."""
    start = f"{subject}: no connection to {route.address}"
    match failed:
        case TimeoutError() if failed.errno is None:
            return ToolConnectionError(f"{start} within {timeout_s:g} s", sent=False)
        case ssl.SSLCertVerificationError():
            message = f"{subject}: the server's certificate is refused ({failed.verify_message or failed})"
            return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)
        case ssl.SSLError():
            return ToolConnectionError(f"{subject}: TLS failed ({failed.reason or failed})", sent=False)
        case ProxyError():
            return ToolConnectionError(f"{subject}: {failed}", sent=False)
        case _:
            reason = os.strerror(failed.errno) if failed.errno else str(failed) or type(failed).__name__
            return ToolConnectionError(f"{start} ({reason})", sent=False)
