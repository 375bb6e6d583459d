"""Tool source for WebSockets: each call on a dedicated connection, or all calls on one session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from toolpost.catalog.specs import closed_schema, declared_spec
from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.questions import Question
from toolpost.contracts.spec import JsonSchema, ToolSpec, ToolTarget
from toolpost.http.content import OCTETS
from toolpost.schema.json_values import is_object
from toolpost.sources.base import BaseSource, Services, SourceTool
from toolpost.sources.session_pool import SessionPool
from toolpost.sources.websocket.correlation import Correlation
from toolpost.sources.websocket.exchange import ONLY, ClosingConnections, DedicatedExchange, StreamLimits
from toolpost.sources.websocket.options import WebSocketOptions, WebSocketTool
from toolpost.sources.websocket.session import WebSocketSession
from toolpost.sources.websocket.templates import Build, json_message, list_placeholders, text_message
from toolpost.wire.targets import WEBSOCKET_SCHEMES, parse_target
from toolpost.wire.websockets import WebSocket, connect_websocket

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext

    Connect = Callable[[], Awaitable[WebSocket]]

# Less than the whole time, so that the source can report its own timeout before the caller's deadline.
_SHARE = 0.95
_CONNECT_SHARE = 0.8


class WebSocketSource(BaseSource):
    """The declared messages of a server, each call on a dedicated connection or all on one session.

    A stream always has a dedicated connection, because closing it reliably ends a subscription.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._policy = services.network.for_source(config.connection)
        options = config.read_options(WebSocketOptions)
        self._correlation = correlation = Correlation.of(options) if options.mode == "multiplexed" else None
        self._closing = ClosingConnections()
        self._exchange = DedicatedExchange(options.format, correlation, self._closing)
        self._sessions = (
            None if correlation is None else SessionPool(config.name, partial(self._open_session, correlation))
        )

    async def discover(self) -> Sequence[MessageTool]:
        """Return the declared tools; the first call connects."""
        parse_target(self.config.connection, schemes=WEBSOCKET_SCHEMES)
        options = self.config.read_options(WebSocketOptions)
        if self._sessions is not None and options.format != "json":
            raise ConfigError(f"source {self.name!r}: options.mode multiplexed needs the format json")
        tools: list[MessageTool] = []
        problems = [] if options.tools else [f"source {self.name!r}: there are no tools under options.tools"]
        for name, tool in options.tools.items():
            if not self.config.includes(name):
                continue
            try:
                tools.append(MessageTool(self, *plan_tool(self.config, name, tool, self._correlation)))
            except ConfigError as error:
                problems.append(f"source {self.name!r}: tool {name!r} is skipped: {error}")
        self.problems = problems
        return tools

    def invoke(self, call: AuthorizedCall) -> Coroutine[Any, Any, ToolOutput | Question]:
        validated = call.permitted.validated
        plan = cast("MessageTool", validated.tool).plan
        attempt_s = call.attempt_s or plan.timeout_s
        timeout_s = min(validated.request.timeout_s or attempt_s, attempt_s)
        return self.run(plan, validated.arguments, call.credential, timeout_s=timeout_s, context=call.context)

    def run(
        self,
        plan: MessagePlan,
        arguments: dict[str, Any],
        credential: Credential,
        *,
        timeout_s: float,
        context: Callable[[], ToolContext],
    ) -> Coroutine[Any, Any, ToolOutput]:
        within_s = timeout_s * _SHARE
        if self._sessions is None or plan.limits is not None:
            return self._run_alone(plan, arguments, credential, within_s, context)
        session = self._sessions.find(credential)
        if session is None:
            return self._run_first(self._sessions, plan, arguments, credential, within_s)
        return session.request(plan.build, arguments, within_s)

    async def _run_first(
        self,
        sessions: SessionPool[WebSocketSession],
        plan: MessagePlan,
        arguments: dict[str, Any],
        credential: Credential,
        within_s: float,
    ) -> ToolOutput:
        """Open a session and run a call on it in the remaining time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        session = await sessions.get(credential)
        return await session.request(plan.build, arguments, until - loop.time())

    async def _run_alone(
        self,
        plan: MessagePlan,
        arguments: dict[str, Any],
        credential: Credential,
        within_s: float,
        context: Callable[[], ToolContext],
    ) -> ToolOutput:
        message = plan.build(arguments, ONLY)
        connect = partial(self._connect, credential)
        if plan.limits is None:
            return _output(await self._exchange.request(connect, message, within_s=within_s))
        report = context().progress
        return _output(
            await self._exchange.collect(connect, message, limits=plan.limits, report=report, within_s=within_s)
        )

    async def close(self) -> None:
        if self._sessions is not None:
            await self._sessions.close()
        await self._closing.finished()

    async def _open_session(self, correlation: Correlation, credential: Credential) -> WebSocketSession:
        return WebSocketSession(self.name, await self._connect(credential), correlation, credential)

    async def _connect(self, credential: Credential) -> WebSocket:
        """Connect with a credential; its headers replace configured ones of the same name."""
        config, options = self.config, self.config.read_options(WebSocketOptions)
        credential_names = {name.lower() for name in credential.headers}
        own = [pair for pair in config.headers.items() if pair[0].lower() not in credential_names]
        return await connect_websocket(
            config.connection,
            policy=self._policy,
            headers=(*own, *credential.headers.items()),
            subprotocols=options.subprotocols,
            timeout_s=min(config.connect_timeout_s, config.timeout_s * _CONNECT_SHARE),
            max_message_bytes=options.max_message_bytes,
        )


class MessageTool(SourceTool):
    """A tool that sends one message."""

    __slots__ = ("plan",)

    def __init__(self, source: WebSocketSource, spec: ToolSpec, plan: MessagePlan) -> None:
        super().__init__(spec, source)
        self.plan = plan


class MessagePlan(Struct, frozen=True, kw_only=True):
    """Message builder, timeout and stream limits of a tool; only a stream has limits."""

    build: Build
    timeout_s: float
    limits: StreamLimits | None


def plan_tool(
    config: ExternalToolConfig, name: str, tool: WebSocketTool, correlation: Correlation | None
) -> tuple[ToolSpec, MessagePlan]:
    """Build the spec and the plan of a tool; raise a ConfigError if it cannot be called."""
    properties = tool.input_schema.get("properties")
    unknown = [name for name in list_placeholders(tool.message) if is_object(properties) and name not in properties]
    if unknown:
        raise ConfigError(f"its message needs {', '.join(map(repr, unknown))}, which its input_schema does not have")
    _refuse_id(tool, correlation)
    is_json = config.read_options(WebSocketOptions).format == "json"
    build = json_message(tool.message, correlation) if is_json else text_message(tool.message)
    described = tool.model_copy(update={"input_schema": _schema(tool)})
    target = ToolTarget.of(
        "websocket",
        f"a message to {config.connection}",
        message=tool.message,
        options=config.read_options(WebSocketOptions).model_dump(exclude={"tools"}),
    )
    spec = declared_spec(config.name, name, tool=described, kind="websocket", target=target)
    limits = StreamLimits.of(tool, config.read_options(WebSocketOptions).max_message_bytes) if tool.stream else None
    if limits and limits.seconds and spec.timeout_s is None:
        spec = replace(
            spec, timeout_s=limits.seconds + config.timeout_s
        )  # the limit must be reached before the deadline
    return spec, MessagePlan(build=build, timeout_s=spec.timeout_s or config.timeout_s, limits=limits)


def _schema(tool: WebSocketTool) -> JsonSchema:
    """Return the configured schema, or one derived from the message's placeholders; other arguments are refused."""
    if "input_schema" in tool.model_fields_set or tool.message is None:
        return closed_schema(tool.input_schema)
    names = list_placeholders(tool.message)
    anything: dict[str, JsonSchema] = {name: {} for name in names}
    return closed_schema({"type": "object", "properties": anything, "required": names})


def _refuse_id(tool: WebSocketTool, correlation: Correlation | None) -> None:
    """Raise a ConfigError if an argument of a tool without a message would overwrite the correlation id."""
    if tool.message is not None or correlation is None:
        return
    properties = tool.input_schema.get("properties")
    if any(correlation.sent == (name,) for name in (properties if is_object(properties) else ())):
        name = correlation.sent[0]
        raise ConfigError(f"its argument {name!r} is at the place of the call's id; write a message for it")


def _output(content: Any) -> ToolOutput:
    return ToolOutput(content, media_type=OCTETS) if isinstance(content, bytes) else ToolOutput(content)
