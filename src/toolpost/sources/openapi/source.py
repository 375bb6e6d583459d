"""Tool source for OpenAPI documents: tools, calls, and what responses mean."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, urljoin, urlsplit

from msgspec.structs import replace

from toolpost.catalog.specs import SAFE_METHODS
from toolpost.contracts.calls import NO_CREDENTIAL, AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolClientError, ToolError
from toolpost.contracts.questions import Question
from toolpost.contracts.spec import ToolSpec
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_size import JsonLimits
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import is_secret_header
from toolpost.schema.unions import types_of
from toolpost.sources.openapi import well_known_urls
from toolpost.sources.openapi.loader import ApiCache, is_remote, load_cached_api, read_api
from toolpost.sources.openapi.models import (
    ApiDescription,
    ApiOperation,
    ApiResponse,
    Parameter,
    RequestBody,
    SecurityScheme,
)
from toolpost.sources.openapi.requests import Credentials, RequestBuilder, find_artifact_ids, scheme_values
from toolpost.sources.openapi.spec import fit_to_budget, tool_spec
from toolpost.transports.base import BaseSource, Services, SourceTool
from toolpost.web.client_credentials import ClientTokens
from toolpost.web.content import Content, UnreadableError, parse_body
from toolpost.web.requests import (
    File,
    Pair,
    PlannedRequest,
    Send,
    load_artifacts,
    make_sender,
    response_error,
    status_phrase,
    unusable_error,
)
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Headers, Request
from toolpost.wire.network import NetworkPolicy, check_credential_origin, parse_target

_NO_BODY = frozenset({204, 205})
_HIDDEN_HEADERS = frozenset({"authorization", "proxy-authenticate", "set-cookie", "set-cookie2", "www-authenticate"})


def parse_response(
    operation: ApiOperation,
    status: int,
    headers: Headers,
    body: bytes,
    *,
    request: PlannedRequest | None = None,
    arguments: Mapping[str, Any] | None = None,
    secrets: Sequence[str] = (),
    now: float | None = None,
) -> ToolOutput:
    """Return the output of an operation, or raise the ToolError of its status.

    `request` and `arguments` serve to find the next page; `secrets` are the credentials sent, which are
    redacted from every message.
    """
    if 200 <= status < 300:
        return _success(operation, status, headers, body, request, arguments or {}, secrets)
    if status == 304:
        return ToolOutput(None, "304 Not Modified: what you have is still good.", meta={"status": status})
    if 300 <= status < 400 and "location" in headers and _declared_response(operation, status, exactly=True):
        meta = _meta(status, headers, secrets)
        return ToolOutput({**meta}, meta=meta)  # the location is the result
    method = operation.method.upper()
    remedy = _credential_hint(operation) if status == 401 else ""
    subject, writes = f"{method} {operation.path}", method not in SAFE_METHODS
    raise response_error(subject, status, headers, body, remedy=remedy, secrets=secrets, writes=writes, now=now)


def _success(
    operation: ApiOperation,
    status: int,
    headers: Headers,
    body: bytes,
    request: PlannedRequest | None,
    arguments: Mapping[str, Any],
    secrets: Sequence[str],
) -> ToolOutput:
    meta = _meta(status, headers, secrets)
    if operation.method.upper() == "HEAD":  # the headers are what was asked for
        return ToolOutput({"status": status, "headers": _shown_headers(headers, secrets)}, meta=meta)
    if status in _NO_BODY:
        return ToolOutput(None, _location_text(meta), meta=meta)
    content = _content(operation, status, headers, body, secrets)
    if isinstance(content.value, bytes):
        return ToolOutput(content.value, None, content.media_type, meta)
    if content.value is None:
        return ToolOutput(None, _location_text(meta), meta=meta)
    output = ToolOutput(content.value, None, content.media_type, meta)
    if content.note:
        output = output.with_note(content.note)
    if not _may_have_next_page(headers, content.value):
        return output
    url = "" if request is None else request.url
    page = _find_next_page(operation, headers, content.value, url=url, arguments=arguments)
    return output if page is None else _with_next_page(output, page, Redactor(secrets))


def _meta(status: int, headers: Headers, secrets: Sequence[str]) -> dict[str, Any]:
    """Return the status and the Location header as output metadata."""
    location = headers.get("location")
    return {"status": status} if location is None else {"status": status, "location": _redact_header(location, secrets)}


def _redact_header(value: str, secrets: Sequence[str]) -> str:
    """Return a header value with secrets redacted and invalid bytes replaced."""
    return Redactor(secrets).text(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _with_next_page(output: ToolOutput, page: NextPage, redactor: Redactor) -> ToolOutput:
    """Add the next page to the output: a note for the model, arguments in `meta` for programs."""
    meta = {**output.meta, "next": {"arguments": page.arguments, "url": page.url and redactor.text(page.url)}}
    return replace(output, meta=meta).with_note(redactor.text(page.note))


def _content(operation: ApiOperation, status: int, headers: Headers, body: bytes, secrets: Sequence[str]) -> Content:
    answer = _declared_response(operation, status)
    declared = () if answer is None else answer.content.keys()
    try:
        return parse_body(body, headers.get("content-type") or "", declared=declared)
    except UnreadableError as error:
        subject = f"{operation.method.upper()} {operation.path}"
        raise unusable_error(subject, status, body, error, secrets) from error


def _declared_response(operation: ApiOperation, status: int, *, exactly: bool = False) -> ApiResponse | None:
    """Return the declared response of a status: exact, by class (`2XX`), or `default`."""
    exact = str(status)
    for answer in operation.responses:
        if answer.status == exact:
            return answer
    by_status = {answer.status.upper(): answer for answer in operation.responses}
    keys = [exact] if exactly else [exact, f"{status // 100}XX", "DEFAULT"]
    return next((by_status[key] for key in keys if key in by_status), None)


def _shown_headers(headers: Headers, secrets: Sequence[str]) -> dict[str, str]:
    return {
        name.lower(): _redact_header(value, secrets) for name, value in headers if name.lower() not in _HIDDEN_HEADERS
    }


def _location_text(meta: Mapping[str, Any]) -> str | None:
    """Return the text of an empty response with a Location header."""
    status, location = meta["status"], meta.get("location")
    return f"{status} {status_phrase(status)}: {location}" if location else None


def _credential_hint(operation: ApiOperation) -> str:
    names = list(dict.fromkeys(need.scheme for needs in operation.security for need in needs))
    return f"Check the credential for {' or '.join(map(repr, names))}." if names else ""


# Possessive quantifiers, so that a hostile header takes linear time.
_LINK = re.compile(r'<([^<>]*+)>((?:\s*+;\s*+[^\s=;,]++(?:\s*+=\s*+(?:"(?:[^"\\]|\\.)*+"|[^";,\s]*+))?)*+)')
_RELATION = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^";,\s]*))', re.IGNORECASE)
# Body members that hold the URL of the next page, or its cursor.
_ADDRESSES = (
    ("@odata.nextLink",), ("nextLink",), ("next_page_url",), ("next_page_uri",), ("next_url",), ("links", "next"),
    ("_links", "next"), ("paging", "next"), ("pagination", "next"), ("meta", "next_page_url"), ("info", "next"),
    ("next",),
)  # fmt: skip
_CURSORS = (
    ("nextPageToken",), ("next_page_token",), ("nextCursor",), ("next_cursor",), ("nextToken",), ("NextToken",),
    ("next_token",), ("continuationToken",), ("metadata", "continue"), ("response_metadata", "next_cursor"),
    ("meta", "next_cursor"), ("meta", "next_token"), ("pagination", "next_cursor"), ("paging", "cursors", "after"),
    ("paging", "next", "after"), ("next_page", "offset"), ("next_page",), ("offset",),
)  # fmt: skip
# Names of cursor parameters, in lower case without separators.
_CURSOR_PARAMETERS = (
    "cursor", "pagetoken", "nexttoken", "nextcursor", "continuationtoken", "continue", "paginationtoken",
    "startcursor", "after", "startingafter", "offset", "page",
)  # fmt: skip

_HINTS = frozenset({"has_more", *(path[0] for path in (*_ADDRESSES, *_CURSORS))})
_READERS: dict[Any, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "integer": (re.compile(r"-?\d{1,18}"), int),
    "number": (re.compile(r"-?\d{1,18}(?:\.\d{1,18})?"), float),
    "boolean": (re.compile(r"true|false"), "true".__eq__),
}


class NextPage(NamedTuple):
    """Arguments that fetch the next page, and its URL where the API gave one."""

    arguments: dict[str, Any]
    url: str | None = None

    @property
    def note(self) -> str:
        """Return the note for the model."""
        if self.arguments:
            return f"There is more: call again with {json.dumps(self.arguments)}."
        return f"There is more, at {self.url}"


def _may_have_next_page(headers: Headers, content: Any) -> bool:
    """Return whether the response may name a next page; a cheap check before `_find_next_page`."""
    return "link" in headers or (is_object(content) and not _HINTS.isdisjoint(content))


def _find_next_page(
    operation: ApiOperation,
    headers: Headers,
    content: Any,
    *,
    url: str = "",
    arguments: Mapping[str, Any] | None = None,
) -> NextPage | None:
    """Find the next page in Link headers (RFC 8288), body URLs or cursors; `url` and `arguments` are this page's."""
    address = next((link for link, relations in _parse_links(headers) if "next" in relations), None)
    hinted = is_object(content) and not _HINTS.isdisjoint(content)
    if address is None and hinted:
        address = _find_url(content)
    if address is None:
        return _cursor_page(operation, content) if hinted else None
    try:
        there = urljoin(url, address)
        return NextPage(_url_arguments(operation, there, url, arguments or {}), there)
    except ValueError:  # not a URL
        return None


def _parse_links(headers: Headers) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the targets of the Link headers with their relations in lower case."""
    for value in headers.get_all("link"):
        for target, parameters in _LINK.findall(value):
            relation = _RELATION.search(parameters)
            if relation:
                yield target, frozenset((relation[1] or relation[2] or "").lower().split())


def _find_url(content: dict[str, Any]) -> str | None:
    for path in _ADDRESSES:
        value = _get_path(content, path) if path[0] in content else None
        if is_object(value):
            value = value.get("href", value.get("url"))
        if isinstance(value, str) and (value.startswith(("/", "?")) or "://" in value):
            return value
    return None


def _get_path(content: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not is_object(content):
            return None
        content = content.get(key)
    return content


def _url_arguments(operation: ApiOperation, there: str, here: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the query of a next-page URL to arguments; drop unchanged ones and URLs of other endpoints."""
    target = urlsplit(there)
    if here and urlsplit(here)[:3] != target[:3]:
        return {}
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(target.query, keep_blank_values=True):
        query.setdefault(name, []).append(value)
    by_name = {parameter.name: parameter for parameter in operation.parameters if parameter.location == "query"}
    new = {
        by_name[name].argument: _convert_value(by_name[name], values)
        for name, values in query.items()
        if name in by_name
    }
    return {name: value for name, value in new.items() if arguments.get(name) != value}


def _convert_value(parameter: Parameter, values: list[str]) -> Any:
    """Convert a query value to the parameter's type."""
    kinds = types_of(parameter.schema) if is_object(parameter.schema) else []
    if "array" in kinds:
        return values
    for kind in kinds:
        reader = _READERS.get(kind)
        if reader is not None and reader[0].fullmatch(values[0]):
            return reader[1](values[0])
    return values[0]


def _cursor_page(operation: ApiOperation, content: dict[str, Any]) -> NextPage | None:
    cursor = _find_cursor(content)
    if cursor is None and content.get("has_more") is not True:
        return None
    candidates = {re.sub(r"[-_.]", "", p.name.lower()): p for p in operation.parameters if p.location == "query"}
    if cursor is None:
        return _last_item_page(content, candidates.get("startingafter"))
    taker = next((candidates[name] for name in _CURSOR_PARAMETERS if name in candidates), None)
    return None if taker is None else NextPage({taker.argument: cursor})


def _find_cursor(content: dict[str, Any]) -> str | int | None:
    for path in _CURSORS:
        cursor = _get_path(content, path) if path[0] in content else None
        if isinstance(cursor, str | int) and not isinstance(cursor, bool) and cursor not in ("", 0):
            return cursor
    return None


def _last_item_page(content: dict[str, Any], taker: Parameter | None) -> NextPage | None:
    """Return the next page of a list that continues after the id of its last item."""
    items = content.get("data")
    if taker is None or not (is_array(items) and items):
        return None
    last = items[-1]
    return NextPage({taker.argument: last["id"]}) if is_object(last) and "id" in last else None


_DOCUMENT_BYTES = 64 * 1024 * 1024
_RESPONSE_BYTES = 64 * 1024 * 1024
_DOCUMENT_S = 60.0
_GENERIC_METHODS = {
    "GET": "Read something of this API by its path.",
    "POST": "Send something to a path of this API.",
    "PUT": "Put something at a path of this API.",
    "PATCH": "Change something at a path of this API.",
    "DELETE": "Delete what is at a path of this API.",
}
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class OperationTool(SourceTool):
    """Tool that calls one API operation."""

    __slots__ = ("_builder", "operation")

    def __init__(self, spec: ToolSpec, source: OpenApiSource, operation: ApiOperation) -> None:
        super().__init__(spec, source)
        self.operation = operation
        self._builder: RequestBuilder | None = None

    @property
    def builder(self) -> RequestBuilder:
        """Return the request builder of the operation, built on first use."""
        if self._builder is None:
            self._builder = RequestBuilder(self.operation)
        return self._builder


class OpenApiSource(BaseSource):
    """Tool source for the operations of an OpenAPI document, or generic requests to a base URL without one.

    The configured hosts of this source are allowed in addition to the network policy; a remote document cannot add
    any.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._headers = tuple(config.headers.items())
        self._idempotency_header = config.idempotency_header
        self._secrets = tuple(value for name, value in self._headers if is_secret_header(name, value))
        self._artifacts = services.artifacts
        self._cache = None if services.documents is None else ApiCache(services.documents)
        configured = [url for url in (config.connection, config.base_url) if url is not None and is_remote(url)]
        self._client = HttpClient(services.network.for_source(*configured), timeout_s=_DOCUMENT_S)
        remote = is_remote(config.connection)  # references of a remote document are limited by its origin
        self._reference_client = self._client.for_document(config.connection) if remote else self._client
        self._call_client: HttpClient | None = None
        self._retired: list[HttpClient] = []
        self._send: Send | None = None
        self._make_send: Callable[[float | None], Send]
        self._tokens: ClientTokens | None = None
        self._trusted_hosts: frozenset[str] | None = None
        self._has_secrets = False
        self._credentials = Credentials({}, {}, source=config.name)

    async def recall(self) -> Sequence[OperationTool]:
        """Return the tools of the cached copy of a remote document, without network access."""
        connection = self.config.connection
        if self._cache is None or not is_remote(connection):
            return []
        api = await asyncio.to_thread(load_cached_api, connection, self._cache, base_url=self.config.base_url)
        return [] if api is None else await self._publish(api)

    async def discover(self) -> Sequence[OperationTool]:
        """Read the document and return its tools."""
        return await self._publish(await self._api())

    async def _publish(self, description: ApiDescription) -> Sequence[OperationTool]:
        """Return the tools of an API and switch the source to that API's servers and security schemes."""
        # Ten thousand operations take seconds; do not block the event loop.
        tools, hosts, values, self.problems = await asyncio.to_thread(self._build_tools, description)
        if self._call_client is not None:
            self._retired.append(self._call_client)  # calls may still use it
        self.files = description.files
        self._prepare(description.schemes, hosts, values)
        return tools

    def _build_tools(
        self, description: ApiDescription
    ) -> tuple[list[OperationTool], NetworkPolicy, dict[str, Any], list[str]]:
        """Return the tools of an API, the policy that allows a local document's servers, scheme values and problems."""
        api = _with_base_url(self.config.base_url, description)
        local = () if is_remote(self.config.connection) else api.operations
        servers = {server for operation in local for server in operation.servers}
        hosts = self._client.policy.for_source(*sorted(filter(is_remote, servers)))
        values = scheme_values(self.name, self.config.auth_config, api.schemes, os.environ)
        operations = [operation for operation in api.operations if self.config.includes(operation.tool_name)]
        tools = [OperationTool(self._spec(operation), self, operation) for operation in operations]
        return tools, hosts, values, [f"source {self.name!r}: {problem}" for problem in description.problems]

    def _spec(self, operation: ApiOperation) -> ToolSpec:
        """Build the spec of a tool, with a shorter model schema where the input schema is long."""
        spec = tool_spec(operation, source=self.name)
        if self._idempotency_header and spec.replay == "unsafe":
            spec = replace(spec, replay="keyed")
        view = fit_to_budget(spec.input_schema)
        return spec if view is spec.input_schema else replace(spec, model_schema=view)

    async def _api(self) -> ApiDescription:
        """Read the document at the connection or a well-known URL below it; fall back to generic requests."""
        connection, mode = self.config.connection, self.config.utcp_mode.value
        if mode != "base_url":
            try:
                return await self._read(connection)
            except ToolError as error:
                if mode == "manual_url" or not is_remote(connection) or not _is_no_document(error):
                    raise
        for place in well_known_urls(connection):
            try:
                return await self._read(place)
            except ToolError as error:
                if not _is_no_document(error):
                    raise
        return generic_api(connection)

    async def _read(self, location: str) -> ApiDescription:
        return await read_api(location, fetch=self._fetch, cache=self._cache, base_url=self.config.base_url)

    async def _fetch(self, url: str) -> bytes:
        request = Request("GET", url, headers=tuple(self._own_headers(url)), max_bytes=_DOCUMENT_BYTES)
        client = self._client if _host(url) == _host(self.config.connection) else self._reference_client
        async with await client.send(request) as response:
            if response.status != 200:
                raise ToolClientError(f"{url.partition('?')[0]} answered HTTP {response.status}", code=_NO_DOCUMENT)
            return await response.read()

    def _own_headers(self, url: str) -> list[tuple[str, str]]:
        """Return the configured headers and credential for a URL of the connection's origin, none for any other."""
        same = url.split("/")[:3] == self.config.connection.split("/")[:3]
        if not same:
            return []
        own, bound = list(self.config.headers.items()), self.credential.origin
        # A credential for the API alone is not needed to read a document that is elsewhere.
        return own if bound and bound != parse_target(url).origin else [*own, *self.credential.headers.items()]

    def _prepare(self, schemes: Mapping[str, SecurityScheme], hosts: NetworkPolicy, values: dict[str, Any]) -> None:
        """Set up the HTTP client, token cache and credentials for calls."""
        connection, config = self.config.connection, self.config
        remote = is_remote(connection)
        client = self._client.for_document(config.base_url or connection) if remote else HttpClient(hosts)
        client.timeout_s, client.max_bytes, client.max_redirects = config.timeout_s, _RESPONSE_BYTES, 0
        self._call_client = client
        self._make_send = lambda timeout_s: make_sender(client, timeout_s=timeout_s, limits=JsonLimits.of(config))
        self._send = self._make_send(None)
        self._tokens = ClientTokens(make_sender(client, reads=True))
        self._credentials = Credentials(
            schemes, values, source=config.name, tokens=self._tokens, headers=config.headers
        )
        self._has_secrets = bool(values or self.credential.headers or self._secrets)
        if is_remote(connection):
            self._trusted_hosts = frozenset({_host(connection), _host(config.base_url or connection)})

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Execute one call with its artifacts and idempotency key; raise ConfigError before the first discovery."""
        if self._send is None:
            raise ConfigError(f"source {self.name!r} was not read yet")
        builder = cast("OperationTool", call.tool).builder
        artifact_ids = find_artifact_ids(builder.operation, call.arguments)
        owner = call.request.principal
        files = await load_artifacts(artifact_ids, self._artifacts, owner) if artifact_ids else None
        headers = self._headers
        if (
            self._idempotency_header
            and call.tool.spec.replay == "keyed"
            and not builder.has_header(self._idempotency_header, call.arguments)
        ):
            headers = (*headers, (self._idempotency_header, call.replay_key))
        self._refuse_undeclared_host(builder.operation, call.credential)
        return await call_operation(
            builder,
            call.arguments,
            send=self._send if call.attempt_s is None else self._make_send(call.attempt_s),
            credentials=self._credentials,
            credential=call.credential,
            files=files,
            headers=headers,
            secrets=self._secrets,
        )

    def _refuse_undeclared_host(self, operation: ApiOperation, credential: Credential) -> None:
        """Raise an error if a document sends credentials to a host that is not configured, or to another origin."""
        if credential.origin and operation.servers:
            check_credential_origin(credential, parse_target(operation.servers[0]))
        if self._trusted_hosts is None or not (self._has_secrets or credential.headers):
            return
        host = _host(operation.servers[0]) if operation.servers else ""
        if host not in self._trusted_hosts:
            msg = f"the document of {self.name!r} wants its calls sent to {host}, with your credentials"
            raise ToolAuthError(f"{msg}; if that is right, write base_url: {operation.servers[0]} into the source")

    async def close(self) -> None:
        """Close all connections; idempotent."""
        if self._tokens is not None:
            await self._tokens.close()
        for client in filter(None, [*self._retired, self._call_client]):
            await client.close()
        await self._reference_client.close()
        await self._client.close()


def _with_base_url(base_url: str | None, api: ApiDescription) -> ApiDescription:
    """Return the API with its servers replaced by the configured base URL."""
    if base_url is None:
        return api
    return replace(api, operations=tuple(replace(operation, servers=(base_url,)) for operation in api.operations))


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


_NO_DOCUMENT = "no_document"


def _is_no_document(error: ToolError) -> bool:
    """Return whether the address responded with something other than an OpenAPI document."""
    return isinstance(error, ConfigError) or error.error_code == _NO_DOCUMENT


async def call_operation(
    builder: RequestBuilder,
    arguments: Mapping[str, Any],
    *,
    send: Send,
    credentials: Credentials,
    credential: Credential = NO_CREDENTIAL,
    files: Mapping[str, File] | None = None,
    headers: Sequence[Pair] = (),
    secrets: Sequence[str] = (),
) -> ToolOutput:
    """Send one request and parse its response; renew a rejected token once. `secrets` are redacted from messages."""
    operation = builder.operation
    planned = builder.build(arguments, files).with_headers(headers)
    presentation = await credentials.present(operation, credential)
    response = await send(planned.presenting(presentation))
    if response.status == 401 and credentials.forget(presentation):
        # A request rejected with 401 had no effect, so any method may be sent again.
        presentation = await credentials.present(operation, credential)
        response = await send(planned.presenting(presentation))
    output = parse_response(
        operation,
        response.status,
        response.headers,
        response.body,
        request=planned,
        arguments=arguments,
        secrets=(*presentation.secrets, *secrets),
    )
    return output.with_note("The stream went on; this is what came until then.") if response.is_cut else output


def generic_api(base_url: str) -> ApiDescription:
    """Build an API with one generic tool per HTTP method."""
    address = base_url.partition("?")[0].partition("#")[0].rstrip("/")
    operations = tuple(_request(method, text, address) for method, text in _GENERIC_METHODS.items())
    problem = "no document was found there or in the usual places; its tools send bare requests"
    return ApiDescription(title=address, version="", operations=operations, problems=(f"{address}: {problem}",))


def _request(method: str, text: str, address: str) -> ApiOperation:
    path = Parameter(
        name="path",
        location="path",
        argument="path",
        schema={"type": "string", "minLength": 1, "description": "The path below the base URL, such as users/7"},
        required=True,
        style="simple",
        explode=False,
        allow_reserved=True,
    )
    query = Parameter(
        name="query",
        location="query",
        argument="query",
        schema={"type": "object", "description": "Query parameters by name"},
    )
    content = (
        RequestBody(argument="body", content_type="application/json", schema=True) if method in _WITH_BODY else None
    )
    return ApiOperation(
        tool_name=f"request_{method.lower()}",
        method=method,
        path="/{+path}",
        servers=(address,),
        summary=text,
        parameters=(path, query),
        body=content,
        responses=(ApiResponse(status="default"),),
    )
