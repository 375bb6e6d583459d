"""The body of an answer as a value: parsed by its media type, or bytes where it has no better form."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import parse_qsl

from toolpost.web.media_types import OCTETS, media_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from toolpost.web.media_types import MediaType

MOST_ITEMS = 10_000
_BEGINNINGS = frozenset({b"{", b"["})
_NO_PROSE = frozenset({b"{", b"[", b'"', b"<"})  # broken JSON, and web pages
_LINE_END = re.compile(r"\r\n|\r|\n")
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_MAY_BE_MISLABELLED = frozenset({"text", "binary"})


class UnreadableError(ValueError):
    """A body that is not what it says it is, or not what was promised; the text is the reason."""


class Content(NamedTuple):
    """A value with the media type it came as; `note` says what was left out."""

    value: Any
    media_type: str
    note: str = ""


def content_of(data: bytes, content_type: str, *, declared: Collection[str] = ()) -> Content:
    """Read a body; `declared` are the types that the document promises, against which a wrong label is noticed."""
    kind = media_type(content_type)
    if not kind.essence:
        return _unlabelled(data, declared)
    if kind.kind in _MAY_BE_MISLABELLED and _promises_json_only(declared):
        return _mislabelled(data, kind, content_type)
    return _READERS[kind.kind](data, kind, content_type)


def looks_like_json(data: bytes) -> bool:
    """Whether a body could be a JSON object or list."""
    return data.lstrip()[:1] in (b"{", b"[")


def decoded(data: bytes, charset: str | None = None) -> str:
    """Bytes as text; without a charset UTF-8, else what HTTP once meant by text."""
    if charset is not None:
        return data.decode(charset, "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parsed_json(data: bytes, charset: str | None = None) -> Any:
    """A JSON document; ValueError says what is wrong with it."""
    try:
        return _decoder.decode(data.decode(_encoding(data, charset), "surrogatepass"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _encoding(data: bytes, charset: str | None) -> str:
    if data[:1] in _BEGINNINGS and data[1:2] != b"\0":  # nearly always, and sooner seen than by asking
        return charset or "utf-8"
    return charset if charset and data[:1] != b"\xef" else json.detect_encoding(data)


def _unlabelled(data: bytes, declared: Collection[str]) -> Content:
    """A body that does not say what it is: what was promised, if that is one thing, else what it looks like.

    A promised JSON text without its quotes is taken as a text, as it is where it says so.
    """
    if not data:
        return Content(None, OCTETS)
    promised = [kind for kind in declared if not media_type(kind).is_range]
    if len(promised) == 1:
        try:
            return content_of(data, promised[0])
        except UnreadableError:
            if b"\0" in data or data.lstrip()[:1] in _NO_PROSE:
                raise
    if looks_like_json(data):
        try:
            return Content(parsed_json(data), "application/json")
        except ValueError:
            pass
    try:
        return Content(data, OCTETS) if b"\0" in data else Content(data.decode(), "text/plain")
    except UnicodeDecodeError:
        return Content(data, OCTETS)


def _promises_json_only(declared: Collection[str]) -> bool:
    return bool(declared) and all(media_type(kind).kind == "json" for kind in declared)


def _mislabelled(data: bytes, kind: MediaType, content_type: str) -> Content:
    """Something else where only JSON was promised: JSON under another name is taken, a web page is an error."""
    if looks_like_json(data):
        try:
            return Content(parsed_json(data, kind.charset), "application/json")
        except ValueError:
            pass
    if kind.essence in _HTML:
        raise UnreadableError("it is a web page where JSON was promised; is the address right, and the login?")
    return _READERS[kind.kind](data, kind, content_type)


def _json(data: bytes, kind: MediaType, content_type: str) -> Content:
    if data[:1] not in _BEGINNINGS and not data.strip():
        return Content(None, kind.essence)
    try:
        return Content(parsed_json(data, kind.charset), kind.essence)
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
            items.append(parsed_json(line))
        except ValueError as error:
            raise UnreadableError(f"its line {number} is not JSON, as {kind.essence} asks: {error}") from error
    return Content(items, kind.essence, _left_out(len(lines)))


def _events(data: bytes, kind: MediaType, _: str) -> Content:
    events = list(_each_event(data.decode("utf-8-sig", "replace")))
    return Content(events[:MOST_ITEMS], kind.essence, _left_out(len(events)))


def _each_event(text: str) -> Iterator[dict[str, Any]]:
    """Server-sent events; a last one that was not ended is told too, because servers forget the empty line."""
    fields: dict[str, Any] = {}
    for line in [*_LINE_END.split(text), ""]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line and name == "data":
            fields["data"] = f"{fields['data']}\n{value}" if "data" in fields else value
        elif line and name in ("event", "id"):
            fields[name] = value
        elif not line:
            if "data" in fields:
                yield {**fields, "data": _event_data(fields["data"])}
            fields = {}


def _event_data(text: str) -> Any:
    if text[:1] not in ("{", "["):
        return text
    try:
        return parsed_json(text.encode())
    except ValueError:
        return text


def _left_out(count: int) -> str:
    return f"The first {MOST_ITEMS} of {count} items; the rest was left out." if count > MOST_ITEMS else ""


def _form(data: bytes, kind: MediaType, _: str) -> Content:
    fields: dict[str, Any] = {}
    for name, value in parse_qsl(decoded(data, kind.charset), keep_blank_values=True):
        before = fields.get(name)
        fields[name] = value if before is None else [*(before if isinstance(before, list) else [before]), value]
    return Content(fields, kind.essence)


def _text(data: bytes, kind: MediaType, _: str) -> Content:
    return Content(decoded(data, kind.charset), kind.essence)


def _binary(data: bytes, kind: MediaType, _: str) -> Content:
    return Content(data, kind.essence)


def _multipart(data: bytes, _: MediaType, content_type: str) -> Content:
    return Content(data, content_type)  # unreadable without its boundary


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
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
