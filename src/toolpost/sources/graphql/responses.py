"""GraphQL requests and responses over HTTP, and the errors of responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolNodeError, ToolOutputError, ToolValidationError, from_status
from toolpost.http.content import UnreadableError, parse_body
from toolpost.http.encoding import Pair, UnsendableError, compact_json
from toolpost.http.response_errors import response_error, sanitize, unusable_error
from toolpost.processes.json_documents import cut_document
from toolpost.schema.json_size import CheckedJson
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.sources.files import FormPart, encode_multipart
from toolpost.sources.graphql.operations import GraphqlOperation
from toolpost.wire.messages import Headers, Response
from toolpost.wire.retry_after import parse_retry_after

_ACCEPT = ("Accept", "application/graphql-response+json, application/json;q=0.9")
_JSON_CONTENT = ("Content-Type", "application/json")
# CSRF protection of Apollo and Hot Chocolate: any web page can send a form, but not with a custom header.
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


def encode_request(request: GraphqlRequest) -> tuple[tuple[Pair, ...], bytes]:
    """Return headers and body: JSON, or with files a multipart form (operations, map, then the files)."""
    if not request.files:
        return (_ACCEPT, _JSON_CONTENT), _json_body(request)
    paths = {part.name: [path] for path, part in request.files.items()}
    first = FormPart("operations", _json_body(request)), FormPart("map", compact_json(paths).encode())
    body, boundary = encode_multipart([*first, *request.files.values()])
    return (_ACCEPT, ("Content-Type", f"multipart/form-data; boundary={boundary}"), *_CSRF_HEADERS), body


def _json_body(request: GraphqlRequest) -> bytes:
    payload = {"query": request.query, "operationName": request.operation_name, "variables": dict(request.variables)}
    try:
        return compact_json(payload).encode()
    except UnsendableError as error:
        raise ToolValidationError(f"{request.subject} cannot be sent: {error}") from error


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
        return 200 <= self.status < 300

    @property
    def error_text(self) -> str:
        """Return the errors as one line, redacted."""
        more = len(self.errors) - _MAX_ERRORS
        entries = [*map(str, self.errors[:_MAX_ERRORS]), *([f"and {more} more"] if more > 0 else [])]
        return sanitize("; ".join(entries), self.secrets)


class ErrorEntry(NamedTuple):
    """One entry of a response's `errors`."""

    message: str
    code: str
    path: str

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{text} ({self.code})" if self.code else text


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


async def parse_large_response(request: GraphqlRequest, response: Response, secrets: Sequence[str]) -> GraphqlResponse:
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
    return ToolOutput(value).with_note(f"The server also reported errors: {response.error_text}")


def error_of(response: GraphqlResponse, subject: str, *, effect: bool = False) -> ToolNodeError:
    """Map the response's errors to a ToolError: by error code, else by HTTP status."""
    message = f"{subject} failed: {response.error_text}"
    if effect:
        message = f"{message.rstrip('.')}. It also returned data, so it may have taken effect"
    coded = next((_STATUS_BY_CODE[entry.code] for entry in response.errors if entry.code in _STATUS_BY_CODE), None)
    status = coded or (response.status if response.status >= 400 else None)
    error = ToolClientError(message) if status is None else from_status(status, message)
    error.retry_after_s = response.wait_s
    return error
