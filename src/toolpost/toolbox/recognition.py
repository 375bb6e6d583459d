"""Tells what is behind an address: an MCP server, the document of an API, or something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.wire.client import HttpClient

Kind = Literal["mcp", "openapi", "utcp", "graphql", "n8n", "unknown"]
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
    """Look at an address with a harmless request or two; whoever wrote it down allows that."""
    from toolpost.wire.client import HttpClient  # noqa: PLC0415 - only those who look need it
    from toolpost.wire.network import NetworkPolicy  # noqa: PLC0415

    async with HttpClient(NetworkPolicy().for_source(url), timeout_s=_LOOK_S, max_bytes=_LOOK_BYTES) as client:
        try:
            found = await _look(client, url, headers)
            if found.kind in ("mcp", "unknown") and _may_be_graphql(url):
                return await _ask_graphql(client, url, headers) or found
            if found.kind == "unknown" and urlsplit(url).path in ("", "/"):
                return await _look_for_n8n(client, url) or found
        except ToolError as error:
            return Recognised("unknown", str(error))
    return found


async def _look(client: HttpClient, url: str, headers: Mapping[str, str]) -> Recognised:
    from toolpost.sources.webhook.recognition import looks_like_n8n  # noqa: PLC0415 - the same
    from toolpost.wire.requests import Request  # noqa: PLC0415

    wanted = (("Accept", "application/json, application/yaml, text/event-stream;q=0.5"), *headers.items())
    async with await client.send(Request("GET", url, headers=wanted)) as response:
        if response.media_type == "text/event-stream":
            return Recognised("mcp", "it answers with a stream of events")
        body = await response.read()
        if looks_like_n8n(response.status, response.headers, body):
            return Recognised("n8n", "it answers as n8n does")
        return judge(response.status, body, url)


def _may_be_graphql(url: str) -> bool:
    return urlsplit(url).path.rstrip("/").lower().endswith(("graphql", "gql"))


async def _ask_graphql(client: HttpClient, url: str, headers: Mapping[str, str]) -> Recognised | None:
    """Ask for the name of the type of all queries, which every GraphQL server knows."""
    from toolpost.wire.requests import Request  # noqa: PLC0415 - only those who look need it

    fields = (("Accept", "application/json"), ("Content-Type", "application/json"), *headers.items())
    asked = Request("POST", url, headers=fields, body=b'{"query":"{__typename}"}')
    async with await client.send(asked) as response:
        told = _object(await response.read())
    data = told.get("data")
    if (is_object(data) and "__typename" in data) or is_array(told.get("errors")):
        return Recognised("graphql", "it answers a GraphQL query")
    return None


async def _look_for_n8n(client: HttpClient, url: str) -> Recognised | None:
    from toolpost.sources.webhook.recognition import looks_like_n8n  # noqa: PLC0415 - only those who look need it
    from toolpost.wire.requests import Request  # noqa: PLC0415

    async with await client.send(Request("GET", f"{url.rstrip('/')}/rest/settings")) as response:
        if looks_like_n8n(response.status, response.headers, await response.read()):
            return Recognised("n8n", "its settings are those of n8n")
    return None


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
    value = _object(body)
    return "utcp_version" in value or ("manual_version" in value and "tools" in value)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(body)
    except ValueError:
        return {}
    return value if is_object(value) else {}
