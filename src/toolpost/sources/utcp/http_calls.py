"""Call the templates that send an HTTP request: http, graphql, sse and streamable_http."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError, ToolTimeoutError
from toolpost.contracts.outcomes import NO_META
from toolpost.http.content import OCTETS, UnreadableError, decode_text, parse_body, parse_media_type
from toolpost.http.encoding import compact_json
from toolpost.http.event_stream import LineDecoder, SseDecoder
from toolpost.http.response_errors import response_error, sanitize, status_phrase, unusable_error
from toolpost.processes.json_documents import cut_document
from toolpost.schema.json_size import CheckedJson
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.requests import STREAM_CUT, PlannedRequest, Presentation, Send
from toolpost.sources.utcp import templates
from toolpost.sources.utcp.context import (
    MAX_BYTES,
    STREAM_TIME_SHARE,
    CompiledTool,
    Invocation,
    ManualContext,
    RequestFactory,
    json_or_text,
)
from toolpost.sources.utcp.http_requests import build_headers, plain_request
from toolpost.sources.utcp.template_credentials import present_credentials
from toolpost.wire.messages import Follow, Response

REMEDY = "Check the credential of the source and the variables of its manual."
_NO_BODY = frozenset({204, 205})
_MAX_ERRORS = 3


async def call_http(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Call an http template and decode its response."""
    response, presentation = await send_authenticated(
        build_request(tool, invocation), tool, invocation, context, context.sender(tool.timeout_s)
    )
    return parse_response(tool, response, (*presentation.secrets, *tool.secrets, *context.header_secrets))


async def call_graphql(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Call a graphql template: POST the query with the arguments as its variables."""
    template = cast("templates.GraphqlTemplate", tool.template)
    variables = dict(invocation.arguments)
    headers = build_headers(template, variables)
    query = template.query or _build_query(template, tool.full_name, variables)
    sent: dict[str, Any] = {"query": query, "variables": variables}
    if template.operation_name:
        sent["operationName"] = template.operation_name
    accepted = (*headers, ("Content-Type", "application/json"), ("Accept", "application/json"))
    planned = plain_request("POST", template.url, accepted, compact_json(sent).encode())
    response, presentation = await send_authenticated(
        planned, tool, invocation, context, context.sender(tool.timeout_s)
    )
    secrets = (*presentation.secrets, *tool.secrets, *context.header_secrets)
    if isinstance(response.body, CheckedJson):
        response.body, data = await cut_document(response.body, ("data",))
        answer = parse_response(tool, response, secrets).content
        if data is not None and is_object(answer) and not answer.get("errors"):
            return ToolOutput(CheckedJson(data))
    return _graphql_output(tool, parse_response(tool, response, secrets).content, secrets)


def _build_query(template: templates.GraphqlTemplate, full_name: str, variables: Mapping[str, Any]) -> str:
    """Build a query of one field without a selection set, for a template that has no query."""
    types = template.variable_types
    declared = ", ".join(f"${name}: {types.get(name, 'String')}" for name in variables)
    passed = ", ".join(f"{name}: ${name}" for name in variables)
    field = full_name.rpartition(".")[2]
    if not all(name.isidentifier() for name in (field, *variables)):
        raise ToolClientError(
            f"{full_name!r} or one of its arguments is not a GraphQL name; its manual needs a `query`"
        )
    if not variables:
        return f"{template.operation_type} {{ {field} }}"
    return f"{template.operation_type} ({declared}) {{ {field}({passed}) }}"


def _graphql_output(tool: CompiledTool, answer: Any, secrets: Sequence[str]) -> ToolOutput:
    """Return `data`; raise the errors, unless a query also returned data."""
    if not is_object(answer) or not ("data" in answer or "errors" in answer):
        raise ToolOutputError(f"{tool.label} did not return a GraphQL response")
    errors, data = answer.get("errors"), answer.get("data")
    if not errors and data is None:
        raise ToolOutputError(f"{tool.label} returned neither data nor errors")
    if not errors:
        return ToolOutput(data)
    reported = errors if is_array(errors) else [errors]
    message = sanitize("; ".join(map(_error_message, reported[:_MAX_ERRORS])), secrets)
    is_empty = not is_object(data) or all(value is None for value in data.values())
    if is_empty or cast("templates.GraphqlTemplate", tool.template).is_mutation:
        effect = "" if is_empty else ". It also returned data, so it may have taken effect"
        raise ToolClientError(f"{tool.label} answered with errors: {message}{effect}", code="graphql_errors")
    return ToolOutput(data).with_note(f"The server also reported errors: {message}")


def _error_message(error: Any) -> str:
    message = error.get("message") if is_object(error) else error
    return (message if isinstance(message, str) else compact_json(message)) if message else "no reason given"


async def call_sse(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Call an sse template and return the data of its events, of one type where the template names one."""
    template = cast("templates.SseTemplate", tool.template)
    planned = build_request(tool, invocation).with_headers((("Accept", "text/event-stream"),))
    async with await open_response(planned, tool, invocation, context) as response:
        if response.media_type != "text/event-stream":
            media_type = response.media_type or "a body without a media type"
            raise ToolOutputError(f"{tool.label} answered with {media_type} where events were promised")
        events = SseDecoder()

        def decode(chunk: bytes) -> list[Any]:
            return [
                json_or_text(event["data"])
                for event in events.feed(chunk)
                if template.event_type in (None, event.get("event") or "message")
            ]

        return await _collect(response, decode, invocation.progress())


async def _collect(
    response: Response, decode: Callable[[bytes], list[Any]], report: Callable[[str], None]
) -> ToolOutput:
    """Collect the items of a stream; if it is cut off, return those received until then."""
    items: list[Any] = []
    try:
        async for chunk in _chunks(response):
            for item in decode(chunk):
                items.append(item)
                report(item if isinstance(item, str) else compact_json(item))
    except (ToolTimeoutError, ToolClientError):
        if not items:
            raise
        return ToolOutput(items).with_note(STREAM_CUT)
    return ToolOutput(items)


async def _chunks(response: Response) -> AsyncIterator[bytes]:
    async for chunk in response.stream():
        yield chunk
    yield b""


async def call_stream(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Call a streamable_http template and return its lines as a list, or its body where it is not lines."""
    async with await open_response(build_request(tool, invocation), tool, invocation, context) as response:
        kind = parse_media_type(response.headers.get("content-type") or "")
        report = invocation.progress()
        if kind.kind == "lines":
            lines = LineDecoder()

            def decode(chunk: bytes) -> list[Any]:
                texts = lines.feed(chunk) if chunk else lines.flush()
                return [json_or_text(line) for line in texts if line.strip()]

            return await _collect(response, decode, report)
        data = bytearray()
        async for chunk in response.stream():
            data += chunk
            report(f"{len(data)} bytes")
        if kind.kind == "json":
            return ToolOutput([json_or_text(decode_text(bytes(data), kind.charset))] if data else [])
        if kind.kind in ("text", "xml", "yaml", "events"):
            return ToolOutput(decode_text(bytes(data), kind.charset))
        return ToolOutput(bytes(data), media_type=kind.essence or OCTETS)


async def open_response(
    planned: PlannedRequest,
    tool: CompiledTool,
    invocation: Invocation,
    context: ManualContext,
    *,
    follow: Follow = "none",
) -> Response:
    """Send a request and return its response with the body unread; a ToolError reports a failure status."""

    async def send(request: PlannedRequest) -> Response:
        return await context.client.send(request.to_wire(tool.timeout_s * STREAM_TIME_SHARE, MAX_BYTES, follow))

    response, presentation = await send_authenticated(planned, tool, invocation, context, send)
    if 200 <= response.status < 300:
        return response
    async with response:
        secrets = (*presentation.secrets, *tool.secrets, *context.header_secrets)
        body = await response.read()
        raise response_error(tool.label, response.status, response.headers, body, remedy=REMEDY, secrets=secrets)


async def send_authenticated(
    planned: PlannedRequest, tool: CompiledTool, invocation: Invocation, context: ManualContext, send: Send
) -> tuple[Response, Presentation]:
    """Send a request with its credentials; return the response and the credentials that it was sent with.

    A 401 for a token of the template's token endpoint is answered with a new token, once.
    """
    auth = cast("templates.WebTemplate", tool.template).auth
    planned = planned.with_headers(context.headers)
    presentation = await present_credentials(auth, invocation.credential, context.tokens)
    response = await send(planned.presenting(presentation))
    if response.status == 401 and presentation.tokens:
        # A rejected request had no effect, so it may be sent again regardless of its method.
        await response.close()
        for token in presentation.tokens:
            context.tokens.forget(token)
        presentation = await present_credentials(auth, invocation.credential, context.tokens)
        response = await send(planned.presenting(presentation))
    return response, presentation


def build_request(tool: CompiledTool, invocation: Invocation) -> PlannedRequest:
    """Build the request of one call."""
    return cast("RequestFactory", tool.build_request)(invocation.arguments)


def parse_response(tool: CompiledTool, response: Response, secrets: Sequence[str]) -> ToolOutput:
    """Decode a response into the output of a call; a ToolError reports a failure status or an unreadable body."""
    status, headers = response.status, response.headers
    if not 200 <= status < 300:
        raise response_error(tool.label, status, headers, response.body, remedy=REMEDY, secrets=secrets)
    location = headers.get("location")
    if status in _NO_BODY or not response.body:
        return ToolOutput(None, f"{status} {status_phrase(status)}: {location}" if location else None)
    try:
        declared = (tool.outputs or {}).get("type")
        content = parse_body(
            response.body,
            headers.get("content-type") or "",
            declared=("application/json",) if declared in ("object", "array") else (),
        )
    except UnreadableError as error:
        raise unusable_error(tool.label, status, response.body, error, secrets) from error
    output = ToolOutput(content.value, None, content.media_type, NO_META)
    if content.note:
        output = output.with_note(content.note)
    return output.with_note(STREAM_CUT) if response.is_cut else output
