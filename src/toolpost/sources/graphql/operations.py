"""Build the operations of a GraphQL schema: one per query and mutation field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from graphql import GraphQLField, GraphQLSchema, GraphQLType
from msgspec import Struct
from msgspec.structs import replace

from toolpost.contracts.spec import JsonSchema
from toolpost.sources.graphql.argument_schemas import ArgumentSchemas, is_large, object_schema, output_schema
from toolpost.sources.graphql.selections import (
    Selection,
    SelectionBuilder,
    SelectionError,
    parse_selection,
    render_selection,
)
from toolpost.sources.graphql.types import (
    MAX_DESCRIPTION_CHARS,
    Composite,
    composite_of,
    fields_of,
    truncate,
    type_of,
    variable_type,
)
from toolpost.sources.graphql.uploads import MultipartVariables, UploadArguments, split_files

OperationKind = Literal["query", "mutation"]
SELECTION_ARGUMENT = "selection"
_MUTATION_SUFFIX = "_mutation"
_MAX_OPERATIONS = 5_000
_MAX_NAMED = 5
_MAX_SELECTION_CHARS = 400
_MAX_OTHERS_CHARS = 300


class OperationBuilder:
    """Builder of the operations of one schema, with a cache of the default selection of each type."""

    def __init__(self, schema: GraphQLSchema, *, depth: int, selections: Mapping[str, str]) -> None:
        self._schema = schema
        self._selection_builder = SelectionBuilder(schema, depth=depth)
        self._argument_schemas = ArgumentSchemas()
        self._uploads = UploadArguments(schema)
        self._selections = selections
        self._defaults: dict[str, _ResultSelection] = {}

    def build(self, includes: Callable[[str], bool], check: Callable[[], None]) -> OperationSet:
        """Build the operations that `includes` accepts; `check` raises at the deadline."""
        result = OperationSet([], [])
        names: set[str] = set()
        excess = 0
        for root in _root_fields(self._schema):
            names.add(root.tool_name)
            if not includes(root.tool_name):
                continue
            check()
            if len(result.operations) == _MAX_OPERATIONS:
                excess += 1
            else:
                self._add(result, root)
        if excess:
            left_out = f"{excess:,} operations beyond {_MAX_OPERATIONS:,} were skipped"
            result.problems.append(f"{left_out}; choose with tool_filter")
        result.problems.extend(self._schema_problems(names))
        return result

    def _add(self, result: OperationSet, root: _RootField) -> None:
        try:
            result.operations.append(self._operation(root))
        except SelectionError as error:
            result.problems.append(f"{root.kind} {root.name!r} was skipped: its selection cannot be used: {error}")

    def with_selection(self, operation: GraphqlOperation, text: str) -> GraphqlOperation:
        """Return the operation with another selection; raise SelectionError when it is invalid."""
        kind = composite_of(operation.result)
        if kind is None:
            raise SelectionError("the result has no fields to choose from")
        return replace(operation, selection=self._parse_selection(text, kind, operation)[1])

    def _operation(self, root: _RootField) -> GraphqlOperation:
        kind, tool_name, name, field = root
        result = composite_of(type_of(field))
        may_choose = result is not None and SELECTION_ARGUMENT not in field.args
        arguments = sorted(field.args)
        declared = ", ".join(f"${argument}: {variable_type(field.args[argument])}" for argument in arguments)
        definitions = f"({declared})" if arguments else ""
        passed = f"({', '.join(f'{argument}: ${argument}' for argument in arguments)})" if arguments else ""
        plain = GraphqlOperation(
            kind=kind,
            name=name,
            tool_name=tool_name,
            head=f"{kind} {name}{definitions} {{ {name}{passed}",
            selection="",
            description=_description(kind, name, field),
            deprecated=field.deprecation_reason is not None,
            input_schema=self._argument_schemas.schema(field),
            model_schema=None,
            output_schema=output_schema(type_of(field), None),
            file_arguments=self._uploads.arguments(field),
            selection_argument=SELECTION_ARGUMENT if may_choose else None,
            result=type_of(field),
        )
        return self._with_model_schema(plain if result is None else self._with_selection(plain, result), field)

    def _with_selection(self, plain: GraphqlOperation, kind: Composite) -> GraphqlOperation:
        configured = self._selections.get(plain.tool_name)
        if configured is None:
            selection = self._default(kind)
        else:
            selection = _ResultSelection.of(*self._parse_selection(configured, kind, plain))
        output = output_schema(plain.result, selection.output)
        input_schema = plain.input_schema
        if plain.selection_argument is not None:
            properties = {**input_schema["properties"], plain.selection_argument: selection.argument}
            input_schema = {**input_schema, "properties": properties}
        return replace(plain, selection=selection.text, input_schema=input_schema, output_schema=output)

    def _with_model_schema(self, operation: GraphqlOperation, field: GraphQLField) -> GraphqlOperation:
        input_schema = operation.input_schema
        if not is_large(input_schema):
            return operation
        beside = {name: inner for name, inner in input_schema["properties"].items() if name not in field.args}
        return replace(operation, model_schema=self._argument_schemas.view(field, beside))

    def _default(self, kind: Composite) -> _ResultSelection:
        default = self._defaults.get(kind.name)
        if default is None:
            selection = self._selection_builder.select(kind)
            default = self._defaults[kind.name] = _ResultSelection.of(selection, render_selection(selection))
        return default

    def _parse_selection(self, text: str, kind: Composite, operation: GraphqlOperation) -> tuple[Selection, str]:
        return parse_selection(text, kind, self._schema, operation.document)

    def _schema_problems(self, known: set[str]) -> Iterator[str]:
        for name in self._selections.keys() - known:
            yield f"options.selections names {name!r}, which is not a query or mutation of the schema"
        subscriptions = self._schema.subscription_type
        if subscriptions is not None and subscriptions.fields:
            names = list(subscriptions.fields)
            more = ", ..." if len(names) > _MAX_NAMED else ""
            left_out = f"{len(names)} subscription(s) were skipped ({', '.join(names[:_MAX_NAMED])}{more})"
            yield f"{left_out}: a tool returns one result, not a stream"


class _RootField(NamedTuple):
    """A field of the query or mutation type, and its tool name."""

    kind: OperationKind
    tool_name: str
    name: str
    field: GraphQLField


class _ResultSelection(NamedTuple):
    """A selection as text, the schema of its result, and the schema of the selection argument."""

    text: str
    output: JsonSchema
    argument: JsonSchema

    @classmethod
    def of(cls, selection: Selection, text: str) -> _ResultSelection:
        return cls(text, object_schema(selection), _selection_argument(selection, text))


def _root_fields(schema: GraphQLSchema) -> Iterator[_RootField]:
    """Yield queries, then mutations; a mutation gets a suffix when a query has its name."""
    queries: Mapping[str, Any] = {} if schema.query_type is None else schema.query_type.fields
    mutations: Mapping[str, Any] = {} if schema.mutation_type is None else schema.mutation_type.fields
    taken = {*queries, *mutations}
    for name, declared in queries.items():
        yield _RootField("query", name, name, declared)
    for name, declared in mutations.items():
        tool_name = name
        while tool_name in queries or (tool_name != name and tool_name in taken):
            tool_name += _MUTATION_SUFFIX
        taken.add(tool_name)
        yield _RootField("mutation", tool_name, name, declared)


def _description(kind: OperationKind, name: str, field: GraphQLField) -> str:
    description = field.description or f"The {kind} {name!r}, which returns {type_of(field)}."
    reason = field.deprecation_reason
    return truncate(description if reason is None else f"Deprecated: {reason}\n\n{description}", MAX_DESCRIPTION_CHARS)


def _selection_argument(selection: Selection, text: str) -> JsonSchema:
    kind = selection.type
    default = truncate(" ".join(text.split()), _MAX_SELECTION_CHARS)
    argument = f"GraphQL selection of the fields of {kind.name} to return, such as {{ id name }}. By default: {default}"
    selected = {field.name for field in selection.fields.values()}
    others = [name for name, inner in fields_of(kind).items() if not inner.deprecation_reason and name not in selected]
    also = truncate(", ".join(sorted(others)), _MAX_OTHERS_CHARS)
    return {"type": "string", "description": f"{argument} Others: {also}" if also else argument}


class GraphqlOperation(Struct, frozen=True, kw_only=True):
    """One root field as an operation; `head` is the document up to `selection`, which is empty for scalars.

    `selection_argument` names the argument with which a call selects other fields; None for scalars and for
    fields that have an argument of that name.
    """

    kind: OperationKind
    name: str
    tool_name: str
    head: str
    selection: str
    description: str
    deprecated: bool
    input_schema: JsonSchema
    model_schema: JsonSchema | None
    output_schema: JsonSchema
    file_arguments: Mapping[str, GraphQLType]
    selection_argument: str | None
    result: GraphQLType

    @property
    def query(self) -> str:
        """Return the document, which is the same for every call: values are sent as variables."""
        return self.document(self.selection)

    def document(self, selection: str) -> str:
        return f"{self.head} {selection} }}" if selection else f"{self.head} }}"

    def split_variables(self, arguments: Mapping[str, Any]) -> MultipartVariables:
        if not self.file_arguments:
            return MultipartVariables(dict(arguments), {})
        return split_files(dict(arguments), self.file_arguments)


class OperationSet(NamedTuple):
    """The operations of a schema, and the problems found while building them."""

    operations: list[GraphqlOperation]
    problems: list[str]
