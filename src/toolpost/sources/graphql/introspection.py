"""What a server says of its schema, taken in with care: only names and types that hold, the rest told as problems.

Names become part of every query, so that one that breaks GraphQL's grammar must never get there.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from graphql import GraphQLError, parse_const_value

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.graphql.texts import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = re.compile(r"(?!__)[_A-Za-z][_0-9A-Za-z]{0,199}")
_BUILT_IN = ("Int", "Float", "String", "Boolean", "ID")
_OUTPUT = frozenset({"SCALAR", "OBJECT", "INTERFACE", "UNION", "ENUM"})
_INPUT = frozenset({"SCALAR", "ENUM", "INPUT_OBJECT"})
_WRAPPERS = ("LIST", "NON_NULL")
_MOST_WRAPPERS = 16
_LONGEST_NAME = 60
_ROOTS = ("queryType", "mutationType", "subscriptionType")


class Sound(NamedTuple):
    """An introspection that can be built from, and what was left out of it."""

    introspection: dict[str, Any]
    problems: list[str]


def sound(schema: dict[str, Any]) -> Sound:
    """The part of `__schema` that holds; a type that nothing can be passed to takes what needs it along."""
    reading = _Reading(schema)
    roots = {root: reading.root(schema.get(root)) for root in _ROOTS}
    whole = {"__schema": {**roots, "types": reading.types(), "directives": _DIRECTIVES}}
    return Sound(whole, list(dict.fromkeys(reading.problems)))


class _Reading:
    """One pass over all types, once it is known which inputs lack something that must be given."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self._raw = dict(self._named(schema.get("types"), "a type"))
        self._kinds = {name: str(raw.get("kind")) for name, raw in self._raw.items()}
        self._kinds |= dict.fromkeys(_BUILT_IN, "SCALAR")
        for name in self._unusable():
            del self._kinds[name]

    def _unusable(self) -> set[str]:
        """Inputs that need what cannot be given, those that need them, and so on."""
        needed_by: dict[str, list[str]] = {}
        waiting: list[str] = []
        for owner, raw in self._raw.items():
            for inner in _needed(raw):
                kind = self._reference(inner.get("type"), _INPUT) if _is_name(inner.get("name")) else None
                if kind is None:
                    waiting.append(owner)
                else:
                    needed_by.setdefault(_innermost(kind), []).append(owner)
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += needed_by.get(name, ())
        return found

    def types(self) -> list[dict[str, Any]]:
        written = {name: self._type(name, raw) for name, raw in self._raw.items() if name not in _BUILT_IN}
        own = [{"kind": "SCALAR", "name": name} for name in _BUILT_IN]
        return [*own, *(kind for kind in written.values() if kind is not None)]

    def root(self, raw: Any) -> dict[str, Any] | None:
        name = raw.get("name") if is_object(raw) else None
        return {"kind": "OBJECT", "name": name} if self._kinds.get(str(name)) == "OBJECT" else None

    def _type(self, name: str, raw: dict[str, Any]) -> dict[str, Any] | None:
        about = {"name": name, "kind": raw.get("kind"), "description": _text(raw.get("description"))}
        match raw.get("kind"):
            case "SCALAR":
                return about
            case "OBJECT" | "INTERFACE":
                implemented = self._references(raw.get("interfaces"), "INTERFACE")
                return {**about, "interfaces": implemented, "fields": self._fields(name, raw)}
            case "UNION":
                return {**about, "possibleTypes": self._references(raw.get("possibleTypes"), "OBJECT")}
            case "ENUM":
                values = self._named(raw.get("enumValues"), f"a value of {name!r}")
                return {**about, "enumValues": [{"name": value, **_told(inner)} for value, inner in values]}
            case "INPUT_OBJECT":
                given = self._inputs(raw.get("inputFields"), f"the input {name!r}")
                return None if given is None else {**about, "inputFields": given, "isOneOf": raw.get("isOneOf") is True}
            case kind:
                told = shortened(str(kind), _LONGEST_NAME)
                self.problems.append(f"the type {name!r} was left out: it is of the unknown kind {told!r}")
                return None

    def _fields(self, owner: str, raw: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for name, inner in self._named(raw.get("fields"), f"a field of {owner!r}"):
            kind = self._reference(inner.get("type"), _OUTPUT)
            arguments = self._inputs(inner.get("args"), f"the field '{owner}.{name}'")
            if kind is None:
                self.problems.append(f"the field '{owner}.{name}' was left out: its type is not known")
            elif arguments is not None:
                found.append({"name": name, "type": kind, "args": arguments, **_told(inner)})
        return found

    def _inputs(self, raw: Any, owner: str) -> list[dict[str, Any]] | None:
        """What can be given; None when something that must be given cannot."""
        found: list[dict[str, Any]] = []
        for item in raw if is_array(raw) else []:
            inner = item if is_object(item) else {}
            kind = self._reference(inner.get("type"), _INPUT)
            if kind is not None and _is_name(inner.get("name")):
                found.append({"name": inner["name"], "type": kind, "defaultValue": _default(inner), **_told(inner)})
                continue
            name = shortened(str(inner.get("name")), _LONGEST_NAME)
            self.problems.append(f"the argument {name!r} of {owner} was left out: its name or type is not valid")
            if _is_needed(inner):
                self.problems.append(f"{owner} was left out: it cannot be called without {name!r}")
                return None
        return found

    def _named(self, raw: Any, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Those of a list whose names hold, each once; GraphQL's own begin with two underscores."""
        seen: set[str] = set()
        for item in raw if is_array(raw) else []:
            name = item.get("name") if is_object(item) else None
            if _is_name(name) and name not in seen:
                seen.add(name)
                yield name, item
            elif not str(name).startswith("__"):
                told = shortened(str(name), _LONGEST_NAME)
                self.problems.append(f"{what} was left out: {told!r} is not a GraphQL name, or there are two of it")

    def _references(self, raw: Any, kind: str) -> list[dict[str, Any]]:
        names = [str(item.get("name")) for item in raw if is_object(item)] if is_array(raw) else []
        return [{"kind": kind, "name": name} for name in dict.fromkeys(names) if self._kinds.get(name) == kind]

    def _reference(self, raw: Any, kinds: frozenset[str]) -> dict[str, Any] | None:
        """A type with its wrappers, if what is in them is known and fits the place."""
        wrappers: list[str] = []
        while is_object(raw) and raw.get("kind") in _WRAPPERS and len(wrappers) < _MOST_WRAPPERS:
            wrappers.append(raw["kind"])
            raw = raw.get("ofType")
        name = raw.get("name") if is_object(raw) else None
        kind = self._kinds.get(name) if isinstance(name, str) else None
        if kind not in kinds or ("NON_NULL", "NON_NULL") in pairwise(wrappers):
            return None
        reference: dict[str, Any] = {"kind": kind, "name": name}
        for wrapper in reversed(wrappers):
            reference = {"kind": wrapper, "ofType": reference}
        return reference


def _is_name(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _needed(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """What must be given to an input."""
    fields = raw.get("inputFields") if raw.get("kind") == "INPUT_OBJECT" else None
    return [inner for inner in fields if is_object(inner) and _is_needed(inner)] if is_array(fields) else []


def _innermost(reference: dict[str, Any]) -> str:
    while "ofType" in reference:
        reference = reference["ofType"]
    return str(reference["name"])


def _is_needed(inner: dict[str, Any]) -> bool:
    kind = inner.get("type")
    return is_object(kind) and kind.get("kind") == "NON_NULL" and inner.get("defaultValue") is None


def _told(inner: dict[str, Any]) -> dict[str, Any]:
    reason = inner.get("deprecationReason")
    if inner.get("isDeprecated") is not True:
        reason = None
    elif not isinstance(reason, str):
        reason = "it is no longer supported"
    return {"description": _text(inner.get("description")), "deprecationReason": reason}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _default(inner: dict[str, Any]) -> str | None:
    """The default as GraphQL writes it; some servers write JSON or worse, which says nothing to us."""
    text = inner.get("defaultValue")
    if not isinstance(text, str):
        return None
    try:
        parse_const_value(text, no_location=True)
    except (GraphQLError, RecursionError):
        return None
    return text


def _directive(name: str) -> dict[str, Any]:
    needed = {"kind": "NON_NULL", "ofType": {"kind": "SCALAR", "name": "Boolean"}}
    places = ["FIELD", "FRAGMENT_SPREAD", "INLINE_FRAGMENT"]
    return {"name": name, "locations": places, "args": [{"name": "if", "type": needed}]}


_DIRECTIVES = [_directive("include"), _directive("skip")]
