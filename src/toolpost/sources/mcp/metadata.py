"""The `_meta` of an MCP server: which of its members are passed on.

It is the server's own text for programs, such as the page of an MCP App. It reaches no model, and none of it is used
here. Left out are members that belong to the hop between two peers, members in the namespace of Toolpost, which only
Toolpost itself may set, and everything where the whole is too large.
"""

from __future__ import annotations

from typing import Any

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)

from toolpost.contracts.outcomes import OWN_META
from toolpost.schema.json_values import is_object, nested_deeper_than, text_within

UI_EXTENSION = "io.modelcontextprotocol/ui"  # MCP Apps
MAX_TOOL_META = 16_384
MAX_RESULT_META = 262_144
_MAX_DEPTH = 64
_OF_THE_HOP = frozenset(
    {
        CLIENT_CAPABILITIES_META_KEY,
        CLIENT_INFO_META_KEY,
        LOG_LEVEL_META_KEY,
        PROTOCOL_VERSION_META_KEY,
        SERVER_INFO_META_KEY,
        "io.modelcontextprotocol/related-task",
        "io.modelcontextprotocol/subscriptionId",
        "progressToken",
        "traceparent",
        "tracestate",
        "baggage",
    }
)


def passed_meta(meta: Any, *, most: int = MAX_RESULT_META) -> dict[str, Any]:
    """Return the members of a server's `_meta` that are passed on; none if they have more than `most` characters."""
    if not is_object(meta):
        return {}
    kept = {name: value for name, value in meta.items() if name not in _OF_THE_HOP and not name.startswith(OWN_META)}
    if not kept or nested_deeper_than(_MAX_DEPTH, kept) or not text_within(most, kept):
        return {}
    return kept


def with_passed_meta(item: dict[str, Any]) -> dict[str, Any]:
    """Return a resource, a prompt or a result with those members of its `_meta` that are passed on."""
    if "_meta" not in item:
        return item
    rest = {name: value for name, value in item.items() if name != "_meta"}
    passed = passed_meta(item["_meta"])
    return {**rest, "_meta": passed} if passed else rest
