"""Selection sets: the default selection of a type, and selections that a caller or the configuration writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, TypeAlias

from graphql import (
    FieldNode,
    GraphQLError,
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLString,
    GraphQLType,
    GraphQLUnionType,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    is_required_argument,
    parse,
    print_ast,
    validate,
)
from msgspec import Struct, field

from toolpost.sources.graphql.types import Composite, composite_of, fields_of, truncate, type_of

Path: TypeAlias = tuple[str, ...]
TYPENAME = "__typename"
MAX_FIELDS = 300
_MAX_OPEN_ATTEMPTS = 10_000  # bounds the work on types with very many composite fields
_MAX_FRAGMENTS = 20
_PAGE_SIZES = ("first", "last", "limit", "take", "pageSize", "perPage")
# Selected first, so that the limit does not cut them.
_FIRST_LEAVES = ("id", "name", "title", "url")
_FIRST_OBJECTS = ("pageInfo", "userErrors", "errors")
_CONNECTION_FIELDS = frozenset({"edges", "nodes", "pageInfo"})
_LONGEST_SELECTION = 20_000
_MAX_TOKENS = 4_000
_MAX_DEPTH = 20
_MAX_ERRORS = 3
_MAX_ERROR_CHARS = 500


class SelectedField(NamedTuple):
    """A selected field and its own selection."""

    name: str
    type: GraphQLType
    inner: Selection | None = None


class Fragment(NamedTuple):
    """An inline fragment: a selection for some object types."""

    types: tuple[str, ...]
    selection: Selection


class Selection(Struct):
    """A selection set on one type; fields are keyed by their response key."""

    type: Composite
    fields: dict[str, SelectedField] = field(default_factory=dict[str, SelectedField])
    fragments: dict[str, Fragment] = field(default_factory=dict[str, Fragment])

    def add_typename(self, key: str = TYPENAME) -> None:
        self.fields[key] = SelectedField(TYPENAME, GraphQLNonNull(GraphQLString))


class SelectionBuilder:
    """Builder of default selections of one schema: leaf fields at each level, objects down to `depth`."""

    def __init__(self, schema: GraphQLSchema, *, depth: int) -> None:
        self.schema = schema
        self._depth = depth
        self._candidates_by_type: dict[str, _CandidateFields] = {}

    def select(self, kind: Composite) -> Selection:
        """Build the default selection breadth first, so that deep fields do not use up the limit."""
        root = Selection(kind)
        filler = _SelectionFiller(self)
        waiting = filler.fill(_Position(root, ()))
        for _ in range(self._depth):
            waiting = [deeper for objects in waiting for deeper in filler.open(objects)]
        return root

    def candidates(self, kind: Composite) -> _CandidateFields:
        """Return the fields of a type that a default selection may contain."""
        candidates = self._candidates_by_type.get(kind.name)
        if candidates is None:
            candidates = self._candidates_by_type[kind.name] = _candidate_fields(kind)
        return candidates


class _SelectionFiller:
    """One selection that is filled with up to MAX_FIELDS fields.

    Fields of different types may share a response key only if their shapes are equal (GraphQL's rule
    "Field Selection Merging"); otherwise the later one gets an alias.
    """

    def __init__(self, builder: SelectionBuilder) -> None:
        self._builder = builder
        self._fields_left = MAX_FIELDS
        self._attempts_left = _MAX_OPEN_ATTEMPTS
        self._shapes: dict[Path, str] = {}

    def fill(self, position: _Position) -> list[_ObjectsToOpen]:
        """Select the leaf fields of an object; return its composite fields to open next."""
        kind = position.selection.type
        if isinstance(kind, GraphQLObjectType):
            return [self._fill_own(position, ())]
        position.selection.add_typename()
        self._fields_left -= 1
        return [self._fill_own(position, ()), *self._fill_fragments(position, kind)]

    def open(self, objects: _ObjectsToOpen) -> Iterator[_ObjectsToOpen]:
        """Select composite fields until the limit is reached."""
        for candidate in objects.candidates:
            if self._fields_left < 1 or self._attempts_left < 1:
                return
            self._attempts_left -= 1
            if candidate.name not in objects.common:
                yield from self._open(objects.position, candidate)

    def _open(self, position: _Position, candidate: _CandidateField) -> list[_ObjectsToOpen]:
        """Select a composite field only if all its leaf fields fit."""
        if candidate.kind is None or self._fields_left < 1 + len(self._builder.candidates(candidate.kind).leaves):
            return []
        key = self._response_key(position, candidate)
        if key is None:
            return []
        inner = Selection(candidate.kind)
        position.selection.fields[key] = SelectedField(candidate.name, candidate.type, inner)
        self._fields_left -= 1
        return self.fill(_Position(inner, (*position.path, key)))

    def _fill_fragments(
        self, position: _Position, kind: GraphQLInterfaceType | GraphQLUnionType
    ) -> Iterator[_ObjectsToOpen]:
        """Select the own fields of each possible type; the remaining limit is shared among them."""
        possible = sorted(self._builder.schema.get_possible_types(kind), key=lambda one: one.name)[:_MAX_FRAGMENTS]
        for number, one in enumerate(possible):
            inner = Selection(one)
            position.selection.fragments[one.name] = Fragment((one.name,), inner)
            share = -(-self._fields_left // (len(possible) - number))
            yield self._fill_own(_Position(inner, position.path), fields_of(kind), limit=share)

    def _fill_own(self, position: _Position, common: Collection[str], *, limit: int | None = None) -> _ObjectsToOpen:
        leaves, nested = self._builder.candidates(position.selection.type)
        least = 0 if limit is None else self._fields_left - limit
        for candidate in leaves:
            if self._fields_left <= least:
                break
            key = None if candidate.name in common else self._response_key(position, candidate)
            if key is not None:
                position.selection.fields[key] = SelectedField(candidate.name, candidate.type)
                self._fields_left -= 1
        return _ObjectsToOpen(position, nested, common)

    def _response_key(self, position: _Position, candidate: _CandidateField) -> str | None:
        for key in (candidate.name, f"{position.selection.type.name}_{candidate.name}"):
            if self._shapes.setdefault((*position.path, key), candidate.shape) == candidate.shape:
                return key
        return None


def _candidate_fields(kind: Composite) -> _CandidateFields:
    candidates = _CandidateFields([], [])
    for name, inner in fields_of(kind).items():
        if inner.deprecation_reason is not None or _needs_arguments(inner):
            continue
        own = type_of(inner)
        composite = composite_of(own)
        if composite is None:
            candidates.leaves.append(_CandidateField(name, own, str(own), None))
        else:
            candidates.nested.append(_CandidateField(name, own, str(own).replace(composite.name, "{}"), composite))
    # By name, so that a server that lists its fields in another order does not change the fields that a tool selects.
    candidates.leaves.sort(key=lambda candidate: (candidate.name not in _FIRST_LEAVES, candidate.name))
    candidates.nested.sort(key=lambda candidate: (candidate.name not in _FIRST_OBJECTS, candidate.name))
    # In a Relay connection the edges repeat the nodes.
    if {candidate.name for candidate in candidates.nested} >= _CONNECTION_FIELDS:
        return candidates._replace(nested=[candidate for candidate in candidates.nested if candidate.name != "edges"])
    return candidates


def _needs_arguments(inner: GraphQLField) -> bool:
    """Return whether a field needs arguments; many servers insist on a page size that the schema calls optional."""
    return any(
        is_required_argument(argument) or (name in _PAGE_SIZES and argument.default is None)
        for name, argument in inner.args.items()
    )


class _CandidateField(NamedTuple):
    """A field that needs no arguments; fields under one response key must have the same `shape`."""

    name: str
    type: GraphQLType
    shape: str
    kind: Composite | None


class _CandidateFields(NamedTuple):
    leaves: list[_CandidateField]
    nested: list[_CandidateField]


class _Position(NamedTuple):
    selection: Selection
    path: Path


class _ObjectsToOpen(NamedTuple):
    """Composite fields that may be selected next, except those in `common`, which the parent type selects."""

    position: _Position
    candidates: list[_CandidateField]
    common: Collection[str]


def render_selection(selection: Selection) -> str:
    """Print a selection as GraphQL; an empty one selects `__typename`."""
    parts: list[str] = []
    for key, (name, _, inner) in selection.fields.items():
        own = name if key == name else f"{key}: {name}"
        parts.append(own if inner is None else f"{own} {render_selection(inner)}")
    for name, (_, inner) in selection.fragments.items():
        if inner.fields:
            parts.append(f"... on {name} {render_selection(inner)}")
    return f"{{ {' '.join(parts) or TYPENAME} }}"


class SelectionError(ValueError):
    """An invalid selection; the message is the reason."""


def parse_selection(
    text: str, kind: Composite, schema: GraphQLSchema, document: Callable[[str], str]
) -> tuple[Selection, str]:
    """Parse a selection on a type, validate it within the document that `document` builds, and print it."""
    node_set = _parse_braced(text)
    if sum(1 for _ in _iter_fields(node_set)) > MAX_FIELDS:
        raise SelectionError(f"it selects more than {MAX_FIELDS} fields")
    try:
        printed = print_ast(node_set)
        errors = validate(schema, parse(document(printed), no_location=True))
    except (GraphQLError, RecursionError) as error:
        raise SelectionError("its values are nested too deeply") from error
    if errors:
        messages = " ".join(error.message for error in errors[:_MAX_ERRORS])
        raise SelectionError(truncate(" ".join(messages.split()), _MAX_ERROR_CHARS))
    selection = Selection(kind)
    _collect(selection, node_set, schema)
    return selection, printed


def _parse_braced(text: str) -> SelectionSetNode:
    """Parse the selection on its own, so that its text cannot leave the braces of the document."""
    if len(text) > _LONGEST_SELECTION:
        raise SelectionError(f"it is longer than {_LONGEST_SELECTION} characters")
    braced = text if text.lstrip().startswith("{") else f"{{ {text} }}"
    try:
        document = parse(braced, no_location=True, max_lexical_tokens=_MAX_TOKENS, allow_empty_selection_sets=False)
    except GraphQLError as error:
        raise SelectionError(error.message) from error
    definitions = document.definitions
    only = definitions[0]
    if len(definitions) == 1 and isinstance(only, OperationDefinitionNode):
        is_bare = not (only.name or only.variable_definitions or only.directives)
        if is_bare and only.operation is OperationType.QUERY:
            return only.selection_set
    raise SelectionError("it has to be one selection in braces, such as { id name }")


def _iter_fields(node_set: SelectionSetNode, depth: int = 0) -> Iterator[FieldNode]:
    if depth > _MAX_DEPTH:
        raise SelectionError(f"it is nested deeper than {_MAX_DEPTH} levels")
    for node in node_set.selections:
        if isinstance(node, FieldNode):
            yield node
        inner = getattr(node, "selection_set", None)
        if inner is not None:
            yield from _iter_fields(inner, depth + 1)


def _collect(target: Selection, node_set: SelectionSetNode, schema: GraphQLSchema) -> None:
    for node in node_set.selections:
        if isinstance(node, FieldNode):
            _collect_field(target, node, schema)
        elif isinstance(node, InlineFragmentNode):
            _collect(_fragment_target(target, node, schema), node.selection_set, schema)


def _collect_field(target: Selection, node: FieldNode, schema: GraphQLSchema) -> None:
    name = node.name.value
    key = name if node.alias is None else node.alias.value
    fields = fields_of(target.type)
    if key != name and (key in fields or key.startswith("__")):
        raise SelectionError(f"the alias {key!r} is the name of another field of {target.type.name!r}")
    if name == TYPENAME:
        target.add_typename(key)
        return
    own = type_of(fields[name])
    kind = composite_of(own)
    if kind is None:
        target.fields[key] = SelectedField(name, own)
        return
    before = target.fields.get(key)
    inner = Selection(kind) if before is None or before.inner is None else before.inner
    target.fields[key] = SelectedField(name, own, inner)
    if node.selection_set is not None:
        _collect(inner, node.selection_set, schema)


def _fragment_target(target: Selection, node: InlineFragmentNode, schema: GraphQLSchema) -> Selection:
    """Return the selection that a fragment's fields are added to: the parent's, or that of its types."""
    named = None if node.type_condition is None else schema.get_type(node.type_condition.name.value)
    condition = None if named is None else composite_of(named)
    if condition is None or condition is target.type or isinstance(target.type, GraphQLObjectType):
        return target
    possible = (condition,) if isinstance(condition, GraphQLObjectType) else schema.get_possible_types(condition)
    fragment = Fragment(tuple(one.name for one in possible), Selection(condition))
    return target.fragments.setdefault(condition.name, fragment).selection
