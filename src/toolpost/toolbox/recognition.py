"""Tells what is behind an address: an MCP server, the document of an API, or something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["mcp", "openapi", "utcp", "graphql", "unknown"]
_LOOK_BYTES = 64 * 1024 * 1024
_LOOK_S = 15.0
_MCP_STATUSES = frozenset({400, 401, 405, 406})
_SUFFIXES = frozenset({".json", ".yaml", ".yml", ".gz"})


class Recognised(NamedTuple):
    """What it is, and how that was told."""

    kind: Kind
    because: str


def is_document(word: str) -> bool:
    """Whether a word names a file that may hold the document of an API."""
    path = Path(word).expanduser()
    return path.suffix.lower() in _SUFFIXES and path.is_file()


async def recognise(url: str, headers: Mapping[str, str]) -> Recognised:
    """Look at an address with one harmless request; whoever wrote it down allows that."""
    from toolpost.wire.client import HttpClient  # noqa: PLC0415 - only those who look need it
    from toolpost.wire.network import NetworkPolicy  # noqa: PLC0415
    from toolpost.wire.requests import Request  # noqa: PLC0415

    wanted = (("Accept", "application/json, application/yaml, text/event-stream;q=0.5"), *headers.items())
    async with HttpClient(NetworkPolicy().for_source(url), timeout_s=_LOOK_S, max_bytes=_LOOK_BYTES) as client:
        try:
            async with await client.send(Request("GET", url, headers=wanted)) as response:
                if response.media_type == "text/event-stream":
                    return Recognised("mcp", "it answers with a stream of events")
                return judge(response.status, await response.read(), url)
        except ToolError as error:
            return Recognised("unknown", str(error))


def judge(status: int, body: bytes, shown: str) -> Recognised:
    """What an answer to a plain GET speaks for."""
    from toolpost.sources.openapi.documents import parse_openapi  # noqa: PLC0415

    if status == 200:
        if _is_utcp(body):
            return Recognised("utcp", "it is a UTCP manual")
        try:
            parse_openapi(body, shown)
        except ConfigError as error:
            return Recognised("unknown", str(error))
        return Recognised("openapi", "it is the document of an API")
    if b"query" in body.lower() and b"graphql" in body.lower():
        return Recognised("graphql", "it asks for a GraphQL query")
    if status in _MCP_STATUSES:
        return Recognised("mcp", f"it refuses a plain GET with HTTP {status}, as MCP servers do")
    return Recognised("unknown", f"it answered HTTP {status}")


def _is_utcp(body: bytes) -> bool:
    try:
        value = json.loads(body)
    except ValueError:
        return False
    return is_object(value) and ("utcp_version" in value or ("manual_version" in value and "tools" in value))
