"""Registry of the documents of an API that resolves references between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from toolpost.contracts.errors import ConfigError
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.openapi.yaml_text import MAX_DEPTH

_MAX_HOPS = 50
# Keywords with data as their value, where `$ref` is not a reference.
_DATA = frozenset({"example", "examples", "default", "enum", "const", "value", "mapping"})
# Keywords with an object as their value that has names as its keys.
_NAMED = frozenset(
    {
        "properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "paths", "schemas",
        "responses", "parameters", "requestBodies", "headers", "securitySchemes", "securityDefinitions", "links",
        "callbacks", "pathItems", "mediaTypes", "content", "encoding", "additionalOperations",
    }
)  # fmt: skip
_INDEX = re.compile(r"[0-9]{1,6}", re.ASCII)
_BARE_NAMES = ("#/components/schemas/", "#/definitions/")


class DocumentRegistry:
    """Parsed documents by URL; `root` is the first one.

    `has_access_flags` is True if any schema is read-only or write-only; otherwise requests and
    responses share their schemas.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.has_access_flags = False
        self._resources: dict[str, Any] = {}
        self._anchors: dict[str, Any] = {}
        self._homes: dict[str, str] = {}

    def add(self, address: str, data: Any) -> list[DocumentReference]:
        """Add a document; return its references to unknown documents."""
        self._resources[address] = data
        self._homes[address] = address
        return [reference for reference in self._scan(address, data) if self._leaves(reference)]

    def lookup(self, reference: str, base: str) -> ResolvedNode | None:
        """Resolve a reference, through any others; return None if it is broken."""
        return self._step(reference, base, _Hops())

    def resolve(self, node: Any, base: str) -> ResolvedNode | None:
        """Return the node, or the one that it references."""
        if is_object(node) and isinstance(node.get("$ref"), str):
            return self.lookup(node["$ref"], base)
        return ResolvedNode(node, base)

    def base_uri(self, node: dict[str, Any], base: str) -> str:
        """Return the base URI within a schema: its `$id` if it has one."""
        own = node.get("$id")
        return urldefrag(_join_url(base, own)).url if isinstance(own, str) and own else base

    def _step(self, reference: str, base: str, hops: _Hops) -> ResolvedNode | None:
        if not hops.take(reference, base):
            return None
        address, _, fragment = reference.partition("#")
        address = _join_url(base, address) if address else base
        target = self._within(address, fragment, hops)
        if target is None and reference.startswith("#") and base in self._homes:
            # Invalid within a schema that has a `$id`, but some documents do it.
            target = self._within(self._homes[base], fragment, hops)
        if target is None and reference.isidentifier():
            target = self._bare(reference)
        if target is not None and _is_alias(target.node):
            return self._step(target.node["$ref"], target.base, hops)
        return target

    def _within(self, address: str, fragment: str, hops: _Hops) -> ResolvedNode | None:
        resource = self._resources.get(address)
        if resource is None:
            return None
        if not fragment:
            return ResolvedNode(resource, address)
        if not fragment.startswith("/"):
            anchored = self._anchors.get(f"{address}#{fragment}")
            return None if anchored is None else ResolvedNode(anchored, address)
        place: ResolvedNode | None = ResolvedNode(resource, address)
        for part in fragment.split("/")[1:]:
            place = place and self._member(place, part, hops)
        return place

    def _member(self, place: ResolvedNode, part: str, hops: _Hops) -> ResolvedNode | None:
        """Resolve one token of a JSON Pointer (RFC 6901), following a reference in its way."""
        node = place.node
        if is_array(node):
            return (
                ResolvedNode(node[int(part)], place.base) if _INDEX.fullmatch(part) and int(part) < len(node) else None
            )
        if not is_object(node):
            return None
        base = self.base_uri(node, place.base)
        # Some keys contain a percent sign.
        for key in (unquote(part), part):
            if (name := key.replace("~1", "/").replace("~0", "~")) in node:
                return ResolvedNode(node[name], base)
        target = self._step(node["$ref"], base, hops) if isinstance(node.get("$ref"), str) else None
        return target and self._member(target, part, hops)

    def _bare(self, name: str) -> ResolvedNode | None:
        """Look up a schema by its bare name, as in Swagger 1 and some later documents."""
        return next(
            (target for start in _BARE_NAMES if (target := self._within(self.root, start[1:] + name, _Hops()))), None
        )

    def _leaves(self, reference: DocumentReference) -> bool:
        if reference.text.startswith("#"):
            return False
        address = urldefrag(_join_url(reference.base, reference.text)).url
        return address not in self._resources and self.lookup(reference.text, reference.base) is None

    def _scan(self, address: str, data: Any) -> Iterator[DocumentReference]:
        """Yield every reference of a document; register `$id` and anchors on the way."""
        level: list[tuple[Any, bool, str]] = [(data, False, address)]
        for _ in range(MAX_DEPTH):
            below: list[tuple[Any, bool, str]] = []
            for node, named, base in level:
                if is_array(node):
                    below.extend((item, False, base) for item in node if is_object(item) or is_array(item))
                elif named:
                    below.extend((value, False, base) for value in node.values() if is_object(value))
                else:
                    yield from self._scan_node(node, base, below)
            if not below:
                return
            level = below
        raise ConfigError(f"the document is nested deeper than {MAX_DEPTH} levels")

    def _scan_node(
        self, node: dict[str, Any], base: str, below: list[tuple[Any, bool, str]]
    ) -> Iterator[DocumentReference]:
        if "$id" in node or "$anchor" in node or "$dynamicAnchor" in node:
            base = self._name(node, base)
        if node.get("readOnly") is True or node.get("writeOnly") is True:
            self.has_access_flags = True
        for key, value in node.items():
            if is_object(value) or is_array(value):
                if key not in _DATA:
                    below.append((value, key in _NAMED and is_object(value), base))
            elif key == "$ref" and isinstance(value, str):
                yield DocumentReference(value, base)

    def _name(self, node: dict[str, Any], base: str) -> str:
        home = self._homes.get(base, base)
        base = self.base_uri(node, base)
        if base not in self._resources:
            self._resources[base] = node
            self._homes[base] = home
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(keyword), str):
                self._anchors.setdefault(f"{base}#{anchor}", node)
        return base


class _Hops:
    """References followed in one lookup; detects cycles and limits their number."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def take(self, reference: str, base: str) -> bool:
        """Record a reference; return False if it is part of a cycle or beyond the limit."""
        if (reference, base) in self._taken or len(self._taken) >= _MAX_HOPS:
            return False
        self._taken.add((reference, base))
        return True


def _is_alias(node: Any) -> bool:
    return is_object(node) and len(node) == 1 and isinstance(node.get("$ref"), str)


def _join_url(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        # Brackets without an IPv6 address; the reference stays unresolved.
        return reference


class ResolvedNode(NamedTuple):
    """Resolved node, and the base URI of references within it."""

    node: Any
    base: str


class DocumentReference(NamedTuple):
    """Text of a `$ref`, and its base URI."""

    text: str
    base: str
