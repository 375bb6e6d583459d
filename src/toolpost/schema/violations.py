"""Violations of a schema, with descriptions that help a model or a user to correct the value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from toolpost.contracts.nearest_names import nearest
from toolpost.schema.json_values import Path, is_array, json_type, quote, spell_literal, spell_path, spell_value
from toolpost.schema.secrets import SecretPaths, is_secret_path

_MAX_LISTED = 10
_MAX_COMPARED = 200  # a schema of a server may list thousands
_PREFIX = re.compile(r"^(?:Value error|Assertion failed), ")
_SHOULD = re.compile(r"^\w+ should ")
_NUMBER = re.compile(r"\s*-?\d+(\.\d+)?([eE][+-]?\d+)?\s*", re.ASCII)


class Violation(NamedTuple):
    """One violated keyword of a schema: the path of the value, and what was expected."""

    path: Path
    keyword: str
    expected: Any = None
    names: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    branches: tuple[tuple[Violation, ...], ...] = ()


def describe(violation: Violation, instance: Any, secrets: SecretPaths) -> str:
    """Describe a violation in one line: the path, what was expected, what was given."""
    return f"{spell_path(violation.path)}: {_problem(violation, instance, secrets)}"


def _problem(violation: Violation, instance: Any, secrets: SecretPaths) -> str:
    match violation.keyword:
        case "required" | "dependentRequired" | "dependencies":
            return f"missing required {_listed(violation.names)}"
        case "additionalProperties" | "unevaluatedProperties":
            return f"unexpected {_listed(violation.names)}{_did_you_mean(violation)}"
        case "anyOf" | "oneOf":
            return _no_branch(violation, instance, secrets)
        case "falseSchema":
            return "nothing is allowed here"
        case keyword:
            value = value_at(instance, violation.path)
            hidden = is_secret_path(violation.path, secrets)
            hint = "" if hidden else _hint(violation, value)
            read = _expectations.get(keyword)
            expected = read(violation.expected) if read else f"what {quote(keyword)} asks for"
            return f"expected {expected}, got {spell_value(value, hidden=hidden)}{hint}"


def value_at(instance: Any, path: Sequence[str | int]) -> Any:
    """Return the part of a value at a path."""
    for step in path:
        instance = instance[step]
    return instance


def _listed(values: Sequence[Any]) -> str:
    rest = f", … ({len(values)} in all)" if len(values) > _MAX_LISTED else ""
    return ", ".join(spell_literal(value) for value in values[:_MAX_LISTED]) + rest


def _did_you_mean(violation: Violation) -> str:
    for name in violation.names[:_MAX_LISTED]:
        if near := nearest(name, violation.known[:_MAX_COMPARED]):
            return f"; did you mean {quote(near)}?"
    return f"; allowed are {_listed(violation.known)}" if violation.known else ""


def _types(expected: Any) -> str:
    types = expected if is_array(expected) else [expected]
    return " or ".join(sorted(dict.fromkeys(map(str, types)), key="null".__eq__))


def _plural(noun: str) -> Callable[[Any], str]:
    singular = noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")
    return lambda count: f"{count} {singular if count == 1 else noun}"


_characters, _items, _properties = _plural("characters"), _plural("items"), _plural("properties")

_expectations: dict[str, Callable[[Any], str]] = {
    "type": _types,
    "enum": lambda options: f"one of {_listed(options)}",
    "const": spell_literal,
    "minimum": lambda limit: f"at least {spell_literal(limit)}",
    "maximum": lambda limit: f"at most {spell_literal(limit)}",
    "exclusiveMinimum": lambda limit: f"more than {spell_literal(limit)}",
    "exclusiveMaximum": lambda limit: f"less than {spell_literal(limit)}",
    "multipleOf": lambda factor: f"a multiple of {spell_literal(factor)}",
    "minLength": lambda count: f"at least {_characters(count)}",
    "maxLength": lambda count: f"at most {_characters(count)}",
    "pattern": lambda pattern: f"text that matches {quote(str(pattern), 120)}",
    "costlyPattern": lambda _: "text whose pattern can be checked in bounded time",
    "format": lambda name: f"text in the format {quote(str(name))}",
    "minItems": lambda count: f"at least {_items(count)}",
    "maxItems": lambda count: f"at most {_items(count)}",
    "minProperties": lambda count: f"at least {_properties(count)}",
    "maxProperties": lambda count: f"at most {_properties(count)}",
    "uniqueItems": lambda _: "items that differ from each other",
    "additionalItems": lambda _: "fewer items",
    "unevaluatedItems": lambda _: "fewer items",
    "contains": lambda _: "an item of a certain form",
    "not": lambda _: "something other than the form it must not have",
    "propertyNames": lambda _: "property names of a certain form",
}


def _hint(violation: Violation, value: Any) -> str:
    """Return advice for the mistakes that models make most."""
    if violation.keyword == "enum" and isinstance(value, str):
        options = [option for option in violation.expected if isinstance(option, str)]
        near = nearest(value, options[:_MAX_COMPARED])
        return f"; did you mean {quote(near)}?" if near else ""
    if violation.keyword != "type":
        return ""
    wanted = _types(violation.expected).split(" or ")
    return _text_hint(wanted, value) if isinstance(value, str) else _other_hint(wanted, value)


def _text_hint(wanted: list[str], text: str) -> str:
    if {"integer", "number"} & set(wanted) and _NUMBER.fullmatch(text):
        return " (numbers must not be quoted)"
    if "boolean" in wanted and text.strip().lower() in ("true", "false"):
        return " (true and false must not be quoted)"
    if ("object" in wanted and text.lstrip()[:1] == "{") or ("array" in wanted and text.lstrip()[:1] == "["):
        return " (send the JSON itself, not text of it)"
    return " (put it into a list)" if "array" in wanted else ""


def _other_hint(wanted: list[str], value: Any) -> str:
    if "string" in wanted and json_type(value) in ("integer", "number") and value == value:  # noqa: PLR0124 - not NaN
        return " (text must be quoted)"
    return " (put it into a list)" if "array" in wanted and value is not None else ""


def _no_branch(violation: Violation, instance: Any, secrets: SecretPaths) -> str:
    branches = violation.branches
    if not all(branches):
        return f"fits several of {len(branches)} forms, exactly one of which is allowed"
    if types := _only_types(violation):
        return _problem(Violation(violation.path, "type", types), instance, secrets)
    if names := _only_names(violation):
        return f"needs one of {_listed(names)}"
    closest = min(branches, key=lambda violations: _distance(violation.path, violations))
    return f"fits none of {len(branches)} allowed forms; nearest: {describe(closest[0], instance, secrets)}"


def _only_types(violation: Violation) -> list[Any]:
    """Return the expected types of all branches, if nothing else is wrong with any branch."""
    types: list[Any] = []
    for violations in violation.branches:
        first = violations[0]
        if len(violations) > 1 or first.keyword != "type" or first.path != violation.path:
            return []
        types.extend(first.expected)
    return types


def _only_names(violation: Violation) -> list[str]:
    """Return the missing names, if each branch misses one and nothing else is wrong."""
    names: list[str] = []
    for violations in violation.branches:
        first = violations[0]
        if len(violations) > 1 or first.keyword != "required" or first.path != violation.path or len(first.names) > 1:
            return []
        names.extend(first.names)
    return names


def _distance(path: Path, violations: tuple[Violation, ...]) -> tuple[bool, bool, int]:
    """Return how far a branch is from fitting: another type is worst, another constant next, then their number."""
    return (
        any(violation.keyword == "type" and violation.path == path for violation in violations),
        any(violation.keyword in ("const", "enum") for violation in violations),
        len(violations),
    )


def plain_message(message: str) -> str:
    """Rewrite a message of pydantic as a sentence about the value: "must be greater than 1"."""
    return _SHOULD.sub("must ", _PREFIX.sub("", message))
