"""How values are written into paths, queries, headers and cookies: OpenAPI's styles, percent-encoded as RFC 3986 asks.

Names and values come out encoded; nothing in a value can end it. A value that a place
cannot carry is refused, never changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.web.encoding import (
    UnsendableError,
    compact_json,
    cookie_name,
    cookie_value,
    percent,
    sendable_header,
    text_of,
)
from toolpost.web.media_types import media_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.sources.openapi.operation import Parameter, Style
    from toolpost.web.encoding import Pair

_DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|"}
_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")
# RFC 3986's reserved characters, without those that end a query or mean something else in one.
_QUERY_RESERVED = ":/?@!$'()*,;="
_PATH_RESERVED = ":@!$&'()*+,;="
_DOTS = frozenset({".", ".."})


def with_inner_lists(value: Any, delimiters: str) -> Any:
    """The value with every list within its lists as one text, joined by the delimiter of its level."""
    if not is_array(value) or not delimiters:
        return value
    return [_inner_text(item, delimiters) for item in value]


def _inner_text(value: Any, delimiters: str) -> Any:
    if not is_array(value) or not delimiters:
        return value
    items = [text_of(_inner_text(item, delimiters[1:])) for item in value if item is not None]
    return delimiters[0].join(_unambiguous(items, delimiters[0]))


def path_text(parameter: Parameter, value: Any, *, spanning: bool = False) -> str:
    """A path parameter, encoded; with `spanning`, a template's own wish, it may take several segments."""
    reserved = _PATH_RESERVED if parameter.allow_reserved or spanning else ""
    safe = f"{reserved}/" if spanning else reserved

    def encode(text: str) -> str:
        return quote(_refuse_steps(text), safe=safe)

    if parameter.content_type is not None:
        return encode(_document(parameter, value))
    items = [] if value is None else _flat(value, explode=parameter.explode, encode=encode)
    if not any(items):
        raise UnsendableError("it is empty, and the path would address something else; give a value")
    return _path_style(parameter, value, items)


def query_pairs(parameter: Parameter, value: Any) -> list[Pair]:
    """The `name=value` pairs of a query parameter, encoded; none for what is unset or empty."""
    if value.__class__ is str and parameter.style == "form" and parameter.content_type is None:
        return [(percent(parameter.name), _reserving(value) if parameter.allow_reserved else percent(value))]
    encode = _reserving if parameter.allow_reserved else percent
    if parameter.content_type is not None:
        return [(percent(parameter.name), encode(_document(parameter, value)))]
    if value in ([], {}) and parameter.allow_empty:
        return [(percent(parameter.name), "")]
    return styled_pairs(parameter.name, value, style=parameter.style, explode=parameter.explode, encode=encode)


def styled_pairs(
    name: str, value: Any, *, style: Style, explode: bool, encode: Callable[[str], str] | None = None
) -> list[Pair]:
    """The pairs of one value in a query or in a form."""
    encode = encode or percent
    if style == "deepObject":
        return [(percent(key), encode(text)) for key, text in deep_members(name, value)]
    if value is None or value in ([], {}):
        return []
    if not (is_array(value) or is_object(value)):
        return [(percent(name), encode(text_of(value)))]
    if explode:
        return [(percent(key), encode(text_of(item))) for key, item in _exploded(name, value)]
    return [(percent(name), _joined(value, style, encode))]


def deep_members(name: str, value: Any) -> Iterator[Pair]:
    """`name[key][inner]`; lists of plain values as `name[]`, which PHP, Rails, qs and Stripe all read alike."""
    if is_object(value):
        for key, part in value.items():
            yield from deep_members(f"{name}[{key}]", part)
    elif is_array(value):
        nested = any(is_object(part) or is_array(part) for part in value)
        for index, part in enumerate(value):
            yield from deep_members(f"{name}[{index}]" if nested else f"{name}[]", part)
    elif value is not None:
        yield name, text_of(value)


def delimited(value: list[Any] | dict[str, Any], style: Style) -> str:
    """A list or an object as one text, for places that are not percent-encoded."""
    delimiter = _DELIMITERS.get(style, ",")
    return delimiter.join(_unambiguous(_flat(value, explode=False), delimiter))


def header_text(parameter: Parameter, value: Any) -> str:
    """A header parameter; headers are not percent-encoded, so what would break out of one is refused."""
    if parameter.content_type is not None:
        return sendable_header(_document(parameter, value))
    if not (is_array(value) or is_object(value)):
        return sendable_header(text_of(value))
    return sendable_header(",".join(_unambiguous(_flat(value, explode=parameter.explode), ",")))


def cookie_pairs(parameter: Parameter, value: Any) -> list[Pair]:
    """The `name=value` pairs of a cookie parameter, encoded where a cookie cannot carry a character."""
    if parameter.content_type is not None:
        return [(cookie_name(parameter.name), cookie_value(_document(parameter, value)))]
    if parameter.explode and (is_array(value) or is_object(value)):
        members = _exploded(parameter.name, value)
        return [(cookie_name(key), cookie_value(text_of(item))) for key, item in members]
    return [(cookie_name(parameter.name), ",".join(_flat(value, explode=False, encode=cookie_value)))]


def _document(parameter: Parameter, value: Any) -> str:
    if isinstance(value, str) and media_type(parameter.content_type or "").kind != "json":
        return value
    return compact_json(value)


def _flat(value: Any, *, explode: bool, encode: Callable[[str], str] = str) -> list[str]:
    """The items of a list, the names and values of an object (`name=value` when exploded), or the one value."""
    if is_array(value):
        return [encode(text_of(item)) for item in value if item is not None]
    if is_object(value):
        members = [(encode(key), encode(text_of(item))) for key, item in value.items() if item is not None]
        return [f"{k}={v}" for k, v in members] if explode else [text for member in members for text in member]
    return [encode(text_of(value))]


def _exploded(name: str, value: list[Any] | dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each item under its name; a list within an object repeats its name, as forms do."""
    members = [(name, item) for item in value] if is_array(value) else [*value.items()] if is_object(value) else []
    for key, item in members:
        if is_array(item) and is_object(value):
            yield from ((key, inner) for inner in item if inner is not None)
        elif item is not None:
            yield key, item


def _joined(value: list[Any] | dict[str, Any], style: Style, encode: Callable[[str], str]) -> str:
    delimiter = _DELIMITERS.get(style)
    if delimiter is None:
        return ",".join(_flat(value, explode=False, encode=encode))
    return encode(delimiter).join(map(encode, _unambiguous(_flat(value, explode=False), delimiter)))


def _unambiguous(items: list[str], delimiter: str) -> list[str]:
    if any(delimiter in item for item in items):
        raise UnsendableError(f"an item holds {delimiter!r}, which separates items here")
    return items


def _path_style(parameter: Parameter, value: Any, items: list[str]) -> str:
    if parameter.style == "label":
        return "." + ("." if parameter.explode else ",").join(items)
    if parameter.style != "matrix":
        return ",".join(items)
    if is_object(value) and parameter.explode:
        return "".join(f";{item}" for item in items)
    name = percent(parameter.name)
    return "".join(f";{name}={item}" for item in items) if parameter.explode else f";{name}={','.join(items)}"


def _refuse_steps(text: str) -> str:
    """Refuse `.` and `..` between separators.

    Encoding them does not help: URL parsers and proxies decode `%2E` and `%2F` and then walk up.
    """
    if "." in text and not _DOTS.isdisjoint(re.split(r"[/\\]", text)):
        raise UnsendableError("it holds the step '.' or '..', which would lead to another path")
    return text


def _reserving(text: str) -> str:
    """RFC 6570's reserved expansion: reserved characters and percent-encoded triplets stay as they are."""
    pieces = _TRIPLET.split(text)
    return "".join(piece if at % 2 else quote(piece, safe=_QUERY_RESERVED) for at, piece in enumerate(pieces))
