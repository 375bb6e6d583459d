"""Adapt the names and the root of a schema to the limits of model providers, and convert the arguments of calls back.

Providers reject property names with other characters or more than 64, schemas that are not plainly an object, and
arrays without a schema of their items. One such tool makes them reject the whole request. Only the view of the model
changes: arguments are converted back to their real names and validated against the real schema.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.subschemas import (
    REFERENCES,
    has_subschemas,
    nest_schema,
    rename_references,
    replace_subschemas,
    subschemas,
)

WRAPPER = "arguments"
"""The only property of a schema that was not a plain object; its value contains the arguments."""

_LONGEST = 64
_PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_HASH_CHARS = 8
_NOT_AT_THE_TOP = frozenset({"oneOf", "anyOf", "allOf", "not", "enum", "const", *REFERENCES})
_VALUES = ("const", "default", "example")
_VALUE_LISTS = ("enum", "examples")
_BY_PROPERTY = ("properties", "dependentSchemas", "dependentRequired", "dependencies")


class ArgumentMap(NamedTuple):
    """The schema that a model reads, and the conversion of arguments in both directions; `aliases` are by real name."""

    schema: JsonSchema
    aliases: Mapping[str, str]
    wrapped: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether arguments need no conversion."""
        return not self.aliases and not self.wrapped

    def to_model(self, arguments: Any) -> Any:
        """Return arguments as the model would write them."""
        shown = _rename_keys(arguments, self.aliases) if self.aliases else arguments
        return {WRAPPER: shown} if self.wrapped else shown

    def from_model(self, arguments: Any) -> Any:
        """Return the arguments that a model wrote, under their real names; real names are accepted, too."""
        if self.wrapped and is_object(arguments) and arguments.keys() == {WRAPPER}:
            arguments = arguments[WRAPPER]
        return _rename_keys(arguments, {alias: name for name, alias in self.aliases.items()})


def fit_schema(schema: JsonSchema, *, property_name: re.Pattern[str] = _PROPERTY_NAME) -> ArgumentMap:
    """Adapt the schema of a tool's arguments to the limits of providers; `property_name` matches valid names."""
    names, lacks = _survey(schema)
    aliases: dict[str, str] = {}
    for name in sorted(name for name in names if not property_name.fullmatch(name)):
        alias = alias_of(name, taken := {*names, *aliases.values()})
        # The characters of an alias are valid for every provider, if it is an identifier.
        aliases[name] = alias if property_name.fullmatch(alias) else alias_of(f"p_{alias.replace('-', '_')}", taken)
    shown: dict[str, Any] = _rename(schema, aliases) if aliases else schema
    shown = _with_items(shown) if lacks else shown
    kind = schema.get("type", "object")
    if (kind != "object" and not (is_array(kind) and "object" in kind)) or _NOT_AT_THE_TOP & schema.keys():
        return ArgumentMap(_wrap(shown), aliases, wrapped=True)
    if schema.get("type") != "object" or "properties" not in schema:
        shown = {"properties": dict[str, Any](), **shown, "type": "object"}
    return ArgumentMap(shown, aliases)


def is_strict(schema: JsonSchema) -> bool:
    """Return whether providers can enforce a schema strictly: every object declares and requires all its properties."""
    properties = schema.get("properties")
    if is_object(properties) or schema.get("type") == "object":
        named = as_object(properties)
        required: Any = schema.get("required")
        if schema.get("additionalProperties") is not False or set(required or ()) != named.keys():
            return False
    return all(is_strict(inner.schema) for inner in subschemas(schema))


def lacks_items(schema: JsonSchema) -> bool:
    """Return whether a schema is of an array without a schema of its items."""
    kind = schema.get("type")
    is_for_arrays = kind == "array" or (is_array(kind) and "array" in kind)
    return is_for_arrays and not is_object(schema.get("items"))


def alias_of(name: str, taken: Collection[str]) -> str:
    """Return a valid name for providers: readable, with a hash that distinguishes it from other names."""
    stem = _NOT_IN_NAMES.sub("_", name).strip("_-")[: _LONGEST - _HASH_CHARS - 1] or "name"
    salt = name
    while True:
        digest = hashlib.sha256(salt.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
        if (alias := f"{stem}_{digest}") not in taken:
            return alias
        salt += " "


def _survey(schema: JsonSchema) -> tuple[set[str], bool]:
    """Return the names of all properties, and whether an array has no schema of its items."""
    names: set[str] = set()
    lacks = False
    stack = [schema]
    while stack:
        part = stack.pop()
        declared = part.get("properties")
        if is_object(declared):
            names.update(declared)
        lacks = lacks or lacks_items(part)
        if has_subschemas(part):
            stack.extend(inner.schema for inner in subschemas(part))
    return names, lacks


def _with_items(schema: JsonSchema) -> JsonSchema:
    """Copy a schema with a schema of the items of every array; the items of a tuple of older drafts are its prefix."""
    copy = replace_subschemas(schema, _with_items)
    if lacks_items(copy):
        if is_array(listed := copy.get("items")):
            copy["prefixItems"] = listed
            rest = copy.pop("additionalItems", None)
            copy["items"] = rest if is_object(rest) else {}
        else:
            copy["items"] = dict[str, Any]()
    return rename_references(copy, _steps_to_items)


def _steps_to_items(steps: list[str]) -> list[str]:
    """Change the steps of a JSON Pointer into a tuple of older drafts."""
    after = dict(enumerate(steps[1:]))
    return [
        "prefixItems" if step == "items" and after.get(at, "").isdecimal() else step for at, step in enumerate(steps)
    ]


def _rename(schema: JsonSchema, aliases: Mapping[str, str]) -> JsonSchema:
    """Copy a schema under the aliases of its properties, wherever it names them."""
    copy = replace_subschemas(schema, lambda inner: _rename(inner, aliases))
    copy.pop("propertyNames", None)  # rules for the real names, which aliases need not follow
    for keyword in _BY_PROPERTY:
        if is_object(named := copy.get(keyword)):
            copy[keyword] = {aliases.get(name, name): _alias_names(part, aliases) for name, part in named.items()}
    for name, alias in aliases.items():  # the model sees the name that its provider rejects
        if is_object(shown := copy.get("properties", {}).get(alias)):
            copy["properties"][alias] = {"title": name, **shown}
    if "required" in copy:
        copy["required"] = _alias_names(copy["required"], aliases)
    for keyword in _VALUES:
        if keyword in copy:
            copy[keyword] = _rename_keys(copy[keyword], aliases)
    for keyword in _VALUE_LISTS:
        if is_array(copy.get(keyword)):
            copy[keyword] = [_rename_keys(value, aliases) for value in copy[keyword]]
    return rename_references(copy, lambda steps: _rename_steps(steps, aliases))


def _alias_names(names: Any, aliases: Mapping[str, str]) -> Any:
    return [aliases.get(name, name) for name in names] if is_array(names) else names


def _rename_keys(value: Any, names: Mapping[str, str]) -> Any:
    """Copy a value with the keys of its objects renamed, at any depth."""
    if not names:
        return value
    if is_object(value):
        return {names.get(key, key): _rename_keys(inner, names) for key, inner in value.items()}
    return [_rename_keys(inner, names) for inner in value] if is_array(value) else value


def _wrap(schema: JsonSchema) -> JsonSchema:
    """Wrap a schema as the only property of an object; definitions stay at the root, where references find them."""
    inner, stored = nest_schema(schema, "properties", WRAPPER)
    whole = {"type": "object", "properties": {WRAPPER: inner}, **stored}
    return {**whole, "required": [WRAPPER], "additionalProperties": False}


def _rename_steps(steps: list[str], aliases: Mapping[str, str]) -> list[str]:
    """Rename the steps of a JSON Pointer that are names of properties."""
    after = dict(zip(range(1, len(steps)), steps, strict=False))  # the step before each
    return [aliases.get(step, step) if after.get(at) in _BY_PROPERTY else step for at, step in enumerate(steps)]
