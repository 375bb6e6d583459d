"""Remove the invalid parts of an introspection result, and report them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeGuard

from graphql import GraphQLError, parse_const_value

from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.sources.graphql.types import truncate

_BUILT_IN_SCALARS = ("Int", "Float", "String", "Boolean", "ID")
_OUTPUT_KINDS = frozenset({"SCALAR", "OBJECT", "INTERFACE", "UNION", "ENUM"})
_INPUT_KINDS = frozenset({"SCALAR", "ENUM", "INPUT_OBJECT"})
_WRAPPERS = ("LIST", "NON_NULL")
_MAX_WRAPPERS = 16
_MAX_NAME_CHARS = 60
_STANDARD_DIRECTIVES = [
    {
        "name": name,
        "locations": ["FIELD", "FRAGMENT_SPREAD", "INLINE_FRAGMENT"],
        "args": [{"name": "if", "type": {"kind": "NON_NULL", "ofType": {"kind": "SCALAR", "name": "Boolean"}}}],
    }
    for name in ("include", "skip")
]
_ROOTS = ("queryType", "mutationType", "subscriptionType")
# Names become part of every document, so a name that breaks GraphQL's grammar must not pass.
_NAME = re.compile(r"(?!__)[_A-Za-z][_0-9A-Za-z]{0,199}")


def sanitize_introspection(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the valid part of `__schema`, and the problems of the rest.

    Inputs with an invalid required field are dropped, and everything that requires them.
    """
    sanitizer = _Sanitizer(schema)
    roots = {root: sanitizer.root(schema.get(root)) for root in _ROOTS}
    whole = {"__schema": {**roots, "types": sanitizer.types(), "directives": _STANDARD_DIRECTIVES}}
    return whole, list(dict.fromkeys(sanitizer.problems))


class _Sanitizer:
    """Copier of valid types that collects problems about the rest."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self._raw = dict(self._select_named(schema.get("types"), "a type"))
        self._kinds = {name: str(raw.get("kind")) for name, raw in self._raw.items()}
        self._kinds |= dict.fromkeys(_BUILT_IN_SCALARS, "SCALAR")
        for name in self._unusable_inputs():
            del self._kinds[name]

    def _unusable_inputs(self) -> set[str]:
        """Return the input types with an invalid required field, and transitively those that require them."""
        required_by: dict[str, list[str]] = {}
        waiting: list[str] = []
        for owner, raw in self._raw.items():
            for inner in _required_fields(raw):
                kind = self._reference(inner.get("type"), _INPUT_KINDS) if _is_name(inner.get("name")) else None
                if kind is None:
                    waiting.append(owner)
                else:
                    required_by.setdefault(_named_type_of(kind), []).append(owner)
        unusable: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in unusable:
                unusable.add(name)
                waiting += required_by.get(name, ())
        return unusable

    def types(self) -> list[dict[str, Any]]:
        types = {name: self._type(name, raw) for name, raw in self._raw.items() if name not in _BUILT_IN_SCALARS}
        own = [{"kind": "SCALAR", "name": name} for name in _BUILT_IN_SCALARS]
        return [*own, *(kind for kind in types.values() if kind is not None)]

    def root(self, raw: Any) -> dict[str, Any] | None:
        name = raw.get("name") if is_object(raw) else None
        return {"kind": "OBJECT", "name": name} if self._kinds.get(str(name)) == "OBJECT" else None

    def _type(self, name: str, raw: dict[str, Any]) -> dict[str, Any] | None:
        base = {"name": name, "kind": raw.get("kind"), "description": _text_or_none(raw.get("description"))}
        match raw.get("kind"):
            case "SCALAR":
                return base
            case "OBJECT" | "INTERFACE":
                implemented = self._references(raw.get("interfaces"), "INTERFACE")
                return {**base, "interfaces": implemented, "fields": self._fields(name, raw)}
            case "UNION":
                return {**base, "possibleTypes": self._references(raw.get("possibleTypes"), "OBJECT")}
            case "ENUM":
                values = self._select_named(raw.get("enumValues"), f"a value of {name!r}")
                return {**base, "enumValues": [{"name": value, **_annotations(inner)} for value, inner in values]}
            case "INPUT_OBJECT":
                fields = self._inputs(raw.get("inputFields"), f"the input {name!r}")
                if fields is None:
                    return None
                return {**base, "inputFields": fields, "isOneOf": raw.get("isOneOf") is True}
            case kind:
                shown = truncate(str(kind), _MAX_NAME_CHARS)
                self.problems.append(f"the type {name!r} was skipped: it is of the unknown kind {shown!r}")
                return None

    def _fields(self, owner: str, raw: dict[str, Any]) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = []
        for name, inner in self._select_named(raw.get("fields"), f"a field of {owner!r}"):
            kind = self._reference(inner.get("type"), _OUTPUT_KINDS)
            arguments = self._inputs(inner.get("args"), f"the field '{owner}.{name}'")
            if kind is None:
                self.problems.append(f"the field '{owner}.{name}' was skipped: its type is not known")
            elif arguments is not None:
                fields.append({"name": name, "type": kind, "args": arguments, **_annotations(inner)})
        return fields

    def _inputs(self, raw: Any, owner: str) -> list[dict[str, Any]] | None:
        """Return the valid arguments or input fields; None when a required one is invalid."""
        inputs: list[dict[str, Any]] = []
        for item in raw if is_array(raw) else []:
            inner = as_object(item)
            kind = self._reference(inner.get("type"), _INPUT_KINDS)
            if kind is not None and _is_name(inner.get("name")):
                inputs.append(
                    {"name": inner["name"], "type": kind, "defaultValue": _default(inner), **_annotations(inner)}
                )
                continue
            name = truncate(str(inner.get("name")), _MAX_NAME_CHARS)
            self.problems.append(f"the argument {name!r} of {owner} was skipped: its name or type is not valid")
            if _is_required(inner):
                self.problems.append(f"{owner} was skipped: it cannot be called without {name!r}")
                return None
        return inputs

    def _select_named(self, raw: Any, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the items with a valid name, each name once; `__` names belong to introspection."""
        seen: set[str] = set()
        for item in raw if is_array(raw) else []:
            name = item.get("name") if is_object(item) else None
            if _is_name(name) and name not in seen:
                seen.add(name)
                yield name, item
            elif not str(name).startswith("__"):
                shown = truncate(str(name), _MAX_NAME_CHARS)
                self.problems.append(f"{what} was skipped: {shown!r} is not a GraphQL name, or it exists twice")

    def _references(self, raw: Any, kind: str) -> list[dict[str, Any]]:
        names = [str(item.get("name")) for item in raw if is_object(item)] if is_array(raw) else []
        return [{"kind": kind, "name": name} for name in dict.fromkeys(names) if self._kinds.get(name) == kind]

    def _reference(self, raw: Any, kinds: frozenset[str]) -> dict[str, Any] | None:
        """Return a type reference with its wrappers; None when the named type is unknown or of another kind."""
        wrappers: list[str] = []
        while is_object(raw) and raw.get("kind") in _WRAPPERS and len(wrappers) < _MAX_WRAPPERS:
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


def _required_fields(raw: dict[str, Any]) -> list[dict[str, Any]]:
    fields = raw.get("inputFields") if raw.get("kind") == "INPUT_OBJECT" else None
    return [inner for inner in fields if is_object(inner) and _is_required(inner)] if is_array(fields) else []


def _named_type_of(reference: dict[str, Any]) -> str:
    while "ofType" in reference:
        reference = reference["ofType"]
    return str(reference["name"])


def _is_required(inner: dict[str, Any]) -> bool:
    kind = inner.get("type")
    return is_object(kind) and kind.get("kind") == "NON_NULL" and inner.get("defaultValue") is None


def _annotations(inner: dict[str, Any]) -> dict[str, Any]:
    reason = inner.get("deprecationReason")
    if inner.get("isDeprecated") is not True:
        reason = None
    elif not isinstance(reason, str):
        reason = "No longer supported"
    return {"description": _text_or_none(inner.get("description")), "deprecationReason": reason}


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _default(inner: dict[str, Any]) -> str | None:
    """Return the default as a GraphQL literal; None when it does not parse, such as JSON."""
    text = inner.get("defaultValue")
    if not isinstance(text, str):
        return None
    try:
        parse_const_value(text, no_location=True)
    except (GraphQLError, RecursionError):
        return None
    return text
