"""An MCP server as a source of tools, reconnected after its session ended and listed anew after a change."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mcp.client.subscriptions import listen

from toolpost.contracts.calls import (
    AuthorizedCall,
    ToolOutput,
)
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolConnectionError,
    ToolSourceDownError,
    ToolTimeoutError,
)
from toolpost.contracts.sources import SourceHealth
from toolpost.schema.validator import compile_validator
from toolpost.sources.mcp.callbacks import ClientCapabilities, SessionCallbacks
from toolpost.sources.mcp.calls import McpCalls, ask_lost_call_outcome, run_utility
from toolpost.sources.mcp.errors import to_tool_error
from toolpost.sources.mcp.session import McpSession
from toolpost.sources.mcp.tools import AnonymousListing, ToolListing, UtilityTool, list_tools
from toolpost.sources.mcp.transport import McpConnection, limit_sdk_logs, parse_endpoint
from toolpost.transports.base import BaseSource
from toolpost.web.session_pool import SessionPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import SourceListener
    from toolpost.contracts.spec import Tool
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
        super().__init__(config, services)
        credential = services.credential
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
        self._anonymous = AnonymousListing(self, services.listings)
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

    async def run_directly(self, tool: Tool, params: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Validate the arguments and run a tool without a router, within `timeout_s`."""
        compile_validator(tool.spec.input_schema).check(params, tool.spec.name)
        async with asyncio.timeout(self.config.timeout_s):
            return await super().run_directly(tool, params, context)

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


_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 60.0
_MIN_TTL_S = 1.0
_MIN_PAUSE_S = 0.2
_MAX_PAUSE_S = 30.0


class ConnectionMonitor:
    """Background task of a source that keeps its session open and its tools current."""

    def __init__(
        self,
        callbacks: SessionCallbacks,
        connect: Callable[[], Awaitable[McpSession]],
        list_tools: Callable[[McpSession], Awaitable[ToolListing]],
        *,
        anonymous: AnonymousListing,
        poll_s: float,
    ) -> None:
        self._callbacks = callbacks
        self._connect = connect
        self._list = list_tools
        self._poll_s = poll_s
        self._anonymous = anonymous
        self._task: asyncio.Task[None] | None = None
        self._last: tuple[McpSession, ToolListing] | None = None
        self._refreshed_at = 0.0
        self._pause_s = _MIN_PAUSE_S
        self._subscription: tuple[McpSession, asyncio.Task[None]] | None = None
        self.health = SourceHealth("connecting")

    def resume_from(self, session: McpSession, listing: ToolListing) -> None:
        """Start from a listing that was just made."""
        self._last = (session, listing)
        self.health = SourceHealth("up")

    def start(self) -> None:
        """Start the task, once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop the task and the subscription."""
        self._unsubscribe()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                session, listing = self._last or await self._refresh()
            except Exception as raised:  # noqa: BLE001 - whatever fails, the next try may work
                failures += 1
                error = to_tool_error(raised)
                if self._anonymous.note_refusal(error):
                    await self._publish_known_tools()
                    return  # further anonymous requests would be refused again
                self._set_health(SourceHealth("down", error.message))
                wait = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(failures, 20))
                await asyncio.sleep(max(wait, error.retry_after_s or 0.0))
                continue
            failures = 0
            self._set_health(SourceHealth("up"))
            await self._wait_for_change(session, listing)
            await self._throttle()
            self._last = None
            if session.is_closed:
                self._set_health(SourceHealth("down", "the connection broke"))

    async def _publish_known_tools(self) -> None:
        """Publish the tools known without a listing."""
        tools, problems = await asyncio.to_thread(self._anonymous.known_tools)
        if tools:
            await self._callbacks.publish_tools(tools, problems)

    async def _throttle(self) -> None:
        """Delay the next refresh, longer each time, when a server changes all the time."""
        since = time.monotonic() - self._refreshed_at
        if since < self._pause_s:
            await asyncio.sleep(self._pause_s - since)
            self._pause_s = min(_MAX_PAUSE_S, self._pause_s * 2)
        else:
            self._pause_s = _MIN_PAUSE_S
        self._refreshed_at = time.monotonic()

    async def _refresh(self) -> tuple[McpSession, ToolListing]:
        """Connect if needed, list the tools, and publish them."""
        session = await self._connect()
        self._callbacks.list_changed.clear()
        listing = await self._list(session)
        await self._callbacks.publish_tools(listing.tools, listing.problems)
        return session, listing

    def _set_health(self, health: SourceHealth) -> None:
        if health != self.health:
            self.health = health
            self._callbacks.publish_health(health)

    async def _wait_for_change(self, session: McpSession, listing: ToolListing) -> None:
        """Wait until the session ends, the tools change, or the next poll is due."""
        loop = asyncio.get_running_loop()
        self._subscribe(session)
        waits: set[asyncio.Task[Any]] = {
            loop.create_task(session.closed.wait()),
            loop.create_task(self._callbacks.list_changed.wait()),
        }
        ttl = self._poll_s if listing.ttl_s is None else max(_MIN_TTL_S, listing.ttl_s)
        try:
            await asyncio.wait(waits, timeout=ttl, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _subscribe(self, session: McpSession) -> None:
        """Subscribe to a session's changes, once; a subscription ends with its session."""
        if self._subscription is None or self._subscription[0] is not session:
            self._unsubscribe()
            self._subscription = (session, asyncio.get_running_loop().create_task(self._listen(session)))

    def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription[1].cancel()

    async def _listen(self, session: McpSession) -> None:
        """Keep a subscription where protocol and server have it; resubscribe after it ended."""
        lists = _subscribable_lists(session)
        if not (session.client_session.modern and lists):
            return
        pause_s, subscribed = _MIN_PAUSE_S, False
        while True:
            since = time.monotonic()
            subscribed = await self._receive_changes(session, lists) or subscribed
            if not subscribed:  # refused: polling alone finds changes
                return
            lasted = time.monotonic() - since > _MAX_PAUSE_S
            pause_s = _MIN_PAUSE_S if lasted else min(self._poll_s, pause_s * 2)
            await asyncio.sleep(pause_s)

    async def _receive_changes(self, session: McpSession, lists: frozenset[str]) -> bool:
        """Receive changes until the subscription ends; return whether the server accepted it."""
        subscribed = False
        with contextlib.suppress(Exception):  # the next try or poll reports a lasting failure
            async with listen(
                session.client_session,
                tools_list_changed="tools" in lists,
                resources_list_changed="resources" in lists,
                prompts_list_changed="prompts" in lists,
            ) as events:
                subscribed = True
                self._callbacks.list_changed.set()  # changes before the subscription were not announced
                async for _ in events:
                    self._callbacks.list_changed.set()
        return subscribed


def _subscribable_lists(session: McpSession) -> frozenset[str]:
    """Return the lists whose changes the server declares to announce."""
    capabilities = session.client_session.server_capabilities
    declared = {kind: getattr(capabilities, kind, None) for kind in ("tools", "resources", "prompts")}
    return frozenset(kind for kind, one in declared.items() if one is not None and one.list_changed)
