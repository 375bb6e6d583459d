"""Calls of UTCP tools over HTTP, streams, TCP and UDP."""

from __future__ import annotations

import asyncio
import codecs
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote_plus, urlencode

from msgspec.structs import replace

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError, ToolTimeoutError, ToolValidationError
from toolpost.contracts.outcomes import NO_META
from toolpost.processes.json_documents import cut_document
from toolpost.schema.json_size import CheckedJson
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.utcp import templates
from toolpost.sources.utcp.context import MAX_BYTES, STREAM_TIME_SHARE, argument_text, json_or_text
from toolpost.web.content import (
    OCTETS,
    LineDecoder,
    SseDecoder,
    UnreadableError,
    decode_text,
    parse_body,
    parse_json,
    parse_media_type,
)
from toolpost.web.requests import (
    NOTHING,
    FormPart,
    PlannedRequest,
    UnsendableError,
    build_url,
    check_header_value,
    compact_json,
    encode_multipart,
    file_media_type,
    format_value,
    is_file,
    parse_file,
    percent_encode,
    response_error,
    sanitize,
    split_query,
    status_phrase,
    unusable_error,
)
from toolpost.wire.messages import Follow, Response
from toolpost.wire.network import split_url
from toolpost.wire.sockets import Framing, exchange_datagrams, exchange_stream
from toolpost.wire.websockets import connect_websocket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from toolpost.sources.utcp.context import CompiledTool, Invocation, ManualContext, RequestFactory
    from toolpost.web.requests import BuiltUrl, Pair, PathParameter, Presentation, Send

TRUNCATED = "The stream went on; this is what came until then."
REMEDY = "Check the credential of the source and the variables of its manual."
_NO_NAMES: AbstractSet[str] = frozenset()
_NO_BODY = frozenset({204, 205})
_MAX_ERRORS = 3


class TemplateRequestBuilder:
    """Build the requests of one template; the parts that no argument changes are computed once."""

    __slots__ = ("_body_field", "_header_fields", "_headers", "_method", "_names", "_target", "_template", "_url_parts")

    def __init__(self, template: templates.RequestTemplate) -> None:
        self._template = template
        self._body_field = template.body_field
        self._header_fields = template.header_fields
        self._headers = tuple(template.headers.items())
        self._method = None if isinstance(template, templates.SseTemplate) else template.http_method
        self._url_parts = split_url(template.url)
        self._target: BuiltUrl | None = None  # parsed by the first call, so that its error belongs to that call
        self._names = _NO_NAMES

    def build(self, arguments: Mapping[str, Any]) -> PlannedRequest:
        """Build a request without null arguments; a ToolValidationError names the argument that cannot be sent."""
        rest = {name: value for name, value in arguments.items() if value is not None}
        headers = build_headers(self._template, rest) if self._header_fields else self._headers
        sent = None if self._body_field is None else rest.pop(self._body_field, None)
        target = self._target or self._build_target(rest)
        names = self._names if self._target else _query_names(target)
        if names and not names.isdisjoint(rest):
            doubled = sorted(names & rest.keys())
            raise ToolValidationError([f"{name}: the address has a value of its own for it" for name in doubled])
        query = (*target.query, *(pair for name, value in rest.items() for pair in _query_pairs(name, value)))
        body = None
        if sent is not None:
            body, headers = _with_body(self._template, sent, headers)
        method = self._method or ("GET" if body is None else "POST")
        return PlannedRequest(method, target.address, query, tuple(headers), (), body, NOTHING)

    def _build_target(self, rest: dict[str, Any]) -> BuiltUrl:
        # A URL without placeholders is the same for every call.
        target = _fill_target(self._url_parts, rest)
        if "{" not in self._url_parts[1]:
            self._target, self._names = target, _query_names(target)
        return target


def plain_request(method: str, url: str, headers: Sequence[Pair], body: bytes | None = None) -> PlannedRequest:
    """Build a request to a URL without placeholders."""
    address, _, query = url.partition("#")[0].partition("?")
    return PlannedRequest(method=method, address=address, query=split_query(query), headers=tuple(headers), body=body)


def build_headers(template: templates.WebTemplate, rest: dict[str, Any]) -> list[Pair]:
    """Merge the template's headers with those from arguments, and remove these arguments from `rest`."""
    fields = {name: rest.pop(name) for name in template.header_fields if name in rest}
    added = [(name, _header_value(name, value)) for name, value in fields.items() if value is not None]
    names = {name.lower() for name, _ in added}
    return [*(pair for pair in template.headers.items() if pair[0].lower() not in names), *added]


def _query_names(target: BuiltUrl) -> AbstractSet[str]:
    return {unquote_plus(name) for name, _ in target.query} if target.query else _NO_NAMES


def _fill_target(url_parts: tuple[str, str], rest: dict[str, Any]) -> BuiltUrl:
    """Fill the placeholders of the URL, and remove the arguments that were used from `rest`."""
    used: set[str] = set()

    def fill(slot: PathParameter) -> str:
        if slot.name not in rest:
            raise ToolValidationError(f"{slot.name}: it stands in the address and must be given")
        used.add(slot.name)
        return percent_encode(argument_text(slot.name, rest[slot.name]))

    try:
        target = build_url(*url_parts, fill)
    except UnsendableError as error:
        raise ToolValidationError(str(error)) from error
    for name in used:
        del rest[name]
    return target


def _query_pairs(name: str, value: Any) -> Iterator[Pair]:
    """Yield the query pairs of an argument; a list repeats its name for each item."""
    for item in value if is_array(value) else [value]:
        if item is not None:
            yield percent_encode(name), percent_encode(argument_text(name, item))


def _with_body(template: templates.RequestTemplate, sent: Any, headers: Sequence[Pair]) -> tuple[bytes, list[Pair]]:
    """Encode the body and set Content-Type; a header of the template overrides its `content_type`."""
    header = next((value for name, value in headers if name.lower() == "content-type"), None)
    default = (
        template.content_type
        if isinstance(template, (templates.HttpTemplate, templates.StreamTemplate))
        else "application/json"
    )
    try:
        data, content_type = _encode_body(sent, header or default)
    except UnsendableError as error:
        raise ToolValidationError(f"{template.body_field}: {error}") from error
    others = [pair for pair in headers if pair[0].lower() != "content-type"]
    return data, [*others, ("Content-Type", content_type)]


def _encode_body(sent: Any, content_type: str) -> tuple[bytes, str]:
    """Return the encoded body and its content type."""
    match parse_media_type(content_type).kind:
        case "json":
            return compact_json(sent).encode(), content_type
        case "form" if is_object(sent):
            return urlencode([*_form_fields(sent)]).encode(), content_type
        case "multipart" if is_object(sent):
            data, boundary = encode_multipart([*_multipart_parts(sent)])
            return data, f"multipart/form-data; boundary={boundary}"
        case _ if is_file(sent):
            return parse_file(sent, {}).data, content_type
        case _:
            return format_value(sent).encode(), content_type


def _form_fields(sent: dict[str, Any]) -> Iterator[Pair]:
    for name, value in sent.items():
        for item in value if is_array(value) else [value]:
            if item is not None:
                yield name, format_value(item)


def _multipart_parts(sent: dict[str, Any]) -> Iterator[FormPart]:
    for name, value in sent.items():
        if is_file(value):
            file = parse_file(value, {})
            yield FormPart(name, file.data, file_media_type(file), file.name or name)
        elif value is not None:
            yield FormPart(name, format_value(value).encode())


def _header_value(name: str, value: Any) -> str:
    try:
        return check_header_value(format_value(value))
    except (UnsendableError, UnicodeEncodeError) as error:
        raise ToolValidationError(f"{name}: {error}") from error


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


def build_request(tool: CompiledTool, invocation: Invocation) -> PlannedRequest:
    """Build the request of one call."""
    return cast("RequestFactory", tool.build_request)(invocation.arguments)


async def send_authenticated(
    planned: PlannedRequest,
    tool: CompiledTool,
    invocation: Invocation,
    context: ManualContext,
    send: Send,
) -> tuple[Response, Presentation]:
    """Send a request with its credentials; return the response and the credentials that it was sent with.

    A 401 for a token of the template's token endpoint is answered with a new token, once.
    """
    auth = cast("templates.WebTemplate", tool.template).auth
    planned = planned.with_headers(context.headers)
    presentation = await templates.present_credentials(auth, invocation.credential, context.tokens)
    response = await send(planned.presenting(presentation))
    if response.status == 401 and presentation.tokens:
        # A request that was refused had no effect, so it may be sent again, whatever its method.
        await response.close()
        for token in presentation.tokens:
            context.tokens.forget(token)
        presentation = await templates.present_credentials(auth, invocation.credential, context.tokens)
        response = await send(planned.presenting(presentation))
    return response, presentation


def parse_response(tool: CompiledTool, response: Response, secrets: Sequence[str]) -> ToolOutput:
    """Decode a response into the output of a call; a ToolError reports a failure status or an unreadable body."""
    status, headers = response.status, response.headers
    if not 200 <= status < 300:
        raise response_error(tool.label, status, headers, response.body, remedy=REMEDY, secrets=secrets)
    location = headers.get("location")
    if status in _NO_BODY or not response.body:
        return ToolOutput(None, f"{status} {status_phrase(status)}: {location}" if location else None)
    try:
        content = parse_body(response.body, headers.get("content-type") or "", declared=_declared_types(tool))
    except UnreadableError as error:
        raise unusable_error(tool.label, status, response.body, error, secrets) from error
    output = ToolOutput(content.value, None, content.media_type, NO_META)
    if content.note:
        output = output.with_note(content.note)
    return output.with_note(TRUNCATED) if response.is_cut else output


def _declared_types(tool: CompiledTool) -> tuple[str, ...]:
    """Return JSON where the manual declares an object or an array."""
    declared = (tool.outputs or {}).get("type")
    return ("application/json",) if declared in ("object", "array") else ()


def _build_query(template: templates.GraphqlTemplate, full_name: str, variables: Mapping[str, Any]) -> str:
    """Build a query of one field without a selection set, for a template that has no query."""
    types = template.variable_types
    declared = ", ".join(f"${name}: {types.get(name, 'String')}" for name in variables)
    passed = ", ".join(f"{name}: ${name}" for name in variables)
    field = full_name.rpartition(".")[2]
    if not all(name.isidentifier() for name in (field, *variables)):
        raise ToolClientError(f"{full_name!r} or one of its arguments is no GraphQL name; its manual needs a `query`")
    if not variables:
        return f"{template.operation_type} {{ {field} }}"
    return f"{template.operation_type} ({declared}) {{ {field}({passed}) }}"


def _graphql_output(tool: CompiledTool, answer: Any, secrets: Sequence[str]) -> ToolOutput:
    """Return `data`; raise the errors, unless a query returned data beside them."""
    if not is_object(answer) or not ("data" in answer or "errors" in answer):
        raise ToolOutputError(f"{tool.label} answered with something that is no GraphQL answer")
    errors, data = answer.get("errors"), answer.get("data")
    if not errors and data is None:
        raise ToolOutputError(f"{tool.label} answered without errors, but without data, too")
    if not errors:
        return ToolOutput(data)
    reported = errors if is_array(errors) else [errors]
    message = sanitize("; ".join(map(_error_message, reported[:_MAX_ERRORS])), secrets)
    is_empty = not is_object(data) or all(value is None for value in data.values())
    if is_empty or cast("templates.GraphqlTemplate", tool.template).is_mutation:
        effect = "" if is_empty else ". It gave data too, so it may have had its effect"
        raise ToolClientError(f"{tool.label} answered with errors: {message}{effect}", code="graphql_errors")
    return ToolOutput(data).with_note(f"The server told of errors beside this: {message}")


def _error_message(error: Any) -> str:
    message = error.get("message") if is_object(error) else error
    return (message if isinstance(message, str) else compact_json(message)) if message else "no reason given"


_MAX_LINE_BYTES = 16 * 1024 * 1024


async def call_sse(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Call an sse template and return the data of its events, of one type where the template names one."""
    template = cast("templates.SseTemplate", tool.template)
    planned = build_request(tool, invocation).with_headers((("Accept", "text/event-stream"),))
    async with await open_response(planned, tool, invocation, context) as response:
        if response.media_type != "text/event-stream":
            media_type = response.media_type or "a body that does not say what it is"
            raise ToolOutputError(f"{tool.label} answered with {media_type} where events were promised")
        events = SseDecoder()

        def decode(chunk: bytes) -> list[Any]:
            return [
                json_or_text(event["data"])
                for event in events.feed(chunk)
                if template.event_type in (None, event.get("event") or "message")
            ]

        return await _collect(response, decode, invocation.progress())


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


async def _collect(
    response: Response, decode: Callable[[bytes], list[Any]], report: Callable[[str], None]
) -> ToolOutput:
    """Collect the items of a stream; return those that came where it is cut off."""
    items: list[Any] = []
    try:
        async for chunk in _chunks(response):
            for item in decode(chunk):
                items.append(item)
                report(item if isinstance(item, str) else compact_json(item))
    except (ToolTimeoutError, ToolClientError):
        if not items:
            raise
        return ToolOutput(items).with_note(TRUNCATED)
    return ToolOutput(items)


async def _chunks(response: Response) -> AsyncIterator[bytes]:
    """Yield the chunks of a body, and an empty one at its end."""
    async for chunk in response.stream():
        yield chunk
    yield b""


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


_PLACEHOLDER = re.compile(r"UTCP_ARG_(.+?)_UTCP_ARG")
_MAX_BYTES = 16 * 1024 * 1024


def _build_message(template: Any, arguments: Mapping[str, Any]) -> str:
    """Fill the placeholders of a message; without a template, encode all arguments as JSON.

    In a text template that is JSON, string values are escaped, so that none can end the quotes around it.
    """
    if template is None:
        return _encode_json(dict(arguments))
    if isinstance(template, str):
        return _fill_text(template, arguments, escaped=template.lstrip()[:1] in ("{", "["))
    return _encode_json(_fill_json(template, arguments))


def _join_values(arguments: Mapping[str, Any]) -> str:
    """Join the values of the arguments with spaces, for a text format without a template."""
    return " ".join(argument_text(name, value) for name, value in arguments.items() if value is not None)


def _fill_json(part: Any, arguments: Mapping[str, Any]) -> Any:
    if isinstance(part, str):
        return _fill_text(part, arguments, escaped=False)
    if is_array(part):
        return [_fill_json(item, arguments) for item in part]
    if is_object(part):
        return {key: _fill_json(value, arguments) for key, value in part.items()}
    return part


def _fill_text(template: str, arguments: Mapping[str, Any], *, escaped: bool) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if arguments.get(name) is None:
            raise ToolValidationError(f"{name}: its message needs it")
        text = argument_text(name, arguments[name])
        return compact_json(text)[1:-1] if escaped and isinstance(arguments[name], str) else text

    return _PLACEHOLDER.sub(value, template)


def _encode_json(value: Any) -> str:
    try:
        return compact_json(value)
    except UnsendableError as error:
        raise ToolValidationError(str(error)) from error


async def call_websocket(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Send one message and return the first that arrives."""
    # A connection per call: the first message is the answer, and no two calls can be mixed up.
    template = cast("templates.WebSocketTemplate", tool.template)
    rest = dict(invocation.arguments)
    headers = build_headers(template, rest)
    message = _build_message(template.message, rest)
    presentation = await templates.present_credentials(template.auth, invocation.credential, context.tokens)
    planned = plain_request("GET", template.url, headers).with_headers(context.headers).presenting(presentation)
    try:
        async with asyncio.timeout(tool.timeout_s):
            answer = await _exchange_message(planned, message, template, tool, context)
    except TimeoutError:
        message = f"{tool.label}: no answer within {tool.timeout_s:g} s"
        raise ToolTimeoutError(message, timeout_ms=tool.timeout_s * 1000) from None
    return _websocket_output(answer, template, tool)


async def _exchange_message(
    planned: PlannedRequest,
    message: str,
    template: templates.WebSocketTemplate,
    tool: CompiledTool,
    context: ManualContext,
) -> str | bytes:
    socket = await connect_websocket(
        planned.wire_url,
        policy=context.client.policy,
        headers=tuple(planned.wire_headers),
        subprotocols=[template.protocol] if template.protocol else (),
        timeout_s=tool.timeout_s,
        max_message_bytes=_MAX_BYTES,
    )
    try:
        await socket.send(message)
        return await socket.receive()
    finally:  # the answer does not wait for the closing handshake, which a slow peer could delay past the deadline
        closing = asyncio.create_task(socket.close())
        context.closing.add(closing)
        closing.add_done_callback(context.closing.discard)


async def call_tcp(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Send a message over a new connection and read the answer by the template's framing."""
    template = cast("templates.TcpTemplate", tool.template)
    received = await exchange_stream(
        template.host,
        template.port,
        _encode_request(template, invocation).encode(),
        framing=_framing(template),
        policy=context.client.policy,
        timeout_s=tool.timeout_s * STREAM_TIME_SHARE,
    )
    output = _socket_output(received.data, template, tool, is_truncated=bool(received.note))
    if isinstance(output.content, bytes) and received.note:
        return replace(output, meta={"note": received.note})
    return output.with_note(received.note)


async def call_udp(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Send a datagram and wait for as many answers as the template expects."""
    template = cast("templates.UdpTemplate", tool.template)
    answers = await exchange_datagrams(
        template.host,
        template.port,
        _encode_request(template, invocation).encode(),
        answers=template.number_of_response_datagrams,
        policy=context.client.policy,
        timeout_s=tool.timeout_s,
    )
    return _socket_output(b"".join(answers), template, tool, is_truncated=False)


def _framing(template: templates.TcpTemplate) -> Framing:
    return Framing(
        strategy=template.framing_strategy,
        prefix_bytes=template.length_prefix_bytes,
        endian=template.length_prefix_endian,
        delimiter=template.delimiter,
        length=template.fixed_message_length or 0,
        max_bytes=template.max_response_size if template.framing_strategy == "stream" else _MAX_BYTES,
    )


def _encode_request(template: templates.SocketTemplate, invocation: Invocation) -> str:
    if template.request_data_format == "json":
        return _build_message(None, invocation.arguments)
    if template.request_data_template:
        return _build_message(template.request_data_template, invocation.arguments)
    return _join_values(invocation.arguments)


def _websocket_output(answer: str | bytes, template: templates.WebSocketTemplate, tool: CompiledTool) -> ToolOutput:
    if isinstance(answer, bytes):
        return ToolOutput(answer, media_type=OCTETS)
    if template.response_format != "json":
        return ToolOutput(tool.parse_text(answer))
    try:
        content = parse_json(answer.encode())
    except ValueError as error:
        raise ToolOutputError(f"{tool.label} answered with something that is not JSON: {error}") from error
    return ToolOutput(content)


def _socket_output(
    answer: bytes, template: templates.SocketTemplate, tool: CompiledTool, *, is_truncated: bool
) -> ToolOutput:
    """Decode the answer as text, or return its bytes where it is none."""
    if template.response_byte_format is None:
        return ToolOutput(answer, media_type=OCTETS)
    # A truncated answer may end within a character, which an incremental decoder ignores.
    decoder = codecs.getincrementaldecoder(template.response_byte_format)()
    try:
        return ToolOutput(tool.parse_text(decoder.decode(answer, final=not is_truncated)))
    except UnicodeDecodeError:
        return ToolOutput(answer, media_type=OCTETS)
