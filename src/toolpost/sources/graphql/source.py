"""Tool source for a GraphQL API: one tool per query and mutation field, called over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

from msgspec.structs import replace

from toolpost.catalog.names import canonical_name
from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolClientError,
    ToolError,
    ToolRateLimitError,
    ToolSchemaError,
    ToolServerError,
)
from toolpost.contracts.spec import JsonSchema, SafetyProfile, ToolCategory, ToolSpec, ToolTarget
from toolpost.http.encoding import split_query
from toolpost.schema.json_size import CheckedJson, JsonLimits
from toolpost.schema.json_values import is_object
from toolpost.schema.secrets import is_secret_header
from toolpost.sources.base import BaseSource, Services, SourceTool
from toolpost.sources.files import FormPart, load_artifacts
from toolpost.sources.graphql.operations import GraphqlOperation
from toolpost.sources.graphql.options import GraphqlOptions
from toolpost.sources.graphql.responses import (
    GraphqlRequest,
    GraphqlResponse,
    encode_request,
    error_of,
    output_of,
    parse_large_response,
    parse_response,
)
from toolpost.sources.graphql.schema_loader import SchemaLoader
from toolpost.sources.requests import PlannedRequest, Presentation, Send, make_sender
from toolpost.wire.client import HttpClient

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_INTROSPECTION_HINT = (
    "Check the address and the credential of the source; if the server does not allow introspection, write its schema"
    " into options.schema_file (SDL or introspection JSON)."
)
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_DESTRUCTIVE_VERBS = frozenset({"delete", "destroy", "remove"})
_FORWARD = ("hasNextPage", "endCursor", "after")
_BACKWARD = ("hasPreviousPage", "startCursor", "before")


class GraphqlSource(BaseSource):
    """Tool source for one GraphQL endpoint; redirects are not followed."""

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._artifacts = services.artifacts
        self._loader = SchemaLoader(config)
        policy = services.network.for_source(config.connection)
        self._client = HttpClient(policy, timeout_s=config.timeout_s, max_bytes=_MAX_RESPONSE_BYTES, max_redirects=0)
        address, _, query = config.connection.partition("#")[0].partition("?")
        self._http_request = PlannedRequest("POST", address, query=split_query(query))
        self._headers = tuple(config.headers.items())
        self._secrets = tuple(value for name, value in self._headers if is_secret_header(name, value))
        self._write = make_sender(self._client, limits=JsonLimits.of(config))
        self._read = make_sender(self._client, reads=True, limits=JsonLimits.of(config))
        self._send_introspection = make_sender(self._client, timeout_s=config.connect_timeout_s, reads=True)

    async def discover(self) -> Sequence[GraphqlTool]:
        """Load the schema from `options.schema_file` or by introspection, and build the tools."""
        loader, file = SchemaLoader(self.config), self.config.read_options(GraphqlOptions).schema_file
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                if file is None:
                    await asyncio.to_thread(loader.read_introspection, await self._introspect(loader))
                else:
                    await asyncio.to_thread(loader.read_file, file)
        except TimeoutError:
            raise loader.timeout_error() from None
        self._loader = loader
        self.problems = [f"source {self.name!r}: {problem}" for problem in loader.problems]
        # Hundreds of operations take a while; do not block the event loop.
        return await asyncio.to_thread(self._build_tools, loader)

    def _build_tools(self, loader: SchemaLoader) -> list[GraphqlTool]:
        url = self.config.connection
        return [GraphqlTool(tool_spec(one, source=self.name, url=url), self, one) for one in loader.operations]

    async def _introspect(self, loader: SchemaLoader) -> dict[str, Any]:
        """Introspect the server; errors get a hint about address, credential and `schema_file`."""
        try:
            return await self._query_schema(loader, f"introspection of {self.name!r}")
        except (ToolAuthError, ToolClientError, ToolServerError, ToolSchemaError) as error:
            if error.status_code != HTTPStatus.UNAUTHORIZED:  # its message already says what to do
                error.message = f"{error.message.rstrip('.')}. {_INTROSPECTION_HINT}"
                error.args = (error.message,)
            raise

    async def _query_schema(self, loader: SchemaLoader, subject: str) -> dict[str, Any]:
        """Send the introspection queries, newest first, until the server accepts one."""
        error: ToolError = ToolSchemaError(f"{subject} returned no schema")
        for query in loader.introspection_queries:
            request = GraphqlRequest(subject, query, "IntrospectionQuery", {})
            response = await self._send(request, self.credential, self._send_introspection)
            if is_object(response.data) and is_object(response.data.get("__schema")):
                return response.data
            if not response.errors:
                break
            error = error_of(response, subject)
            if isinstance(error, ToolAuthError | ToolRateLimitError):
                break
        raise error

    async def invoke(self, call: AuthorizedCall) -> ToolOutput:
        """Send the operation of one call; arguments are sent as variables, never spliced into the document."""
        operation, variables = cast("GraphqlTool", call.tool).operation, dict(call.arguments)
        if operation.selection_argument is not None:
            selection = variables.pop(operation.selection_argument, None) or ""
            if selection.strip():  # validating a selection can take a second: keep the event loop free
                operation = await asyncio.to_thread(self._loader.with_selection, operation, selection)
        split = operation.split_variables(variables)
        files: dict[str, FormPart] = {}
        if split.files:
            owner = call.request.principal
            files = split.form_parts(await load_artifacts(split.artifact_ids, self._artifacts, owner))
        subject, reads = f"{operation.kind} {operation.name!r}", operation.kind != "mutation"
        send = self._read if reads else self._write
        if call.attempt_s is not None:
            limits = JsonLimits.of(self.config)
            send = make_sender(self._client, timeout_s=call.attempt_s, reads=reads, limits=limits)
        request = GraphqlRequest(subject, operation.query, operation.name, split.variables, files)
        response = await self._send(request, call.credential, send)
        return with_next_page(output_of(operation, response, subject), operation.input_schema, split.variables)

    async def _send(self, request: GraphqlRequest, credential: Credential, send: Send) -> GraphqlResponse:
        presentation = Presentation(headers=tuple(credential.headers.items()))
        headers, body = encode_request(request)
        http_request = replace(self._http_request, headers=headers, body=body, presented=presentation)
        response = await send(http_request.with_headers(self._headers))
        secrets = (*presentation.secrets, *self._secrets)
        if isinstance(response.body, CheckedJson):
            return await parse_large_response(request, response, secrets)
        return parse_response(request.subject, response, secrets=secrets)

    async def close(self) -> None:
        await self._client.close()


class GraphqlTool(SourceTool):
    """A tool that sends one query or mutation."""

    __slots__ = ("operation",)

    def __init__(self, spec: ToolSpec, source: GraphqlSource, operation: GraphqlOperation) -> None:
        super().__init__(spec, source)
        self.operation = operation

    def describe_call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the query of a call and its variables."""
        return {"kind": "graphql", "query": self.operation.query, "variables": dict(arguments)}


def tool_spec(operation: GraphqlOperation, *, source: str, url: str) -> ToolSpec:
    """Build the tool spec of an operation: queries are read-only and idempotent, mutations are not."""
    is_query = operation.kind == "query"
    is_destructive = not _DESTRUCTIVE_VERBS.isdisjoint(map(str.lower, _NAME_WORD.findall(operation.name)))
    return ToolSpec(
        name=canonical_name(source, operation.tool_name),
        description=operation.description,
        category=ToolCategory.NETWORK,
        input_schema=operation.input_schema,
        model_schema=operation.model_schema,
        output_schema=operation.output_schema,
        side_effects="read" if is_query else "external",
        replay="idempotent" if is_query else "unsafe",
        safety=SafetyProfile(network=True, destructive=False if is_query else is_destructive or None, open_world=True),
        tags=("graphql", source),
        source=source,
        origin=source,
        deprecated=operation.deprecated,
        extra={"source": "graphql", "namespace": source, "remote_name": operation.name, "operation": operation.kind},
        target=ToolTarget("graphql", f"{operation.kind} {operation.name} at {url}", lambda: operation.query),
    )


def with_next_page(output: ToolOutput, input_schema: JsonSchema, variables: Mapping[str, Any]) -> ToolOutput:
    """Add the arguments of the next page to a Relay connection that has one: as a note and in `meta`."""
    content = output.content
    page = content.get("pageInfo") if is_object(content) else None
    if not is_object(page):
        return output
    flag, cursor, argument = _FORWARD if variables.get("last") is None else _BACKWARD
    value = page.get(cursor)
    if page.get(flag) is not True or not isinstance(value, str) or argument not in input_schema["properties"]:
        return output
    arguments = {argument: value}
    meta = {**output.meta, "next": {"arguments": arguments}}
    return replace(output, meta=meta).with_note(f"There is more: call again with {json.dumps(arguments)}.")
