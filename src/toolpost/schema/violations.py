"""What is wrong with a value, in words that a model or a person can act on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import nearest
from toolpost.schema.json_values import Path, is_array, json_type, quote, spell_literal, spell_path, spell_value
from toolpost.schema.secrets import is_secret_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.schema.secrets import SecretPaths

_MAX_LISTED = 10
_MAX_COMPARED = 200  # a schema of a server may list thousands
_NUMBER = re.compile(r"\s*-?\d+(\.\d+)?([eE][+-]?\d+)?\s*", re.ASCII)


class Violation(NamedTuple):
    """One broken rule: which keyword, where, and what it asked for."""

    path: Path
    keyword: str
    expected: Any = None
    names: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    branches: tuple[tuple[Violation, ...], ...] = ()


def describe(fault: Violation, instance: Any, secrets: SecretPaths) -> str:
    """A fault as one line: the place, what was expected, what came."""
    return f"{spell_path(fault.path)}: {_problem(fault, instance, secrets)}"


def _problem(fault: Violation, instance: Any, secrets: SecretPaths) -> str:
    match fault.keyword:
        case "required" | "dependentRequired" | "dependencies":
            return f"missing required {_listed(fault.names)}"
        case "additionalProperties" | "unevaluatedProperties":
            return f"unexpected {_listed(fault.names)}{_did_you_mean(fault)}"
        case "anyOf" | "oneOf":
            return _no_branch(fault, instance, secrets)
        case "falseSchema":
            return "nothing is allowed here"
        case keyword:
            value = value_at(instance, fault.path)
            hidden = is_secret_path(fault.path, secrets)
            hint = "" if hidden else _hint(fault, value)
            return f"expected {_expectation(keyword, fault.expected)}, got {spell_value(value, hidden=hidden)}{hint}"


def value_at(instance: Any, path: Sequence[str | int]) -> Any:
    """The part of a value that lies at a path."""
    for step in path:
        instance = instance[step]
    return instance


def _listed(values: Sequence[Any]) -> str:
    rest = f", … ({len(values)} in all)" if len(values) > _MAX_LISTED else ""
    return ", ".join(spell_literal(value) for value in values[:_MAX_LISTED]) + rest


def _did_you_mean(fault: Violation) -> str:
    for name in fault.names[:_MAX_LISTED]:
        if near := nearest(name, fault.known[:_MAX_COMPARED]):
            return f"; did you mean {quote(near)}?"
    return f"; allowed are {_listed(fault.known)}" if fault.known else ""


def _types(expected: Any) -> str:
    types = expected if is_array(expected) else [expected]
    return " or ".join(sorted(dict.fromkeys(map(str, types)), key="null".__eq__))


def _plural(noun: str) -> Callable[[Any], str]:
    singular = noun.removesuffix("ies") + "y" if noun.endswith("ies") else noun.removesuffix("s")
    return lambda count: f"{count} {singular if count == 1 else noun}"


_characters, _items, _properties = _plural("characters"), _plural("items"), _plural("properties")

_EXPECTATIONS: dict[str, Callable[[Any], str]] = {
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


def _expectation(keyword: str, expected: Any) -> str:
    if word := _EXPECTATIONS.get(keyword):
        return word(expected)
    return f"what {quote(keyword)} asks for"


def _hint(fault: Violation, value: Any) -> str:
    """Advice for the mistakes that models make most."""
    if fault.keyword == "enum" and isinstance(value, str):
        options = [option for option in fault.expected if isinstance(option, str)]
        near = nearest(value, options[:_MAX_COMPARED])
        return f"; did you mean {quote(near)}?" if near else ""
    if fault.keyword != "type":
        return ""
    wanted = _types(fault.expected).split(" or ")
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


def _no_branch(fault: Violation, instance: Any, secrets: SecretPaths) -> str:
    branches = fault.branches
    if not all(branches):
        return f"fits several of {len(branches)} forms, exactly one of which is allowed"
    if types := _only_types(fault):
        return _problem(Violation(fault.path, "type", types), instance, secrets)
    if names := _only_names(fault):
        return f"needs one of {_listed(names)}"
    closest = min(branches, key=lambda faults: _distance(fault.path, faults))
    return f"fits none of {len(branches)} allowed forms; nearest: {describe(closest[0], instance, secrets)}"


def _only_types(fault: Violation) -> list[Any]:
    """The types that all branches ask for, when that is all that is wrong with each."""
    types: list[Any] = []
    for faults in fault.branches:
        first = faults[0]
        if len(faults) > 1 or first.keyword != "type" or first.path != fault.path:
            return []
        types.extend(first.expected)
    return types


def _only_names(fault: Violation) -> list[str]:
    """The names of which each branch wants one, when that is all that is wrong with it."""
    names: list[str] = []
    for faults in fault.branches:
        first = faults[0]
        if len(faults) > 1 or first.keyword != "required" or first.path != fault.path or len(first.names) > 1:
            return []
        names.extend(first.names)
    return names


def _distance(path: Path, faults: tuple[Violation, ...]) -> tuple[bool, bool, int]:
    """How far a branch is from fitting: another type is worst, another tag next, then the number of faults."""
    return (
        any(fault.keyword == "type" and fault.path == path for fault in faults),
        any(fault.keyword in ("const", "enum") for fault in faults),
        len(faults),
    )


_PREFIX = re.compile(r"^(?:Value error|Assertion failed), ")
_SHOULD = re.compile(r"^\w+ should ")


def plain_message(message: str) -> str:
    """The message as a sentence about the value: "must be greater than 1", or a validator's own words."""
    return _SHOULD.sub("must ", _PREFIX.sub("", message))
