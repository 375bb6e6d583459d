"""JSON values in Python: their types and encoding, limits on their size, how messages spell them and their paths."""

from __future__ import annotations

import json
import json.scanner
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeGuard, cast

from toolpost.contracts.spec import JsonSchema

AnySchema: TypeAlias = JsonSchema | bool
Path = tuple[str | int, ...]
SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose values are schemas by name."""

_MAX_TEXT = 40
_MAX_NAME = 80
_MAX_STEPS = 30
_MAX_BITS = 256
_MAX_VISITS = 1_000_000
_QUICK = 1 << 20  # characters that are decoded within a few milliseconds
_PIECE = 1 << 16
_MARK = "the array is decoded in pieces"
_ENCODED_MARK = json.dumps(_MARK).encode()
_scanner: Any = json.scanner
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CONTAINERS = (dict, list, tuple)
_ATOMS = (int, float, bool, type(None), Decimal, Enum)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object unchanged, or an empty one for any other value."""
    return value if is_object(value) else {}


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is a JSON array."""
    return isinstance(value, list)


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities: the `parse_constant` of strict JSON decoders."""
    raise ValueError(f"{name} is not a JSON value")


def finite_number(value: object) -> float | None:
    """Return a finite number; None for anything else, such as infinity or an integer of 400 digits."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) <= sys.float_info.max else None


def json_type(value: object) -> str:
    """Return the JSON type of a Python value, or the name of its Python type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float() | Decimal():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case _:
            return f"Python {type(value).__name__}"


def members(value: Any) -> Iterator[tuple[str | int, Any]]:
    """Yield the members of an object or an array by key or index."""
    yield from (value.items() if is_object(value) else enumerate(value))


def compact_encoder(
    *, allow_nan: bool = True, ensure_ascii: bool = True, default: Callable[[Any], Any] | None = None
) -> Callable[[Any], str]:
    """Return a function that encodes JSON without spaces; TypeError, ValueError or RecursionError for other values."""
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, check_circular=False, allow_nan=allow_nan, separators=(",", ":"), default=default
    )
    return encoder.encode


def cooperative_decoder(
    text: str,
    *,
    parse_float: Callable[[str], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> json.JSONDecoder:
    """Return a decoder for this text that lets other threads run.

    The C scanner holds the interpreter's lock except in calls of Python hooks. Large texts get a hook per object; if
    objects are too far apart, the Python scanner is used.
    """
    if len(text) <= _QUICK:
        return json.JSONDecoder(parse_float=parse_float, parse_constant=parse_constant)
    if all("{" in text[start : start + _QUICK] for start in range(0, len(text) - _QUICK, _QUICK)):
        return json.JSONDecoder(object_hook=lambda value: value, parse_float=parse_float, parse_constant=parse_constant)
    slow: Any = json.JSONDecoder(parse_float=parse_float, parse_constant=parse_constant)
    slow.scan_once = _scanner.py_make_scanner(slow)
    return cast("json.JSONDecoder", slow)


def decode_in_pieces(data: bytes) -> Any:
    """Decode a document that is mostly one array of similar objects; other threads run after each piece of the array.

    This is the fastest way to decode a long list. ValueError if the document has another form or is not JSON.
    """
    start = data.index(b'[{"') + 1
    opening = data[start : data.index(b'"', start + 2) + 1]  # such as {"name"
    end = data.rindex(b"}]") + 1
    # If the array splits into whole pieces, and a document remains around it, the whole is valid, too: a cut within a
    # text or an inner array leaves a piece that is not an array.
    document = _decode_piece(data[:start] + _ENCODED_MARK + data[end:])
    array = _find_marked(document)
    while start < end:
        cut = data.find(b"}," + opening, start + _PIECE, end) + 1 or end
        array += _decode_piece(b"[%b]" % data[start:cut])
        start = cut + 1
    return document


def _decode_piece(data: bytes) -> Any:
    if len(data) > _QUICK:
        raise ValueError("the document has another form: it cannot be cut into pieces")
    from pydantic_core import from_json  # noqa: PLC0415 - few programs decode a long list

    return from_json(data)


def _find_marked(document: Any) -> list[Any]:
    """Find the only array that contains just the mark, and empty it."""
    stack, marked = [document], list[list[Any]]()
    while stack:
        part = stack.pop()
        if is_array(part) and part == [_MARK]:
            marked.append(part)
        stack.extend(child for child in _children(part) if _has_members(child))
    if len(marked) != 1:
        raise ValueError("the document has another form: its first array of objects is not the last one")
    marked[0].clear()
    return marked[0]


# ---------------------------------------------------------------- values in messages


def spell_path(path: Sequence[str | int]) -> str:
    """Spell a path as `$.items[2].price`; a very long one is cut."""
    rest = "…" if len(path) > _MAX_STEPS else ""
    return "$" + "".join(_spell_step(step) for step in path[:_MAX_STEPS]) + rest


def _spell_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_NAME.fullmatch(step) and len(step) <= _MAX_NAME else f"[{quote(step, _MAX_NAME)}]"


def quote(text: str, limit: int = _MAX_TEXT) -> str:
    """Put a text into double quotes, cut to `limit` characters and safe to encode as UTF-8."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    # An unpaired surrogate cannot be written as UTF-8; it must not break the message about it.
    return json.dumps(cut, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def spell_literal(value: Any) -> str:
    """Spell a value of a schema as short JSON."""
    if isinstance(value, str):
        return quote(value)
    if is_object(value) or is_array(value):
        return _spell_container(value)
    return _spell_number(value) if isinstance(value, int | float) else json.dumps(value, default=str)


def spell_value(value: Any, *, hidden: bool = False) -> str:
    """Spell the type of a value and its beginning; with `hidden`, for a secret, the type alone."""
    kind = json_type(value)
    if hidden and kind not in ("null", "object", "array"):
        return f"{kind} (hidden)"
    match value:
        case str():
            return f"{kind} {quote(value)}"
        case bool() | int() | float() | Decimal():
            return f"{kind} {_spell_number(value)}"
        case list() | dict() | tuple():
            return _spell_container(value)
        case _:
            return kind


def _spell_container(value: Any) -> str:
    return "object" if is_object(value) else f"array of {len(value)}"


def _spell_number(value: float | Decimal) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        # Python refuses to print an integer of more than 4,300 digits.
        return f"of about {int(value.bit_length() * math.log10(2))} digits"
    return json.dumps(value) if isinstance(value, float) else str(value)


# ---------------------------------------------------------------- limits, without recursion


def nested_deeper_than(limit: int, value: Any) -> bool:
    """Return whether containers are nested more than `limit` levels deep; true for one that contains itself."""
    level = {id(value): value}
    for _ in range(limit):
        level = {id(child): child for parent in level.values() for child in _children(parent) if _has_members(child)}
        if not level:
            return False
    return True


def parts_within(limit: int, value: Any) -> bool:
    """Return whether a value contains at most `limit` values; stops counting at the limit."""
    stack = [value] if _has_members(value) else []
    while stack:
        part = stack.pop()
        limit -= len(part)
        if limit < 0:
            return False
        stack.extend(child for child in _children(part) if _has_members(child))
    return True


def numbers_within(limit: float, value: Any) -> bool:
    """Return whether every number in a value lies between `-limit` and `limit`."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, int | float) and not -limit <= part <= limit:
            return False
        stack.extend(_children(part))
    return True


def text_within(limit: int, value: Any) -> bool:
    """Return whether the texts and names in a value have together at most `limit` characters; others count as one."""
    stack = [value]
    while stack and limit >= 0:
        part = stack.pop()
        if isinstance(part, str):
            limit -= len(part)
        elif isinstance(part, dict):
            named = cast("dict[object, Any]", part)
            limit -= sum(len(name) for name in named if isinstance(name, str))
            stack.extend(named.values())
        elif isinstance(part, list | tuple):
            stack.extend(cast("Sequence[Any]", part))
        limit -= 1
    return limit >= 0


def has_member(name: str, value: Any) -> bool:
    """Return whether an object anywhere in a value has a member of this name."""
    stack = [value]
    while stack:
        part = stack.pop()
        if is_object(part) and name in part:
            return True
        stack.extend(child for child in _children(part) if _has_members(child))
    return False


def has_float(value: Any) -> bool:
    """Return whether a container, or one in it at any depth, has a float among its members."""
    stack = [value]
    while stack:
        part = stack.pop()
        inner = part.values() if is_object(part) else part
        kinds = set(map(type, inner))
        if float in kinds:
            return True
        if not kinds.isdisjoint(_CONTAINERS):
            stack.extend(child for child in inner if _has_members(child))
    return False


class PathLink(NamedTuple):
    """A path as a linked list from its last step to the root, which costs the same to extend at any depth."""

    above: PathLink | None
    key: str | int

    @staticmethod
    def path(link: PathLink | None) -> Path:
        """Return the steps from the root; None is the root itself."""
        keys: list[str | int] = []
        while link is not None:
            keys.append(link.key)
            link = link.above
        return tuple(reversed(keys))


def find_non_json(value: Any) -> str | None:
    """Describe the first part of a value that is not JSON: a type, a key or a text; None if all parts are."""
    stack: list[tuple[PathLink | None, Any]] = [(None, value)]
    seen: set[int] = set()
    while stack and len(seen) < _MAX_VISITS:
        link, part = stack.pop()
        problem = _non_json_problem(part)
        if problem:
            return f"{spell_path(PathLink.path(link))}: {problem}"
        if _has_members(part) and id(part) not in seen:
            seen.add(id(part))
            stack.extend(reversed([(PathLink(link, key), child) for key, child in members(part)]))
    return None


def _non_json_problem(value: Any) -> str | None:
    if isinstance(value, str):
        return None if _is_unicode(value) else "the text has an unpaired surrogate and is not valid Unicode"
    if is_object(value):
        return _key_problem(value)
    if isinstance(value, (*_ATOMS, list, tuple)):
        return None
    return f"a value of type {type(value).__name__} is not JSON"


def _key_problem(value: Mapping[Any, Any]) -> str | None:
    for key in value:
        if not isinstance(key, str):
            return f"the key {str(key)[:_MAX_TEXT]} is of type {type(key).__name__}; JSON keys are text"
        if not _is_unicode(key):
            return f"the key {quote(key)} has an unpaired surrogate and is not valid Unicode"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_members(value: Any) -> bool:
    return isinstance(value, _CONTAINERS)


def _children(value: Any) -> Iterator[Any]:
    if _has_members(value):
        yield from (value.values() if is_object(value) else value)
