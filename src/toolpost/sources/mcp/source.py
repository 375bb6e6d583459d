"""An MCP server as a source of tools, resources and prompts."""

from __future__ import annotations

import asyncio
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import (
    NO_CREDENTIAL,
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
from toolpost.sources.mcp.callbacks import Hearing
from toolpost.sources.mcp.calls import Calls, orphaned
from toolpost.sources.mcp.door import Door
from toolpost.sources.mcp.endpoint import UrlEndpoint, endpoint_of
from toolpost.sources.mcp.lending import Lending
from toolpost.sources.mcp.library import Library
from toolpost.sources.mcp.listing import Listing, list_tools
from toolpost.sources.mcp.reconnect import Keeping
from toolpost.sources.mcp.resources import UtilityTool, run_utility
from toolpost.sources.mcp.session import Link
from toolpost.sources.mcp.session_pool import Links
from toolpost.sources.mcp.transport import Way
from toolpost.wire.logs import discreet
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import ChatModel, SourceListener
    from toolpost.sources.mcp.tools import ServerTool
    from toolpost.stores.cache_folder import CacheFolder


class McpSource:
    """One MCP server, with a session for each credential that calls it.

    `credential` is the one that tools are listed with. `server` is an object to talk to
    in this process. `roots` are the folders that the server may be told of. `library`
    holds its resources and prompts. `network` is what the configuration lets through besides
    public addresses and the server's own; `listings` is where its last listing is kept.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        *,
        credential: Credential = NO_CREDENTIAL,
        server: Any = None,
        roots: Sequence[str] | None = None,
        chat_model: ChatModel | None = None,
        network: NetworkPolicy | None = None,
        listings: CacheFolder | None = None,
    ) -> None:
        discreet()
        self.config = config
        self._credential = credential
        self._server = server
        self._network = network or NetworkPolicy()
        self._endpoint = endpoint_of(config)
        lending = Lending(
            roots if config.mcp.roots is None else config.mcp.roots, chat_model if config.mcp.sampling else None
        )
        self._calls = Calls(config.name, lending, elicitation=config.mcp.elicitation)
        self._hearing = Hearing(self, lending, self._calls)
        self._links = Links(self._new_link, config.name, lasting=credential)
        self._connect = partial(self._links.get, credential)
        self._remote = isinstance(self._endpoint, UrlEndpoint)
        self._door = Door(config, self, remote=self._remote, listings=listings)
        self._keeping = Keeping(self._hearing, self._connect, self._list, door=self._door, poll_s=config.mcp.poll_s)
        self._closed = False
        self.library = Library(self._connect, timeout_s=config.timeout_s)
        self.problems: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        return self.config.name

    @property
    def health(self) -> SourceHealth:
        """How it is doing now."""
        if self._closed:
            return SourceHealth("closed")
        if self._door.is_shut:
            return self._door.health
        if self._links.live(self._credential) is not None:
            return SourceHealth("up")
        return self._keeping.health

    @property
    def instructions(self) -> str | None:
        """What the server says about its use."""
        link = self._links.live(self._credential)
        return None if link is None else link.session.instructions

    def _new_link(self, credential: Credential) -> Link:
        way = Way(self.config, self._endpoint, credential, network=self._network, server=self._server)
        return Link(way, self._hearing.callbacks)

    async def _list(self, link: Link, *, by: str = "") -> Listing:
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                listing = await list_tools(link, self.config, self, remote=self._remote)
        except TimeoutError as error:
            seconds = f"{self.config.connect_timeout_s:g} s"
            raise ToolTimeoutError(f"{self.name!r} did not list its tools within {seconds}", cause=error) from error
        self.problems = listing.problems
        await asyncio.to_thread(self._door.remember, listing, by=by)
        return listing

    async def recall(self) -> Sequence[ServerTool]:
        """The tools of the last listing; a call to one connects first."""
        found, self.problems = await asyncio.to_thread(self._door.recalled)
        return found

    async def discover(self) -> Sequence[ServerTool]:
        """Connect and list; what was left out stands in `problems`.

        Where a server lists nothing for strangers and people have accounts there, its tools are those last known.
        """
        try:
            link = await self._connect()
            listing = await self._list(link)
        except ToolAuthError as refused:
            found, self.problems = self._door.tools() if self._door.found_shut(refused) else ([], [])
            if not found:
                raise
            return found
        self._keeping.listed(link, listing)
        return listing.tools

    @property
    def refusal(self) -> ToolError | None:
        """What the server said when it was last found to let no strangers in, or not to list for somebody."""
        return self._door.refusal

    async def list_for(self, credential: Credential) -> None:
        """List with a person's own credential, and tell the catalog what there is for anybody."""
        try:
            listing = await self._list(await self._links.get(credential), by=credential.key)
        except ToolAuthError as refused:
            self._door.refusal = refused
            raise
        await self._hearing.found((await asyncio.to_thread(self._door.tools))[0], listing.problems)

    def watch(self, listener: SourceListener) -> None:
        """Keep the session up and the tools current from now on."""
        self._hearing.listener = listener
        if not self._door.is_shut:
            self._keeping.start()

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run one call on its credential's session; one that turns out to be over is opened again first."""
        if self._links.live(call.credential) is None:
            question = orphaned(call, call.tool.spec, self.name)
            if question is not None:  # whether or not the server comes back: a person must say what happened
                return question
        link = await self._session(call.credential)
        try:
            return await self._run_on(link, call)
        except ToolConnectionError as error:
            if error.sent or not link.dead:
                raise
        return await self._run_on(await self._session(call.credential), call)

    async def _session(self, credential: Credential) -> Link:
        """The live session of a credential; ToolSourceDownError when the server cannot be reached."""
        try:
            return await self._links.get(credential)
        except ToolConnectionError as error:
            raise ToolSourceDownError(error.message, retry_after_s=error.retry_after_s, cause=error) from error

    async def _run_on(self, link: Link, call: AuthorizedCall) -> ToolOutput | Question:
        tool = cast("ServerTool", call.tool)
        if isinstance(tool, UtilityTool):
            with link.turns.beside(call.request.principal):
                return await run_utility(link, tool.remote_name, call.arguments, call.context)
        return await self._calls.run(link, tool, call)

    async def run(self, tool: ServerTool, params: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Run a tool for someone who has no router; a question unwinds as a signal."""
        principal = Principal(context.tenant_id or "local", context.user_id or "local")
        compile_validator(tool.spec.input_schema).check(params, tool.spec.name)
        request = RequestedCall(f"direct_{token_hex(8)}", "direct", tool.spec.name, params, principal)
        permitted = PermittedCall(ValidatedCall(request, tool, params))
        async with asyncio.timeout(self.config.timeout_s):
            output = await self.invoke(AuthorizedCall(permitted, self._credential, lambda: context))
        if isinstance(output, ToolOutput):
            return output
        self.release(request.call_id)  # nobody can come back to it
        raise PauseSignal(output)

    async def close(self) -> None:
        """End every session; safe to call twice."""
        self._closed = True
        try:
            await self._keeping.stop()
        finally:
            await self._links.close()

    def release(self, call_id: str) -> None:
        """Give up a call that was held for an answer which will not come."""
        self._links.release(call_id)
