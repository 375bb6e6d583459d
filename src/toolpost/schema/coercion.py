"""Coerce arguments to the types of the schema: quoted numbers, JSON in strings, single items for lists."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolpost.schema.json_values import is_array, is_object, json_type
from toolpost.schema.subschemas import SchemaDocument, references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.contracts.spec import JsonSchema

_BUDGET = 20_000
_MAX_DEPTH = 100
_MAX_DIGITS = 300
_INTEGER = re.compile(r"\s*([+-]?\d+)(\.0+)?\s*", re.ASCII)
_NUMBER = re.compile(r"\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?\s*", re.ASCII)


def coerce_value(schema: JsonSchema, instance: Any) -> Any:
    """Return a copy of a value coerced to a schema as far as possible."""
    return _Coercion(SchemaDocument(schema)).value(schema, instance, 0)


@dataclass(slots=True)
class _Coercion:
    """One walk over a value and its schema; `left` bounds the number of steps."""

    document: SchemaDocument
    left: int = _BUDGET

    def value(self, schema: Any, value: Any, depth: int) -> Any:
        """Coerce a value to `schema` as far as possible."""
        if not is_object(schema) or self.left <= 0 or depth > _MAX_DEPTH:
            return value
        self.left -= 1
        value = _typed(schema, value)
        value = self._members(schema, value, depth + 1)
        for part in self._conjuncts(schema):
            value = self.value(part, value, depth + 1)
        for options in _choices(schema):
            value = self._chosen(options, value, depth + 1)
        return value

    def _conjuncts(self, rules: JsonSchema) -> Iterator[Any]:
        for reference in references(rules):
            yield self.document.target(reference, rules)
        parts = rules.get("allOf")
        if is_array(parts):
            yield from parts

    def _chosen(self, options: list[Any], value: Any, depth: int) -> Any:
        """Coerce a value to the first alternative that it then fits."""
        if any(self.fits(option, value, depth) for option in options):
            return value
        for option in options:
            attempt = self.value(option, value, depth)
            if self.fits(option, attempt, depth):
                return attempt
        return value

    def _members(self, rules: JsonSchema, value: Any, depth: int) -> Any:
        if is_object(value):
            return {key: self.value(_property(rules, key), member, depth) for key, member in value.items()}
        if is_array(value):
            return [self.value(_item(rules, index), item, depth) for index, item in enumerate(value)]
        return value

    def fits(self, schema: Any, value: Any, depth: int) -> bool:
        """Whether a value has the types, constants and required fields of a schema; a check to pick alternatives."""
        if not is_object(schema):
            return schema is not False
        if self.left <= 0 or depth > _MAX_DEPTH:
            return True
        self.left -= 1
        if not (_has_type(schema, value) and _has_tag(schema, value) and _has_fields(schema, value)):
            return False
        if not all(self.fits(part, value, depth + 1) for part in self._conjuncts(schema)):
            return False
        if not all(any(self.fits(o, value, depth + 1) for o in options) for options in _choices(schema)):
            return False
        return all(self.fits(inner, member, depth + 1) for inner, member in _applied(schema, value))


def _choices(rules: JsonSchema) -> Iterator[list[Any]]:
    for keyword in ("anyOf", "oneOf"):
        options = rules.get(keyword)
        if is_array(options) and options:
            yield options


def _applied(rules: JsonSchema, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each member of a value after its schema."""
    if is_object(value):
        yield from ((_property(rules, key), member) for key, member in value.items())
    elif is_array(value):
        yield from ((_item(rules, index), item) for index, item in enumerate(value))


def _property(rules: JsonSchema, key: str) -> Any:
    known = rules.get("properties")
    if is_object(known) and key in known:
        return known[key]
    # With patterns around, which properties are additional cannot be told cheaply.
    return True if "patternProperties" in rules else rules.get("additionalProperties", True)


def _item(rules: JsonSchema, index: int) -> Any:
    for keyword in ("prefixItems", "items"):
        first = rules.get(keyword)
        if is_array(first) and index < len(first):
            return first[index]
    return rules.get("additionalItems" if is_array(rules.get("items")) else "items", True)


def _types(rules: JsonSchema) -> list[Any]:
    """Return the types that a schema allows, by `type` or by the values that it lists."""
    kind = rules.get("type")
    if kind is None:
        return list(dict.fromkeys(json_type(option) for option in _listed(rules)))
    return kind if is_array(kind) else [kind]


def _listed(rules: JsonSchema) -> list[Any]:
    """Return the values of `enum` or `const`."""
    options = rules.get("enum", [rules["const"]] if "const" in rules else [])
    return options if is_array(options) else []


def _has_type(rules: JsonSchema, value: Any) -> bool:
    types = _types(rules)
    kind = json_type(value)
    if not types or kind in types or (kind == "integer" and "number" in types):
        return True
    return kind == "number" and "integer" in types and float(value).is_integer()


def _has_tag(rules: JsonSchema, value: Any) -> bool:
    options = _listed(rules)
    return not options or any(option == value and type(option) is type(value) for option in options)


def _has_fields(rules: JsonSchema, value: Any) -> bool:
    required = rules.get("required")
    return not is_object(value) or not is_array(required) or all(name in value for name in required)


def _typed(rules: JsonSchema, value: Any) -> Any:
    """Convert a value to the first allowed type that it can be read as."""
    if value is None or _has_type(rules, value):
        return value
    for kind in _types(rules):
        reader = _READERS.get(kind)
        result = reader(value) if reader else _NOTHING
        if result is not _NOTHING:
            return result
    return value


_NOTHING = object()


def _read_integer(value: Any) -> Any:
    found = _INTEGER.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_DIGITS else None
    return int(found[1]) if found else _NOTHING


def _read_number(value: Any) -> Any:
    found = _NUMBER.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_DIGITS else None
    return _parsed(value) if found else _NOTHING


def _read_boolean(value: Any) -> Any:
    return {"true": True, "false": False}.get(value.strip().lower(), _NOTHING) if isinstance(value, str) else _NOTHING


def _read_string(value: Any) -> Any:
    match value:
        case bool():
            return _NOTHING
        case int():
            return _NOTHING if value.bit_length() > _MAX_DIGITS * 3 else str(value)
        case float():
            return json.dumps(value) if math.isfinite(value) else _NOTHING
        case _:
            return _NOTHING


def _read_array(value: Any) -> Any:
    parsed = _read_json(value, list)
    return [value] if parsed is _NOTHING else parsed


def _read_json(value: Any, kind: type) -> Any:
    parsed = _parsed(value) if isinstance(value, str) else _NOTHING
    return parsed if isinstance(parsed, kind) else _NOTHING


def _parsed(text: str) -> Any:
    """Parse JSON text; NaN and infinite numbers are not JSON."""
    try:
        return _decode(text.strip())
    except (ValueError, RecursionError):
        return _NOTHING


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_decode = json.JSONDecoder(parse_float=_finite, parse_constant=_finite).decode


_READERS: dict[str, Callable[[Any], Any]] = {
    "integer": _read_integer,
    "number": _read_number,
    "boolean": _read_boolean,
    "string": _read_string,
    "object": lambda value: _read_json(value, dict),
    "array": _read_array,
}
