"""Tool source for a GraphQL API: load its schema, offer a tool per query and mutation field, send calls over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, cast

from graphql import (
    GraphQLError,
    GraphQLSchema,
    build_client_schema,
    build_schema,
    get_introspection_query,
    parse_const_value,
)
from msgspec.structs import replace

from toolpost.catalog.names import canonical_name
from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import (
    ConfigError,
    ToolAuthError,
    ToolClientError,
    ToolError,
    ToolNodeError,
    ToolOutputError,
    ToolRateLimitError,
    ToolSchemaError,
    ToolServerError,
    ToolTimeoutError,
    ToolValidationError,
    from_status,
)
from toolpost.contracts.spec import JsonSchema, SafetyProfile, ToolCategory, ToolSpec, ToolTarget
from toolpost.processes.json_documents import cut_document
from toolpost.schema.json_size import CheckedJson, JsonLimits
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.secrets import is_secret_header
from toolpost.sources.graphql.operations import (
    SELECTION_ARGUMENT,
    GraphqlOperation,
    OperationBuilder,
    SelectionError,
    truncate,
)
from toolpost.transports.base import BaseSource, Services, SourceTool
from toolpost.web.content import UnreadableError, looks_like_json, parse_body, parse_json
from toolpost.web.requests import (
    FormPart,
    Pair,
    PlannedRequest,
    Presentation,
    Send,
    UnsendableError,
    compact_json,
    encode_multipart,
    load_artifacts,
    make_sender,
    response_error,
    sanitize,
    split_query,
    unusable_error,
)
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Headers, Response, parse_retry_after

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_INTROSPECTION_HINT = (
    "Check the address and the credential of the source; if the server does not allow introspection, write its schema"
    " into graphql.schema_file (SDL or introspection JSON)."
)
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_DESTRUCTIVE_VERBS = frozenset({"delete", "destroy", "remove"})
_FORWARD = ("hasNextPage", "endCursor", "after")
_BACKWARD = ("hasPreviousPage", "startCursor", "before")


class GraphqlTool(SourceTool):
    """A tool that sends one query or mutation."""

    __slots__ = ("operation",)

    def __init__(self, spec: ToolSpec, source: GraphqlSource, operation: GraphqlOperation) -> None:
        super().__init__(spec, source)
        self.operation = operation


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
        """Load the schema from `graphql.schema_file` or by introspection, and build the tools."""
        loader, file = SchemaLoader(self.config), self.config.graphql.schema_file
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
        error: ToolError = ToolSchemaError(f"{subject} gave no schema")
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
        """Send a request; raise a ToolError for a response that is not a GraphQL response."""
        presentation = Presentation(headers=tuple(credential.headers.items()))
        headers, body = _encode(request)
        http_request = replace(self._http_request, headers=headers, body=body, presented=presentation)
        response = await send(http_request.with_headers(self._headers))
        secrets = (*presentation.secrets, *self._secrets)
        if isinstance(response.body, CheckedJson):
            return await _parse_large(request, response, secrets)
        return parse_response(request.subject, response, secrets=secrets)

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        await self._client.close()


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


_ACCEPT = ("Accept", "application/graphql-response+json, application/json;q=0.9")
_JSON_CONTENT = ("Content-Type", "application/json")
# CSRF protection of Apollo and Hot Chocolate: any web page can send a form, but not with a header of its own.
_CSRF_HEADERS = (("Apollo-Require-Preflight", "true"), ("GraphQL-Preflight", "1"))
_JSON_MEDIA_TYPES = ("application/json",)
_PLAIN_HTTP_ERRORS = frozenset({401, 403, 429})
_REMEDY = "Check the credential of the source."
_MAX_ERRORS = 5
_CAMEL_CASE_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")
_AUTH_STATUSES = frozenset({401, 403})
# The HTTP status for an error code: the codes of Apollo, GitHub, Hasura, Hot Chocolate, Lighthouse, Linear, Saleor,
# Shopify and Spring.
_STATUS_BY_CODE: dict[str, int] = {
    **dict.fromkeys(("UNAUTHENTICATED", "UNAUTHORIZED", "AUTHENTICATION", "AUTHENTICATION_ERROR"), 401),
    **dict.fromkeys(("INVALID_JWT", "EXPIRED_SIGNATURE_ERROR", "AUTH_NOT_AUTHENTICATED", "401"), 401),
    **dict.fromkeys(("FORBIDDEN", "ACCESS_DENIED", "PERMISSION_DENIED", "AUTHORIZATION", "403"), 403),
    **dict.fromkeys(("INSUFFICIENT_SCOPES", "AUTH_NOT_AUTHORIZED"), 403),
    **dict.fromkeys(
        ("THROTTLED", "RATE_LIMITED", "RATELIMITED", "RATE_LIMIT_EXCEEDED", "TOO_MANY_REQUESTS", "429"), 429
    ),
    **dict.fromkeys(("INTERNAL_SERVER_ERROR", "INTERNAL_ERROR", "500"), 500),
    **dict.fromkeys(("SERVICE_UNAVAILABLE", "UNAVAILABLE", "503"), 503),
    "TIMEOUT": 504,
}


class GraphqlRequest(NamedTuple):
    """A GraphQL request. `subject` names it in errors; `files` are form parts by their path in the variables."""

    subject: str
    query: str
    operation_name: str
    variables: Mapping[str, Any]
    files: Mapping[str, FormPart] = {}


def _encode(request: GraphqlRequest) -> tuple[tuple[Pair, ...], bytes]:
    """Return headers and body: JSON, or with files a multipart form (operations, map, then the files)."""
    if not request.files:
        return (_ACCEPT, _JSON_CONTENT), _json_body(request)
    paths = {part.name: [path] for path, part in request.files.items()}
    first = FormPart("operations", _json_body(request)), FormPart("map", compact_json(paths).encode())
    body, boundary = encode_multipart([*first, *request.files.values()])
    return (_ACCEPT, ("Content-Type", f"multipart/form-data; boundary={boundary}"), *_CSRF_HEADERS), body


def _json_body(request: GraphqlRequest) -> bytes:
    payload = {
        "query": request.query,
        "operationName": request.operation_name,
        "variables": dict(request.variables),
    }
    try:
        return compact_json(payload).encode()
    except UnsendableError as error:
        raise ToolValidationError(f"{request.subject} cannot be sent: {error}") from error


class ErrorEntry(NamedTuple):
    """One entry of a response's `errors`."""

    message: str
    code: str
    path: str

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{text} ({self.code})" if self.code else text


class GraphqlResponse(NamedTuple):
    """A well-formed GraphQL response. `secrets` are redacted from error texts.

    `executed` is False for a request error: the response then has no `data` entry, not even null.
    """

    data: Any
    errors: list[ErrorEntry]
    status: int
    headers: Headers
    executed: bool
    wait_s: float | None = None
    secrets: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether the HTTP status is 2xx."""
        return 200 <= self.status < 300

    @property
    def error_text(self) -> str:
        """Return the errors as one line, redacted."""
        more = len(self.errors) - _MAX_ERRORS
        entries = [*map(str, self.errors[:_MAX_ERRORS]), *([f"and {more} more"] if more > 0 else [])]
        return sanitize("; ".join(entries), self.secrets)


def parse_response(subject: str, response: Response, *, secrets: Sequence[str] = ()) -> GraphqlResponse:
    """Parse an HTTP response; raise the error of its status, or ToolOutputError when it is not a GraphQL response."""
    status, headers = response.status, response.headers
    if status in _PLAIN_HTTP_ERRORS:
        raise response_error(subject, status, headers, response.body, remedy=_REMEDY, secrets=secrets)
    try:
        content = parse_body(response.body, headers.get("content-type") or "", declared=_JSON_MEDIA_TYPES).value
        reason = "it is not a GraphQL answer: an object with data or errors"
    except UnreadableError as error:
        content, reason = None, str(error)
    ok = 200 <= status < 300
    if is_object(content) and ("data" in content or "errors" in content):
        errors = parse_errors(content.get("errors"))
        if ok or errors:
            wait = parse_retry_after(headers) or _throttle_wait_s(content.get("extensions"))
            return GraphqlResponse(content.get("data"), errors, status, headers, "data" in content, wait, secrets)
    if not ok:
        raise response_error(subject, status, headers, response.body, remedy=_REMEDY, secrets=secrets)
    raise unusable_error(subject, status, response.body, reason, secrets)


async def _parse_large(request: GraphqlRequest, response: Response, secrets: Sequence[str]) -> GraphqlResponse:
    """Parse a response of many values without those of the operation's field, which stay JSON."""
    response.body, value = await cut_document(response.body, ("data", request.operation_name))
    parsed = parse_response(request.subject, response, secrets=secrets)
    if value is not None and is_object(parsed.data):
        parsed.data[request.operation_name] = CheckedJson(value)
    return parsed


def output_of(operation: GraphqlOperation, response: GraphqlResponse, subject: str) -> ToolOutput:
    """Return the value of the operation's field; partial errors are a note on a query and an error of a mutation."""
    data = response.data
    value = data.get(operation.name) if is_object(data) else None
    if response.errors and (value is None or operation.kind == "mutation" or not response.ok):
        error = error_of(response, subject, effect=value is not None)
        if operation.kind == "mutation" and response.executed and error.status_code in _AUTH_STATUSES:
            # A 401 or 403 is sent again with another credential, but this mutation may have had an effect.
            error.status_code = None
        raise error
    if not is_object(data) or operation.name not in data:
        raise ToolOutputError(f"{subject} answered without errors, but there is no {operation.name!r} in its data")
    if not response.errors:
        return ToolOutput(value)
    return ToolOutput(value).with_note(f"The server told errors beside this data: {response.error_text}")


def error_of(response: GraphqlResponse, subject: str, *, effect: bool = False) -> ToolNodeError:
    """Map the response's errors to a ToolError: by error code, else by HTTP status."""
    message = f"{subject} failed: {response.error_text}"
    if effect:
        message = f"{message.rstrip('.')}. It gave data too, so it may have had its effect"
    coded = next((_STATUS_BY_CODE[entry.code] for entry in response.errors if entry.code in _STATUS_BY_CODE), None)
    status = coded or (response.status if response.status >= 400 else None)
    error = ToolClientError(message) if status is None else from_status(status, message)
    error.retry_after_s = response.wait_s
    return error


def _throttle_wait_s(extensions: Any) -> float | None:
    """Return the seconds until enough query cost is restored, from Shopify's `cost` extension."""
    cost = as_object(as_object(extensions).get("cost"))
    throttle = as_object(cost.get("throttleStatus"))
    needed = cost.get("requestedQueryCost")
    available, rate = throttle.get("currentlyAvailable"), throttle.get("restoreRate")
    if not (isinstance(needed, int | float) and isinstance(available, int | float) and isinstance(rate, int | float)):
        return None
    return (needed - available) / rate if rate > 0 and needed > available else None


def parse_errors(errors: Any) -> list[ErrorEntry]:
    """Parse `errors`; some servers send a string or an object in place of a list."""
    if not errors:
        return []
    return [_error_entry(error) for error in (errors if is_array(errors) else [errors])]


def _error_entry(error: Any) -> ErrorEntry:
    if not is_object(error):
        return ErrorEntry(error if isinstance(error, str) else compact_json(error), "", "")
    message = error.get("message")
    path = error.get("path")
    return ErrorEntry(
        message if isinstance(message, str) and message else "no reason given",
        _error_code(error),
        ".".join(map(str, path)) if is_array(path) else "",
    )


def _error_code(error: dict[str, Any]) -> str:
    """Return the error code in upper snake case, from any of the places where servers put it."""
    extensions = as_object(error.get("extensions"))
    places = (
        extensions.get("code"),
        extensions.get("classification"),
        as_object(extensions.get("exception")).get("code"),
        extensions.get("category"),
        error.get("type"),
        error.get("errorType"),
        error.get("code"),
    )
    code = next((str(place) for place in places if place and isinstance(place, str | int)), "")
    return _CAMEL_CASE_BOUNDARY.sub("_", code).upper().replace("-", "_")


# ---------------------------------------------------------------- the schema: from introspection, or from a file

_MAX_FILE_BYTES = 64 * 1024 * 1024
_MAX_PROBLEMS = 20
_MAX_REASON_CHARS = 300
_SHALLOW_TYPE_DEPTH = 5  # enough for [[T!]!]!, and within common depth limits of servers
_BUILT_IN_SCALARS = ("Int", "Float", "String", "Boolean", "ID")
_OUTPUT_KINDS = frozenset({"SCALAR", "OBJECT", "INTERFACE", "UNION", "ENUM"})
_INPUT_KINDS = frozenset({"SCALAR", "ENUM", "INPUT_OBJECT"})
_WRAPPERS = ("LIST", "NON_NULL")
_MAX_WRAPPERS = 16
_MAX_NAME_CHARS = 60
_ROOTS = ("queryType", "mutationType", "subscriptionType")
# Names become part of every document, so a name that breaks GraphQL's grammar must not pass.
_NAME = re.compile(r"(?!__)[_A-Za-z][_0-9A-Za-z]{0,199}")


class SchemaLoader:
    """Loads the schema of one source and builds its operations within `connect_timeout_s`."""

    introspection_queries = (
        get_introspection_query(specified_by_url=True, input_value_deprecation=True, one_of=True),
        get_introspection_query(),
        get_introspection_query(type_depth=_SHALLOW_TYPE_DEPTH),
    )

    def __init__(self, config: ExternalToolConfig) -> None:
        self._config = config
        self._deadline = time.monotonic() + config.connect_timeout_s
        self._builder: OperationBuilder | None = None
        self.problems: list[str] = []
        self.operations: list[GraphqlOperation] = []

    def read_file(self, file: str) -> None:
        """Load the schema from a file; raise a ConfigError that names the file."""
        what = f"graphql.schema_file {file!r} of source {self._config.name!r}"
        raw = _read_bytes(file, what)
        try:
            if looks_like_json(raw) and is_object(document := parse_json(raw)):
                return self.read_introspection(document.get("data", document))
            self._build_operations(build_schema(raw.decode(), assume_valid=True, assume_valid_sdl=True), [])
        except (GraphQLError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{what} is no schema: {_reason(error)}") from error

    def read_introspection(self, data: Any) -> None:
        """Load the schema from an introspection result."""
        schema = data.get("__schema") if is_object(data) else None
        if not is_object(schema):
            raise ToolSchemaError(f"source {self._config.name!r}: the introspection has no __schema")
        introspection, problems = sanitize_introspection(schema)
        try:
            built = build_client_schema(introspection, assume_valid=True)  # type: ignore[arg-type]
        except (GraphQLError, TypeError, ValueError, RecursionError) as error:
            what = f"the schema of source {self._config.name!r}"
            raise ToolSchemaError(f"{what} cannot be used: {_reason(error)}") from error
        self._build_operations(built, problems)

    def with_selection(self, operation: GraphqlOperation, text: str) -> GraphqlOperation:
        """Return the operation with a caller's selection; raise ToolValidationError when it is invalid."""
        if self._builder is None:
            raise ConfigError(f"source {self._config.name!r} was not read yet")
        try:
            return self._builder.with_selection(operation, text)
        except SelectionError as error:
            raise ToolValidationError(f"$.{SELECTION_ARGUMENT}: {error}") from error

    def timeout_error(self) -> ToolTimeoutError:
        """Build the error for a schema that was not loaded in time."""
        what = f"the schema of source {self._config.name!r} was not read within {self._config.connect_timeout_s:g} s"
        return ToolTimeoutError(f"{what}; raise connect_timeout_s, or write a smaller one into graphql.schema_file")

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise self.timeout_error()

    def _build_operations(self, schema: GraphQLSchema, problems: list[str]) -> None:
        options = self._config.graphql
        builder = OperationBuilder(schema, depth=options.depth, selections=options.selections)
        operations, more = builder.build(self._config.includes, self._check_deadline)
        every = [*more, *problems]
        left = len(every) - _MAX_PROBLEMS
        self.problems = [*every[:_MAX_PROBLEMS], f"and {left} more"] if left > 0 else every
        self._builder, self.operations = builder, operations


def _read_bytes(file: str, what: str) -> bytes:
    path = Path(file).expanduser()
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{what} is larger than {_MAX_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return truncate(str(error), _MAX_REASON_CHARS)


def sanitize_introspection(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the valid part of `__schema`, and the problems of the rest.

    Inputs whose required fields are invalid are dropped, and what requires those.
    """
    sanitizer = _Sanitizer(schema)
    roots = {root: sanitizer.root(schema.get(root)) for root in _ROOTS}
    whole = {"__schema": {**roots, "types": sanitizer.types(), "directives": _STANDARD_DIRECTIVES}}
    return whole, list(dict.fromkeys(sanitizer.problems))


class _Sanitizer:
    """Copies valid types and collects problems about the rest."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self._raw = dict(self._select_named(schema.get("types"), "a type"))
        self._kinds = {name: str(raw.get("kind")) for name, raw in self._raw.items()}
        self._kinds |= dict.fromkeys(_BUILT_IN_SCALARS, "SCALAR")
        for name in self._unusable_inputs():
            del self._kinds[name]

    def _unusable_inputs(self) -> set[str]:
        """Return the input types with an invalid required field, and transitively those that require them."""
        required_by: dict[str, list[str]] = {}
        waiting: list[str] = []
        for owner, raw in self._raw.items():
            for inner in _required_fields(raw):
                kind = self._reference(inner.get("type"), _INPUT_KINDS) if _is_name(inner.get("name")) else None
                if kind is None:
                    waiting.append(owner)
                else:
                    required_by.setdefault(_named_type_of(kind), []).append(owner)
        unusable: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in unusable:
                unusable.add(name)
                waiting += required_by.get(name, ())
        return unusable

    def types(self) -> list[dict[str, Any]]:
        types = {name: self._type(name, raw) for name, raw in self._raw.items() if name not in _BUILT_IN_SCALARS}
        own = [{"kind": "SCALAR", "name": name} for name in _BUILT_IN_SCALARS]
        return [*own, *(kind for kind in types.values() if kind is not None)]

    def root(self, raw: Any) -> dict[str, Any] | None:
        name = raw.get("name") if is_object(raw) else None
        return {"kind": "OBJECT", "name": name} if self._kinds.get(str(name)) == "OBJECT" else None

    def _type(self, name: str, raw: dict[str, Any]) -> dict[str, Any] | None:
        base = {"name": name, "kind": raw.get("kind"), "description": _text_or_none(raw.get("description"))}
        match raw.get("kind"):
            case "SCALAR":
                return base
            case "OBJECT" | "INTERFACE":
                implemented = self._references(raw.get("interfaces"), "INTERFACE")
                return {**base, "interfaces": implemented, "fields": self._fields(name, raw)}
            case "UNION":
                return {**base, "possibleTypes": self._references(raw.get("possibleTypes"), "OBJECT")}
            case "ENUM":
                values = self._select_named(raw.get("enumValues"), f"a value of {name!r}")
                return {**base, "enumValues": [{"name": value, **_annotations(inner)} for value, inner in values]}
            case "INPUT_OBJECT":
                fields = self._inputs(raw.get("inputFields"), f"the input {name!r}")
                if fields is None:
                    return None
                return {**base, "inputFields": fields, "isOneOf": raw.get("isOneOf") is True}
            case kind:
                shown = truncate(str(kind), _MAX_NAME_CHARS)
                self.problems.append(f"the type {name!r} was left out: it is of the unknown kind {shown!r}")
                return None

    def _fields(self, owner: str, raw: dict[str, Any]) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = []
        for name, inner in self._select_named(raw.get("fields"), f"a field of {owner!r}"):
            kind = self._reference(inner.get("type"), _OUTPUT_KINDS)
            arguments = self._inputs(inner.get("args"), f"the field '{owner}.{name}'")
            if kind is None:
                self.problems.append(f"the field '{owner}.{name}' was left out: its type is not known")
            elif arguments is not None:
                fields.append({"name": name, "type": kind, "args": arguments, **_annotations(inner)})
        return fields

    def _inputs(self, raw: Any, owner: str) -> list[dict[str, Any]] | None:
        """Return the valid arguments or input fields; None when a required one is invalid."""
        inputs: list[dict[str, Any]] = []
        for item in raw if is_array(raw) else []:
            inner = as_object(item)
            kind = self._reference(inner.get("type"), _INPUT_KINDS)
            if kind is not None and _is_name(inner.get("name")):
                inputs.append(
                    {"name": inner["name"], "type": kind, "defaultValue": _default(inner), **_annotations(inner)}
                )
                continue
            name = truncate(str(inner.get("name")), _MAX_NAME_CHARS)
            self.problems.append(f"the argument {name!r} of {owner} was left out: its name or type is not valid")
            if _is_required(inner):
                self.problems.append(f"{owner} was left out: it cannot be called without {name!r}")
                return None
        return inputs

    def _select_named(self, raw: Any, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the items with a valid name, each name once; `__` names belong to introspection."""
        seen: set[str] = set()
        for item in raw if is_array(raw) else []:
            name = item.get("name") if is_object(item) else None
            if _is_name(name) and name not in seen:
                seen.add(name)
                yield name, item
            elif not str(name).startswith("__"):
                shown = truncate(str(name), _MAX_NAME_CHARS)
                self.problems.append(f"{what} was left out: {shown!r} is not a GraphQL name, or there are two of it")

    def _references(self, raw: Any, kind: str) -> list[dict[str, Any]]:
        names = [str(item.get("name")) for item in raw if is_object(item)] if is_array(raw) else []
        return [{"kind": kind, "name": name} for name in dict.fromkeys(names) if self._kinds.get(name) == kind]

    def _reference(self, raw: Any, kinds: frozenset[str]) -> dict[str, Any] | None:
        """Return a type reference with its wrappers; None when the named type is unknown or of another kind."""
        wrappers: list[str] = []
        while is_object(raw) and raw.get("kind") in _WRAPPERS and len(wrappers) < _MAX_WRAPPERS:
            wrappers.append(raw["kind"])
            raw = raw.get("ofType")
        name = raw.get("name") if is_object(raw) else None
        kind = self._kinds.get(name) if isinstance(name, str) else None
        if kind not in kinds or ("NON_NULL", "NON_NULL") in pairwise(wrappers):
            return None
        reference: dict[str, Any] = {"kind": kind, "name": name}
        for wrapper in reversed(wrappers):
            reference = {"kind": wrapper, "ofType": reference}
        return reference


def _is_name(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _required_fields(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the required fields of an input type."""
    fields = raw.get("inputFields") if raw.get("kind") == "INPUT_OBJECT" else None
    return [inner for inner in fields if is_object(inner) and _is_required(inner)] if is_array(fields) else []


def _named_type_of(reference: dict[str, Any]) -> str:
    while "ofType" in reference:
        reference = reference["ofType"]
    return str(reference["name"])


def _is_required(inner: dict[str, Any]) -> bool:
    kind = inner.get("type")
    return is_object(kind) and kind.get("kind") == "NON_NULL" and inner.get("defaultValue") is None


def _annotations(inner: dict[str, Any]) -> dict[str, Any]:
    reason = inner.get("deprecationReason")
    if inner.get("isDeprecated") is not True:
        reason = None
    elif not isinstance(reason, str):
        reason = "it is no longer supported"
    return {"description": _text_or_none(inner.get("description")), "deprecationReason": reason}


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _default(inner: dict[str, Any]) -> str | None:
    """Return the default as a GraphQL literal; None when it does not parse, such as JSON."""
    text = inner.get("defaultValue")
    if not isinstance(text, str):
        return None
    try:
        parse_const_value(text, no_location=True)
    except (GraphQLError, RecursionError):
        return None
    return text


def _directive(name: str) -> dict[str, Any]:
    needed = {"kind": "NON_NULL", "ofType": {"kind": "SCALAR", "name": "Boolean"}}
    places = ["FIELD", "FRAGMENT_SPREAD", "INLINE_FRAGMENT"]
    return {"name": name, "locations": places, "args": [{"name": "if", "type": needed}]}


_STANDARD_DIRECTIVES = [_directive("include"), _directive("skip")]
