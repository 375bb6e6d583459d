"""The fields of a schema's roots as operations: what is sent for each, what it takes and what it gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolpost.sources.graphql.arguments import Inputs, is_large, left_out_when_null
from toolpost.sources.graphql.kinds import composite_of, fields_of, sent_type, type_of
from toolpost.sources.graphql.outputs import object_schema, output_schema
from toolpost.sources.graphql.selections import Selector, rendered
from toolpost.sources.graphql.texts import LONGEST, shortened
from toolpost.sources.graphql.uploads import Parted, Uploads, parted
from toolpost.sources.graphql.written import SelectionError, Written, written_selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from graphql import GraphQLField, GraphQLSchema, GraphQLType

    from toolpost.contracts.spec import JsonSchema
    from toolpost.sources.graphql.kinds import Composite
    from toolpost.sources.graphql.selections import Selection

Kind = Literal["query", "mutation"]
SELECTION = "selection"
_MUTATION_SUFFIX = "_mutation"
_MOST = 5_000
_MOST_NAMED = 5
_LONGEST_SELECTION = 400
_LONGEST_OTHERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One field of a root; `head` is its query up to the selection, which is empty for plain values.

    A call may choose its own selection with `selection_argument`, where there is something to choose from and
    the field has no argument of that name.
    """

    kind: Kind
    name: str
    tool_name: str
    head: str
    selection: str
    description: str
    deprecated: bool
    input_schema: JsonSchema
    model_schema: JsonSchema | None
    output_schema: JsonSchema
    null_left_out: frozenset[str]
    file_arguments: Mapping[str, GraphQLType]
    selection_argument: str | None
    result: GraphQLType

    @property
    def query(self) -> str:
        """What is sent, the same for every call: values travel as variables."""
        return self.document(self.selection)

    def document(self, selection: str) -> str:
        """The query with another selection."""
        return f"{self.head} {selection} }}" if selection else f"{self.head} }}"

    def parted(self, arguments: Mapping[str, Any]) -> Parted:
        """The variables of a call, without what is left out when null, and the files among them."""
        given = {
            name: value for name, value in arguments.items() if value is not None or name not in self.null_left_out
        }
        return parted(given, self.file_arguments) if self.file_arguments else Parted(given, {})


class Operations(NamedTuple):
    """What a schema offers, and what of it is left out and why."""

    operations: list[Operation]
    problems: list[str]


class _Root(NamedTuple):
    """A field of a root, and the name of its tool."""

    kind: Kind
    tool_name: str
    name: str
    field: GraphQLField


class _Asked(NamedTuple):
    """What is asked of a type: as GraphQL, what that gives, and what a caller reads of it."""

    text: str
    gives: JsonSchema
    about: JsonSchema

    @classmethod
    def of(cls, selection: Selection, text: str) -> _Asked:
        return cls(text, object_schema(selection), _about_selection(selection, text))


class Planner:
    """Plans the operations of one schema; what is asked of a type by default is worked out once."""

    def __init__(self, schema: GraphQLSchema, *, depth: int, selections: Mapping[str, str]) -> None:
        self._schema = schema
        self._selector = Selector(schema, depth=depth)
        self._inputs = Inputs()
        self._uploads = Uploads(schema)
        self._selections = selections
        self._defaults: dict[str, _Asked] = {}

    def plan(self, includes: Callable[[str], bool], check: Callable[[], None]) -> Operations:
        """All operations that the filters let in; `check` raises when it takes too long."""
        found = Operations([], [])
        known: set[str] = set()
        beyond = 0
        for root in _roots(self._schema):
            known.add(root.tool_name)
            if not includes(root.tool_name):
                continue
            check()
            if len(found.operations) == _MOST:
                beyond += 1
            else:
                self._add(found, root)
        if beyond:
            found.problems.append(f"{beyond:,} operations beyond {_MOST:,} were left out; choose with tool_filter")
        found.problems.extend(self._also_told(known))
        return found

    def _add(self, found: Operations, root: _Root) -> None:
        """Plan one operation, or tell why it is left out."""
        try:
            found.operations.append(self._operation(root))
        except SelectionError as error:
            found.problems.append(f"{root.kind} {root.name!r} was left out: its selection cannot be used: {error}")

    def selected(self, operation: Operation, text: str) -> Operation:
        """The operation with a selection of one call; SelectionError says why it cannot have it."""
        kind = composite_of(operation.result)
        if kind is None:
            raise SelectionError("the result has no fields to choose from")
        return replace(operation, selection=self._written(text, kind, operation).text)

    def _operation(self, root: _Root) -> Operation:
        kind, tool_name, name, field = root
        result = composite_of(type_of(field))
        may_choose = result is not None and SELECTION not in field.args
        plain = Operation(
            kind=kind,
            name=name,
            tool_name=tool_name,
            head=f"{kind} {name}{_variables(field)} {{ {name}{_passed(field)}",
            selection="",
            description=_described(kind, name, field),
            deprecated=field.deprecation_reason is not None,
            input_schema=self._inputs.schema(field),
            model_schema=None,
            output_schema=output_schema(type_of(field), None),
            null_left_out=left_out_when_null(field),
            file_arguments=self._uploads.arguments(field),
            selection_argument=SELECTION if may_choose else None,
            result=type_of(field),
        )
        return self._shown(plain if result is None else self._with_selection(plain, result), field)

    def _with_selection(self, plain: Operation, kind: Composite) -> Operation:
        given = self._selections.get(plain.tool_name)
        asked = self._default(kind) if given is None else _Asked.of(*self._written(given, kind, plain))
        gives = output_schema(plain.result, asked.gives)
        takes = plain.input_schema
        if plain.selection_argument is not None:
            takes = {**takes, "properties": {**takes["properties"], plain.selection_argument: asked.about}}
        return replace(plain, selection=asked.text, input_schema=takes, output_schema=gives)

    def _shown(self, operation: Operation, field: GraphQLField) -> Operation:
        """The operation with a shorter view for models where its schema is long."""
        takes = operation.input_schema
        if not is_large(takes):
            return operation
        beside = {name: inner for name, inner in takes["properties"].items() if name not in field.args}
        return replace(operation, model_schema=self._inputs.view(field, beside))

    def _default(self, kind: Composite) -> _Asked:
        known = self._defaults.get(kind.name)
        if known is None:
            selection = self._selector.select(kind)
            known = self._defaults[kind.name] = _Asked.of(selection, rendered(selection))
        return known

    def _written(self, text: str, kind: Composite, operation: Operation) -> Written:
        return written_selection(text, kind, self._schema, operation.document)

    def _also_told(self, known: set[str]) -> Iterator[str]:
        for name in self._selections.keys() - known:
            yield f"graphql.selections names {name!r}, which is no query or mutation of the schema"
        subscriptions = self._schema.subscription_type
        if subscriptions is not None and subscriptions.fields:
            names = list(subscriptions.fields)
            more = ", ..." if len(names) > _MOST_NAMED else ""
            told = f"{len(names)} subscription(s) were left out ({', '.join(names[:_MOST_NAMED])}{more})"
            yield f"{told}: a tool gives one answer, not a stream of them"


def _roots(schema: GraphQLSchema) -> Iterator[_Root]:
    """Every query and mutation with the name of its tool; a mutation gives way to a query of its name."""
    queries: Mapping[str, Any] = {} if schema.query_type is None else schema.query_type.fields
    mutations: Mapping[str, Any] = {} if schema.mutation_type is None else schema.mutation_type.fields
    taken = {*queries, *mutations}
    for name, field in queries.items():
        yield _Root("query", name, name, field)
    for name, field in mutations.items():
        tool_name = name
        while tool_name in queries or (tool_name != name and tool_name in taken):
            tool_name += _MUTATION_SUFFIX
        taken.add(tool_name)
        yield _Root("mutation", tool_name, name, field)


def _variables(field: GraphQLField) -> str:
    parts = [f"${name}: {sent_type(inner)}" for name, inner in field.args.items()]
    return f"({', '.join(parts)})" if parts else ""


def _passed(field: GraphQLField) -> str:
    return f"({', '.join(f'{name}: ${name}' for name in field.args)})" if field.args else ""


def _described(kind: Kind, name: str, field: GraphQLField) -> str:
    said = field.description or f"The {kind} {name!r}, which gives {type_of(field)}."
    reason = field.deprecation_reason
    return shortened(said if reason is None else f"Deprecated: {reason}\n\n{said}", LONGEST)


def _about_selection(selection: Selection, text: str) -> JsonSchema:
    kind = selection.type
    default = shortened(" ".join(text.split()), _LONGEST_SELECTION)
    about = f"GraphQL selection of the fields of {kind.name} to give, such as {{ id name }}. By default: {default}"
    asked = {picked.name for picked in selection.fields.values()}
    others = [name for name, inner in fields_of(kind).items() if not inner.deprecation_reason and name not in asked]
    also = shortened(", ".join(others), _LONGEST_OTHERS)
    return {"type": ["string", "null"], "description": f"{about} Others: {also}" if also else about}
