"""Detect what a URL or a file is: an MCP server, the document of an API, a list of servers, and so on."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from toolpost.contracts.errors import ConfigError, ToolError, ToolTimeoutError
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.wire.client import HttpClient

Kind = Literal["mcp", "openapi", "utcp", "graphql", "n8n", "servers", "unknown"]
_MAX_BYTES = 64 * 1024 * 1024
_TIMEOUT_S = 15.0
_MCP_STATUSES = frozenset({400, 405, 406})
_MCP_STEPS = ("mcp", "sse")
_SUFFIXES = frozenset({".json", ".yaml", ".yml", ".gz", ".graphql", ".graphqls", ".gql"})
_SDL = re.compile(rb"^\s*(?:extend\s+)?(?:schema\b[^{]*\{|type\s+\w+[^{]*\{)", re.MULTILINE)


class Detection(NamedTuple):
    """The detected kind and the reason; `below` is the path segment to append to the URL, `tried` every URL probed."""

    kind: Kind
    because: str
    below: str = ""
    tried: tuple[str, ...] = ()


def is_document(word: str) -> bool:
    """Return whether a word names a file that may hold a document and is no program."""
    path = Path(word).expanduser()
    return path.is_file() and (path.suffix.lower() in _SUFFIXES or not os.access(path, os.X_OK))


def detect_file(word: str) -> Detection:
    """Detect by its content what a file is."""
    from toolpost.connecting.client_files import read_servers  # noqa: PLC0415 - only detection needs it

    path = Path(word).expanduser()
    try:
        body = path.read_bytes()
    except OSError as error:
        return Detection("unknown", f"it cannot be read: {error.strerror}")
    found = classify_response(200, body, word)
    if found.kind != "unknown":
        return found
    if _SDL.search(body) or b'"__schema"' in body:
        return Detection("graphql", "it is the schema of a GraphQL API")
    try:
        read_servers(path)
    except ConfigError:
        return found
    return Detection("servers", "it lists MCP servers")


def step_below(url: str, step: str) -> str:
    """Append a segment to the path of a URL; the query stays."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{step}", fragment=""))


async def detect_endpoint(url: str, headers: Mapping[str, str]) -> Detection:
    """Probe a URL, and the well-known paths below it, with requests that change nothing."""
    from toolpost.wire.client import HttpClient  # noqa: PLC0415 - only detection needs it
    from toolpost.wire.network import NetworkPolicy  # noqa: PLC0415

    async with HttpClient(NetworkPolicy().for_source(url), timeout_s=_TIMEOUT_S, max_bytes=_MAX_BYTES) as client:
        try:
            found = await _probe(client, url, headers, written=True)
        except ToolError as error:
            return Detection("unknown", str(error), tried=(url,))
        tried = [url]
        if found.kind == "unknown" or (found.kind == "mcp" and (_is_root(url) or _may_be_graphql(url))):
            return await _probe_around(client, url, headers, found, tried) or found._replace(tried=tuple(tried))
    return found


async def _probe_around(
    client: HttpClient, url: str, headers: Mapping[str, str], found: Detection, tried: list[str]
) -> Detection | None:
    """Probe what else a URL may be, and the well-known paths below it; after a failure nothing more is probed."""
    from toolpost.sources.openapi.well_known import well_known_urls  # noqa: PLC0415 - only detection needs it

    with suppress(ToolError):
        if _may_be_graphql(url) and (other := await _probe_graphql(client, url, headers)):
            return other
        if found.kind == "unknown" and _is_root(url) and (other := await _probe_n8n(client, url)):
            return other
        for place in well_known_urls(url):
            tried.append(place)
            if (other := await _probe_quietly(client, place, headers)).kind == "openapi":
                return other._replace(because=f"its document is at {place}")
        for step in _MCP_STEPS if found.kind == "unknown" else ():
            tried.append(step_below(url, step))
            if (other := await _probe_quietly(client, tried[-1], headers)).kind == "mcp":
                return other._replace(below=step)
    return None


def _is_root(url: str) -> bool:
    return urlsplit(url).path in ("", "/")


async def _probe_quietly(client: HttpClient, url: str, headers: Mapping[str, str]) -> Detection:
    """Probe a URL that nobody gave; errors other than a timeout are a detection of nothing."""
    try:
        return await _probe(client, url, headers, written=False)
    except ToolTimeoutError:
        raise
    except ToolError as error:
        return Detection("unknown", str(error))


async def _probe(client: HttpClient, url: str, headers: Mapping[str, str], *, written: bool) -> Detection:
    from toolpost.sources.webhook.n8n_api import looks_like_n8n  # noqa: PLC0415 - the same
    from toolpost.wire.requests import Request  # noqa: PLC0415

    wanted = (("Accept", "application/json, application/yaml, text/event-stream;q=0.5"), *headers.items())
    async with await client.send(Request("GET", url, headers=wanted)) as response:
        if response.media_type == "text/event-stream":
            return Detection("mcp", "it answers with a stream of events")
        body = await response.read()
        if looks_like_n8n(response.status, response.headers, body):
            return Detection("n8n", "it answers as n8n does")
        challenge = response.headers.get("www-authenticate") or ""
        if response.status == 401 and not _is_mcp_challenge(url, challenge, written=written):
            return Detection("unknown", "it answered HTTP 401; give it a credential with --header")
        return classify_response(response.status, body, url)


def _is_mcp_challenge(url: str, challenge: str, *, written: bool) -> bool:
    """Return whether a 401 is that of an MCP server: it names its metadata (RFC 9728), or the given URL ends so."""
    if "resource_metadata" in challenge.lower():
        return True
    return written and urlsplit(url).path.rstrip("/").lower().endswith(_MCP_STEPS)


def _may_be_graphql(url: str) -> bool:
    return urlsplit(url).path.rstrip("/").lower().endswith(("graphql", "gql"))


async def _probe_graphql(client: HttpClient, url: str, headers: Mapping[str, str]) -> Detection | None:
    """Query `__typename`, which every GraphQL server answers."""
    from toolpost.wire.requests import Request  # noqa: PLC0415 - only detection needs it

    fields = (("Accept", "application/json"), ("Content-Type", "application/json"), *headers.items())
    asked = Request("POST", url, headers=fields, body=b'{"query":"{__typename}"}')
    async with await client.send(asked) as response:
        told = _object(await response.read())
    data = told.get("data")
    if (is_object(data) and "__typename" in data) or is_array(told.get("errors")):
        return Detection("graphql", "it answers a GraphQL query")
    return None


async def _probe_n8n(client: HttpClient, url: str) -> Detection | None:
    from toolpost.sources.webhook.n8n_api import looks_like_n8n  # noqa: PLC0415 - only detection needs it
    from toolpost.wire.requests import Request  # noqa: PLC0415

    async with await client.send(Request("GET", f"{url.rstrip('/')}/rest/settings")) as response:
        if looks_like_n8n(response.status, response.headers, await response.read()):
            return Detection("n8n", "its settings are those of n8n")
    return None


def classify_response(status: int, body: bytes, shown: str) -> Detection:
    """Classify the response to a plain GET."""
    from toolpost.sources.openapi.documents import parse_openapi  # noqa: PLC0415

    if status == 200:
        if _is_utcp(body):
            return Detection("utcp", "it is a UTCP manual")
        try:
            parse_openapi(body, shown)
        except ConfigError as error:
            return Detection("unknown", str(error))
        return Detection("openapi", "it is the document of an API")
    if b"query" in body.lower() and b"graphql" in body.lower():
        return Detection("graphql", "it asks for a GraphQL query")
    if status == 401 or (status in _MCP_STATUSES and (b'"jsonrpc"' in body or _named_mcp(shown))):
        return Detection("mcp", f"it refuses a plain GET with HTTP {status}, as MCP servers do")
    if status == 405:  # a POST would trigger a webhook, so none is sent
        return Detection(
            "unknown",
            "it takes no GET, as webhooks and MCP servers do; a webhook is declared by hand (docs/webhooks.md)",
        )
    return Detection("unknown", f"it answered HTTP {status}")


def _named_mcp(url: str) -> bool:
    """Return whether a URL looks like that of an MCP server; any URL may refuse a GET."""
    parts = urlsplit(url)
    return parts.path.rstrip("/").lower().endswith(_MCP_STEPS) or "mcp" in (parts.hostname or "")


def _is_utcp(body: bytes) -> bool:
    if b"utcp_version" not in body and b"manual_version" not in body:
        return False
    value = _mapping(body)
    return "utcp_version" in value or ("manual_version" in value and "tools" in value)


def _mapping(body: bytes) -> dict[str, Any]:
    from toolpost.sources.openapi.documents import parse_document  # noqa: PLC0415 - only detection needs it

    try:
        value: object = parse_document(body, "it")
    except ConfigError:
        return {}
    return value if is_object(value) else {}


def _object(body: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(body)
    except ValueError:
        return {}
    return value if is_object(value) else {}
