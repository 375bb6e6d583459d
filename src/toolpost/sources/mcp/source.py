"""An MCP server as a source of tools: its sessions, its listing, and the calls that run on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolConnectionError,
    ToolError,
    ToolSourceDownError,
    ToolTimeoutError,
)
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import ServerContents, SourceHealth, SourceListener
from toolpost.contracts.spec import Tool
from toolpost.schema.json_size import JsonLimits
from toolpost.schema.validator import compile_validator
from toolpost.sources.base import BaseSource, Services
from toolpost.sources.mcp.callbacks import ClientCapabilities, SessionCallbacks
from toolpost.sources.mcp.calls import McpCalls, client_of, lost_call_question
from toolpost.sources.mcp.connection import McpConnection, limit_sdk_logs
from toolpost.sources.mcp.contents import ResourceNews, list_contents
from toolpost.sources.mcp.endpoint import parse_endpoint
from toolpost.sources.mcp.listing import ToolListing, list_tools
from toolpost.sources.mcp.listing_cache import AnonymousListing
from toolpost.sources.mcp.monitor import ConnectionMonitor
from toolpost.sources.mcp.options import McpOptions
from toolpost.sources.mcp.results import parse_result, with_passed_meta
from toolpost.sources.mcp.session import McpSession
from toolpost.sources.mcp.tools import ServerTool
from toolpost.sources.mcp.utilities import UtilityTool, run_utility
from toolpost.sources.session_pool import SessionPool

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext

_RELAYED = {"resources_read": "resources/read", "prompts_get": "prompts/get"}


class McpSource(BaseSource):
    """One MCP server, with a session for each credential that calls it.

    The credential of the services lists the tools. Their `roots` are the folders that the server may know, and
    `listings` is the folder of cached listings.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        limit_sdk_logs()
        self._values = JsonLimits.of(config)
        super().__init__(config, services)
        credential = services.credential
        self._server = services.servers.get(config.name)
        self._network = services.network
        self._endpoint = parse_endpoint(config)
        options = config.read_options(McpOptions)
        capabilities = ClientCapabilities(
            services.roots if options.roots is None else options.roots,
            services.chat_model if options.sampling else None,
            sampling=options.sampling,
            pass_roots=options.roots is None,
        )
        self._calls = McpCalls(config.name, capabilities, elicitation=options.elicitation)
        self._callbacks = SessionCallbacks(self, self._calls, capabilities, elicitation=options.elicitation)
        self._sessions = SessionPool(config.name, self._open_session, pinned=credential)
        self._connect = partial(self._sessions.get, credential)
        self._anonymous = AnonymousListing(self, services.listings)
        self._monitor = ConnectionMonitor(
            self._callbacks, self._connect, self._list, anonymous=self._anonymous, poll_s=options.poll_s
        )
        self._closed = False
        self.contents = ServerContents()
        self._listing_contents: asyncio.Task[None] | None = None
        self._news = ResourceNews(self._connect, self._callbacks.publish_update)

    @property
    def health(self) -> SourceHealth:
        if self._closed:
            return SourceHealth("closed")
        if self._anonymous.requires_account:
            return self._anonymous.health
        if self._sessions.find(self.credential) is not None:
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
                listing = await list_tools(session, self)
        except TimeoutError as error:
            seconds = f"{self.config.connect_timeout_s:g} s"
            raise ToolTimeoutError(f"{self.name!r} did not list its tools within {seconds}", cause=error) from error
        self.problems = listing.problems
        await asyncio.to_thread(self._anonymous.save, listing, key=key)
        if listing.contents is not None:
            self._set_contents(listing.contents)
        elif self._listing_contents is None or self._listing_contents.done():
            self._listing_contents = asyncio.get_running_loop().create_task(self._list_contents(session))
        return listing

    async def _list_contents(self, session: McpSession) -> None:
        """List what there is besides tools, where that takes longer than a listing of tools waits for it."""
        self._set_contents(await list_contents(session))

    def _set_contents(self, contents: ServerContents) -> None:
        changed, self.contents = contents != self.contents, contents
        if changed:
            self._callbacks.publish_contents()

    async def recall(self) -> Sequence[ServerTool]:
        """Return the tools of the last listing; a call to one connects first."""
        found, self.problems = await asyncio.to_thread(self._anonymous.saved_tools)
        return found

    async def discover(self) -> Sequence[ServerTool]:
        """Connect and list the tools; `problems` names skipped ones.

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
        self._callbacks.listener = listener
        if not self._anonymous.requires_account:
            self._monitor.start()

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a call on its credential's session; reconnect once when it ended before anything was sent."""
        session = self._sessions.find(call.credential)
        if session is None:
            question = lost_call_question(call, self.name)
            if question is not None:  # before connecting: it does not depend on the server
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
        validated = call.permitted.validated
        tool, arguments = validated.tool, validated.arguments
        if not isinstance(tool, UtilityTool):
            return await self._call_tool(session, cast("ServerTool", tool), call)
        client = client_of(call)
        if client is not None and client.relays:
            raw = await self._calls.run(session, call, _RELAYED[tool.remote_name], dict(arguments))
            return raw if isinstance(raw, Question) else ToolOutput(with_passed_meta(raw))
        with session.calls.track(validated.request.principal):
            return await run_utility(session, tool.remote_name, arguments, call.context)

    async def _call_tool(self, session: McpSession, tool: ServerTool, call: AuthorizedCall) -> ToolOutput | Question:
        if tool.has_header_arguments:
            session.client_session.register_header_arguments(tool.remote_name, tool.spec.input_schema)
        params: dict[str, Any] = {"name": tool.remote_name, "arguments": call.permitted.validated.arguments}
        raw = await self._calls.run(session, call, "tools/call", params)
        return raw if isinstance(raw, Question) else await parse_result(raw, call.context, self._values)

    async def complete(self, call: AuthorizedCall, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Complete an argument of a prompt or a template, on the session of the call's credential."""
        async with asyncio.timeout(self.config.timeout_s):
            return await (await self._session(call.credential)).request("completion/complete", dict(params))

    @property
    def subscriptions(self) -> Sequence[str]:
        return self._news.subscriptions

    async def subscribe(self, uri: str) -> None:
        await self._news.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        await self._news.unsubscribe(uri)

    async def run_directly(self, tool: Tool, params: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Validate the arguments and run a tool without a router, within `timeout_s`."""
        validator = compile_validator(tool.spec.input_schema)
        arguments = validator.coerce(params)
        validator.check(arguments, tool.spec.name)
        async with asyncio.timeout(self.config.timeout_s):
            return await super().run_directly(tool, arguments, context)

    async def close(self) -> None:
        self._closed = True
        if self._listing_contents is not None:
            self._listing_contents.cancel()
        try:
            await self._news.stop()
            await self._monitor.stop()
        finally:
            await self._sessions.close()

    @property
    def stderr_tail(self) -> str:
        return "\n".join(filter(None, (session.stderr_tail for session in self._sessions)))

    def release(self, call_id: str) -> None:
        for session in self._sessions:
            session.calls.release(call_id)
