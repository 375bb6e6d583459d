"""Agrees with a server on how to speak: which transport, which protocol era."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from fastmcp import Client
from mcp import MCPError
from mcp_types import DiscoverResult

from toolpost.contracts.errors import ToolConnectionError
from toolpost.sources.mcp.endpoint import CommandEndpoint, UrlEndpoint
from toolpost.sources.mcp.faults import fault_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.sources.mcp.transport import Way

_NOT_SPOKEN_HERE = (400, 404, 405, 406, 415)
_OLDER = ("legacy", "sse")


async def negotiate(way: Way, callbacks: Mapping[str, Any], *, begin: Callable[[], None]) -> Client[Any]:
    """Connect in the newest way that the configuration allows and the server understands; `begin` precedes each try."""
    first, *others = _tries(way)
    begin()
    try:
        return await _connected(way, callbacks, *first)
    except Exception as error:
        if not (others and _worth_another_way(way, error)):
            raise
        failed = error
    begin()
    try:
        return await _connected(way, callbacks, *others[0])
    except Exception:  # noqa: BLE001 - foreign code; the first failure is told
        raise failed from None  # what was tried first is what people expect to work


def _tries(way: Way) -> list[tuple[str, str]]:
    """Protocol modes and HTTP transports, the newest first."""
    protocol, endpoint = way.config.mcp.protocol, way.endpoint
    newest: tuple[str, str] = (protocol, "streamable_http")
    if isinstance(endpoint, CommandEndpoint) and protocol == "auto":
        return [newest, ("legacy", "")]
    if not isinstance(endpoint, UrlEndpoint) or endpoint.kind == "streamable_http":
        return [newest]
    if endpoint.kind == "sse":
        return [_OLDER]
    return [newest, _OLDER] if protocol in ("auto", "legacy") else [newest]


def _worth_another_way(way: Way, error: Exception) -> bool:
    """Whether the server is there but did not speak as expected.

    Many a program of the handshake era ends, with a complaint, when it is first asked something else; a bridge may
    not bear it either. One that ends for another reason ends once more.
    """
    if isinstance(way.endpoint, CommandEndpoint):
        return way.process is not None
    return fault_of(error).status_code in _NOT_SPOKEN_HERE


async def _connected(way: Way, callbacks: Mapping[str, Any], mode: str, kind: str) -> Client[Any]:
    client = Client(way.transport(kind, callbacks), mode=mode, init_timeout=0)
    await cast("Any", client).__aenter__()
    if mode not in ("auto", "legacy"):
        try:
            await _confirm(client, mode)
        except BaseException:
            await leave(client)
            raise
    return client


async def _confirm(client: Client[Any], version: str) -> None:
    """Ask a server whether it speaks the one version that is wanted, and what it offers."""
    session = client.session
    try:
        session.adopt(DiscoverResult.model_validate(await session.send_discover(version)))
    except (MCPError, ValueError, RuntimeError) as error:
        msg = f"the server does not speak {version} ({error}); leave mcp.protocol out"
        raise ToolConnectionError(msg, sent=False, cause=error) from error


async def leave(client: Client[Any]) -> None:
    """End a session; one that failed says so again when it is left, which is no news."""
    with suppress(Exception):
        await cast("Any", client).__aexit__(None, None, None)
