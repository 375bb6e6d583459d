"""Detect the transport of an address or a file by the probes of every transport."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from toolpost.contracts.errors import ConfigError, ToolError, ToolTimeoutError
from toolpost.sources.base import Detection, ProbeResponse, Transport
from toolpost.sources.registry import all_transports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.wire.client import HttpClient
    from toolpost.wire.messages import Request
    from toolpost.wire.network import NetworkPolicy

_log = logging.getLogger(__name__)
_PROBE_BYTES = 64 * 1024 * 1024
_PROBE_S = 15.0
_ACCEPT = "application/json, application/yaml, text/event-stream;q=0.5"
_SUFFIXES = frozenset({".json", ".yaml", ".yml", ".gz", ".graphql", ".graphqls", ".gql"})
_SDL = re.compile(rb"^\s*(?:extend\s+)?(?:schema\b[^{]*\{|type\s+\w+[^{]*\{)", re.MULTILINE)
_GRAPHQL_SCHEMA = (
    "is the schema of a GraphQL API without its address; connect the URL of the API, and if it does not"
    " publish its schema, name the file in options.schema_file (docs/sources/graphql.md)"
)
_MANUAL = "/utcp"
_REFUSED = frozenset({401, 403})
_GUARDED_MANUAL = (
    "it is the address of a UTCP manual, which needs a credential (HTTP {status}); give it with"
    " --header 'Authorization: Bearer TOKEN'"
)
_SERVER_LIST = "lists the MCP servers of another program; to use them, run `toolpost import {file}`"


class Probed(NamedTuple):
    """An address that was requested, and its answer, such as `HTTP 404`, or the code of the error without one."""

    url: str
    answer: str


class Endpoint(NamedTuple):
    """The detected transport of an address or a file; without a transport, `because` is the reason.

    `kind` is the kind of a file that is not a source itself, or `guarded` for a recognized address that needs a
    credential.
    """

    because: str
    transport: Transport | None = None
    detection: Detection | None = None
    tried: tuple[Probed, ...] = ()
    kind: Literal["graphql_schema", "server_list", "guarded"] | None = None


def is_document(word: str) -> bool:
    """Return whether a word names a file that may be a document and is not a program."""
    path = Path(word).expanduser()
    return path.is_file() and (path.suffix.lower() in _SUFFIXES or not os.access(path, os.X_OK))


def detect_file(name: str) -> Endpoint:
    """Detect the kind of a file by its content."""
    path = Path(name).expanduser()
    try:
        body = path.read_bytes()
    except OSError as error:
        return Endpoint(f"it cannot be read: {error.strerror}")
    response = ProbeResponse(name, name, 200, {}, body)
    endpoint = _certain(response, all_transports()) or Endpoint(explain(response))
    if endpoint.transport is None and (_SDL.search(body) or b'"__schema"' in body):
        return Endpoint(_GRAPHQL_SCHEMA, kind="graphql_schema")
    if endpoint.transport is None and _lists_servers(path):
        return Endpoint(_SERVER_LIST.format(file=name), kind="server_list")
    return endpoint


def _lists_servers(path: Path) -> bool:
    from toolpost.connecting.client_files import read_servers  # noqa: PLC0415 - only detection needs it

    try:
        read_servers(path)
    except ConfigError:
        return False
    return True


async def detect_url(url: str, headers: Mapping[str, str], network: NetworkPolicy | None = None) -> Endpoint:
    """Detect the transport at a URL, or at the usual paths below it, by harmless requests with these headers.

    Requests to the host of the URL are allowed because the operator wrote it; `network` applies to all others.
    """
    from toolpost.wire.client import HttpClient  # noqa: PLC0415 - only detection needs it
    from toolpost.wire.network import NetworkPolicy  # noqa: PLC0415

    policy = (network or NetworkPolicy()).for_source(url)
    async with HttpClient(policy, timeout_s=_PROBE_S, max_bytes=_PROBE_BYTES) as client:
        return await _Prober(client, url, headers).run()


class _Prober:
    """Sends the probes of every transport until one is certain."""

    def __init__(self, client: HttpClient, url: str, headers: Mapping[str, str]) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._answers: dict[str, str] = {}

    async def run(self) -> Endpoint:
        from toolpost.wire.messages import Request  # noqa: PLC0415 - only detection needs it

        transports = all_transports()
        try:
            response = await self._send(Request("GET", self._url))
        except ToolError as error:
            return self._found(Endpoint(str(error)))
        if response.status in _REFUSED and urlsplit(self._url).path.rstrip("/").endswith(_MANUAL):
            # Another transport at this host, such as an open REST API or an MCP server, is not what was requested.
            return self._found(Endpoint(_GUARDED_MANUAL.format(status=response.status), kind="guarded"))
        if (certain := _certain(response, transports)) is not None:
            return self._found(certain)
        guess = _first(response, transports)
        others = [transport for transport in transports if guess is None or transport is not guess.transport]
        try:
            endpoint = await self._probe(others)
        except ToolError:  # no further probes of a host that stopped responding
            endpoint = None
        return self._found(endpoint or guess or Endpoint(explain(response)))

    def _found(self, endpoint: Endpoint) -> Endpoint:
        return endpoint._replace(tried=tuple(Probed(url, answer) for url, answer in self._answers.items()))

    async def _probe(self, transports: Sequence[Transport]) -> Endpoint | None:
        for transport in transports:
            for request in transport.probes(self._url):
                try:
                    response = await self._send(request)
                except ToolTimeoutError:
                    raise
                except ToolError:  # derived addresses may fail in any way
                    continue
                if (endpoint := _certain(response, [transport])) is not None:
                    return endpoint
        return None

    async def _send(self, request: Request) -> ProbeResponse:
        headers = {"Accept": _ACCEPT, **dict(request.headers), **self._headers}
        try:
            async with await self._client.send(replace(request, headers=headers)) as response:
                # An event stream does not end.
                body = b"" if response.media_type == "text/event-stream" else await response.read()
        except ToolError as error:
            self._answers[request.url] = error.error_code
            raise
        self._answers[request.url] = f"HTTP {response.status}"
        fields = {name.lower(): value for name, value in response.headers}
        return ProbeResponse(request.url, self._url, response.status, fields, body, request.method)


def _detect(transport: Transport, response: ProbeResponse) -> Detection | None:
    try:
        return transport.detect(response)
    except Exception as error:  # noqa: BLE001 - code of a plug-in must not stop the other probes
        # Without the address or the text of the error: both may contain a key.
        _log.warning("transport %r failed to detect the endpoint: %s", transport.name, type(error).__name__)
        return None


def _certain(response: ProbeResponse, transports: Sequence[Transport]) -> Endpoint | None:
    for transport in transports:
        detection = _detect(transport, response)
        if detection is not None and detection.is_certain:
            return Endpoint(detection.because, transport, detection)
    return None


def _first(response: ProbeResponse, transports: Sequence[Transport]) -> Endpoint | None:
    """Return the first detection, certain or not."""
    detections = ((transport, _detect(transport, response)) for transport in transports)
    return next((Endpoint(one.because, transport, one) for transport, one in detections if one is not None), None)


def explain(response: ProbeResponse) -> str:
    """Return why a response shows no transport."""
    from toolpost.sources.openapi.documents import parse_openapi  # noqa: PLC0415 - only detection needs it

    if response.status == 401:
        return "it returned HTTP 401; give a credential with --header"
    if response.status == 405:  # a POST would run the webhook
        declare = "declare a webhook in the configuration (docs/sources/webhooks.md)"
        return f"it does not accept GET, like webhooks and MCP servers; {declare}"
    if response.status == 200:
        try:
            parse_openapi(response.body, response.url)
        except ConfigError as error:
            return str(error)
    return f"it returned HTTP {response.status}"
