"""Callbacks of every session: notifications, logs, and the client capabilities roots, sampling and elicitation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    Implementation,
    ListRootsResult,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)

from toolpost.contracts.chat import ChatModel
from toolpost.contracts.sources import SourceHealth, SourceListener, ToolSource
from toolpost.contracts.spec import Tool
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.mcp.session import McpSession

Elicit = Callable[[McpSession, Any, Any], Awaitable[ElicitResult]]

_LIST_CHANGES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)
_LOGS_PER_WINDOW = 100
_WINDOW_S = 10.0
_MAX_LOG_LENGTH = 1 << 20  # bounds memory; listeners shorten logs further
_NOT_SUPPORTED = -32600


class SessionCallbacks:
    """Build the callbacks of each session and forward tools, health and logs to the source's listener."""

    def __init__(self, source: ToolSource, capabilities: ClientCapabilities, *, elicit: Elicit | None) -> None:
        self._source = source
        self._capabilities = capabilities
        self._elicit = elicit
        self._window_start = 0.0
        self._log_count = 0
        self.listener: SourceListener | None = None
        self.list_changed = asyncio.Event()

    def for_session(self, session: McpSession) -> dict[str, Any]:
        """Return the callbacks and client info that a session is created with."""
        callbacks: dict[str, Any] = {
            "client_info": Implementation(name="toolpost", version=version("toolpost")),
            "message_handler": self._on_message,
            "logging_callback": self._on_log,
            "log_level": "info",
            **self._capabilities.session_callbacks(),
        }
        if self._elicit is not None:
            callbacks["elicitation_callback"] = partial(self._elicit, session)
        return callbacks

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, _LIST_CHANGES):
            self.list_changed.set()

    async def _on_log(self, params: Any) -> None:
        """Forward a log message, up to a rate limit."""
        now = time.monotonic()
        if now - self._window_start > _WINDOW_S:
            self._window_start, self._log_count = now, 0
        self._log_count += 1
        if self._log_count > _LOGS_PER_WINDOW:
            return
        if self.listener is not None:
            self.listener.logged(self._source, str(params.level), str(params.data)[:_MAX_LOG_LENGTH])

    async def publish_tools(self, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """Send the current tools to the listener."""
        if self.listener is not None:
            await self.listener.tools_found(self._source, tools, problems)

    def publish_health(self, health: SourceHealth) -> None:
        """Send the connection's health to the listener."""
        if self.listener is not None:
            self.listener.state_changed(self._source, health)


class ClientCapabilities:
    """Answer a server's requests for roots and sampling; sampling is off without a model."""

    def __init__(self, roots: Sequence[str] | None, model: ChatModel | None) -> None:
        self._roots = roots
        self._model = model

    def session_callbacks(self) -> dict[str, Any]:
        """Return the callbacks of the capabilities on offer; the others are not announced to the server."""
        offered: dict[str, Any] = {}
        if self._roots is not None:
            offered["list_roots_callback"] = self._list_roots
        if self._model is not None:
            offered["sampling_callback"] = self._sample
        return offered

    async def handle_request(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a request that came inside a result; None for a capability that is not on offer."""
        match request.get("method"):
            case "roots/list" if self._roots is not None:
                return self._roots_result()
            case "sampling/createMessage" if self._model is not None:
                return await self._complete(self._model, cast("dict[str, Any]", request.get("params") or {}))
            case _:
                return None

    def _roots_result(self) -> dict[str, Any]:
        """Return the roots as file URIs."""
        folders = [Path(folder).resolve() for folder in self._roots or ()]
        return {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in folders]}

    async def _list_roots(self, context: Any) -> ListRootsResult:
        return ListRootsResult.model_validate(self._roots_result())

    async def _sample(self, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        if self._model is None:
            return ErrorData(code=_NOT_SUPPORTED, message="sampling is off")
        raw = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        return CreateMessageResult.model_validate(await self._complete(self._model, raw))

    async def _complete(self, model: ChatModel, params: Mapping[str, Any]) -> dict[str, Any]:
        """Complete the server's messages with the chat model."""
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
