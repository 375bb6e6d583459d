"""Whether the alternatives of a `oneOf` can be told apart.

`oneOf` refuses what fits two alternatives. Formats are notes here, so alternatives that differ
by format alone would refuse each other's values, and many documents list a type beside one that
includes it. Such alternatives are taken as `anyOf`, which means what their author meant.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_array, is_object, json_type

if TYPE_CHECKING:
    from toolpost.sources.openapi.references import Library

_MOST = 40
_ALL = frozenset({"string", "number", "boolean", "object", "array", "null"})


def may_overlap(options: list[Any], base: str, library: Library) -> bool:
    """Whether one value could fit two of the alternatives without being at fault for it."""
    if len(options) > _MOST:
        return True
    targets = [library.resolved(option, base) for option in options]
    nodes = [target.node if target is not None and is_object(target.node) else {} for target in targets]
    return any(_overlap(one, other) for one, other in combinations(nodes, 2))


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    shared = _kinds(one) & _kinds(other)
    if not shared:
        return False
    if _listed(one) is not None and _listed(other) is not None:
        return bool(set(map(repr, _listed(one) or ())) & set(map(repr, _listed(other) or ())))
    if shared == frozenset({"object"}):
        return not _told_apart(one, other)
    if shared == frozenset({"array"}):
        items = (one.get("items"), other.get("items"))
        return not all(map(is_object, items)) or bool(_kinds(items[0]) & _kinds(items[1]))
    return True


def _told_apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two kinds of object differ by a tag, or by what each of them alone must have."""
    mine, theirs = _properties(one), _properties(other)
    for name in mine.keys() & theirs.keys():
        tags = _listed(mine[name]), _listed(theirs[name])
        if None not in tags and not set(map(repr, tags[0] or ())) & set(map(repr, tags[1] or ())):
            return True
    mine_required, theirs_required = _required(one), _required(other)
    return bool(mine_required - theirs_required) and bool(theirs_required - mine_required)


def _kinds(node: Any) -> frozenset[str]:
    """The types that a schema allows; all of them when it does not say."""
    if not is_object(node):
        return _ALL
    kind = node.get("type")
    if kind is None and (listed := _listed(node)) is not None:
        kind = [json_type(value) for value in listed]
    if kind is None and ("properties" in node or "required" in node):
        kind = "object"
    if kind is None:
        return _ALL
    kinds = kind if is_array(kind) else [kind]
    return frozenset("number" if name == "integer" else str(name) for name in kinds)


def _listed(node: Any) -> list[Any] | None:
    """The only values that a schema allows, if it lists them."""
    if not is_object(node):
        return None
    if "const" in node:
        return [node["const"]]
    options = node.get("enum")
    return options if is_array(options) else None


def _properties(node: dict[str, Any]) -> dict[str, Any]:
    properties = node.get("properties")
    return properties if is_object(properties) else {}


def _required(node: dict[str, Any]) -> frozenset[str]:
    required = node.get("required")
    return frozenset(name for name in required if isinstance(name, str)) if is_array(required) else frozenset()
