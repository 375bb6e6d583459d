"""Tool source for the operations of an OpenAPI document."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from toolpost.auth.oauth.client_tokens import ClientTokens
from toolpost.contracts.calls import NO_CREDENTIAL, AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolClientError, ToolError
from toolpost.contracts.questions import Question
from toolpost.contracts.spec import ToolSpec
from toolpost.http.encoding import Pair
from toolpost.schema.json_size import JsonLimits
from toolpost.schema.secrets import is_secret_header
from toolpost.sources.base import BaseSource, Services, SourceTool
from toolpost.sources.files import File, load_artifacts
from toolpost.sources.openapi import well_known_urls
from toolpost.sources.openapi.cache import ApiCache
from toolpost.sources.openapi.credentials import Credentials, scheme_values
from toolpost.sources.openapi.generic_api import generic_api
from toolpost.sources.openapi.loader import load_cached_api, read_api
from toolpost.sources.openapi.model_view import fit_to_budget
from toolpost.sources.openapi.models import ApiDescription, ApiOperation, SecurityScheme
from toolpost.sources.openapi.options import HttpOptions
from toolpost.sources.openapi.requests import RequestBuilder, find_artifact_ids
from toolpost.sources.openapi.responses import parse_response
from toolpost.sources.openapi.spec import tool_spec
from toolpost.sources.requests import STREAM_CUT, Send, describe_request, make_sender, present_headers
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy, check_credential_origin
from toolpost.wire.targets import is_http_url, parse_target

_DOCUMENT_BYTES = 64 * 1024 * 1024
_RESPONSE_BYTES = 64 * 1024 * 1024
_DOCUMENT_S = 60.0
_NO_DOCUMENT = "no_document"


class OpenApiSource(BaseSource):
    """Tool source for the operations of an OpenAPI document, or generic requests to a base URL without one.

    The configured hosts of this source are allowed in addition to the network policy; a remote document cannot add
    any.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._headers = tuple(config.headers.items())
        self._idempotency_header = config.read_options(HttpOptions).idempotency_header
        self._secrets = tuple(value for name, value in self._headers if is_secret_header(name, value))
        self._artifacts = services.artifacts
        self._cache = None if services.documents is None else ApiCache(services.documents)
        configured = [url for url in (config.connection, config.base_url) if url is not None and is_http_url(url)]
        self._client = HttpClient(services.network.for_source(*configured), timeout_s=_DOCUMENT_S)
        remote = is_http_url(config.connection)  # references of a remote document are limited by its origin
        self._reference_client = self._client.for_document(config.connection) if remote else self._client
        self._call_client: HttpClient | None = None
        self._retired: list[HttpClient] = []
        self._send: Send | None = None
        self._make_send: Callable[[float | None], Send]
        self._tokens: ClientTokens | None = None
        self._trusted_hosts: frozenset[str] | None = None
        self._has_secrets = False
        self._credentials: Credentials | None = None

    async def recall(self) -> Sequence[OperationTool]:
        """Return the tools of the cached copy of a remote document, without network access."""
        connection = self.config.connection
        if self._cache is None or not is_http_url(connection):
            return []
        api = await asyncio.to_thread(load_cached_api, connection, self._cache, base_url=self.config.base_url)
        return [] if api is None else await self._publish(api)

    async def discover(self) -> Sequence[OperationTool]:
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
        every = description.operations
        if self.config.base_url is not None:
            every = tuple(replace(operation, servers=(self.config.base_url,)) for operation in every)
        local = () if is_http_url(self.config.connection) else every
        servers = {server for operation in local for server in operation.servers}
        hosts = self._client.policy.for_source(*sorted(filter(is_http_url, servers)))
        values = scheme_values(self.name, self.config.auth_config, description.schemes, os.environ)
        operations = [operation for operation in every if self.config.includes(operation.tool_name)]
        tools: list[OperationTool] = []
        for operation in operations:
            spec = tool_spec(operation, source=self.name)
            if self._idempotency_header and spec.replay == "unsafe":
                spec = replace(spec, replay="keyed")
            view = fit_to_budget(spec.input_schema)
            spec = spec if view is spec.input_schema else replace(spec, model_schema=view)
            tools.append(OperationTool(spec, self, operation))
        return tools, hosts, values, [f"source {self.name!r}: {problem}" for problem in description.problems]

    async def _api(self) -> ApiDescription:
        """Read the document at the connection or a well-known URL below it; fall back to generic requests."""
        connection, mode = self.config.connection, self.config.utcp_mode.value
        if mode != "base_url":
            try:
                return await self._read(connection)
            except ToolError as error:
                if mode == "manual_url" or not is_http_url(connection) or not _is_no_document(error):
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
        connection, config = self.config.connection, self.config
        remote = is_http_url(connection)
        client = self._client.for_document(config.base_url or connection) if remote else HttpClient(hosts)
        client.timeout_s, client.max_bytes, client.max_redirects = config.timeout_s, _RESPONSE_BYTES, 0
        self._call_client = client
        self._make_send = lambda timeout_s: make_sender(client, timeout_s=timeout_s, limits=JsonLimits.of(config))
        self._send = self._make_send(None)
        self._tokens = ClientTokens(client)
        # Without security schemes, the credential of the source is sent unchanged.
        self._credentials = (
            Credentials(schemes, values, source=config.name, tokens=self._tokens, headers=config.headers)
            if schemes
            else None
        )
        self._has_secrets = bool(values or self.credential.headers or self._secrets)
        if is_http_url(connection):
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
            msg = f"the document of {self.name!r} sends its calls to {host}, with your credentials"
            raise ToolAuthError(f"{msg}; if this is intended, set base_url: {operation.servers[0]} in the source")

    async def close(self) -> None:
        if self._tokens is not None:
            await self._tokens.close()
        for client in filter(None, [*self._retired, self._call_client]):
            await client.close()
        await self._reference_client.close()
        await self._client.close()


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _is_no_document(error: ToolError) -> bool:
    return isinstance(error, ConfigError) or error.error_code == _NO_DOCUMENT


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

    def describe_call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the request of a call, without its credential."""
        return describe_request(self.builder.build(arguments))


async def call_operation(
    builder: RequestBuilder,
    arguments: Mapping[str, Any],
    *,
    send: Send,
    credentials: Credentials | None,
    credential: Credential = NO_CREDENTIAL,
    files: Mapping[str, File] | None = None,
    headers: Sequence[Pair] = (),
    secrets: Sequence[str] = (),
) -> ToolOutput:
    """Send one request and parse its response; renew a rejected token once. `secrets` are redacted from messages."""
    operation = builder.operation
    planned = builder.build(arguments, files).with_headers(headers)
    presentation = (
        await credentials.present(operation, credential) if credentials is not None else present_headers(credential)
    )
    response = await send(planned.presenting(presentation))
    if response.status == 401 and credentials is not None and credentials.forget(presentation):
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
    return output.with_note(STREAM_CUT) if response.is_cut else output
