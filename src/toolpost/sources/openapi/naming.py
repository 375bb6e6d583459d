"""Derive legal and unique names of tools, arguments and definitions."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

_NOT_IN_TOOL = re.compile(r"[^A-Za-z0-9_-]+")
# Property keys that every model provider accepts.
_NOT_IN_ARGUMENT = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_ARGUMENT = 64
_LONGEST_DEFINITION = 80
# Tokens of a JSON Pointer that are not descriptive names.
_EMPTY_WORDS = frozenset(
    {"schema", "items", "allOf", "anyOf", "oneOf", "not", "additionalProperties", "schemas", "properties"}
)


class UniqueNames:
    """Set of unique names; a repeated one gets a number."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def is_taken(self, name: str) -> bool:
        return name in self._next

    def reserve(self, name: str) -> str:
        """Reserve the name, or `name_2`, `name_3` and so on."""
        if name not in self._next:
            self._next[name] = 2
            return name
        number = self._next[name]
        while f"{name}_{number}" in self._next:
            number += 1
        self._next[name] = number + 1
        return self.reserve(f"{name}_{number}")


class DefinitionNames:
    """Unique names of referenced schemas, by identity of the schema."""

    def __init__(self) -> None:
        self._names = UniqueNames()
        self._known: dict[int, str] = {}
        self._nodes: list[Any] = []

    def of(self, node: Any, reference: str) -> str:
        """Return the name of a schema, derived from the first reference to it."""
        name = self._known.get(id(node))
        if name is None:
            name = self._known[id(node)] = self._names.reserve(_definition_name(reference))
            # Keep a reference, so that its id() is not reused.
            self._nodes.append(node)
        return name


def _definition_name(reference: str) -> str:
    address, _, fragment = reference.partition("#")
    parts = [unquote(part).replace("~1", "/").replace("~0", "~") for part in fragment.split("/") if part]
    if not parts:
        parts = [PurePosixPath(urlsplit(address).path).stem]
    telling = parts[-1:]
    if telling[0] in _EMPTY_WORDS or telling[0].isdigit():
        telling = [part for part in parts if part not in _EMPTY_WORDS][-3:]
    legal = _NOT_IN_ARGUMENT.sub("_", "_".join(telling)).strip("_")
    return legal[:_LONGEST_DEFINITION] or "schema"


def tool_name(operation_id: Any, method: str, path: str) -> str:
    """Return the operationId in legal characters, or a slug of method and path."""
    if isinstance(operation_id, str):
        legal = _NOT_IN_TOOL.sub("_", operation_id).strip("_")
        if legal:
            return legal
    slug = _NOT_IN_TOOL.sub("_", path).strip("_")
    return f"{_NOT_IN_TOOL.sub('_', method).lower()}_{slug or 'root'}"


def argument_name(parameter: str) -> str:
    """Return the argument name of a parameter: `filter[name]` is `filter_name`, `$top` is `top`."""
    legal = _NOT_IN_ARGUMENT.sub("_", parameter)
    if legal != parameter:
        legal = legal.strip("_")
    return legal[:_LONGEST_ARGUMENT] or "parameter"
