"""An MCP server as a source of tools: its sessions, and the calls that run on them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolOutputError,
    ToolSourceDownError,
    ToolTimeoutError,
)
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import ServerContents, SourceHealth, SourceListener
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.validator import compile_validator
from toolpost.sources.mcp.callbacks import ClientCapabilities, SessionCallbacks
from toolpost.sources.mcp.calls import McpCalls, ask_lost_call_outcome, client_of
from toolpost.sources.mcp.contents import ResourceNews, list_contents
from toolpost.sources.mcp.endpoint import parse_endpoint
from toolpost.sources.mcp.session import McpConnection, McpSession, limit_sdk_logs
from toolpost.sources.mcp.tools import AnonymousListing, ConnectionMonitor, UtilityTool, list_tools
from toolpost.transports.base import BaseSource, Services
from toolpost.web.session_pool import SessionPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.spec import Tool
    from toolpost.sources.mcp.tools import ServerTool, ToolListing

_RELAYED = {"resources_read": "resources/read", "prompts_get": "prompts/get"}


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
            sampling=config.mcp.sampling,
            pass_roots=config.mcp.roots is None,
        )
        self._calls = McpCalls(config.name, capabilities, elicitation=config.mcp.elicitation)
        self._callbacks = SessionCallbacks(self, self._calls, capabilities, elicitation=config.mcp.elicitation)
        self._sessions = SessionPool(config.name, self._open_session, pinned=credential)
        self._connect = partial(self._sessions.get, credential)
        self._anonymous = AnonymousListing(self, services.listings)
        self._monitor = ConnectionMonitor(
            self._callbacks, self._connect, self._list, anonymous=self._anonymous, poll_s=config.mcp.poll_s
        )
        self._closed = False
        self._contents = ServerContents()
        self._listing_contents: asyncio.Task[None] | None = None
        self._news = ResourceNews(self._connect, self._callbacks.publish_update)

    @property
    def contents(self) -> ServerContents:
        """What the server listed last besides tools."""
        return self._contents

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
        if listing.contents is not None:
            self._set_contents(listing.contents)
        elif self._listing_contents is None or self._listing_contents.done():
            self._listing_contents = asyncio.get_running_loop().create_task(self._list_contents(session))
        return listing

    async def _list_contents(self, session: McpSession) -> None:
        """List what there is besides tools, where that takes longer than a listing of tools waits for it."""
        self._set_contents(await list_contents(session))

    def _set_contents(self, contents: ServerContents) -> None:
        changed, self._contents = contents != self._contents, contents
        if changed:
            self._callbacks.publish_contents()

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
        session = self._sessions.find(call.credential)
        if session is None:
            question = ask_lost_call_outcome(call, self.name)
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
        request, tool, arguments = call.permitted.validated
        if not isinstance(tool, UtilityTool):
            return await self._call_tool(session, cast("ServerTool", tool), call)
        client = client_of(call)
        if client is not None and client.relays:
            raw = await self._calls.run(session, call, _RELAYED[tool.remote_name], dict(arguments))
            return raw if isinstance(raw, Question) else ToolOutput(raw)
        with session.calls.track(request.principal):
            return await run_utility(session, tool.remote_name, arguments, call.context)

    async def _call_tool(self, session: McpSession, tool: ServerTool, call: AuthorizedCall) -> ToolOutput | Question:
        if tool.has_header_arguments:
            session.client_session.register_header_arguments(tool.remote_name, tool.spec.input_schema)
        params: dict[str, Any] = {"name": tool.remote_name, "arguments": call.permitted.validated.arguments}
        raw = await self._calls.run(session, call, "tools/call", params)
        return raw if isinstance(raw, Question) else await parse_result(raw, call.context)

    async def complete(self, call: AuthorizedCall, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Complete an argument of a prompt or a template, on the session of the call's credential."""
        async with asyncio.timeout(self.config.timeout_s):
            return await (await self._session(call.credential)).request("completion/complete", dict(params))

    @property
    def subscriptions(self) -> Sequence[str]:
        """The URIs of resources that somebody wants to hear of, one for each who does."""
        return self._news.subscriptions

    async def subscribe(self, uri: str) -> None:
        """Report changes of a resource from now on, as the source's own credential hears of them."""
        await self._news.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Report no more changes of a resource."""
        await self._news.unsubscribe(uri)

    async def run_directly(self, tool: Tool, params: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Validate the arguments and run a tool without a router, within `timeout_s`."""
        compile_validator(tool.spec.input_schema).check(params, tool.spec.name)
        async with asyncio.timeout(self.config.timeout_s):
            return await super().run_directly(tool, params, context)

    async def close(self) -> None:
        """Close every session; safe to call twice."""
        self._closed = True
        if self._listing_contents is not None:
            self._listing_contents.cancel()
        try:
            await self._news.stop()
            await self._monitor.stop()
        finally:
            await self._sessions.close()

    def release(self, call_id: str) -> None:
        """Cancel a held call that will get no answer."""
        for session in self._sessions:
            session.calls.release(call_id)


async def run_utility(
    session: McpSession, name: str, arguments: Mapping[str, Any], context: Callable[[], ToolContext]
) -> ToolOutput:
    """Run a utility tool by name."""
    match name:
        case "resources_list":
            resources = await session.list_all("resources/list", "resources")
            return ToolOutput({"resources": resources, "templates": await _list_templates(session)})
        case "resources_read":
            return await read_resource(session, str(arguments["uri"]), context)
        case "prompts_list":
            return ToolOutput({"prompts": await session.list_all("prompts/list", "prompts")})
        case _:
            params = {"name": arguments["name"], "arguments": dict(arguments.get("arguments") or {})}
            raw = await session.request("prompts/get", params)
            return ToolOutput({key: raw[key] for key in ("description", "messages") if key in raw})


async def _list_templates(session: McpSession) -> list[Any]:
    """List the resource templates; none when the server does not know the method."""
    try:
        return await session.list_all("resources/templates/list", "resourceTemplates")
    except ToolClientError:
        return []


async def read_resource(session: McpSession, uri: str, context: Callable[[], ToolContext]) -> ToolOutput:
    """Read a resource; files become artifacts."""
    raw = await session.request("resources/read", {"uri": uri})
    contents = cast("list[Any]", raw.get("contents") or [])
    return await parse_result({"content": [{"type": "resource", "resource": held} for held in contents]}, context)


async def parse_result(raw: dict[str, Any], context: Callable[[], ToolContext]) -> ToolOutput:
    """Convert the result of a tools/call; raise ToolClientError when it reports an error."""
    blocks = _blocks(raw)
    if len(blocks) == 1 and blocks[0].get("type") == "text" and not raw.get("isError"):
        text = str(blocks[0].get("text", ""))  # the most common result
        structured = raw.get("structuredContent")
        return ToolOutput(_parse_json_text(text), text) if structured is None else ToolOutput(structured, text or None)
    if raw.get("isError"):
        raise ToolClientError(f"MCP tool error: {_error_text(raw, blocks)}", code="tool_reported_error")
    return await _combine_parts(raw, blocks, context)


def _blocks(raw: dict[str, Any]) -> list[dict[str, Any]]:
    content = raw.get("content")
    if content is None and "structuredContent" in raw:
        return []
    if not is_array(content):
        raise ToolOutputError("the MCP server's answer has no list of content")
    return [block for block in content if is_object(block)]


def _error_text(raw: dict[str, Any], blocks: list[dict[str, Any]]) -> str:
    text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text").strip()
    structured = raw.get("structuredContent")
    if structured is not None and not text:
        text = json.dumps(structured)[:2000]
    return text or "the tool reported a failure without saying why"


async def _combine_parts(
    raw: dict[str, Any], blocks: list[dict[str, Any]], context: Callable[[], ToolContext]
) -> ToolOutput:
    structured = raw.get("structuredContent")
    if structured is None and len(blocks) == 1 and (file := _file(blocks[0])):
        return ToolOutput(file[0], media_type=file[1])
    parts = [await _part(block, context) for block in blocks]
    if structured is not None and not any(part.get("type") == "text" for part in parts):
        parts.insert(0, {"type": "text", "text": json.dumps(structured, ensure_ascii=False)})  # for the model
    text = "\n".join(_render_part(part, named=len(parts) > 1) for part in parts)
    if structured is not None:
        return ToolOutput(structured, text)
    if all(part.get("type") == "text" for part in parts):
        return ToolOutput(text, text)
    return ToolOutput(parts, text)


async def _part(block: dict[str, Any], context: Callable[[], ToolContext]) -> dict[str, Any]:
    """Convert a content block to plain data; a file's bytes are replaced by an artifact id."""
    file = _file(block)
    if file is None:
        inner = block.get("resource")
        return {"type": "resource", **inner} if is_object(inner) else block
    data, media_type, name = file
    artifact_id = await context().save_artifact(data, media_type=media_type, name=name)
    kept: dict[str, Any] = {"type": block["type"], "artifact_id": artifact_id, "media_type": media_type}
    return {**kept, "size": len(data), **({"uri": name} if name else {})}


def _file(block: dict[str, Any]) -> tuple[bytes, str, str] | None:
    """Return the bytes, media type and name of a block that contains a file."""
    kind, inner = block.get("type"), block.get("resource")
    if kind in ("image", "audio"):
        return _decode_base64(block.get("data")), str(block.get("mimeType", "application/octet-stream")), ""
    if kind == "resource" and is_object(inner) and "blob" in inner:
        media_type = str(inner.get("mimeType", "application/octet-stream"))
        return _decode_base64(inner["blob"]), media_type, str(inner.get("uri", ""))
    return None


def _decode_base64(data: Any) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (AttributeError, binascii.Error, TypeError, ValueError) as error:
        raise ToolOutputError(f"the MCP server's answer holds a file that is not base64: {error}") from error


def _render_part(part: dict[str, Any], *, named: bool) -> str:
    """Render a part as text for the model; `named` puts the URI before a resource's text."""
    if "artifact_id" in part:
        return f"[{part['media_type']}, {part['size']} bytes, kept as {part['artifact_id']}]"
    if "text" in part:
        return f"{part['uri']}:\n{part['text']}" if named and part.get("uri") else str(part["text"])
    return json.dumps(part, ensure_ascii=False)


def _parse_json_text(text: str) -> Any:
    """Parse a text that is a whole JSON object or array; return any other text unchanged."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
