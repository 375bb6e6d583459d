"""Guarded HTTP client of the built-in tools, opened at the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from toolpost.wire.messages import HeaderInput, Headers, Request
from toolpost.wire.network import NetworkPolicy, Resolver

if TYPE_CHECKING:
    from toolpost.wire.client import HttpClient


TIMEOUT_S = 10.0
_OF_A_CALL = 0.95  # time out slightly before the call, so that the caller sees the request's error
MAX_BYTES = 5 * 1024 * 1024


class WebResponse(NamedTuple):
    """A whole response; `url` is the address after redirects."""

    url: str
    status: int
    headers: Headers
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type") or ""


class WebClient:
    """HTTP client for public addresses, and those that an operator allows.

    `timeout_s` limits a call with all its requests.
    """

    def __init__(
        self,
        network: NetworkPolicy | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
        resolver: Resolver | None = None,
    ) -> None:
        self.network = network or NetworkPolicy(ip_literals=False)
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        self._resolver = resolver
        self._client: HttpClient | None = None

    async def send(self, method: str, url: str, *, headers: HeaderInput = (), body: bytes | None = None) -> WebResponse:
        """Send a request and read the response, regardless of its status; only GET and HEAD follow redirects."""
        async with await self._open_client().send(Request(method, url, headers=headers, body=body)) as response:
            return WebResponse(response.url, response.status, response.headers, await response.read())

    def for_operator(self, url: str) -> WebClient:
        """Return a client with separate connections that may also access an operator's address, even a private one."""
        network = self.network.for_source(url)
        return WebClient(network, timeout_s=self.timeout_s, max_bytes=self.max_bytes, resolver=self._resolver)

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _open_client(self) -> HttpClient:
        if self._client is None:
            from toolpost.wire.client import HttpClient  # noqa: PLC0415 - unused by most runs

            timeout_s = self.timeout_s * _OF_A_CALL
            self._client = HttpClient(
                self.network, timeout_s=timeout_s, max_bytes=self.max_bytes, resolver=self._resolver
            )
        return self._client
