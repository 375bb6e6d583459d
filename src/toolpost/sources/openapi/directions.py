"""Which properties go which way: what is read-only is never sent, what is write-only never comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.sources.openapi.references import Library, Target

Flag = Literal["readOnly", "writeOnly"]

NOTHING: frozenset[str] = frozenset()
_MAX_HOPS = 50


class Direction:
    """Tells which properties are left out in one direction: those that carry its flag."""

    def __init__(self, library: Library, flag: Flag) -> None:
        self._library = library
        self._flag: Flag = flag
        # Each with its node, so that no other node is ever found at its address.
        self._known: dict[int, tuple[Any, frozenset[str]]] = {}

    def drops(self, node: Any, base: str) -> bool:
        """Whether a property is left out, for its own flag or that of the schema it refers to."""
        if not is_object(node):
            return False
        if node.get(self._flag) is True:
            return True
        target = self._library.resolved(node, base) if "$ref" in node else None
        return target is not None and is_object(target.node) and target.node.get(self._flag) is True

    def dropped(self, node: dict[str, Any], base: str, hops: int = _MAX_HOPS) -> frozenset[str]:
        """The properties that are left out of a schema and of all that it is composed of."""
        if hops <= 0 or ("properties" not in node and "allOf" not in node):
            return NOTHING
        known = self._known.get(id(node))
        if known is not None:
            return known[1]
        self._known[id(node)] = (node, NOTHING)
        properties = node.get("properties")
        names: set[str] = set()
        if is_object(properties):
            names.update(name for name, inner in properties.items() if self.drops(inner, base))
        for member in self._members(node, base):
            names |= self.dropped(member.node, member.base, hops - 1)
        found = frozenset(names)
        self._known[id(node)] = (node, found)
        return found

    def _members(self, node: dict[str, Any], base: str) -> Iterator[Target]:
        members = node.get("allOf")
        for member in members if is_array(members) else ():
            target = self._library.resolved(member, base)
            if target is not None and is_object(target.node):
                yield target
