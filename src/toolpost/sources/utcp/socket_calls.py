"""Call the templates that send a message: websocket, tcp and udp."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ConfigError, ToolOutputError, ToolTimeoutError, ToolValidationError
from toolpost.http.content import OCTETS, parse_json
from toolpost.http.encoding import UnsendableError, compact_json
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.requests import PlannedRequest
from toolpost.sources.utcp import templates
from toolpost.sources.utcp.context import STREAM_TIME_SHARE, CompiledTool, Invocation, ManualContext, argument_text
from toolpost.sources.utcp.http_requests import build_headers, plain_request
from toolpost.sources.utcp.template_credentials import present_credentials
from toolpost.wire.sockets import Framing, exchange_datagrams, exchange_stream

_PLACEHOLDER = re.compile(r"UTCP_ARG_(.+?)_UTCP_ARG")
_MAX_BYTES = 16 * 1024 * 1024


async def call_websocket(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Send one message and return the first that arrives."""
    # A connection per call: the first message is the answer, and no two calls can be mixed up.
    template = cast("templates.WebSocketTemplate", tool.template)
    rest = dict(invocation.arguments)
    headers = build_headers(template, rest)
    message = _build_message(template.message, rest)
    presentation = await present_credentials(template.auth, invocation.credential, context.tokens)
    planned = plain_request("GET", template.url, headers).with_headers(context.headers).presenting(presentation)
    try:
        async with asyncio.timeout(tool.timeout_s):
            answer = await _exchange_message(planned, message, template, tool, context)
    except TimeoutError:
        message = f"{tool.label}: no answer within {tool.timeout_s:g} s"
        raise ToolTimeoutError(message, timeout_ms=tool.timeout_s * 1000) from None
    return _websocket_output(answer, template, tool)


def _build_message(template: Any, arguments: Mapping[str, Any]) -> str:
    """Fill the placeholders of a message; without a template, encode all arguments as JSON.

    In a text template that is JSON, string values are escaped, so that none can end the quotes around it.
    """
    if template is None:
        return _encode_json(dict(arguments))
    if isinstance(template, str):
        return _fill_text(template, arguments, escaped=template.lstrip()[:1] in ("{", "["))
    return _encode_json(_fill_json(template, arguments))


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


async def _exchange_message(
    planned: PlannedRequest,
    message: str,
    template: templates.WebSocketTemplate,
    tool: CompiledTool,
    context: ManualContext,
) -> str | bytes:
    try:
        from toolpost.wire.websockets import connect_websocket  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        msg = f"{tool.label} needs the extra websocket ({missing.name} is missing): pip install 'toolpost[websocket]'"
        raise ConfigError(msg) from missing
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
    return " ".join(argument_text(name, value) for name, value in invocation.arguments.items() if value is not None)


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
