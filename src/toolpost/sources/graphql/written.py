"""Selections as people and models write them: parsed on their own, so that nothing leaves its braces, and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from graphql import (
    FieldNode,
    GraphQLError,
    GraphQLObjectType,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    parse,
    print_ast,
    validate,
)

from toolpost.sources.graphql.kinds import composite_of, fields_of, type_of
from toolpost.sources.graphql.selections import MOST_FIELDS, TYPENAME, TYPENAME_FIELD, Fragment, Picked, Selection
from toolpost.sources.graphql.texts import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from graphql import GraphQLSchema, SelectionSetNode

    from toolpost.sources.graphql.kinds import Composite

_LONGEST = 20_000
_MOST_TOKENS = 4_000
_DEEPEST = 20
_MOST_COMPLAINTS = 3
_LONGEST_COMPLAINT = 500


class SelectionError(ValueError):
    """A selection that cannot be used; the text is the reason."""


class Written(NamedTuple):
    """A selection that holds, and its text in GraphQL's own spelling."""

    selection: Selection
    text: str


def written_selection(text: str, kind: Composite, schema: GraphQLSchema, document: Callable[[str], str]) -> Written:
    """Read a selection of a type; `document` puts it into the query in which it has to hold."""
    chosen = _parsed(text)
    if sum(1 for _ in _fields(chosen)) > MOST_FIELDS:
        raise SelectionError(f"it asks for more than {MOST_FIELDS} fields")
    try:
        spelled = print_ast(chosen)
        faults = validate(schema, parse(document(spelled), no_location=True))
    except (GraphQLError, RecursionError) as error:
        raise SelectionError("its values are nested too deeply") from error
    if faults:
        told = " ".join(fault.message for fault in faults[:_MOST_COMPLAINTS])
        raise SelectionError(shortened(" ".join(told.split()), _LONGEST_COMPLAINT))
    selection = Selection(kind)
    _collect(selection, chosen, schema)
    return Written(selection, spelled)


def _parsed(text: str) -> SelectionSetNode:
    if len(text) > _LONGEST:
        raise SelectionError(f"it is longer than {_LONGEST} characters")
    braced = text if text.lstrip().startswith("{") else f"{{ {text} }}"
    try:
        document = parse(braced, no_location=True, max_lexical_tokens=_MOST_TOKENS, allow_empty_selection_sets=False)
    except GraphQLError as error:
        raise SelectionError(error.message) from error
    definitions = document.definitions
    only = definitions[0]
    if len(definitions) != 1 or not isinstance(only, OperationDefinitionNode) or not _is_bare(only):
        raise SelectionError("it has to be one selection in braces, such as { id name }")
    return only.selection_set


def _is_bare(operation: OperationDefinitionNode) -> bool:
    parts = operation.name or operation.variable_definitions or operation.directives
    return operation.operation is OperationType.QUERY and not parts


def _fields(chosen: SelectionSetNode, depth: int = 0) -> Iterator[FieldNode]:
    if depth > _DEEPEST:
        raise SelectionError(f"it is nested deeper than {_DEEPEST} levels")
    for node in chosen.selections:
        if isinstance(node, FieldNode):
            yield node
        inner = getattr(node, "selection_set", None)
        if inner is not None:
            yield from _fields(inner, depth + 1)


def _collect(into: Selection, chosen: SelectionSetNode, schema: GraphQLSchema) -> None:
    for node in chosen.selections:
        if isinstance(node, FieldNode):
            _collect_field(into, node, schema)
        elif isinstance(node, InlineFragmentNode):
            _collect(_part_for(into, node, schema), node.selection_set, schema)


def _collect_field(into: Selection, node: FieldNode, schema: GraphQLSchema) -> None:
    name = node.name.value
    key = name if node.alias is None else node.alias.value
    fields = fields_of(into.type)
    if key != name and (key in fields or key.startswith("__")):
        raise SelectionError(f"the alias {key!r} is the name of another field of {into.type.name!r}")
    if name == TYPENAME:
        into.fields[key] = TYPENAME_FIELD
        return
    own = type_of(fields[name])
    kind = composite_of(own)
    if kind is None:
        into.fields[key] = Picked(name, own)
        return
    before = into.fields.get(key)
    inner = Selection(kind) if before is None or before.inner is None else before.inner
    into.fields[key] = Picked(name, own, inner)
    if node.selection_set is not None:
        _collect(inner, node.selection_set, schema)


def _part_for(into: Selection, node: InlineFragmentNode, schema: GraphQLSchema) -> Selection:
    """Where the fields of a fragment belong: to all objects here, or to those of some types."""
    named = None if node.type_condition is None else schema.get_type(node.type_condition.name.value)
    condition = None if named is None else composite_of(named)
    if condition is None or condition is into.type or isinstance(into.type, GraphQLObjectType):
        return into
    possible = (condition,) if isinstance(condition, GraphQLObjectType) else schema.get_possible_types(condition)
    fragment = Fragment(tuple(one.name for one in possible), Selection(condition))
    return into.fragments.setdefault(condition.name, fragment).selection
