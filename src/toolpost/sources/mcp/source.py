"""An MCP server as a source of tools."""

from __future__ import annotations

import asyncio
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import (
    AuthorizedCall,
    PermittedCall,
    RequestedCall,
    ToolOutput,
    ValidatedCall,
)
from toolpost.contracts.errors import (
    PauseSignal,
    ToolAuthError,
    ToolConnectionError,
    ToolSourceDownError,
    ToolTimeoutError,
)
from toolpost.contracts.principal import Principal
from toolpost.contracts.sources import SourceHealth
from toolpost.schema.validator import compile_validator
from toolpost.sources.mcp.callbacks import ClientCapabilities, SessionCallbacks
from toolpost.sources.mcp.calls import McpCalls, ask_lost_call_outcome
from toolpost.sources.mcp.endpoint import UrlEndpoint, parse_endpoint
from toolpost.sources.mcp.listing import AnonymousListing, ToolListing, list_tools
from toolpost.sources.mcp.reconnect import ConnectionMonitor
from toolpost.sources.mcp.resources import UtilityTool, run_utility
from toolpost.sources.mcp.session import McpSession
from toolpost.sources.mcp.transport import McpConnection, limit_sdk_logs
from toolpost.transports.base import BaseSource
from toolpost.web.session_pool import SessionPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import SourceListener
    from toolpost.sources.mcp.tools import ServerTool
    from toolpost.transports.base import Services


class McpSource(BaseSource):
    """One MCP server, with a session for each credential that calls it.

    The credential of the services lists the tools. Their `roots` are the folders that the server may know of, and
    `listings` is the folder that caches the last listing.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        services: Services,
    ) -> None:
        limit_sdk_logs()
        super().__init__(config)
        credential = self._credential = services.credential
        self._server = services.servers.get(config.name)
        self._network = services.network
        self._endpoint = parse_endpoint(config)
        capabilities = ClientCapabilities(
            services.roots if config.mcp.roots is None else config.mcp.roots,
            services.chat_model if config.mcp.sampling else None,
        )
        self._calls = McpCalls(config.name, capabilities, elicitation=config.mcp.elicitation)
        self._callbacks = SessionCallbacks(
            self, capabilities, elicit=self._calls.handle_elicitation if config.mcp.elicitation else None
        )
        self._sessions = SessionPool(config.name, self._open_session, pinned=credential)
        self._connect = partial(self._sessions.get, credential)
        self._remote = isinstance(self._endpoint, UrlEndpoint)
        self._anonymous = AnonymousListing(config, self, remote=self._remote, listings=services.listings)
        self._monitor = ConnectionMonitor(
            self._callbacks, self._connect, self._list, anonymous=self._anonymous, poll_s=config.mcp.poll_s
        )
        self._closed = False

    @property
    def health(self) -> SourceHealth:
        """The current health of the connection."""
        if self._closed:
            return SourceHealth("closed")
        if self._anonymous.requires_account:
            return self._anonymous.health
        if self._sessions.find(self._credential) is not None:
            return SourceHealth("up")
        return self._monitor.health

    async def _open_session(self, credential: Credential) -> McpSession:
        connection = McpConnection(self.config, self._endpoint, credential, network=self._network, server=self._server)
        session = McpSession(connection, self._callbacks.for_session)
        await session.open()
        return session

    async def _list(self, session: McpSession, *, key: str = "") -> ToolListing:
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                listing = await list_tools(session, self.config, self, remote=self._remote)
        except TimeoutError as error:
            seconds = f"{self.config.connect_timeout_s:g} s"
            raise ToolTimeoutError(f"{self.name!r} did not list its tools within {seconds}", cause=error) from error
        self.problems = listing.problems
        await asyncio.to_thread(self._anonymous.save, listing, key=key)
        return listing

    async def recall(self) -> Sequence[ServerTool]:
        """Return the tools of the last listing; a call to one connects first."""
        found, self.problems = await asyncio.to_thread(self._anonymous.saved_tools)
        return found

    async def discover(self) -> Sequence[ServerTool]:
        """Connect and list the tools; `problems` names those left out.

        A server that lists only for accounts has the tools of its last known listing.
        """
        try:
            session = await self._connect()
            listing = await self._list(session)
        except ToolAuthError as refused:
            found, self.problems = self._anonymous.known_tools() if self._anonymous.note_refusal(refused) else ([], [])
            if not found:
                raise
            return found
        self._monitor.resume_from(session, listing)
        return listing.tools

    @property
    def refusal(self) -> ToolError | None:
        """The last 401 or 403 to a listing."""
        return self._anonymous.refusal

    async def list_for(self, credential: Credential) -> None:
        """List with a user's own credential and publish the tools known for all users."""
        try:
            listing = await self._list(await self._sessions.get(credential), key=credential.key)
        except ToolAuthError as refused:
            self._anonymous.refusal = refused
            raise
        await self._callbacks.publish_tools((await asyncio.to_thread(self._anonymous.known_tools))[0], listing.problems)

    def watch(self, listener: SourceListener) -> None:
        """Keep the session open and the tools current from now on."""
        self._callbacks.listener = listener
        if not self._anonymous.requires_account:
            self._monitor.start()

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a call on its credential's session; reconnect once when it ended before anything was sent."""
        if self._sessions.find(call.credential) is None:
            question = ask_lost_call_outcome(call, call.tool.spec, self.name)
            if question is not None:  # asked before connecting: it does not depend on the server
                return question
        session = await self._session(call.credential)
        try:
            return await self._run_on(session, call)
        except ToolConnectionError as error:
            if error.sent or not session.is_closed:
                raise
        return await self._run_on(await self._session(call.credential), call)

    async def _session(self, credential: Credential) -> McpSession:
        """Return the live session of a credential; raise ToolSourceDownError when the server cannot be reached."""
        try:
            return await self._sessions.get(credential)
        except ToolConnectionError as error:
            raise ToolSourceDownError(error.message, retry_after_s=error.retry_after_s, cause=error) from error

    async def _run_on(self, session: McpSession, call: AuthorizedCall) -> ToolOutput | Question:
        tool = cast("ServerTool", call.tool)
        if isinstance(tool, UtilityTool):
            with session.calls.track(call.request.principal):
                return await run_utility(session, tool.remote_name, call.arguments, call.context)
        return await self._calls.run(session, tool, call)

    async def run(self, tool: ServerTool, params: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Run a tool without a router; a question is raised as PauseSignal."""
        principal = Principal(context.tenant_id or "local", context.user_id or "local")
        compile_validator(tool.spec.input_schema).check(params, tool.spec.name)
        request = RequestedCall(f"direct_{token_hex(8)}", "direct", tool.spec.name, params, principal)
        permitted = PermittedCall(ValidatedCall(request, tool, params))
        async with asyncio.timeout(self.config.timeout_s):
            output = await self.invoke(AuthorizedCall(permitted, self._credential, lambda: context))
        if isinstance(output, ToolOutput):
            return output
        self.release(request.call_id)  # without a router nobody can resume it
        raise PauseSignal(output)

    async def close(self) -> None:
        """Close every session; safe to call twice."""
        self._closed = True
        try:
            await self._monitor.stop()
        finally:
            await self._sessions.close()

    def release(self, call_id: str) -> None:
        """Cancel a held call that will get no answer."""
        for session in self._sessions:
            session.calls.release(call_id)
