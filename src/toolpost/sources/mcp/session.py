"""One live session with one MCP server, for one credential."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from mcp import MCPError

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError
from toolpost.sources.mcp.endpoint import CommandEndpoint, MemoryEndpoint, UrlEndpoint
from toolpost.sources.mcp.faults import fault_of
from toolpost.sources.mcp.negotiation import leave, negotiate
from toolpost.sources.mcp.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fastmcp import Client
    from mcp.shared.dispatcher import ProgressFnT

    from toolpost.contracts.calls import Credential
    from toolpost.sources.mcp.raw_session import RawSession
    from toolpost.sources.mcp.transport import Way

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
        self._quiet = asyncio.Event()
        self._incident = object()  # its end, which is one failure for however many calls
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
                self._client = await negotiate(self._way, self._callbacks, begin=self.died.clear)
                self.session = cast("RawSession", self._client.session)
        except TimeoutError as error:
            await self.close()
            text = explained(self._way, f"no answer within {config.connect_timeout_s:g} s")
            raise ToolConnectionError(text, sent=False, cause=error) from error
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            raise _failure(self._way, error) from error

    def renew(self, credential: Credential) -> None:
        """Travel with a renewed token from now on."""
        self._way.credential = credential

    @property
    def renewable(self) -> bool:
        """Whether a renewed token needs no new connection; a process may have been told its token when it started."""
        return not (isinstance(self._way.endpoint, CommandEndpoint) and "token_env" in self._way.config.auth_config)

    async def ask(
        self, method: str, params: dict[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """The raw result of a request; errors are of our own tree."""
        if self.died.is_set():
            raise ToolConnectionError(f"the session with {self._way.config.name!r} is over", sent=False)
        self.busy += 1
        written = self._way.written
        try:
            return await self.session.ask(method, params, on_progress=on_progress)
        except Exception as raised:
            fault = await self._judged(fault_of(raised))
            if isinstance(fault, ToolConnectionError) and self._way.written == written is not None:
                fault.sent = False
            raise fault from raised
        finally:
            self.busy -= 1
            if not self.busy and self.died.is_set():
                self._quiet.set()

    async def _judged(self, fault: ToolError) -> ToolError:
        """The error, after drawing the conclusion for this session."""
        if isinstance(fault, ToolConnectionError) and self._way.session_is_connection:
            if self._only_says_so(fault):
                return ToolClientError(fault.message, cause=fault)
            self.died.set()
            fault.incident = self._incident
        if self._speaks_of_session(fault) and await self._forgotten():
            self.died.set()
            return ToolConnectionError(f"the server forgot the session: {fault.message}", sent=False, cause=fault)
        return fault

    def _only_says_so(self, fault: ToolError) -> bool:
        """Whether a server merely used the words of a broken connection, which in truth stands."""
        told_by_peer = isinstance(fault.__cause__, MCPError) and not isinstance(self._way.endpoint, MemoryEndpoint)
        return told_by_peer and not self.died.is_set()

    async def _forgotten(self) -> bool:
        """Whether the server refuses a harmless request in the same way: it no longer knows the session at all."""
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await self.session.ask("ping", {})
        except TimeoutError:
            return False
        except Exception as raised:  # noqa: BLE001 - foreign code; what it means is judged
            return self.dead or self._speaks_of_session(fault_of(raised))
        return False

    def _speaks_of_session(self, fault: ToolError) -> bool:
        """Whether a refusal may be due to the session, as it is after the server was started again."""
        if not isinstance(self._way.endpoint, UrlEndpoint) or self.session.modern:
            return False
        return fault.status_code == 404 or (fault.status_code == 400 and "session" in fault.message.lower())

    async def retire(self) -> None:
        """Close a session that is over, after its last requests had their chance to say how they ended."""
        try:
            if self.busy:
                await asyncio.wait_for(self._quiet.wait(), _LAST_WORDS_S)
        except TimeoutError:
            pass
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
            await leave(client)


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
    if way.hung_up and process.returncode is not None:
        said += f"; its process ended with status {process.returncode}"
    tail = way.conceal(process.stderr_tail.strip())[-_STDERR_SHOWN:]
    return f"{said}; it wrote: {tail}" if tail else said
