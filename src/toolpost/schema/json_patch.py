"""JSON Patch (RFC 6902) without `move`, `copy` and `test`: changes of a JSON value at paths (RFC 6901)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.json_values import is_array, is_object

JsonChange = Mapping[str, Any]

PATCH_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "description": "JSON Patch (RFC 6902) on the exact arguments: add, replace, remove",
    "items": {
        "type": "object",
        "properties": {
            "op": {"enum": ["add", "replace", "remove"]},
            "path": {"type": "string", "description": "JSON Pointer, such as /to/0"},
            "value": {"description": "Of `add` and `replace`"},
        },
        "required": ["op", "path"],
        "additionalProperties": False,
    },
}
_MEMBERS = frozenset({"op", "path", "value"})
_OPERATIONS = ("add", "replace", "remove")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_ESCAPE = re.compile(r"~(?![01])")
_END = "-"  # of an array, for `add`
_MOST_NAMES = 10


def to_pointer(parts: Iterable[str | int]) -> str:
    """Return a path as a JSON Pointer."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """Return the parts of a JSON Pointer; ToolValidationError if it is invalid."""
    if not pointer:
        return ()
    if not pointer.startswith("/") or _ESCAPE.search(pointer):
        raise ToolValidationError(f"{pointer!r} is not a JSON Pointer; a path looks like /to or /lines/0/text")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def has_value(document: Any, pointer: str) -> bool:
    """Return whether there is a value at a path."""
    for part in parse_pointer(pointer):
        if is_object(document) and part in document:
            document = document[part]
        elif is_array(document) and _INDEX.fullmatch(part) and int(part) < len(document):
            document = document[int(part)]
        else:
            return False
    return True


def apply_patch(document: Any, changes: Sequence[JsonChange]) -> Any:
    """Return a value with the changes applied in order; ToolValidationError names a change that does not fit.

    Neither the value nor the changes are modified.
    """
    if not isinstance(changes, (list, tuple)):
        raise ToolValidationError("changes are a list of JSON Patch operations")
    for change in changes:
        operation, parts = _checked(change)
        document = _changed(document, parts, operation, change)
    return document


def _checked(change: object) -> tuple[str, tuple[str, ...]]:
    if not is_object(change):
        raise ToolValidationError(
            f'a change is an object such as {{"op": "replace", "path": "/to", ...}}, not {change!r:.80}'
        )
    operation, path = change.get("op"), change.get("path")
    if operation not in _OPERATIONS:
        raise ToolValidationError(f"a change has an `op` of {', '.join(_OPERATIONS)}, not {operation!r:.80}")
    if not isinstance(path, str):
        raise ToolValidationError(f"the change {operation!r} has no `path`, such as /to")
    if unknown := sorted(str(name) for name in change.keys() - _MEMBERS):
        raise ToolValidationError(f"the change at {path!r} has {unknown[0]!r}; it takes op, path and value")
    if operation != "remove" and "value" not in change:
        raise ToolValidationError(f"the change {operation!r} at {path!r} has no `value`; null, too, is written out")
    return operation, parse_pointer(path)


def _changed(document: Any, parts: tuple[str, ...], operation: str, change: JsonChange) -> Any:
    """Return a copy of a value that differs at one path; the parts off the path are shared."""
    if not parts:
        if operation == "remove":
            raise ToolValidationError("the whole value cannot be removed; name a path such as /to")
        return change["value"]
    part, rest = parts[0], parts[1:]
    if is_object(document):
        return _changed_object(document, part, rest, operation, change)
    if is_array(document):
        return _changed_array(document, part, rest, operation, change)
    raise ToolValidationError(
        f"there is nothing at {change['path']!r}: what is above it is neither an object nor a list"
    )


def _changed_object(
    members: dict[str, Any], part: str, rest: tuple[str, ...], operation: str, change: JsonChange
) -> dict[str, Any]:
    if part not in members and (rest or operation != "add"):
        names = ", ".join(map(repr, list(members)[:_MOST_NAMES])) or "nothing"
        raise ToolValidationError(f"there is nothing at {change['path']!r}: beside {part!r} there is {names}")
    if rest:
        return {**members, part: _changed(members[part], rest, operation, change)}
    if operation == "remove":
        return {name: value for name, value in members.items() if name != part}
    return {**members, part: change["value"]}


def _changed_array(items: list[Any], part: str, rest: tuple[str, ...], operation: str, change: JsonChange) -> list[Any]:
    is_inserted = operation == "add" and not rest
    at = len(items) if part == _END and is_inserted else int(part) if _INDEX.fullmatch(part) else None
    if at is None or at >= len(items) + is_inserted:
        raise ToolValidationError(f"there is nothing at {change['path']!r}: the list has {len(items)} items, from 0")
    if rest:
        return [*items[:at], _changed(items[at], rest, operation, change), *items[at + 1 :]]
    if is_inserted:
        return [*items[:at], change["value"], *items[at:]]
    return [*items[:at], *([] if operation == "remove" else [change["value"]]), *items[at + 1 :]]
