"""Media types, and bodies parsed by them: JSON, lines, events, forms and text become values, the rest stays bytes."""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.lines import LineSplitter
from toolpost.schema.json_size import MAX_DIRECT_VALUES, SMALL, CheckedJson, measure_json
from toolpost.schema.json_values import refuse_constant

Kind = Literal["json", "lines", "events", "form", "multipart", "yaml", "xml", "text", "binary"]

OCTETS = "application/octet-stream"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110's word for a name
_ESSENCE = re.compile(rf"\s*({_TOKEN}/{_TOKEN})\s*(?:;|$)")
_PARAMETER = re.compile(rf';\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s"]*))')

_BY_NAME: dict[str, Kind] = {
    "application/json": "json",
    "text/json": "json",
    "application/x-json": "json",
    "application/x-ndjson": "lines",
    "application/ndjson": "lines",
    "application/jsonl": "lines",
    "application/x-jsonl": "lines",
    "application/jsonlines": "lines",
    "application/x-jsonlines": "lines",
    "application/json-lines": "lines",
    "application/json-seq": "lines",
    "application/stream+json": "lines",
    "text/event-stream": "events",
    "application/x-www-form-urlencoded": "form",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
    "application/xml": "xml",
    "text/xml": "xml",
    "application/javascript": "text",
    "application/ecmascript": "text",
    "application/graphql": "text",
    "application/jwt": "text",
    "application/sql": "text",
    "application/toml": "text",
    "application/x-sh": "text",
}
_BY_SUFFIX: dict[str, Kind] = {
    "+json": "json",
    "+json-seq": "lines",
    "+x-ndjson": "lines",
    "+ndjson": "lines",
    "+yaml": "yaml",
    "+xml": "xml",
}

MOST_ITEMS = 10_000
_BEGINNINGS = frozenset({b"{", b"["})
_NO_PROSE = frozenset({b"{", b"[", b'"', b"<"})  # broken JSON, and web pages
_MAX_LINE_BYTES = 16 * 1024 * 1024
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_MAY_BE_MISLABELLED = frozenset({"text", "binary"})


class MediaType(NamedTuple):
    """A media type; `essence` is its name in lower case without parameters, empty when the text is none."""

    essence: str
    kind: Kind
    charset: str | None = None

    @property
    def is_range(self) -> bool:
        """Whether the type is a range, such as `image/*`."""
        return "*" in self.essence


@lru_cache(maxsize=1024)
def parse_media_type(text: str) -> MediaType:
    """Parse a media type of a document or a header."""
    match = _ESSENCE.match(text)
    if match is None:
        return MediaType("*/*" if text.strip() == "*" else "", "binary")
    essence = match[1].lower()
    parameters = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(text)}
    # Kubernetes streams one document a line under the name of a single one.
    kind = "lines" if parameters.get("stream") == "watch" else _kind(essence)
    return MediaType(essence, kind, _known_charset(parameters.get("charset")))


def _kind(essence: str) -> Kind:
    if essence in _BY_NAME:
        return _BY_NAME[essence]
    family, _, subtype = essence.partition("/")
    if family == "multipart":
        return "multipart"
    for suffix, kind in _BY_SUFFIX.items():
        if essence.endswith(suffix):
            return kind
    if subtype.startswith("x-amz-json"):
        return "json"
    return "text" if family == "text" else "binary"


def _known_charset(name: str | None) -> str | None:
    """Return the charset if it encodes text; Python also has codecs such as `zip`, which do not."""
    if not name:
        return None
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return None


class UnreadableError(ValueError):
    """Raised for a body that does not match its media type or the declared ones; the text is the reason."""


class Content(NamedTuple):
    """A parsed body with its media type; `note` says what was left out."""

    value: Any
    media_type: str
    note: str = ""


def parse_body(data: bytes, content_type: str, *, declared: Collection[str] = ()) -> Content:
    """Parse a body; `declared` are the media types that the document declares, to detect a wrong Content-Type."""
    if isinstance(data, CheckedJson):
        return Content(data, "application/json")
    kind = parse_media_type(content_type)
    if not kind.essence:
        return _parse_unlabelled(data, declared)
    if kind.kind in _MAY_BE_MISLABELLED and _promises_json_only(declared):
        return _parse_mislabelled(data, kind, content_type)
    return _READERS[kind.kind](data, kind, content_type)


def looks_like_json(data: bytes) -> bool:
    """Return whether a body could be a JSON object or list."""
    return data.lstrip()[:1] in (b"{", b"[")


def decode_text(data: bytes, charset: str | None = None) -> str:
    """Decode bytes; without a charset as UTF-8, or else as Latin-1, the old default of HTTP."""
    if charset is not None:
        return data.decode(charset, "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_json(data: bytes, charset: str | None = None) -> Any:
    """Parse a JSON document; raise ValueError when it is invalid or nested too deeply.

    A document that was checked in another process is returned as it is. ToolClientError (`message_too_large`) where it
    was not, and has more values than can be decoded on the spot.
    """
    if len(data) > SMALL:
        if isinstance(data, CheckedJson):
            return data
        measure_json(data, MAX_DIRECT_VALUES)
    try:
        return _decoder.decode(data.decode(_encoding(data, charset), "surrogatepass"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _encoding(data: bytes, charset: str | None) -> str:
    if data[:1] in _BEGINNINGS and data[1:2] != b"\0":  # the common case, faster than detect_encoding
        return charset or "utf-8"
    return charset if charset and data[:1] != b"\xef" else json.detect_encoding(data)


def _parse_unlabelled(data: bytes, declared: Collection[str]) -> Content:
    """Parse a body without Content-Type: as the one declared type, or else as what it looks like.

    Text that is declared as JSON but lacks the quotes stays text.
    """
    if not data:
        return Content(None, OCTETS)
    promised = [kind for kind in declared if not parse_media_type(kind).is_range]
    if len(promised) == 1:
        try:
            return parse_body(data, promised[0])
        except UnreadableError:
            if b"\0" in data or data.lstrip()[:1] in _NO_PROSE:
                raise
    if looks_like_json(data):
        try:
            return Content(parse_json(data), "application/json")
        except ValueError:
            pass
    try:
        return Content(data, OCTETS) if b"\0" in data else Content(data.decode(), "text/plain")
    except UnicodeDecodeError:
        return Content(data, OCTETS)


def _promises_json_only(declared: Collection[str]) -> bool:
    return bool(declared) and all(parse_media_type(kind).kind == "json" for kind in declared)


def _parse_mislabelled(data: bytes, kind: MediaType, content_type: str) -> Content:
    """Parse a body where only JSON was declared: JSON under another type is accepted, a web page is an error."""
    if looks_like_json(data):
        try:
            return Content(parse_json(data, kind.charset), "application/json")
        except ValueError:
            pass
    if kind.essence in _HTML:
        raise UnreadableError("it is a web page where JSON was promised; is the address right, and the login?")
    return _READERS[kind.kind](data, kind, content_type)


def _json(data: bytes, kind: MediaType, content_type: str) -> Content:
    if data[:1] not in _BEGINNINGS and not data.strip():
        return Content(None, kind.essence)
    try:
        return Content(parse_json(data, kind.charset), kind.essence)
    except ValueError as error:
        fault = error
    if isinstance(fault, json.JSONDecodeError) and fault.msg == "Extra data":
        try:  # Docker and others stream documents, one a line, and still call it JSON
            return _lines(data, kind, content_type)
        except UnreadableError:
            pass
    raise UnreadableError(f"it cannot be read as {kind.essence}: {fault}") from fault


def _lines(data: bytes, kind: MediaType, _: str) -> Content:
    lines = [line for line in data.replace(b"\x1e", b"").split(b"\n") if line.strip()]
    items: list[Any] = []
    for number, line in enumerate(lines[:MOST_ITEMS], start=1):
        try:
            items.append(parse_json(line))
        except ValueError as error:
            raise UnreadableError(f"its line {number} is not JSON, as {kind.essence} asks: {error}") from error
    return Content(items, kind.essence, _left_out(len(lines)))


def _events(data: bytes, kind: MediaType, _: str) -> Content:
    decoder = SseDecoder()
    events: list[dict[str, Any]] = [*decoder.feed(data), *decoder.flush()]
    for event in events:
        event.pop("retry", None)  # says when to connect again, nothing of what happened
        event["data"] = _event_data(event["data"])
    return Content(events[:MOST_ITEMS], kind.essence, _left_out(len(events)))


class LineDecoder:
    """Decode chunks of bytes into lines of text that end with LF, CR or CRLF; a given splitter has its own limit."""

    def __init__(self, lines: LineSplitter | None = None) -> None:
        self._lines = lines or LineSplitter(universal=True)
        self._max_pending = _MAX_LINE_BYTES if lines is None else math.inf
        self._bom = codecs.BOM_UTF8  # until the first line

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the lines that a chunk completes."""
        for line in self._lines.feed(chunk):
            yield self._decode(line)
        if self._lines.pending_bytes > self._max_pending:
            message = f"a line of the stream is longer than {_MAX_LINE_BYTES:,} bytes"
            raise ToolClientError(message, code="response_too_large")

    def flush(self) -> Iterator[str]:
        """Yield the last line where it has no line ending."""
        if left := self._decode(self._lines.take_rest()):
            yield left

    def _decode(self, line: bytes) -> str:
        text, self._bom = line.removeprefix(self._bom).decode("utf-8", "replace"), b""
        return text


class SseDecoder:
    """Decode chunks of bytes into server-sent events: their fields `data`, `event`, `id` and `retry`.

    Events without data are left out, unless `without_data` asks for them.
    """

    def __init__(
        self, lines: LineSplitter | None = None, *, max_event_bytes: float = math.inf, without_data: bool = False
    ) -> None:
        self._lines = LineDecoder(lines)
        self._max_event_bytes = max_event_bytes
        self._without_data = without_data
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> Iterator[dict[str, str]]:
        """Yield the events that a chunk completes."""
        for line in self._lines.feed(chunk):
            if line:
                self._read_field(line)
            else:
                yield from self._take_event()

    def flush(self) -> Iterator[dict[str, str]]:
        """Yield a last event without its empty line, which the standard drops but servers forget."""
        for line in self._lines.flush():
            self._read_field(line)
        yield from self._take_event()

    def _read_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and name in self._fields:
            self._fields[name] += f"\n{value}"
            if len(self._fields[name]) > self._max_event_bytes:
                message = f"an event of the stream is longer than {self._max_event_bytes:,} bytes"
                raise ToolClientError(message, code="response_too_large")
        elif name in ("data", "event", "id", "retry"):
            self._fields[name] = value

    def _take_event(self) -> Iterator[dict[str, str]]:
        fields, self._fields = self._fields, {}
        if "data" in fields or (fields and self._without_data):
            yield fields


def _event_data(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return text
    try:
        return parse_json(text.encode())
    except ValueError:
        return text


def _left_out(count: int) -> str:
    return f"The first {MOST_ITEMS} of {count} items; the rest was left out." if count > MOST_ITEMS else ""


def _form(data: bytes, kind: MediaType, _: str) -> Content:
    fields: dict[str, Any] = {}
    for name, value in parse_qsl(decode_text(data, kind.charset), keep_blank_values=True):
        before = fields.get(name)
        fields[name] = value if before is None else [*(before if isinstance(before, list) else [before]), value]
    return Content(fields, kind.essence)


def _text(data: bytes, kind: MediaType, _: str) -> Content:
    return Content(decode_text(data, kind.charset), kind.essence)


def _binary(data: bytes, kind: MediaType, _: str) -> Content:
    return Content(data, kind.essence)


def _multipart(data: bytes, _: MediaType, content_type: str) -> Content:
    return Content(data, content_type)  # unreadable without its boundary


_decoder = json.JSONDecoder(parse_constant=refuse_constant)
_READERS: dict[str, Callable[[bytes, MediaType, str], Content]] = {
    "json": _json,
    "lines": _lines,
    "events": _events,
    "form": _form,
    "multipart": _multipart,
    "yaml": _text,
    "xml": _text,
    "text": _text,
    "binary": _binary,
}
