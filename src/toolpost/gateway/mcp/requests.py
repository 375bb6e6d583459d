"""Requests of MCP clients in the SDK's server; the usual calls of tools skip the SDK's models.

The SDK validates each request and each result twice, with models of each version of the protocol. A call with the usual
members and a result of texts passes through all of them unchanged, which takes a sixth of its CPU (measured 2026-11).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.runner import ServerRunner
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CORE_RESULT_TYPES,
    INTERNAL_ERROR,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    CallToolRequestParams,
)
from mcp_types.methods import serialize_server_result, validate_client_request
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.lowlevel import Server
    from mcp.shared.dispatcher import DispatchContext

CallTool: TypeAlias = Callable[[ServerRequestContext[Any, Any], CallToolRequestParams], Awaitable[Any]]
_CALL, _COMPLETE = "tools/call", "complete"
_PROGRESS = "progressToken"
_MEMBERS = frozenset({"name", "arguments", "_meta"})
_CLIENT = frozenset({PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY})
_TEXT = frozenset({"type", "text"})
_RESULT = frozenset({"content", "isError", "structuredContent", "_meta", "resultType"})
_MOST_CLIENTS, _LONGEST_CLIENT = 1000, 4096
_log = logging.getLogger(__name__)


class RequestRunner:
    """Runs the requests of one client; with `call_tool`, usual calls of tools do not pass through the SDK's server."""

    def __init__(self, server: Server[Any], connection: Connection, state: Any, call_tool: CallTool | None) -> None:
        self.connection = connection
        self._server = server
        self._state = state
        self._call_tool = call_tool
        self._runner = ServerRunner(server, connection, state)

    async def on_request(
        self, exchange: DispatchContext[Any], method: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a request and return its result as on the wire; raise the error of its handler."""
        call_tool, version = self._call_tool, self.connection.protocol_version
        if method != _CALL or call_tool is None or not _is_usual_call(params, version):
            return await self._runner.on_request(exchange, method, params)
        metadata = exchange.message_metadata
        context = ServerRequestContext(
            session=ServerSession(exchange, self.connection, request_meta=params.get("_meta")),
            lifespan_context=self._state,
            protocol_version=version,
            method=method,
            params=params,
            request_id=exchange.request_id,
            meta=params.get("_meta"),
            request=metadata.request_context if isinstance(metadata, ServerMessageMetadata) else None,
        )
        result = await call_tool(context, CallToolRequestParams.model_validate(params, by_name=False))
        return self._as_on_wire(result, version)

    def _as_on_wire(self, result: Mapping[str, Any], version: str) -> dict[str, Any]:
        """Return a result without members that its version does not have, and with the server that sends it."""
        is_stateless = version in MODERN_PROTOCOL_VERSIONS
        if _is_usual_result(result) or (is_stateless and result.get("resultType") not in CORE_RESULT_TYPES):
            shown = dict(result)  # usual, or of an extension, which the SDK does not know
            if not is_stateless:
                shown.pop("resultType", None)
        else:
            shown = _validated(result, version)
        if is_stateless:
            shown["_meta"] = {**(shown.get("_meta") or {}), SERVER_INFO_META_KEY: self._server.server_info_stamp}
        return shown

    async def on_notify(self, exchange: DispatchContext[Any], method: str, params: Mapping[str, Any]) -> None:
        """Run a notification."""
        await self._runner.on_notify(exchange, method, params)


def _is_usual_call(params: Mapping[str, Any], version: str) -> bool:
    """Return whether the SDK would accept a call and change nothing; `name` and `arguments` are validated later."""
    meta: Any = params.get("_meta", {})
    if params.keys() - _MEMBERS or not is_object(meta):
        return False
    if version not in MODERN_PROTOCOL_VERSIONS:
        return not meta.keys() - {_PROGRESS}
    described = json.dumps({**meta, _PROGRESS: 0}) if not meta.keys() - _CLIENT - {_PROGRESS} else None
    return described is not None and len(described) < _LONGEST_CLIENT and _is_known_client(described)


@lru_cache(maxsize=_MOST_CLIENTS)
def _is_known_client(meta: str) -> bool:
    """Return whether the SDK accepts the facts that a stateless client sends about itself."""
    params = {"name": "any", "_meta": json.loads(meta)}
    try:
        validate_client_request(_CALL, LATEST_MODERN_VERSION, params)
    except ValidationError:
        return False
    return True


def _is_usual_result(result: Mapping[str, Any]) -> bool:
    """Return whether a result is one of texts, which no version of the protocol changes."""
    if result.keys() - _RESULT or result.get("resultType", _COMPLETE) != _COMPLETE:
        return False
    content: Any = result.get("content")
    return is_array(content) and all(is_object(block) and block.keys() == _TEXT for block in content)


def _validated(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    try:
        return serialize_server_result(_CALL, version, result)
    except ValidationError:
        _log.exception("the result of a call is not valid in MCP %s", version)
        raise MCPError(code=INTERNAL_ERROR, message="the result of the tool is not valid in MCP") from None
