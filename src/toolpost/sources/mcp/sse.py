"""MCP over the older SSE transport: messages are posted, and all responses arrive in one event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus

from mcp import MCPError

from toolpost.contracts.errors import ToolConnectionError, ToolError
from toolpost.sources.mcp.http_requests import (
    EVENT_HEADERS,
    LAST_POSTS_S,
    MAX_REFUSAL_BYTES,
    Event,
    HttpRequests,
    ServerConnection,
    refusal,
)
from toolpost.sources.mcp.jsonrpc import (
    LARGE_MESSAGE,
    JsonRpc,
    PendingRequest,
    encode_message,
    read_large,
    read_messages,
)
from toolpost.sources.mcp.peer_requests import Message
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.targets import join_url, parse_target


class EventStream:
    """Link of the older SSE transport: messages are posted, and all responses arrive in one event stream."""

    def __init__(
        self, connection: ServerConnection, url: str, network: NetworkPolicy, *, on_end: Callable[[], None]
    ) -> None:
        self._http = HttpRequests(connection, url, network)
        self._url = url
        self._target = ""
        self._on_end = on_end
        self._rpc: JsonRpc | None = None
        self._posts: set[asyncio.Task[None]] = set()
        self._stream: AsyncGenerator[Event] | None = None

    async def open(self) -> None:
        """Open the stream; its first event contains the URL to post to."""
        answer = await self._http.send("GET", self._url, EVENT_HEADERS)
        if answer.status != HTTPStatus.OK:
            raise refusal(answer, await self._http.read(answer, MAX_REFUSAL_BYTES) or b"")
        self._stream = self._http.events(answer)
        async for event in self._stream:
            if event.kind == "endpoint":
                self._target = join_url(self._url, event.data)
                break
        else:
            raise ToolConnectionError("the event stream ended before it named an endpoint", sent=False)
        source, target = parse_target(self._url), parse_target(self._target)
        if (source.scheme, source.authority) != (target.scheme, target.authority):
            raise ToolConnectionError(
                f"the server at {self._url} requires messages to be posted to another origin, {self._target}",
                sent=False,
            )

    async def run(self, rpc: JsonRpc) -> None:
        self._rpc = rpc
        if self._stream is not None:
            with suppress(ToolError):
                async for event in self._stream:
                    if event.kind == "message" and event.data:
                        large = len(event.data) > LARGE_MESSAGE
                        read = read_large(event.data, self._http.values) if large else None
                        for message in read_messages(event.data) if read is None else await read:
                            rpc.receive(message)
                        if pause_s := rpc.due_pause():
                            await asyncio.sleep(pause_s)
        if self._posts:  # their failures report whether they were sent
            await asyncio.wait(self._posts, timeout=LAST_POSTS_S)
        self._on_end()

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
        await self._http.close()

    def request(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        """Post a request in a task; its response arrives in the stream."""
        if self._rpc is None:
            raise ToolConnectionError("the MCP connection is not open", sent=False)
        post = self._rpc.start(self._post_request(encode_message(message), pending, self._rpc))
        pending.stop = post.cancel
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)

    async def _post_request(self, body: bytes, pending: PendingRequest, rpc: JsonRpc) -> None:
        try:
            await self._post(body)
        except (ToolError, MCPError) as error:
            rpc.fail(pending, error)

    async def _post(self, body: bytes) -> None:
        answer = await self._http.send("POST", self._target, {"content-type": "application/json"}, body)
        body = await self._http.read(answer, MAX_REFUSAL_BYTES) or b""
        if not 200 <= answer.status < 300:
            raise refusal(answer, body)

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        with suppress(ToolError, MCPError):
            await self._post(encode_message(message))

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        if self._rpc is not None:
            self._rpc.start(self.send(notice))

    def hang_up(self) -> None:
        self._on_end()
