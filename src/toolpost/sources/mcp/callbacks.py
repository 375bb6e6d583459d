"""Callbacks of every session: notifications, logs, and the client capabilities roots, sampling and elicitation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    Implementation,
    ListRootsResult,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
)

from toolpost.contracts.sources import SourceHealth, SourceListener, ToolSource
from toolpost.contracts.spec import Tool
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.mcp.session import McpSession

if TYPE_CHECKING:
    from toolpost.contracts.chat import ChatModel

UI_EXTENSION = "io.modelcontextprotocol/ui"  # MCP Apps
_LIST_CHANGES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)
_UI_MEDIA_TYPE = "text/html;profile=mcp-app"
_LOGS_PER_WINDOW = 100
_WINDOW_S = 10.0
_MAX_LOG_LENGTH = 1 << 20  # bounds memory; listeners shorten logs further


@cache  # reading it takes milliseconds
def _version() -> str:
    return version("toolpost")


class RequestHandlers(Protocol):
    """Handlers of the requests that servers of the older protocol send to their client."""

    async def handle_elicitation(self, session: McpSession, context: Any, params: Any) -> ElicitResult:
        """Request input from a user."""
        ...

    async def handle_sampling(self, session: McpSession, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        """Request a completion from a model."""
        ...

    async def handle_roots(self, session: McpSession, context: Any) -> ListRootsResult | ErrorData:
        """Return folders."""
        ...


class SessionCallbacks:
    """The callbacks of each session; they forward tools, health and logs to the source's listener."""

    def __init__(
        self, source: ToolSource, calls: RequestHandlers, capabilities: ClientCapabilities, *, elicitation: bool
    ) -> None:
        self._source = source
        self._calls = calls
        self._capabilities = capabilities
        self._elicitation = elicitation
        self._window_start = 0.0
        self._log_count = 0
        self.listener: SourceListener | None = None
        self.list_changed = asyncio.Event()

    def for_session(self, session: McpSession) -> dict[str, Any]:
        callbacks: dict[str, Any] = {
            "client_info": Implementation(name="toolpost", version=_version()),
            "message_handler": self._on_message,
            "logging_callback": partial(self._on_log, session),
            "log_level": "info",
            # A listing is for all clients of a gateway; each call declares the capabilities of its own client.
            "extensions": {UI_EXTENSION: {"mimeTypes": [_UI_MEDIA_TYPE]}},
        }
        return callbacks | {name: partial(handle, session) for name, handle in self._handlers().items()}

    def _handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the handlers of the declared capabilities; a client may have a model although the Toolbox has none."""
        offered = self._capabilities.declared(elicitation=self._elicitation)
        calls, handlers = self._calls, dict[str, Callable[..., Any]]()
        if "elicitation" in offered:
            handlers["elicitation_callback"] = calls.handle_elicitation
        if "sampling" in offered or self._capabilities.sampling:
            handlers["sampling_callback"] = calls.handle_sampling
        if "roots" in offered:
            handlers["list_roots_callback"] = calls.handle_roots
        return handlers

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, _LIST_CHANGES):
            self.list_changed.set()
        elif isinstance(message, ResourceUpdatedNotification):
            self.publish_update(str(message.params.uri))

    async def _on_log(self, session: McpSession, params: Any) -> None:
        """Forward a log message, up to a rate limit, also to the clients of running calls."""
        now = time.monotonic()
        if now - self._window_start > _WINDOW_S:
            self._window_start, self._log_count = now, 0
        self._log_count += 1
        if self._log_count > _LOGS_PER_WINDOW:
            return
        for client in session.calls.listeners(session.busy - session.listing):
            client.log(str(params.level), params.data, params.logger)
        if self.listener is not None:
            self.listener.logged(self._source, str(params.level), str(params.data)[:_MAX_LOG_LENGTH])

    async def publish_tools(self, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        if self.listener is not None:
            await self.listener.tools_found(self._source, tools, problems)

    def publish_contents(self) -> None:
        if self.listener is not None:
            self.listener.contents_changed(self._source)

    def publish_update(self, uri: str) -> None:
        if self.listener is not None:
            self.listener.resource_updated(self._source, uri)

    def publish_health(self, health: SourceHealth) -> None:
        if self.listener is not None:
            self.listener.state_changed(self._source, health)


class ClientCapabilities:
    """The client capabilities roots and sampling of a source.

    Without a model, sampling is for calls of MCP clients that have one. With `pass_roots`, clients may answer with
    their own folders.
    """

    def __init__(
        self, roots: Sequence[str] | None, model: ChatModel | None, *, sampling: bool, pass_roots: bool
    ) -> None:
        self._roots = roots
        self._model = model
        self.sampling = sampling
        self._pass_roots = pass_roots

    def declared(self, *, elicitation: bool) -> dict[str, Any]:
        """Return the capabilities that a session declares to the server."""
        offers: dict[str, Any] = {
            "elicitation": {"form": {}, "url": {}} if elicitation else None,
            "roots": None if self._roots is None else {},
            "sampling": None if self._model is None else {},
        }
        return {name: offer for name, offer in offers.items() if offer is not None}

    def passes_on(self, capability: str) -> bool:
        """Return whether the client of a call may answer for a capability."""
        return self.sampling if capability == "sampling" else self._pass_roots

    async def handle_request(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a request that was part of a result; return None if the capability is not declared."""
        match request.get("method"):
            case "roots/list" if self._roots is not None:
                return self._roots_result()
            case "sampling/createMessage" if self._model is not None:
                return await self._complete(self._model, cast("dict[str, Any]", request.get("params") or {}))
            case _:
                return None

    def _roots_result(self) -> dict[str, Any]:
        folders = [Path(folder).resolve() for folder in self._roots or ()]
        return {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in folders]}

    async def _complete(self, model: ChatModel, params: Mapping[str, Any]) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        if params.get("systemPrompt"):
            messages.append({"role": "system", "content": params["systemPrompt"]})
        messages += [{"role": m["role"], "content": _text(m.get("content"))} for m in params.get("messages", [])]
        reply = await model.complete(messages)
        content = {"type": "text", "text": str(reply.get("content") or "")}
        name = str(reply.get("model") or type(model).__name__)
        return {"role": "assistant", "content": content, "model": name, "stopReason": "endTurn"}


def _text(content: Any) -> str:
    blocks = content if is_array(content) else [content]
    texts = [block.get("text") for block in blocks if is_object(block)]
    return "\n".join(str(text) for text in texts if text)
