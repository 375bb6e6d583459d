"""A GraphQL API as a source of tools, called over one guarded client."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import NO_CREDENTIAL
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
from toolpost.schema.jsontypes import is_object
from toolpost.sources.graphql.answers import failure, output_of
from toolpost.sources.graphql.endpoint import Endpoint, Question
from toolpost.sources.graphql.pages import going_on
from toolpost.sources.graphql.spec import tool_spec
from toolpost.web.files import files_at
from toolpost.wire.client import HttpClient
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.spec import ToolSpec
    from toolpost.contracts.storage import ArtifactStore
    from toolpost.sources.graphql.operations import Operation
    from toolpost.sources.graphql.reader import Reader

_ANSWER_BYTES = 64 * 1024 * 1024
_REMEDY = (
    "Check the address and the credential of the source; if the server does not allow introspection, write its schema"
    " into graphql.schema_file (SDL or introspection JSON)."
)


class FieldTool:
    """One query or mutation as a tool."""

    __slots__ = ("_source", "operation", "spec")

    def __init__(self, spec: ToolSpec, operation: Operation, source: GraphqlSource) -> None:
        self.spec = spec
        self.operation = operation
        self._source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run it with the source's own credential; what fails is raised."""
        started = now_ms()
        output = await self._source.run(self.operation, params)
        return ToolResult.completed(output.content, output.text, started_at=started)


class GraphqlSource:
    """The queries and mutations of the endpoint that an operator wrote down; nothing is sent anywhere else."""

    def __init__(
        self,
        config: ExternalToolConfig,
        *,
        credential: Credential = NO_CREDENTIAL,
        network: NetworkPolicy | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self.config = config
        self._credential = credential
        self._artifacts = artifacts
        self._reader = _reader(config)
        policy = (network or NetworkPolicy()).for_source(config.connection)
        self._client = HttpClient(policy, timeout_s=config.timeout_s, max_bytes=_ANSWER_BYTES, max_redirects=0)
        self._endpoint = Endpoint(config, self._client)
        self.problems: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        return self.config.name

    async def discover(self) -> Sequence[FieldTool]:
        """Read the schema: from the file that is written down, else from the server itself."""
        reader, file = _reader(self.config), self.config.graphql.schema_file
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                if file is None:
                    await asyncio.to_thread(reader.read_introspection, await self._introspect(reader))
                else:
                    await asyncio.to_thread(reader.read_file, file)
        except TimeoutError:
            raise reader.late() from None
        self._reader = reader
        self.problems = [f"source {self.name!r}: {problem}" for problem in reader.problems]
        return [
            FieldTool(tool_spec(one, source=self.name, url=self.config.connection), one, self)
            for one in reader.operations
        ]

    async def _introspect(self, reader: Reader) -> dict[str, Any]:
        """What the server says of itself; an error says what to do where it says nothing."""
        try:
            return await self._told(reader, f"introspection of {self.name!r}")
        except (ToolAuthError, ToolClientError, ToolServerError, ToolSchemaError) as refused:
            if refused.status_code != HTTPStatus.UNAUTHORIZED:  # which says itself what to do
                refused.message = f"{refused.message.rstrip('.')}. {_REMEDY}"
                refused.args = (refused.message,)
            raise

    async def _told(self, reader: Reader, subject: str) -> dict[str, Any]:
        """Ask for the schema; a server that does not know the newest questions is asked simpler ones."""
        refused: ToolError = ToolSchemaError(f"{subject} gave no schema")
        for query in reader.introspection:
            question = Question(subject, query, "IntrospectionQuery", {})
            answer = await self._endpoint.ask_slowly(question, self._credential)
            if is_object(answer.data) and is_object(answer.data.get("__schema")):
                return answer.data
            if not answer.faults:
                break
            refused = failure(answer, subject)
            if isinstance(refused, ToolAuthError | ToolRateLimitError):
                break
        raise refused

    async def invoke(self, call: AuthorizedCall) -> ToolOutput:
        """Run one call."""
        operation = cast("FieldTool", call.tool).operation
        tenant = call.request.principal.tenant
        return await self.run(operation, call.arguments, credential=call.credential, tenant=tenant)

    async def run(
        self,
        operation: Operation,
        arguments: dict[str, Any],
        *,
        credential: Credential | None = None,
        tenant: str = "",
    ) -> ToolOutput:
        """Send an operation; its arguments travel as variables and never as part of the query."""
        variables = dict(arguments)
        if operation.selection_argument is not None:
            chosen = variables.pop(operation.selection_argument, None) or ""
            if chosen.strip():  # checking it can take a second, which others need not wait for
                operation = await asyncio.to_thread(self._reader.selected, operation, chosen)
        given = operation.parted(variables)
        files = given.parts(await files_at(given.artifact_ids, self._artifacts, tenant)) if given.files else {}
        subject, writes = f"{operation.kind} {operation.name!r}", operation.kind == "mutation"
        question = Question(subject, operation.query, operation.name, given.variables, files, writes)
        answer = await self._endpoint.ask(question, self._credential if credential is None else credential)
        return going_on(output_of(operation, answer, subject), operation.input_schema, given.variables)

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        await self._client.close()


def _reader(config: ExternalToolConfig) -> Reader:
    try:
        from toolpost.sources.graphql.reader import Reader  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        msg = f"source {config.name!r} needs the GraphQL extra ({error.name} is missing)"
        raise ConfigError(f"{msg}: pip install 'toolpost[graphql]'") from error
    return Reader(config)
