"""Drop nulls that represent absent members, and convert values to the types of their schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object, json_type
from toolpost.schema.subschemas import SchemaDocument, references

_BUDGET = 20_000
_MAX_DEPTH = 100
_MAX_DIGITS = 300
_INTEGER = re.compile(r"\s*([+-]?\d+)(\.0+)?\s*", re.ASCII)
_NUMBER = re.compile(r"\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?\s*", re.ASCII)
_NOTHING = object()


def coerce_value(schema: JsonSchema, instance: Any) -> Any:
    """Return a copy of a value coerced to a schema as far as possible."""
    return _Coercion(SchemaDocument(schema), converts=True).value(schema, instance, 0)


def drop_nulls(schema: JsonSchema, instance: Any) -> Any:
    """Return a copy of a value without the null members that its schema lists, does not require and does not admit.

    Models and frameworks send null for an argument that they omit.
    """
    return _Coercion(SchemaDocument(schema), converts=False).value(schema, instance, 0)


class _Coercion(Struct):
    """One traversal of a value and its schema; `left` limits the number of steps.

    It drops nulls that represent an absent member. With `converts`, it also converts values to the schema's types.
    """

    document: SchemaDocument
    converts: bool
    left: int = _BUDGET

    def value(self, schema: Any, value: Any, depth: int) -> Any:
        """Coerce a value to `schema` as far as possible."""
        if not is_object(schema) or self.left <= 0 or depth > _MAX_DEPTH:
            return value
        self.left -= 1
        if self.converts:
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
        """Coerce a value to the first alternative that it matches afterwards."""
        if any(self.fits(option, value, depth) for option in options):
            return value
        for option in options:
            attempt = self.value(option, value, depth)
            if self.fits(option, attempt, depth):
                return attempt
        return value

    def _members(self, rules: JsonSchema, value: Any, depth: int) -> Any:
        if is_object(value):
            return {
                key: self.value(_property(rules, key), member, depth)
                for key, member in value.items()
                if member is not None or not self._is_absent(rules, key, depth)
            }
        if is_array(value):
            return [self.value(_item(rules, index), item, depth) for index, item in enumerate(value)]
        return value

    def _is_absent(self, rules: JsonSchema, key: str, depth: int) -> bool:
        """Return whether null represents an absent member: listed, not required, and not nullable."""
        properties, required = rules.get("properties"), rules.get("required")
        if not is_object(properties) or key not in properties or (is_array(required) and key in required):
            return False
        return not self.fits(properties[key], None, depth)

    def fits(self, schema: Any, value: Any, depth: int) -> bool:
        """Return whether a value has the types, constants and required fields of a schema, to choose an alternative."""
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
    properties = rules.get("properties")
    if is_object(properties) and key in properties:
        return properties[key]
    # With patterns, it is expensive to find out which properties are additional.
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
    results = (_read(kind, value) for kind in _types(rules))
    return next((result for result in results if result is not _NOTHING), value)


def _read(kind: Any, value: Any) -> Any:
    match kind:
        case "integer":
            match = _full_match(_INTEGER, value)
            return int(match[1]) if match else _NOTHING
        case "number":
            return _parsed(value) if _full_match(_NUMBER, value) else _NOTHING
        case "boolean":
            word = value.strip().lower() if isinstance(value, str) else ""
            return {"true": True, "false": False}.get(word, _NOTHING)
        case "string":
            return _read_string(value)
        case "object":
            return _read_json(value, dict)
        case "array":
            items = _read_json(value, list)
            return [value] if items is _NOTHING else items
        case _:
            return _NOTHING


def _full_match(pattern: re.Pattern[str], value: Any) -> re.Match[str] | None:
    return pattern.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_DIGITS else None


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
