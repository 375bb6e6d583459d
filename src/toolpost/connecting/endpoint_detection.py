"""Tells what is behind an address or in a file: an MCP server, the document of an API, or something else."""

from __future__ import annotations

import json
import os
import re
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from toolpost.contracts.errors import ConfigError, ToolError, ToolTimeoutError
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from toolpost.wire.client import HttpClient

Kind = Literal["mcp", "openapi", "utcp", "graphql", "n8n", "servers", "unknown"]
_LOOK_BYTES = 64 * 1024 * 1024
_LOOK_S = 15.0
_MCP_STATUSES = frozenset({400, 405, 406})
_MCP_STEPS = ("mcp", "sse")
_SUFFIXES = frozenset({".json", ".yaml", ".yml", ".gz", ".graphql", ".graphqls", ".gql"})
_SDL = re.compile(rb"^\s*(?:extend\s+)?(?:schema\b[^{]*\{|type\s+\w+[^{]*\{)", re.MULTILINE)


class Recognised(NamedTuple):
    """What it is, and how that was told; `below` is the step from the address to it, `tried` is all that was asked."""

    kind: Kind
    because: str
    below: str = ""
    tried: tuple[str, ...] = ()


def is_document(word: str) -> bool:
    """Whether a word names a file that may hold a document and is no program."""
    path = Path(word).expanduser()
    return path.is_file() and (path.suffix.lower() in _SUFFIXES or not os.access(path, os.X_OK))


def recognise_file(word: str) -> Recognised:
    """Tell by its content what a file is."""
    from toolpost.connecting.client_files import read_servers  # noqa: PLC0415 - only those who look need it

    path = Path(word).expanduser()
    try:
        body = path.read_bytes()
    except OSError as error:
        return Recognised("unknown", f"it cannot be read: {error.strerror}")
    found = judge(200, body, word)
    if found.kind != "unknown":
        return found
    if _SDL.search(body) or b'"__schema"' in body:
        return Recognised("graphql", "it is the schema of a GraphQL API")
    try:
        read_servers(path)
    except ConfigError:
        return found
    return Recognised("servers", "it lists MCP servers")


def step_below(url: str, step: str) -> str:
    """An address one step below another; a query stays."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{step}", fragment=""))


async def recognise(url: str, headers: Mapping[str, str]) -> Recognised:
    """Look at an address, and at the usual places below it, harmlessly; whoever wrote it down allows that."""
    from toolpost.wire.client import HttpClient  # noqa: PLC0415 - only those who look need it
    from toolpost.wire.network import NetworkPolicy  # noqa: PLC0415

    async with HttpClient(NetworkPolicy().for_source(url), timeout_s=_LOOK_S, max_bytes=_LOOK_BYTES) as client:
        try:
            found = await _look(client, url, headers, written=True)
        except ToolError as error:
            return Recognised("unknown", str(error), tried=(url,))
        tried = [url]
        if found.kind == "unknown" or (found.kind == "mcp" and (_is_root(url) or _may_be_graphql(url))):
            return await _around(client, url, headers, found, tried) or found._replace(tried=tuple(tried))
    return found


async def _around(
    client: HttpClient, url: str, headers: Mapping[str, str], found: Recognised, tried: list[str]
) -> Recognised | None:
    """The first thing that is known around an address; who does not answer any more is not asked on."""
    async with aclosing(_looks_around(client, url, headers, found, tried)) as looks:
        try:
            async for other in looks:
                if other is not None:
                    return other
        except ToolError:
            return None
    return None


def _is_root(url: str) -> bool:
    return urlsplit(url).path in ("", "/")


async def _looks_around(
    client: HttpClient, url: str, headers: Mapping[str, str], found: Recognised, tried: list[str]
) -> AsyncGenerator[Recognised | None]:
    """What speaks for something else than the address itself does, one look after the other."""
    from toolpost.sources.openapi.well_known import well_known_urls  # noqa: PLC0415 - only those who look need it

    if _may_be_graphql(url):
        yield await _ask_graphql(client, url, headers)
    if found.kind == "unknown" and _is_root(url):
        yield await _look_for_n8n(client, url)
    for place in well_known_urls(url):
        tried.append(place)
        other = await _glance(client, place, headers)
        yield other._replace(because=f"its document is at {place}") if other.kind == "openapi" else None
    for step in _MCP_STEPS if found.kind == "unknown" else ():
        tried.append(step_below(url, step))
        other = await _glance(client, tried[-1], headers)
        yield other._replace(below=step) if other.kind == "mcp" else None


async def _glance(client: HttpClient, url: str, headers: Mapping[str, str]) -> Recognised:
    """A look at a place that nobody wrote down, where anything may be wrong."""
    try:
        return await _look(client, url, headers, written=False)
    except ToolTimeoutError:
        raise
    except ToolError as error:
        return Recognised("unknown", str(error))


async def _look(client: HttpClient, url: str, headers: Mapping[str, str], *, written: bool) -> Recognised:
    from toolpost.sources.webhook.n8n_api import looks_like_n8n  # noqa: PLC0415 - the same
    from toolpost.wire.requests import Request  # noqa: PLC0415

    wanted = (("Accept", "application/json, application/yaml, text/event-stream;q=0.5"), *headers.items())
    async with await client.send(Request("GET", url, headers=wanted)) as response:
        if response.media_type == "text/event-stream":
            return Recognised("mcp", "it answers with a stream of events")
        body = await response.read()
        if looks_like_n8n(response.status, response.headers, body):
            return Recognised("n8n", "it answers as n8n does")
        challenge = response.headers.get("www-authenticate") or ""
        if response.status == 401 and not _is_mcp_challenge(url, challenge, written=written):
            return Recognised("unknown", "it answered HTTP 401; give it a credential with --header")
        return judge(response.status, body, url)


def _is_mcp_challenge(url: str, challenge: str, *, written: bool) -> bool:
    """Every guarded API asks who is there; an MCP server tells where to sign in, or is written as one."""
    if "resource_metadata" in challenge.lower():
        return True
    return written and urlsplit(url).path.rstrip("/").lower().endswith(_MCP_STEPS)


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
    from toolpost.sources.webhook.n8n_api import looks_like_n8n  # noqa: PLC0415 - only those who look need it
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
    if status == 401 or (status in _MCP_STATUSES and (b'"jsonrpc"' in body or _named_mcp(shown))):
        return Recognised("mcp", f"it refuses a plain GET with HTTP {status}, as MCP servers do")
    if status == 405:  # what a webhook is asked by a POST, it does
        return Recognised(
            "unknown",
            "it takes no GET, as webhooks and MCP servers do; a webhook is declared by hand (docs/webhooks.md)",
        )
    return Recognised("unknown", f"it answered HTTP {status}")


def _named_mcp(url: str) -> bool:
    """Whether an address is written as that of an MCP server; any address may refuse a GET."""
    parts = urlsplit(url)
    return parts.path.rstrip("/").lower().endswith(_MCP_STEPS) or "mcp" in (parts.hostname or "")


def _is_utcp(body: bytes) -> bool:
    if b"utcp_version" not in body and b"manual_version" not in body:
        return False
    value = _mapping(body)
    return "utcp_version" in value or ("manual_version" in value and "tools" in value)


def _mapping(body: bytes) -> dict[str, Any]:
    from toolpost.sources.openapi.documents import parse_document  # noqa: PLC0415 - only those who look need it

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
