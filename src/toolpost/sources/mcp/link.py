"""One live session with one MCP server, for one credential."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from fastmcp import Client

from toolpost.contracts.errors import ToolConnectionError, ToolError
from toolpost.sources.mcp.endpoint import CommandEndpoint, UrlEndpoint
from toolpost.sources.mcp.faults import fault_of
from toolpost.sources.mcp.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.shared.dispatcher import ProgressFnT

    from toolpost.contracts.calls import Credential
    from toolpost.sources.mcp.opening import Way
    from toolpost.sources.mcp.session import RawSession

_STDERR_SHOWN = 2000
_LAST_WORDS_S = 5.0


class Link:
    """A session that knows when it is dead; nothing is asked of a dead one."""

    def __init__(self, way: Way, callbacks: Callable[[Link], Mapping[str, Any]]) -> None:
        self._way = way
        self._callbacks = callbacks(self)
        self._client: Client[Any] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.died = asyncio.Event()
        self.turns = Turns()
        self.busy = 0
        self.session: RawSession = cast("RawSession", None)

    @property
    def credential(self) -> Credential:
        """What the session travels with."""
        return self._way.credential

    @property
    def dead(self) -> bool:
        """Whether the session is over."""
        return self.died.is_set()

    async def open(self) -> None:
        """Connect and negotiate; the error says what the server wrote before it gave up."""
        config = self._way.config
        self._way.lost = self.died.set
        try:
            async with asyncio.timeout(config.connect_timeout_s):
                await self._negotiate()
        except TimeoutError as error:
            await self.close()
            text = explained(self._way, f"no answer within {config.connect_timeout_s:g} s")
            raise ToolConnectionError(text, sent=False, cause=error) from error
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            raise _failure(self._way, error) from error

    async def _negotiate(self) -> None:
        """Try what the configuration allows, the newest first."""
        protocol, endpoint = self._way.config.mcp.protocol, self._way.endpoint
        tries = [(protocol, "streamable_http")]
        if isinstance(endpoint, CommandEndpoint) and protocol == "auto":
            tries.append(("legacy", ""))  # some old servers exit when they are asked what they do not know
        elif isinstance(endpoint, UrlEndpoint) and endpoint.kind != "streamable_http":
            tries = [("legacy", "sse")] if endpoint.kind == "sse" else [*tries, ("legacy", "sse")]
        for mode, kind in tries[:-1]:
            try:
                await self._connect(mode, kind)
                return
            except Exception as error:
                if not self._worth_another_way(error):
                    raise
        await self._connect(*tries[-1])

    def _worth_another_way(self, error: Exception) -> bool:
        """Whether the server is there but did not speak as expected."""
        if isinstance(self._way.endpoint, CommandEndpoint):
            process = self._way.process
            return process is not None and process.returncode is not None and not process.stderr_tail.strip()
        return fault_of(error).status_code in (400, 404, 405, 406, 415)

    async def _connect(self, mode: str, kind: str) -> None:
        self.died.clear()
        client = self._client = Client(self._way.transport(kind, self._callbacks), mode=mode, init_timeout=0)
        try:
            await cast("Any", client).__aenter__()
        except BaseException:
            self._client = None
            raise
        self.session = cast("RawSession", client.session)

    def renew(self, credential: Credential) -> None:
        """Travel with a renewed token from now on."""
        self._way.credential = credential

    @property
    def renewable(self) -> bool:
        """Whether a renewed token needs no new connection; a process was told its token when it started."""
        return not isinstance(self._way.endpoint, CommandEndpoint)

    async def ask(
        self, method: str, params: dict[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """The raw result of a request; errors are of our own tree."""
        if self.died.is_set():
            raise ToolConnectionError(f"the session with {self._way.config.name!r} is over", sent=False)
        self.busy += 1
        try:
            return await self.session.ask(method, params, on_progress=on_progress)
        except Exception as raised:
            raise self._judged(fault_of(raised)) from raised
        finally:
            self.busy -= 1

    def _judged(self, fault: ToolError) -> ToolError:
        """The error, after drawing the conclusion for this session."""
        if isinstance(fault, ToolConnectionError) and self._way.session_is_connection:
            self.died.set()
        if self._forgotten(fault):
            self.died.set()
            return ToolConnectionError(f"the server forgot the session: {fault.message}", sent=False, cause=fault)
        return fault

    def _forgotten(self, fault: ToolError) -> bool:
        """Whether the server refused because it no longer knows the session, as it does after a restart."""
        if not isinstance(self._way.endpoint, UrlEndpoint) or self.session.modern:
            return False
        return fault.status_code == 404 or (fault.status_code == 400 and "session" in fault.message.lower())

    async def retire(self) -> None:
        """Close a session that is over, after its last requests had their chance to say how they ended."""
        until = time.monotonic() + _LAST_WORDS_S
        try:
            while self.busy and time.monotonic() < until:
                await asyncio.sleep(0.01)
        finally:
            await self.close()

    async def close(self) -> None:
        """End the session and what it stands on; safe to call twice and from any task."""
        self.died.set()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self.turns.stop()
        client, self._client = self._client, None
        if client is not None:
            try:
                await cast("Any", client).__aexit__(None, None, None)
            except Exception:  # noqa: BLE001 - a session that failed says so again when it is left
                return


def _failure(way: Way, error: Exception) -> ToolError:
    fault = fault_of(error)
    fault.message = explained(way, fault.message)
    if isinstance(fault, ToolConnectionError):
        fault.sent = False
    return fault


def explained(way: Way, text: str) -> str:
    """What went wrong, with the last words of the server's own process."""
    process = way.process
    said = way.conceal(f"cannot connect to MCP server {way.config.name!r}: {text}")
    if process is None:
        return said
    if process.returncode is not None:
        said += f"; its process ended with status {process.returncode}"
    tail = way.conceal(process.stderr_tail.strip())[-_STDERR_SHOWN:]
    return f"{said}; it wrote: {tail}" if tail else said
