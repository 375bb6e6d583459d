"""What is asked of a result: fields, and below them more; by default as deep and as wide as is sane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from graphql import GraphQLNonNull, GraphQLObjectType, GraphQLString, is_required_argument

from toolpost.sources.graphql.kinds import composite_of, fields_of, type_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from graphql import GraphQLField, GraphQLInterfaceType, GraphQLSchema, GraphQLType, GraphQLUnionType

    from toolpost.sources.graphql.kinds import Composite

Path: TypeAlias = tuple[str, ...]

TYPENAME = "__typename"
MOST_FIELDS = 300
_MOST_LOOKS = 10_000  # at fields that could be objects to open: a type may have any number that have no room
_MOST_FRAGMENTS = 20
_PAGING = ("first", "last", "limit", "take", "pageSize", "perPage")
# First, so that they are there when there is no room for all.
_SAY_MOST = ("id", "name", "title", "url")
_OPEN_FIRST = ("pageInfo", "userErrors", "errors")
_CONNECTION = frozenset({"edges", "nodes", "pageInfo"})


class Picked(NamedTuple):
    """A field that is asked for, and what is asked of it."""

    name: str
    type: GraphQLType
    inner: Selection | None = None


class Fragment(NamedTuple):
    """What is asked only of some types."""

    types: tuple[str, ...]
    selection: Selection


@dataclass(slots=True)
class Selection:
    """What is asked of one object; fields are keyed by the name that they have in the answer."""

    type: Composite
    fields: dict[str, Picked] = field(default_factory=dict[str, Picked])
    fragments: dict[str, Fragment] = field(default_factory=dict[str, Fragment])


TYPENAME_FIELD = Picked(TYPENAME, GraphQLNonNull(GraphQLString))


def rendered(selection: Selection) -> str:
    """A selection as GraphQL; an object of which nothing can be asked at least tells its type."""
    parts = [_field(key, picked) for key, picked in selection.fields.items()]
    for name, (_, inner) in selection.fragments.items():
        if inner.fields:
            parts.append(f"... on {name} {rendered(inner)}")
    return f"{{ {' '.join(parts) or TYPENAME} }}"


def _field(key: str, picked: Picked) -> str:
    own = picked.name if key == picked.name else f"{key}: {picked.name}"
    return own if picked.inner is None else f"{own} {rendered(picked.inner)}"


class _Part(NamedTuple):
    """A field that can be asked for without arguments; `shape` is what answers of one key must have in common."""

    name: str
    type: GraphQLType
    shape: str
    kind: Composite | None


class _Parts(NamedTuple):
    """The fields of a type that are values, and those that are objects with parts of their own."""

    leaves: list[_Part]
    nested: list[_Part]


class _Place(NamedTuple):
    """A selection in the making, and where it stands in the answer."""

    selection: Selection
    path: Path


class _Below(NamedTuple):
    """What could be opened next in a place, but for what is asked of all its types anyway."""

    place: _Place
    parts: list[_Part]
    common: Collection[str]


class Selector:
    """Makes the default selections of one schema: values at each level, objects down to the depth."""

    def __init__(self, schema: GraphQLSchema, *, depth: int, most: int = MOST_FIELDS) -> None:
        self.schema = schema
        self._depth = depth
        self._most = most
        self._known: dict[str, _Parts] = {}

    def select(self, kind: Composite) -> Selection:
        """The default selection; level by level, so that what is near is not crowded out by what is far."""
        root = Selection(kind)
        picking = _Picking(self, self._most)
        waiting = picking.fill(_Place(root, ()))
        for _ in range(self._depth):
            waiting = [deeper for below in waiting for deeper in picking.open(below)]
        return root

    def parts(self, kind: Composite) -> _Parts:
        """The fields of a type that may be asked for by default."""
        known = self._known.get(kind.name)
        if known is None:
            known = self._known[kind.name] = _parts(kind)
        return known


class _Picking:
    """One selection in the making, within its measure.

    Answers of different types may come under one key only if they have the same shape (the rule of
    fields that can be merged); where they have not, the later one goes by another name.
    """

    def __init__(self, selector: Selector, most: int) -> None:
        self._selector = selector
        self._left = most
        self._looks = _MOST_LOOKS
        self._shapes: dict[Path, str] = {}

    def fill(self, place: _Place) -> list[_Below]:
        """Ask for all values of an object; gives the objects in it that could be opened next."""
        kind = place.selection.type
        if isinstance(kind, GraphQLObjectType):
            return [self._fill_own(place, ())]
        place.selection.fields[TYPENAME] = TYPENAME_FIELD
        self._left -= 1
        return [self._fill_own(place, ()), *self._fill_fragments(place, kind)]

    def open(self, below: _Below) -> Iterator[_Below]:
        """Ask for objects in a place, as long as there is room."""
        for part in below.parts:
            if self._left < 1 or self._looks < 1:
                return
            self._looks -= 1
            if part.name not in below.common:
                yield from self._open(below.place, part)

    def _open(self, place: _Place, part: _Part) -> list[_Below]:
        """Ask for an object with all its values, or not at all."""
        if part.kind is None or self._left < 1 + len(self._selector.parts(part.kind).leaves):
            return []
        key = self._key(place, part)
        if key is None:
            return []
        inner = Selection(part.kind)
        place.selection.fields[key] = Picked(part.name, part.type, inner)
        self._left -= 1
        return self.fill(_Place(inner, (*place.path, key)))

    def _fill_fragments(self, place: _Place, kind: GraphQLInterfaceType | GraphQLUnionType) -> Iterator[_Below]:
        """Ask for what each type has of its own; they share the room that there is."""
        possible = self._selector.schema.get_possible_types(kind)[:_MOST_FRAGMENTS]
        for number, one in enumerate(possible):
            inner = Selection(one)
            place.selection.fragments[one.name] = Fragment((one.name,), inner)
            share = -(-self._left // (len(possible) - number))
            yield self._fill_own(_Place(inner, place.path), fields_of(kind), most=share)

    def _fill_own(self, place: _Place, common: Collection[str], *, most: int | None = None) -> _Below:
        leaves, nested = self._selector.parts(place.selection.type)
        least = 0 if most is None else self._left - most
        for part in leaves:
            if self._left <= least:
                break
            key = None if part.name in common else self._key(place, part)
            if key is not None:
                place.selection.fields[key] = Picked(part.name, part.type)
                self._left -= 1
        return _Below(place, nested, common)

    def _key(self, place: _Place, part: _Part) -> str | None:
        for key in (part.name, f"{place.selection.type.name}_{part.name}"):
            if self._shapes.setdefault((*place.path, key), part.shape) == part.shape:
                return key
        return None


def _parts(kind: Composite) -> _Parts:
    found = _Parts([], [])
    for name, inner in fields_of(kind).items():
        if inner.deprecation_reason is not None or _needs_arguments(inner):
            continue
        own = type_of(inner)
        parted = composite_of(own)
        if parted is None:
            found.leaves.append(_Part(name, own, str(own), None))
        else:
            found.nested.append(_Part(name, own, str(own).replace(parted.name, "{}"), parted))
    found.leaves.sort(key=lambda part: part.name not in _SAY_MOST)
    found.nested.sort(key=lambda part: part.name not in _OPEN_FIRST)
    if {part.name for part in found.nested} >= _CONNECTION:  # its edges only hold its nodes again
        return found._replace(nested=[part for part in found.nested if part.name != "edges"])
    return found


def _needs_arguments(inner: GraphQLField) -> bool:
    """Servers that page insist on a size, although their schemas do not say so."""
    return any(
        is_required_argument(given) or (name in _PAGING and given.default is None) for name, given in inner.args.items()
    )
