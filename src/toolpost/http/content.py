"""Parse bodies by media type: JSON, lines, events, forms and text become values, other bodies stay bytes."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl

from toolpost.contracts.http_syntax import TOKEN
from toolpost.http.event_stream import SseDecoder
from toolpost.schema.json_size import MAX_DIRECT_VALUES, SMALL, CheckedJson, measure_json
from toolpost.schema.json_values import refuse_constant

Kind = Literal["json", "lines", "events", "form", "multipart", "yaml", "xml", "text", "binary"]
OCTETS = "application/octet-stream"
_ESSENCE = re.compile(rf"\s*({TOKEN}/{TOKEN})\s*(?:;|$)")
_PARAMETER = re.compile(rf';\s*({TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s"]*))')
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
_NOT_TEXT = frozenset({b"{", b"[", b'"', b"<"})  # the beginnings of invalid JSON and of web pages
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_decoder = json.JSONDecoder(parse_constant=refuse_constant)
_MAY_BE_MISLABELLED = frozenset({"text", "binary"})


def parse_body(data: bytes, content_type: str, *, declared: Collection[str] = ()) -> Content:
    """Parse a body; `declared` are the media types that the document declares, to detect a wrong Content-Type."""
    if isinstance(data, CheckedJson):
        return Content(data, "application/json")
    kind = parse_media_type(content_type)
    if not kind.essence:
        return _parse_unlabelled(data, declared)
    promises_json = bool(declared) and all(parse_media_type(one).kind == "json" for one in declared)
    if kind.kind in _MAY_BE_MISLABELLED and promises_json:
        return _parse_mislabelled(data, kind, content_type)
    return _parse_as(kind, data, content_type)


def _parse_as(kind: MediaType, data: bytes, content_type: str) -> Content:
    match kind.kind:
        case "json":
            return _parse_json_body(data, kind)
        case "lines":
            return _parse_lines(data, kind)
        case "events":
            return _parse_events(data, kind)
        case "form":
            return _parse_form(data, kind)
        case "yaml" | "xml" | "text":
            return Content(decode_text(data, kind.charset), kind.essence)
        case "multipart":
            return Content(data, content_type)  # with its parameters: the boundary is one of them
        case "binary":
            return Content(data, kind.essence)


def _parse_unlabelled(data: bytes, declared: Collection[str]) -> Content:
    """Parse a body without Content-Type: by the only declared type, or else by its content.

    A string that is declared as JSON but lacks the quotes stays text.
    """
    if not data:
        return Content(None, OCTETS)
    promised = [kind for kind in declared if not parse_media_type(kind).is_range]
    if len(promised) == 1:
        try:
            return parse_body(data, promised[0])
        except UnreadableError:
            if b"\0" in data or data.lstrip()[:1] in _NOT_TEXT:
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


def _parse_mislabelled(data: bytes, kind: MediaType, content_type: str) -> Content:
    """Parse a body if only JSON is declared: accept JSON with another media type, reject a web page."""
    if looks_like_json(data):
        try:
            return Content(parse_json(data, kind.charset), "application/json")
        except ValueError:
            pass
    if kind.essence in _HTML:
        raise UnreadableError("it is a web page where JSON was promised; is the address right, and the login?")
    return _parse_as(kind, data, content_type)


def _parse_json_body(data: bytes, kind: MediaType) -> Content:
    if not data or data.isspace():
        return Content(None, kind.essence)
    try:
        return Content(parse_json(data, kind.charset), kind.essence)
    except ValueError as error:
        fault = error
    if isinstance(fault, json.JSONDecodeError) and fault.msg == "Extra data":
        try:  # Docker and others stream one document per line with the media type of JSON
            return _parse_lines(data, kind)
        except UnreadableError:
            pass
    raise UnreadableError(f"it cannot be read as {kind.essence}: {fault}") from fault


def _parse_lines(data: bytes, kind: MediaType) -> Content:
    lines = [line for line in data.replace(b"\x1e", b"").split(b"\n") if line.strip()]
    items: list[Any] = []
    for number, line in enumerate(lines[:MOST_ITEMS], start=1):
        try:
            items.append(parse_json(line))
        except ValueError as error:
            raise UnreadableError(f"its line {number} is not JSON, as {kind.essence} requires: {error}") from error
    return Content(items, kind.essence, _left_out(len(lines)))


def _parse_events(data: bytes, kind: MediaType) -> Content:
    decoder = SseDecoder()
    events: list[dict[str, Any]] = [*decoder.feed(data), *decoder.flush()]
    for event in events:
        event.pop("retry", None)  # the reconnection time, which is not part of the event
        event["data"] = _event_data(event["data"])
    return Content(events[:MOST_ITEMS], kind.essence, _left_out(len(events)))


def _event_data(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return text
    try:
        return parse_json(text.encode())
    except ValueError:
        return text


def _left_out(count: int) -> str:
    return f"The first {MOST_ITEMS} of {count} items; the others were skipped." if count > MOST_ITEMS else ""


def _parse_form(data: bytes, kind: MediaType) -> Content:
    fields: dict[str, Any] = {}
    for name, value in parse_qsl(decode_text(data, kind.charset), keep_blank_values=True):
        before = fields.get(name)
        fields[name] = value if before is None else [*(before if isinstance(before, list) else [before]), value]
    return Content(fields, kind.essence)


class Content(NamedTuple):
    """A parsed body with its media type; `note` reports skipped items."""

    value: Any
    media_type: str
    note: str = ""


class UnreadableError(ValueError):
    """Raised for a body that does not match its media type or the declared ones; the message is the reason."""


class MediaType(NamedTuple):
    """A media type; `essence` is its lower-case name without parameters, or empty if the string is not a media type."""

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
    # Kubernetes streams one document per line with the media type of a single document.
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
    """Return the charset if it is a text encoding; Python also has codecs such as `zip`."""
    if not name:
        return None
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return None


def parse_json(data: bytes, charset: str | None = None) -> Any:
    """Parse a JSON document; raise ValueError if it is invalid or nested too deeply.

    Return a document unchanged that was checked in another process. If another document has too many values to be
    decoded in this process, raise ToolClientError (`message_too_large`).
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
    return charset if charset and data[:1] != b"\xef" else json.detect_encoding(data)


def looks_like_json(data: bytes) -> bool:
    """Return whether a body could be a JSON object or list."""
    return data.lstrip()[:1] in (b"{", b"[")


def decode_text(data: bytes, charset: str | None = None) -> str:
    """Decode bytes; without a charset as UTF-8, or if that fails as Latin-1, the former default of HTTP."""
    if charset is not None:
        return data.decode(charset, "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
