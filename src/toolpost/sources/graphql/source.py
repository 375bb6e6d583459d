"""Tool source for a GraphQL API: one tool per query and mutation field."""

from __future__ import annotations

import asyncio
import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from toolpost.catalog.names import canonical_name
from toolpost.contracts.errors import (
    ConfigError,
    ToolAuthError,
    ToolClientError,
    ToolError,
    ToolRateLimitError,
    ToolSchemaError,
    ToolServerError,
)
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, ToolTarget
from toolpost.schema.json_values import is_object
from toolpost.sources.graphql.endpoint import GraphqlEndpoint, GraphqlRequest, error_of, output_of
from toolpost.transports.base import BaseSource
from toolpost.web.files import load_artifacts
from toolpost.wire.client import HttpClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.spec import JsonSchema
    from toolpost.sources.graphql.operations import GraphqlOperation
    from toolpost.sources.graphql.schema_loader import SchemaLoader
    from toolpost.transports.base import Services

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_INTROSPECTION_HINT = (
    "Check the address and the credential of the source; if the server does not allow introspection, write its schema"
    " into graphql.schema_file (SDL or introspection JSON)."
)
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_DESTRUCTIVE_VERBS = frozenset({"delete", "destroy", "remove"})
_FORWARD = ("hasNextPage", "endCursor", "after")
_BACKWARD = ("hasPreviousPage", "startCursor", "before")


class GraphqlTool:
    """A tool that sends one query or mutation."""

    __slots__ = ("_source", "operation", "spec")

    def __init__(self, spec: ToolSpec, operation: GraphqlOperation, source: GraphqlSource) -> None:
        self.spec = spec
        self.operation = operation
        self._source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Send the operation with the source's own credential; raise a ToolError when it fails."""
        started = now_ms()
        output = await self._source.run(self.operation, params)
        return ToolResult.completed(output.content, output.text, started_at=started)


class GraphqlSource(BaseSource):
    """Tool source for one GraphQL endpoint; redirects are not followed."""

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config)
        self._credential = services.credential
        self._artifacts = services.artifacts
        self._loader = _loader(config)
        policy = services.network.for_source(config.connection)
        self._client = HttpClient(policy, timeout_s=config.timeout_s, max_bytes=_MAX_RESPONSE_BYTES, max_redirects=0)
        self._endpoint = GraphqlEndpoint(config, self._client)

    async def discover(self) -> Sequence[GraphqlTool]:
        """Load the schema from `graphql.schema_file` or by introspection, and build the tools."""
        loader, file = _loader(self.config), self.config.graphql.schema_file
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
        return [GraphqlTool(tool_spec(one, source=self.name, url=url), one, self) for one in loader.operations]

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
        error: ToolError = ToolSchemaError(f"{subject} gave no schema")
        for query in loader.introspection_queries:
            request = GraphqlRequest(subject, query, "IntrospectionQuery", {})
            response = await self._endpoint.introspect(request, self._credential)
            if is_object(response.data) and is_object(response.data.get("__schema")):
                return response.data
            if not response.errors:
                break
            error = error_of(response, subject)
            if isinstance(error, ToolAuthError | ToolRateLimitError):
                break
        raise error

    async def invoke(self, call: AuthorizedCall) -> ToolOutput:
        """Send the operation of one call with its credential."""
        operation = cast("GraphqlTool", call.tool).operation
        tenant = call.request.principal.tenant
        return await self.run(operation, call.arguments, credential=call.credential, tenant=tenant)

    async def run(
        self,
        operation: GraphqlOperation,
        arguments: dict[str, Any],
        *,
        credential: Credential | None = None,
        tenant: str = "",
    ) -> ToolOutput:
        """Send an operation; arguments are sent as variables, never spliced into the document."""
        variables = dict(arguments)
        if operation.selection_argument is not None:
            selection = variables.pop(operation.selection_argument, None) or ""
            if selection.strip():  # validating a selection can take a second: keep the event loop free
                operation = await asyncio.to_thread(self._loader.with_selection, operation, selection)
        split = operation.split_variables(variables)
        files = (
            split.form_parts(await load_artifacts(split.artifact_ids, self._artifacts, tenant)) if split.files else {}
        )
        subject, writes = f"{operation.kind} {operation.name!r}", operation.kind == "mutation"
        request = GraphqlRequest(subject, operation.query, operation.name, split.variables, files, writes)
        response = await self._endpoint.send(request, self._credential if credential is None else credential)
        return with_next_page(output_of(operation, response, subject), operation.input_schema, split.variables)

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        await self._client.close()


def _loader(config: ExternalToolConfig) -> SchemaLoader:
    try:
        from toolpost.sources.graphql.schema_loader import SchemaLoader  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        msg = f"source {config.name!r} needs the GraphQL extra ({error.name} is missing)"
        raise ConfigError(f"{msg}: pip install 'toolpost[graphql]'") from error
    return SchemaLoader(config)


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
    return output._replace(meta=meta).noted(f"There is more: call again with {json.dumps(arguments)}.")
