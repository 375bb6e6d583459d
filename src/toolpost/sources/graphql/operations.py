"""Operations of a GraphQL schema as tools: arguments, selection sets, results, uploads."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from graphql import (
    FieldNode,
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLError,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNamedType,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLSchema,
    GraphQLString,
    GraphQLType,
    GraphQLUnionType,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    get_named_type,
    is_required_argument,
    is_required_input_field,
    parse,
    print_ast,
    validate,
    value_from_ast_untyped,
)
from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.unions import allow_null, types_of
from toolpost.web.requests import (
    FILE,
    File,
    FormPart,
    UnsendableError,
    compact_json,
    file_media_type,
    find_artifact_id,
    parse_file,
)

DefinedType: TypeAlias = GraphQLEnumType | GraphQLInputObjectType
References: TypeAlias = dict[str, DefinedType]

_INT: JsonSchema = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
_SCALARS: dict[str, JsonSchema] = {
    "Int": _INT,
    "Float": {"type": "number"},
    "String": {"type": "string"},
    "Boolean": {"type": "boolean"},
    "ID": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
}
# Descriptions of arguments may be longer than those of the fields below them.
_ARGUMENT_FACTOR = 3
_MIN_ARGUMENT_CHARS = 120
# In densely connected schemas the nearest definitions are kept; the server validates what was cut.
_MAX_CHARS = 40_000
_MAX_VIEW_CHARS = 15_600  # about 4,000 tokens
_DESCRIPTION_LIMITS = (160, 60, 0)
OperationKind = Literal["query", "mutation"]
SELECTION_ARGUMENT = "selection"
_MUTATION_SUFFIX = "_mutation"
_MAX_OPERATIONS = 5_000
_MAX_NAMED = 5
_MAX_SELECTION_CHARS = 400
_MAX_OTHERS_CHARS = 300
Composite: TypeAlias = GraphQLObjectType | GraphQLInterfaceType | GraphQLUnionType
# The limit of OpenAI's function calling.
MAX_DESCRIPTION_CHARS = 1024
UPLOAD = "Upload"  # the conventional name of the scalar of a file
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
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


class ArgumentSchemas:
    """Converts field arguments to JSON Schema; caches the definition of each type."""

    def __init__(self) -> None:
        self._full = [_SchemaWriter(_MAX_CHARS, limit) for limit in _DESCRIPTION_LIMITS]
        self._views = [_SchemaWriter(_MAX_VIEW_CHARS, limit) for limit in _DESCRIPTION_LIMITS]

    def schema(self, field: GraphQLField) -> JsonSchema:
        """Return the schema of a field's arguments."""
        return _first_complete(self._full, field, {})

    def view(self, field: GraphQLField, beside: JsonSchema) -> JsonSchema:
        """Return a smaller schema for models: all arguments, the properties in `beside`, and definitions that fit.

        It accepts whatever the full schema accepts.
        """
        return _first_complete(self._views, field, beside)


def _first_complete(writers: list[_SchemaWriter], field: GraphQLField, beside: JsonSchema) -> JsonSchema:
    """Return the first schema that defines every argument type; later writers use shorter descriptions."""
    for writer in writers[:-1]:
        schema, is_complete = writer.write(field, beside)
        if is_complete:
            return schema
    return writers[-1].write(field, beside)[0]


def is_large(schema: JsonSchema) -> bool:
    """Return whether a schema is too long to show to a model."""
    return _size(schema) > _MAX_VIEW_CHARS


class _TypeDefinition(NamedTuple):
    """The definition of an enum or input type, its stub, their sizes in characters, and the types it refers to."""

    schema: JsonSchema
    size: int
    stub: JsonSchema
    stub_size: int
    references: References


class _SchemaWriter:
    """Writes schemas of at most `budget` characters, with descriptions of at most `limit` characters."""

    def __init__(self, budget: int, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._definitions_by_name: dict[str, _TypeDefinition] = {}

    def write(self, field: GraphQLField, beside: JsonSchema) -> tuple[JsonSchema, bool]:
        """Return the schema, and whether no type of an argument was cut to a stub."""
        references: References = {}
        arguments = {name: self._argument(inner, references) for name, inner in field.args.items()}
        schema: JsonSchema = {
            "type": "object",
            "properties": {**arguments, **beside},
            "required": [name for name, inner in field.args.items() if is_required_argument(inner)],
            "additionalProperties": False,
        }
        definitions, cut = self._definitions(references, self._budget - _size(schema))
        whole = {**schema, "$defs": definitions} if definitions else schema
        return whole, cut.isdisjoint(references)

    def _definitions(self, references: References, budget: int) -> tuple[dict[str, JsonSchema], set[str]]:
        """Return the definitions, breadth first, and the names of those cut to a stub by the budget."""
        definitions = {name: self._definition(kind) for name, kind in sorted(references.items())}
        budget -= sum(one.stub_size for one in definitions.values())
        cut: set[str] = set()
        waiting = deque(definitions)
        while waiting:
            name = waiting.popleft()
            one = definitions[name]
            nearest = sorted(one.references.items())
            new = {inner: self._definition(kind) for inner, kind in nearest if inner not in definitions}
            cost = one.size - one.stub_size + sum(inner.stub_size for inner in new.values())
            if cost > budget:
                cut.add(name)
                continue
            budget -= cost
            definitions |= new
            waiting += new
        return {name: one.stub if name in cut else one.schema for name, one in definitions.items()}, cut

    def _definition(self, kind: DefinedType) -> _TypeDefinition:
        definition = self._definitions_by_name.get(kind.name)
        if definition is None:
            references: References = {}
            schema, stub = self._full_definition(kind, references), self._stub(kind)
            overhead = len(kind.name) + 6  # the quoted name and the separators
            definition = _TypeDefinition(schema, _size(schema) + overhead, stub, _size(stub) + overhead, references)
            self._definitions_by_name[kind.name] = definition
        return definition

    def _argument(self, inner: GraphQLArgument, references: References) -> JsonSchema:
        """Return the schema of one argument; null is allowed where the API's own type allows it."""
        limit = max(_MIN_ARGUMENT_CHARS, _ARGUMENT_FACTOR * self._limit)
        return _annotate(self._schema(type_of(inner), references), inner, limit)

    def _schema(self, kind: GraphQLType, references: References, *, null: bool = True) -> JsonSchema:
        if (inner := unwrap_non_null(kind)) is not None:
            return self._schema(inner, references, null=False)
        schema = self._never_null(kind, references)
        return allow_null(schema) if null else schema

    def _never_null(self, kind: GraphQLType, references: References) -> JsonSchema:
        if (item := item_type(kind)) is not None:
            return {"type": "array", "items": self._schema(item, references)}
        if isinstance(kind, GraphQLScalarType):
            return self._scalar(kind)
        named = cast("DefinedType", kind)
        references[named.name] = named
        return {"$ref": f"#/$defs/{named.name}"}

    def _scalar(self, kind: GraphQLScalarType) -> JsonSchema:
        """Return the schema of a scalar; a custom scalar accepts any value."""
        if kind.name == UPLOAD:
            return FILE
        scalar = _SCALARS.get(kind.name)
        if scalar is None:
            description = f"{kind.name}: {kind.description or 'any value'}"
            return {"description": truncate(description, self._limit) or kind.name}
        return scalar

    def _full_definition(self, kind: DefinedType, references: References) -> JsonSchema:
        if isinstance(kind, GraphQLEnumType):
            return {**self._stub(kind), "enum": list(kind.values)}
        schema = {
            **self._stub(kind),
            "properties": {name: self._field(kind, inner, references) for name, inner in kind.fields.items()},
            "additionalProperties": False,
        }
        if kind.is_one_of:
            return {**schema, "minProperties": 1, "maxProperties": 1}
        return {**schema, "required": [name for name, inner in kind.fields.items() if is_required_input_field(inner)]}

    def _field(self, owner: GraphQLInputObjectType, inner: GraphQLInputField, references: References) -> JsonSchema:
        return _annotate(self._schema(type_of(inner), references, null=not owner.is_one_of), inner, self._limit)

    def _stub(self, kind: DefinedType) -> JsonSchema:
        description = truncate(kind.description, self._limit)
        schema = {"type": "string" if isinstance(kind, GraphQLEnumType) else "object"}
        return {**schema, "description": description} if description else schema


def _size(schema: JsonSchema) -> int:
    return len(json.dumps(schema))


def _annotate(schema: JsonSchema, inner: GraphQLArgument | GraphQLInputField, limit: int) -> JsonSchema:
    """Add the description, deprecation and default of an argument or input field."""
    description = " ".join(filter(None, (truncate(inner.description, limit), schema.get("description"))))
    if description:
        schema = {**schema, "description": description}
    if inner.deprecation_reason is not None:
        schema = {**schema, "deprecated": True}
    return {**schema, **_default(inner)}


def _default(inner: GraphQLArgument | GraphQLInputField) -> JsonSchema:
    literal = None if inner.default is None else inner.default.literal
    if literal is None:
        return {}
    try:
        value = value_from_ast_untyped(literal)
        compact_json(value)
    except (UnsendableError, ValueError, RecursionError):
        return {}  # such as 1e999, which JSON cannot represent
    return {"default": value}


def output_schema(kind: GraphQLType, object_part: JsonSchema | None) -> JsonSchema:
    """Return the schema of a result; `object_part` describes its objects."""
    return _result_schema(kind, object_part, null=True)


def object_schema(selection: Selection) -> JsonSchema:
    """Return the properties of an object with this selection; none is required, as a call may select others."""
    schema = _properties(selection)
    has_fragments = any(fragment.selection.fields for fragment in selection.fragments.values())
    return {**schema, "anyOf": list(_fragment_schemas(selection))} if has_fragments else schema


def _result_schema(kind: GraphQLType, object_part: JsonSchema | None, *, null: bool) -> JsonSchema:
    if (inner := unwrap_non_null(kind)) is not None:
        return _result_schema(inner, object_part, null=False)
    if (item := item_type(kind)) is not None:
        return {**_build_type(["array"], null=null), "items": _result_schema(item, object_part, null=True)}
    if isinstance(kind, GraphQLScalarType):
        scalar = _SCALARS.get(kind.name)
        # The type alone: some servers return integers of more than 32 bits.
        return {} if scalar is None else _build_type(types_of(scalar), null=null)
    if isinstance(kind, GraphQLEnumType):
        return _build_type(["string"], null=null)  # without values: the server may have added some
    return {**_build_type(["object"], null=null), **(object_part or {})}


def _build_type(types: list[str], *, null: bool) -> JsonSchema:
    every = [*types, "null"] if null else types
    return {"type": every[0] if len(every) == 1 else every}


def _properties(selection: Selection) -> JsonSchema:
    return {"properties": {key: _field_schema(selected) for key, selected in selection.fields.items()}}


def _field_schema(selected: SelectedField) -> JsonSchema:
    return output_schema(selected.type, None if selected.inner is None else object_schema(selected.inner))


def _fragment_schemas(selection: Selection) -> Iterator[JsonSchema]:
    """Yield one alternative per fragment, and one for the types without a fragment."""
    covered: set[str] = set()
    for types, inner in selection.fragments.values():
        covered.update(types)
        part = object_schema(inner)
        yield {**part, "properties": {**part["properties"], TYPENAME: {"enum": list(types)}}}
    yield {"properties": {TYPENAME: {"not": {"enum": sorted(covered)}}}}


class MultipartVariables(NamedTuple):
    """Variables with null in place of each file, and the files by their path."""

    variables: dict[str, Any]
    files: dict[str, Any]

    @property
    def artifact_ids(self) -> list[str]:
        """Return the ids of the artifacts among the files, each once."""
        ids = (find_artifact_id(value) for value in self.files.values())
        return list(dict.fromkeys(one for one in ids if one is not None))

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
    names, waiting = {UPLOAD}, [UPLOAD]
    while waiting:
        new = used_by.get(waiting.pop(), set()) - names
        names |= new
        waiting += new
    return names


def _extract_files(value: Any, kind: GraphQLType, path: str, files: dict[str, Any]) -> Any:
    kind = unwrap_non_null(kind) or kind
    item = item_type(kind)
    if item is not None and is_array(value):
        return [_extract_files(one, item, f"{path}.{at}", files) for at, one in enumerate(value)]
    if isinstance(kind, GraphQLInputObjectType) and is_object(value):
        fields = kind.fields
        return {
            name: _extract_files(one, type_of(fields[name]), f"{path}.{name}", files) if name in fields else one
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
    return FormPart(name, file.data, file_media_type(file), file.name or name)


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
        """Return the document with another selection."""
        return f"{self.head} {selection} }}" if selection else f"{self.head} }}"

    def split_variables(self, arguments: Mapping[str, Any]) -> MultipartVariables:
        """Separate files from the other variables."""
        if not self.file_arguments:
            return MultipartVariables(dict(arguments), {})
        return split_files(dict(arguments), self.file_arguments)


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
            left_out = f"{excess:,} operations beyond {_MAX_OPERATIONS:,} were left out"
            result.problems.append(f"{left_out}; choose with tool_filter")
        result.problems.extend(self._schema_problems(names))
        return result

    def _add(self, result: OperationSet, root: _RootField) -> None:
        """Build one operation, or record why its configured selection is invalid."""
        try:
            result.operations.append(self._operation(root))
        except SelectionError as error:
            result.problems.append(f"{root.kind} {root.name!r} was left out: its selection cannot be used: {error}")

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
        default = self._defaults.get(kind.name)
        if default is None:
            selection = self._selection_builder.select(kind)
            default = self._defaults[kind.name] = _ResultSelection.of(selection, render_selection(selection))
        return default

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
    for name, declared in queries.items():
        yield _RootField("query", name, name, declared)
    for name, declared in mutations.items():
        tool_name = name
        while tool_name in queries or (tool_name != name and tool_name in taken):
            tool_name += _MUTATION_SUFFIX
        taken.add(tool_name)
        yield _RootField("mutation", tool_name, name, declared)


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
    return {"type": "string", "description": f"{argument} Others: {also}" if also else argument}


def type_of(place: GraphQLField | GraphQLArgument | GraphQLInputField) -> GraphQLType:
    """Return the type of a field or an argument."""
    return cast("GraphQLType", cast("Any", place).type)


def variable_type(argument: GraphQLArgument) -> GraphQLType:
    """Return the type of an argument's variable: nullable when the argument has a default."""
    kind = type_of(argument)
    return kind if is_required_argument(argument) else unwrap_non_null(kind) or kind


def unwrap_non_null(kind: GraphQLType) -> GraphQLType | None:
    """Return the type inside a non-null type; None for a nullable type."""
    return cast("Any", kind).of_type if isinstance(kind, GraphQLNonNull) else None


def item_type(kind: GraphQLType) -> GraphQLType | None:
    """Return the item type of a list; None for other types."""
    return cast("Any", kind).of_type if isinstance(kind, GraphQLList) else None


def named_type(kind: GraphQLType) -> GraphQLNamedType:
    """Return the named type inside all wrappers."""
    return cast("GraphQLNamedType", cast("Any", get_named_type)(kind))


def composite_of(kind: GraphQLType) -> Composite | None:
    """Return the named type if it is an object, interface or union."""
    named = named_type(kind)
    return named if isinstance(named, GraphQLObjectType | GraphQLInterfaceType | GraphQLUnionType) else None


def fields_of(kind: Composite) -> Mapping[str, GraphQLField]:
    """Return the fields of a type; a union has none."""
    return {} if isinstance(kind, GraphQLUnionType) else kind.fields


def truncate(text: str | None, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    """Remove control characters and cut the text after the last whole word that fits."""
    plain = _CONTROL.sub("", text or "").strip() if limit else ""
    if len(plain) <= limit:
        return plain
    head = plain[: limit - 1]
    return f"{head.rsplit(maxsplit=1)[0] if ' ' in head else head}…"


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


TYPENAME_FIELD = SelectedField(TYPENAME, GraphQLNonNull(GraphQLString))


def render_selection(selection: Selection) -> str:
    """Print a selection as GraphQL; an empty one selects `__typename`."""
    parts = [_render_field(key, selected) for key, selected in selection.fields.items()]
    for name, (_, inner) in selection.fragments.items():
        if inner.fields:
            parts.append(f"... on {name} {render_selection(inner)}")
    return f"{{ {' '.join(parts) or TYPENAME} }}"


def _render_field(key: str, selected: SelectedField) -> str:
    own = selected.name if key == selected.name else f"{key}: {selected.name}"
    return own if selected.inner is None else f"{own} {render_selection(selected.inner)}"


class _CandidateField(NamedTuple):
    """A field that needs no arguments; fields under one response key must have the same `shape`."""

    name: str
    type: GraphQLType
    shape: str
    kind: Composite | None


class _CandidateFields(NamedTuple):
    """The leaf fields of a type, and its fields of composite types."""

    leaves: list[_CandidateField]
    nested: list[_CandidateField]


class _Position(NamedTuple):
    """A selection under construction and its path in the response."""

    selection: Selection
    path: Path


class _ObjectsToOpen(NamedTuple):
    """Composite fields that may be selected next, except those in `common`, which the parent type selects."""

    position: _Position
    candidates: list[_CandidateField]
    common: Collection[str]


class SelectionBuilder:
    """Builds default selections of one schema: leaf fields at each level, objects down to `depth`."""

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
    """Adds fields to one selection up to MAX_FIELDS.

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
        position.selection.fields[TYPENAME] = TYPENAME_FIELD
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
    # By name, so that a server that lists its fields in another order does not change what a tool asks for.
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


class SelectionError(ValueError):
    """An invalid selection; the message is the reason."""


def parse_selection(
    text: str, kind: Composite, schema: GraphQLSchema, document: Callable[[str], str]
) -> tuple[Selection, str]:
    """Parse a selection on a type, validate it within the document that `document` builds, and print it."""
    node_set = _parse_braced(text)
    if sum(1 for _ in _iter_fields(node_set)) > MAX_FIELDS:
        raise SelectionError(f"it asks for more than {MAX_FIELDS} fields")
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
    if len(definitions) != 1 or not isinstance(only, OperationDefinitionNode) or not _is_bare(only):
        raise SelectionError("it has to be one selection in braces, such as { id name }")
    return only.selection_set


def _is_bare(operation: OperationDefinitionNode) -> bool:
    parts = operation.name or operation.variable_definitions or operation.directives
    return operation.operation is OperationType.QUERY and not parts


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
        target.fields[key] = TYPENAME_FIELD
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
