"""Messages over plain TCP and UDP to addresses that the guard allowed; responses are limited in size and time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal, NamedTuple

from msgspec.structs import replace

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolTimeoutError, ToolValidationError
from toolpost.wire.addresses import Address
from toolpost.wire.client import connect_timeout
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.routes import NEXT_ADDRESS_S
from toolpost.wire.targets import Target, parse_target

MAX_BYTES = 16 * 1024 * 1024

_PIECE = 64 * 1024


class Framing(NamedTuple):
    """How messages are delimited in a stream: by a length prefix, a delimiter, a fixed length, or its end.

    A `stream` ends when the server closes it, or is cut at its time or size limit.
    """

    strategy: Literal["length_prefix", "delimiter", "fixed_length", "stream"] = "stream"
    prefix_bytes: int = 4
    endian: Literal["big", "little"] = "big"
    delimiter: bytes = b"\0"
    length: int = 0
    max_bytes: int = MAX_BYTES

    def encode(self, message: bytes) -> bytes:
        if self.strategy == "delimiter":
            if self.delimiter in message:
                raise ToolValidationError(
                    f"the message contains {self.delimiter!r}, which would start a second message"
                )
            return message + self.delimiter
        if self.strategy != "length_prefix":
            return message
        try:
            return len(message).to_bytes(self.prefix_bytes, self.endian) + message
        except OverflowError:
            raise ToolClientError(f"the message is too long for a prefix of {self.prefix_bytes} bytes") from None


class Received(NamedTuple):
    """A response; `note` is set if it was cut."""

    data: bytes
    note: str = ""


async def exchange_stream(
    host: str,
    port: int,
    message: bytes,
    *,
    framing: Framing,
    policy: NetworkPolicy,
    timeout_s: float,
) -> Received:
    """Send a message over a new TCP connection and return the response without its framing."""
    target, shown = _target(host, port, "tcp")
    sent = framing.encode(message)
    deadline = asyncio.get_running_loop().time() + timeout_s
    reader, writer = await _open_connection(target, shown, policy, timeout_s)
    buffer = bytearray()
    try:
        async with asyncio.timeout_at(deadline):
            writer.write(sent)
            await writer.drain()
            received = await _read_response(reader, framing, buffer, shown)
            if not writer.transport.get_write_buffer_size():
                writer.close()
            return received
    except TimeoutError:
        if framing.strategy == "stream" and buffer:
            return Received(bytes(buffer), "The connection stayed open; this is the data received before the timeout.")
        raise _late(shown, timeout_s) from None
    except OSError as error:
        raise ToolConnectionError(f"{shown}: the connection broke ({error})", cause=error) from error
    finally:
        if not writer.transport.is_closing():  # unsent data would delay closing
            writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def exchange_datagrams(
    host: str,
    port: int,
    message: bytes,
    *,
    answers: int,
    policy: NetworkPolicy,
    timeout_s: float,
) -> list[bytes]:
    """Send one datagram and wait for `answers` datagrams from the same address; others are ignored."""
    target, shown = _target(host, port, "udp")
    addresses = await policy.resolve(target, timeout_s=timeout_s)
    collector = _DatagramCollector(answers)
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_datagram_endpoint(lambda: collector, remote_addr=(str(addresses[0]), port))
    except OSError as error:
        raise ToolConnectionError(f"{shown}: it cannot be reached ({error})", sent=False, cause=error) from error
    try:
        async with asyncio.timeout(timeout_s):
            transport.sendto(message)
            await collector.full.wait()
    except TimeoutError:
        raise _late(shown, timeout_s) from None
    finally:
        transport.close()
    if collector.failure is not None:
        raise ToolConnectionError(f"{shown}: {collector.failure}", cause=collector.failure) from collector.failure
    return collector.datagrams


class _DatagramCollector(asyncio.DatagramProtocol):
    def __init__(self, count: int) -> None:
        self._count = count
        self.datagrams: list[bytes] = []
        self.failure: Exception | None = None
        self.full = asyncio.Event()
        if not count:
            self.full.set()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if len(self.datagrams) < self._count:
            self.datagrams.append(data)
        if len(self.datagrams) >= self._count:
            self.full.set()

    def error_received(self, exc: Exception) -> None:
        self.failure = exc
        self.full.set()


def _target(host: str, port: int, scheme: str) -> tuple[Target, str]:
    """Parse host and port as strictly as those of a URL; return the target and its name for errors."""
    literal = f"[{host}]" if ":" in host and not host.startswith("[") else host
    target = parse_target(f"http://{literal}:{port}/")
    return replace(target, scheme=scheme), f"{scheme}://{literal}:{port}"


async def _open_connection(
    target: Target, shown: str, policy: NetworkPolicy, timeout_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first allowed address that answers; raise with `sent=False` when none does."""
    addresses = await policy.resolve(target, timeout_s=timeout_s)
    whole_s = connect_timeout(timeout_s)
    failure = ""
    for number, address in enumerate(addresses, start=1):
        last = number == len(addresses)
        try:
            return await _connect(address, target.port, whole_s if last else min(whole_s, NEXT_ADDRESS_S))
        except TimeoutError:
            failure = "no connection in time"
        except OSError as error:
            failure = error.strerror or str(error)
    raise ToolConnectionError(f"{shown}: it cannot be reached ({failure})", sent=False)


async def _connect(address: Address, port: int, timeout_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(timeout_s):
        return await asyncio.open_connection(str(address), port, limit=_PIECE)


async def _read_response(reader: asyncio.StreamReader, framing: Framing, buffer: bytearray, shown: str) -> Received:
    try:
        match framing.strategy:
            case "length_prefix":
                length = int.from_bytes(await reader.readexactly(framing.prefix_bytes), framing.endian)
                if length > framing.max_bytes:
                    raise _too_large(shown, framing.max_bytes)
                return Received(await reader.readexactly(length))
            case "fixed_length":
                return Received(await reader.readexactly(framing.length))
            case "delimiter":
                return await _read_delimited(reader, framing, buffer, shown)
            case "stream":
                return await _until_closed(reader, framing, buffer)
    except asyncio.IncompleteReadError:
        raise _cut(shown) from None


async def _read_delimited(reader: asyncio.StreamReader, framing: Framing, buffer: bytearray, shown: str) -> Received:
    while piece := await reader.read(_PIECE):
        start = max(0, len(buffer) - len(framing.delimiter))
        buffer += piece
        if (end := buffer.find(framing.delimiter, start)) >= 0:
            return Received(bytes(buffer[:end]))
        if len(buffer) > framing.max_bytes:
            raise _too_large(shown, framing.max_bytes)
    raise _cut(shown)


async def _until_closed(reader: asyncio.StreamReader, framing: Framing, buffer: bytearray) -> Received:
    while piece := await reader.read(_PIECE):
        buffer += piece
        if len(buffer) > framing.max_bytes:
            return Received(
                bytes(buffer[: framing.max_bytes]),
                f"The answer continues; it is cut at {framing.max_bytes:,} bytes.",
            )
    return Received(bytes(buffer))


def _cut(shown: str) -> ToolConnectionError:
    return ToolConnectionError(f"{shown}: the connection was closed before the answer was complete")


def _too_large(shown: str, limit: int) -> ToolClientError:
    return ToolClientError(f"{shown}: the answer is larger than {limit:,} bytes", code="response_too_large")


def _late(shown: str, timeout_s: float) -> ToolTimeoutError:
    return ToolTimeoutError(f"{shown}: no answer within {timeout_s:g} s", timeout_ms=timeout_s * 1000)
