"""A WebSocket API as a source of tools, over guarded connections."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import NO_CREDENTIAL, ToolOutput
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.sources.websocket.correlation import Correlation
from toolpost.sources.websocket.exchange import ONLY, Exchange
from toolpost.sources.websocket.goodbyes import Goodbyes
from toolpost.sources.websocket.link import Link
from toolpost.sources.websocket.links import Links
from toolpost.sources.websocket.tools import planned
from toolpost.wire.guard import WEBSOCKET_SCHEMES, parse_target
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.websockets import connect_websocket, require_websockets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from toolpost.contracts.calls import AuthorizedCall, Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Question
    from toolpost.contracts.spec import ToolSpec
    from toolpost.sources.websocket.tools import Plan
    from toolpost.wire.aiohttp_websockets import WebSocket

# Less than there is, so that a source can tell what it saw before its caller's time is up.
_SHARE = 0.95
_CONNECT_SHARE = 0.8
_OCTETS = "application/octet-stream"


class MessageTool:
    """One message as a tool."""

    __slots__ = ("_source", "plan", "spec")

    def __init__(self, spec: ToolSpec, plan: Plan, source: WebSocketSource) -> None:
        self.spec = spec
        self.plan = plan
        self._source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run it with the source's own credential; what fails is raised."""
        started = now_ms()
        source, plan = self._source, self.plan
        output = await source.run(plan, params, source.credential, timeout_s=plan.timeout_s, context=lambda: context)
        return ToolResult.completed(output.content, output.text, started_at=started)


class WebSocketSource:
    """The messages that are written down for a server, each call on a connection of its own or all on one.

    A stream always has a connection of its own: closing it is what ends a subscription for certain.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        *,
        credential: Credential = NO_CREDENTIAL,
        network: NetworkPolicy | None = None,
    ) -> None:
        self.config = config
        self.credential = credential
        self._policy = (network or NetworkPolicy()).for_source(config.connection)
        options = config.websocket
        self._correlation = correlation = Correlation.of(options) if options.mode == "multiplexed" else None
        self._goodbyes = Goodbyes()
        self._exchange = Exchange(options.format, correlation, self._goodbyes)
        self._links = None if correlation is None else Links(config.name, partial(self._linked, correlation))
        self.problems: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        return self.config.name

    async def discover(self) -> Sequence[MessageTool]:
        """The tools that are written down; nothing is connected to until one is called."""
        require_websockets()
        parse_target(self.config.connection, schemes=WEBSOCKET_SCHEMES)
        options = self.config.websocket
        if self._links is not None and options.format != "json":
            raise ConfigError(f"source {self.name!r}: websocket.mode multiplexed needs the format json")
        found: list[MessageTool] = []
        problems = [] if options.tools else [f"source {self.name!r}: there are no tools under websocket.tools"]
        for name, tool in options.tools.items():
            if not self.config.includes(name):
                continue
            try:
                found.append(MessageTool(*planned(self.config, name, tool, self._correlation), self))
            except ConfigError as error:
                problems.append(f"source {self.name!r}: tool {name!r} is left out: {error}")
        self.problems = problems
        return found

    def invoke(self, call: AuthorizedCall) -> Coroutine[Any, Any, ToolOutput | Question]:
        """Run one call."""
        validated = call.permitted.validated
        plan = cast("MessageTool", validated.tool).plan
        timeout_s = validated.request.timeout_s or plan.timeout_s
        return self.run(plan, validated.arguments, call.credential, timeout_s=timeout_s, context=call.context)

    def run(
        self,
        plan: Plan,
        arguments: dict[str, Any],
        credential: Credential,
        *,
        timeout_s: float,
        context: Callable[[], ToolContext],
    ) -> Coroutine[Any, Any, ToolOutput]:
        """Send a tool's message and bring back what is answered."""
        within_s = timeout_s * _SHARE
        if self._links is None or plan.limits is not None:
            return self._run_alone(plan, arguments, credential, within_s, context)
        link = self._links.known(credential)
        if link is None:
            return self._run_first(self._links, plan, arguments, credential, within_s)
        return link.ask(plan.build, arguments, within_s)

    async def _run_first(
        self, links: Links, plan: Plan, arguments: dict[str, Any], credential: Credential, within_s: float
    ) -> ToolOutput:
        """Run a call for which there is no connection yet; what is left of its time is for the answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        link = await links.opened(credential)
        return await link.ask(plan.build, arguments, until - loop.time())

    async def _run_alone(
        self,
        plan: Plan,
        arguments: dict[str, Any],
        credential: Credential,
        within_s: float,
        context: Callable[[], ToolContext],
    ) -> ToolOutput:
        """Run a call on a connection of its own."""
        message = plan.build(arguments, ONLY)
        connect = partial(self._connect, credential)
        if plan.limits is None:
            return _output(await self._exchange.ask(connect, message, within_s=within_s))
        tell = context().progress
        return _output(await self._exchange.collect(connect, message, limits=plan.limits, tell=tell, within_s=within_s))

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        if self._links is not None:
            await self._links.close()
        await self._goodbyes.finished()

    async def _linked(self, correlation: Correlation, credential: Credential) -> Link:
        return Link(self.name, await self._connect(credential), correlation)

    async def _connect(self, credential: Credential) -> WebSocket:
        """Connect as somebody; what they present counts more than what is configured under the same name."""
        config, options = self.config, self.config.websocket
        presented = {name.lower() for name in credential.headers}
        own = [pair for pair in config.headers.items() if pair[0].lower() not in presented]
        return await connect_websocket(
            config.connection,
            policy=self._policy,
            headers=(*own, *credential.headers.items()),
            subprotocols=options.subprotocols,
            timeout_s=min(config.connect_timeout_s, config.timeout_s * _CONNECT_SHARE),
            max_message_bytes=options.max_message_bytes,
        )


def _output(content: Any) -> ToolOutput:
    return ToolOutput(content, media_type=_OCTETS) if isinstance(content, bytes) else ToolOutput(content)
