"""Build one operation per field of the query and mutation types: document, input and output schema, file uploads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from graphql import GraphQLInputObjectType, GraphQLScalarType

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.graphql.json_schema import (
    ArgumentSchemas,
    is_large,
    object_schema,
    omitted_when_null,
    output_schema,
)
from toolpost.sources.graphql.selections import (
    SelectionBuilder,
    SelectionError,
    parse_selection,
    render_selection,
)
from toolpost.sources.graphql.type_utils import (
    MAX_DESCRIPTION_CHARS,
    UPLOAD,
    composite_of,
    fields_of,
    item_type,
    named_type,
    truncate,
    type_of,
    unwrap_non_null,
    variable_type,
)
from toolpost.web.files import choose_media_type as media_type_of
from toolpost.web.files import find_artifact_id, parse_file
from toolpost.web.requests import FormPart, UnsendableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from graphql import GraphQLField, GraphQLNamedType, GraphQLSchema, GraphQLType

    from toolpost.contracts.spec import JsonSchema
    from toolpost.sources.graphql.selections import Selection
    from toolpost.sources.graphql.type_utils import Composite
    from toolpost.web.files import File


class MultipartVariables(NamedTuple):
    """Variables with null in place of each file, and the files by their path."""

    variables: dict[str, Any]
    files: dict[str, Any]

    @property
    def artifact_ids(self) -> list[str]:
        """Return the ids of the artifacts among the files, each once."""
        found = (find_artifact_id(value) for value in self.files.values())
        return list(dict.fromkeys(one for one in found if one is not None))

    def form_parts(self, artifacts: Mapping[str, File]) -> dict[str, FormPart]:
        """Return the files as form parts, by their path."""
        numbered = enumerate(self.files.items())
        return {path: _form_part(str(number), path, value, artifacts) for number, (path, value) in numbered}


class UploadArguments:
    """Finds the arguments of a schema that take files."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._types_with_uploads = _types_with_uploads(schema.type_map)

    def arguments(self, field: GraphQLField) -> dict[str, GraphQLType]:
        """Return the types of a field's arguments that are or contain uploads."""
        kinds = {name: type_of(inner) for name, inner in field.args.items()} if self._types_with_uploads else {}
        return {name: kind for name, kind in kinds.items() if named_type(kind).name in self._types_with_uploads}


def split_files(variables: dict[str, Any], kinds: Mapping[str, GraphQLType]) -> MultipartVariables:
    """Separate files from the variables; `kinds` are the types of the variables that may contain files."""
    files: dict[str, Any] = {}
    names = [name for name in kinds if name in variables]
    replaced = {name: _extract_files(variables[name], kinds[name], f"variables.{name}", files) for name in names}
    return MultipartVariables({**variables, **replaced}, files)


def _types_with_uploads(types: Mapping[str, GraphQLNamedType]) -> set[str]:
    """Return the upload scalar and transitively the input types that contain it."""
    if not isinstance(types.get(UPLOAD), GraphQLScalarType):
        return set()
    used_by: dict[str, set[str]] = {}
    for owner in types.values():
        if isinstance(owner, GraphQLInputObjectType):
            for part in owner.fields.values():
                used_by.setdefault(named_type(type_of(part)).name, set()).add(owner.name)
    found, waiting = {UPLOAD}, [UPLOAD]
    while waiting:
        new = used_by.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _extract_files(value: Any, kind: GraphQLType, path: str, files: dict[str, Any]) -> Any:
    kind = unwrap_non_null(kind) or kind
    item = item_type(kind)
    if item is not None and is_array(value):
        return [_extract_files(one, item, f"{path}.{at}", files) for at, one in enumerate(value)]
    if isinstance(kind, GraphQLInputObjectType) and is_object(value):
        known = kind.fields
        return {
            name: _extract_files(one, type_of(known[name]), f"{path}.{name}", files) if name in known else one
            for name, one in value.items()
        }
    if value is None or not isinstance(kind, GraphQLScalarType) or kind.name != UPLOAD:
        return value
    files[path] = value
    return None


def _form_part(name: str, path: str, value: Any, artifacts: Mapping[str, File]) -> FormPart:
    try:
        file = parse_file(value, artifacts)
    except UnsendableError as error:
        raise ToolValidationError(f"$.{path.partition('.')[2]}: {error}") from error
    return FormPart(name, file.data, media_type_of(file), file.name or name)


OperationKind = Literal["query", "mutation"]
SELECTION_ARGUMENT = "selection"
_MUTATION_SUFFIX = "_mutation"
_MAX_OPERATIONS = 5_000
_MAX_NAMED = 5
_MAX_SELECTION_CHARS = 400
_MAX_OTHERS_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphqlOperation:
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
    omit_if_null: frozenset[str]
    file_arguments: Mapping[str, GraphQLType]
    selection_argument: str | None
    result: GraphQLType

    @property
    def query(self) -> str:
        """Return the document, which is the same for every call: values are sent as variables."""
        return self.document(self.selection)

    def document(self, selection: str) -> str:
        """Return the document with another selection."""
        return f"{self.head} {selection} }}" if selection else f"{self.head} }}"

    def split_variables(self, arguments: Mapping[str, Any]) -> MultipartVariables:
        """Drop null arguments that have a default, and separate files from the variables."""
        variables = {
            name: value for name, value in arguments.items() if value is not None or name not in self.omit_if_null
        }
        return split_files(variables, self.file_arguments) if self.file_arguments else MultipartVariables(variables, {})


class OperationSet(NamedTuple):
    """The operations of a schema, and the problems found while building them."""

    operations: list[GraphqlOperation]
    problems: list[str]


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


class OperationBuilder:
    """Builds the operations of one schema; caches the default selection of each type."""

    def __init__(self, schema: GraphQLSchema, *, depth: int, selections: Mapping[str, str]) -> None:
        self._schema = schema
        self._selection_builder = SelectionBuilder(schema, depth=depth)
        self._argument_schemas = ArgumentSchemas()
        self._uploads = UploadArguments(schema)
        self._selections = selections
        self._defaults: dict[str, _ResultSelection] = {}

    def build(self, includes: Callable[[str], bool], check: Callable[[], None]) -> OperationSet:
        """Build the operations that `includes` accepts; `check` raises at the deadline."""
        found = OperationSet([], [])
        known: set[str] = set()
        excess = 0
        for root in _root_fields(self._schema):
            known.add(root.tool_name)
            if not includes(root.tool_name):
                continue
            check()
            if len(found.operations) == _MAX_OPERATIONS:
                excess += 1
            else:
                self._add(found, root)
        if excess:
            left_out = f"{excess:,} operations beyond {_MAX_OPERATIONS:,} were left out"
            found.problems.append(f"{left_out}; choose with tool_filter")
        found.problems.extend(self._schema_problems(known))
        return found

    def _add(self, found: OperationSet, root: _RootField) -> None:
        """Build one operation, or record why its configured selection is invalid."""
        try:
            found.operations.append(self._operation(root))
        except SelectionError as error:
            found.problems.append(f"{root.kind} {root.name!r} was left out: its selection cannot be used: {error}")

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
        plain = GraphqlOperation(
            kind=kind,
            name=name,
            tool_name=tool_name,
            head=f"{kind} {name}{_variable_definitions(field)} {{ {name}{_field_arguments(field)}",
            selection="",
            description=_description(kind, name, field),
            deprecated=field.deprecation_reason is not None,
            input_schema=self._argument_schemas.schema(field),
            model_schema=None,
            output_schema=output_schema(type_of(field), None),
            omit_if_null=omitted_when_null(field),
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
        """Add a shorter `model_schema` when the input schema is large."""
        input_schema = operation.input_schema
        if not is_large(input_schema):
            return operation
        beside = {name: inner for name, inner in input_schema["properties"].items() if name not in field.args}
        return replace(operation, model_schema=self._argument_schemas.view(field, beside))

    def _default(self, kind: Composite) -> _ResultSelection:
        known = self._defaults.get(kind.name)
        if known is None:
            selection = self._selection_builder.select(kind)
            known = self._defaults[kind.name] = _ResultSelection.of(selection, render_selection(selection))
        return known

    def _parse_selection(self, text: str, kind: Composite, operation: GraphqlOperation) -> tuple[Selection, str]:
        return parse_selection(text, kind, self._schema, operation.document)

    def _schema_problems(self, known: set[str]) -> Iterator[str]:
        for name in self._selections.keys() - known:
            yield f"graphql.selections names {name!r}, which is no query or mutation of the schema"
        subscriptions = self._schema.subscription_type
        if subscriptions is not None and subscriptions.fields:
            names = list(subscriptions.fields)
            more = ", ..." if len(names) > _MAX_NAMED else ""
            left_out = f"{len(names)} subscription(s) were left out ({', '.join(names[:_MAX_NAMED])}{more})"
            yield f"{left_out}: a tool gives one answer, not a stream of them"


def _root_fields(schema: GraphQLSchema) -> Iterator[_RootField]:
    """Yield queries, then mutations; a mutation gets a suffix when a query has its name."""
    queries: Mapping[str, Any] = {} if schema.query_type is None else schema.query_type.fields
    mutations: Mapping[str, Any] = {} if schema.mutation_type is None else schema.mutation_type.fields
    taken = {*queries, *mutations}
    for name, field in queries.items():
        yield _RootField("query", name, name, field)
    for name, field in mutations.items():
        tool_name = name
        while tool_name in queries or (tool_name != name and tool_name in taken):
            tool_name += _MUTATION_SUFFIX
        taken.add(tool_name)
        yield _RootField("mutation", tool_name, name, field)


def _variable_definitions(field: GraphQLField) -> str:
    parts = [f"${name}: {variable_type(inner)}" for name, inner in sorted(field.args.items())]
    return f"({', '.join(parts)})" if parts else ""


def _field_arguments(field: GraphQLField) -> str:
    return f"({', '.join(f'{name}: ${name}' for name in sorted(field.args))})" if field.args else ""


def _description(kind: OperationKind, name: str, field: GraphQLField) -> str:
    description = field.description or f"The {kind} {name!r}, which gives {type_of(field)}."
    reason = field.deprecation_reason
    return truncate(description if reason is None else f"Deprecated: {reason}\n\n{description}", MAX_DESCRIPTION_CHARS)


def _selection_argument(selection: Selection, text: str) -> JsonSchema:
    kind = selection.type
    default = truncate(" ".join(text.split()), _MAX_SELECTION_CHARS)
    argument = f"GraphQL selection of the fields of {kind.name} to give, such as {{ id name }}. By default: {default}"
    selected = {field.name for field in selection.fields.values()}
    others = [name for name, inner in fields_of(kind).items() if not inner.deprecation_reason and name not in selected]
    also = truncate(", ".join(sorted(others)), _MAX_OTHERS_CHARS)
    return {"type": ["string", "null"], "description": f"{argument} Others: {also}" if also else argument}
