"""Calls that are a message and its answer: websocket, tcp and udp templates, each over a connection of its own."""

from __future__ import annotations

import asyncio
import codecs
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolOutputError, ToolTimeoutError
from toolpost.sources.utcp.auth_objects import present
from toolpost.sources.utcp.event_streams import json_or_text
from toolpost.sources.utcp.http_requests import bare_request, headers_of
from toolpost.sources.utcp.messages import message_of, words_of
from toolpost.sources.utcp.wires import SHARE_OF_TIME
from toolpost.web.contents import parsed_json
from toolpost.web.media_types import OCTETS
from toolpost.wire.sockets import Framing, exchange_datagrams, exchange_stream
from toolpost.wire.websockets import connect_websocket

if TYPE_CHECKING:
    from toolpost.sources.utcp.templates import SocketTemplate, TcpTemplate, UdpTemplate, WebSocketTemplate
    from toolpost.sources.utcp.wires import Asked, Prepared, Wires
    from toolpost.web.planned import PlannedRequest

_MAX_BYTES = 16 * 1024 * 1024


async def call_websocket(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Send one message and take the first that comes: with a connection for each call, no two can be mixed up."""
    template = cast("WebSocketTemplate", prepared.template)
    rest = dict(asked.arguments)
    headers = headers_of(template, rest)
    message = message_of(template.message, rest)
    presented = await present(template.auth, asked.credential, wires.tokens)
    planned = bare_request("GET", template.url, headers).with_headers(wires.headers).presenting(presented)
    try:
        async with asyncio.timeout(prepared.timeout_s):
            answer = await _answer(planned, message, template, prepared, wires)
    except TimeoutError:
        told = f"{prepared.shown}: no answer within {prepared.timeout_s:g} s"
        raise ToolTimeoutError(told, timeout_ms=prepared.timeout_s * 1000) from None
    return _websocket_output(answer, template, prepared)


async def _answer(
    planned: PlannedRequest, message: str, template: WebSocketTemplate, prepared: Prepared, wires: Wires
) -> str | bytes:
    socket = await connect_websocket(
        planned.wire_url,
        policy=wires.client.policy,
        headers=tuple(planned.wire_headers),
        subprotocols=[template.protocol] if template.protocol else (),
        timeout_s=prepared.timeout_s,
        max_message_bytes=_MAX_BYTES,
    )
    try:
        await socket.send(message)
        return await socket.receive()
    finally:  # an answer that came must not be lost while the other side takes its time to say goodbye
        goodbye = asyncio.create_task(socket.close())
        wires.leaving.add(goodbye)
        goodbye.add_done_callback(wires.leaving.discard)


async def call_tcp(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Send a message over a connection of its own and read as its framing says."""
    template = cast("TcpTemplate", prepared.template)
    received = await exchange_stream(
        template.host,
        template.port,
        _request(template, asked).encode(),
        framing=framing_of(template),
        policy=wires.client.policy,
        timeout_s=prepared.timeout_s * SHARE_OF_TIME,
    )
    output = _socket_output(received.data, template, prepared, is_cut=bool(received.note))
    if isinstance(output.content, bytes) and received.note:
        return output._replace(meta={"note": received.note})
    return output.noted(received.note)


async def call_udp(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Send a datagram and wait for as many as are promised."""
    template = cast("UdpTemplate", prepared.template)
    answers = await exchange_datagrams(
        template.host,
        template.port,
        _request(template, asked).encode(),
        answers=template.number_of_response_datagrams,
        policy=wires.client.policy,
        timeout_s=prepared.timeout_s,
    )
    return _socket_output(b"".join(answers), template, prepared, is_cut=False)


def framing_of(template: TcpTemplate) -> Framing:
    """Where a message ends."""
    return Framing(
        strategy=template.framing_strategy,
        prefix_bytes=template.length_prefix_bytes,
        endian=template.length_prefix_endian,
        delimiter=template.delimiter,
        length=template.fixed_message_length or 0,
        max_bytes=template.max_response_size if template.framing_strategy == "stream" else _MAX_BYTES,
    )


def fitted(text: str, prepared: Prepared) -> Any:
    """A text as the manual describes it: as JSON where it promises anything but a text."""
    said = (prepared.outputs or {}).get("type", "string")
    return text if said == "string" or (isinstance(said, list) and "string" in said) else json_or_text(text)


def _request(template: SocketTemplate, asked: Asked) -> str:
    if template.request_data_format == "json":
        return message_of(None, asked.arguments)
    if template.request_data_template:
        return message_of(template.request_data_template, asked.arguments)
    return words_of(asked.arguments)


def _websocket_output(answer: str | bytes, template: WebSocketTemplate, prepared: Prepared) -> ToolOutput:
    if isinstance(answer, bytes):
        return ToolOutput(answer, media_type=OCTETS)
    if template.response_format != "json":
        return ToolOutput(fitted(answer, prepared))
    try:
        content = parsed_json(answer.encode())
    except ValueError as error:
        raise ToolOutputError(f"{prepared.shown} answered with something that is not JSON: {error}") from error
    return ToolOutput(content)


def _socket_output(answer: bytes, template: SocketTemplate, prepared: Prepared, *, is_cut: bool) -> ToolOutput:
    """The answer as text, where it is one; the cut may have gone through its last character."""
    if template.response_byte_format is None:
        return ToolOutput(answer, media_type=OCTETS)
    decoder = codecs.getincrementaldecoder(template.response_byte_format)()
    try:
        return ToolOutput(fitted(decoder.decode(answer, final=not is_cut), prepared))
    except UnicodeDecodeError:
        return ToolOutput(answer, media_type=OCTETS)
