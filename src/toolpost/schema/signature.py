"""Derive a tool from a Python function: schemas from the signature, descriptions from the docstring, conversion."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from types import GenericAlias
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import Doc, ReadOnly, TypeAliasType, TypedDict, is_typeddict

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolOutputError, ToolSchemaError
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import has_float, is_object
from toolpost.schema.pydantic_types import (
    EXTRAS,
    Memo,
    build_converter,
    build_renderer,
    modernize,
    schema_of,
    to_jsonable,
)
from toolpost.schema.secrets import is_secret_name

Convert = Callable[[dict[str, Any]], dict[str, Any]]

__all__ = ["FunctionSchema", "function_schema", "to_jsonable"]

_SIMPLE: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_SINGLE_NAMES = ("args", "params", "input")
NO_DEFAULT = Parameter.empty
_CONTEXT = object()
_ATOMS = (str, int, float, bool, type(None), None, Any, object, list, dict, inspect.Parameter.empty)
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_QUALIFIERS = (Required, NotRequired, ReadOnly)
# What pydantic writes into the JSON Schema in full, so that checking the schema is enough.
_CONSTRAINTS = frozenset({"Ge", "Gt", "Le", "Lt", "MultipleOf", "MinLen", "MaxLen"})
_RAW_RESULTS = (ToolOutput, ToolResult, bytes, bytearray, memoryview)
_CONTEXT_NAME = re.compile(r"(Optional\[)?(\w+\.)*ToolContext\]?(\s*\|\s*None)?")
_RESULT_NAME = re.compile(r"\b(ToolOutput|ToolResult)\b")


class FunctionSchema(Struct, frozen=True, kw_only=True):
    """The schemas of a function, and the functions that convert for it.

    `convert` turns JSON arguments into keyword arguments and `render` a result into JSON; each is None where nothing
    needs conversion. `single_model` names the one parameter that takes all arguments as a model.
    """

    input_schema: JsonSchema
    output_schema: JsonSchema | None
    description: str
    context_parameter: str | None
    single_model: str | None
    convert: Convert | None
    render: Callable[[Any], Any] | None


def function_schema(fn: Callable[..., Any]) -> FunctionSchema:
    """Derive the schemas of a function; ToolSchemaError where it cannot be called with JSON."""
    parameters = read_parameters(fn)
    description, described = _documentation(inspect.getdoc(unwrap_function(fn)) or "")
    inputs = _simple_input(fn, parameters) or _single_model_input(fn, parameters) or _input(fn, parameters)
    _describe(inputs.schema, described)
    output = _output(fn)
    return FunctionSchema(
        input_schema=inputs.schema,
        output_schema=output.schema,
        description=description,
        context_parameter=parameters.context,
        single_model=inputs.single,
        convert=inputs.convert,
        render=output.render,
    )


def _documentation(docstring: str) -> tuple[str, Mapping[str, str]]:
    """Return the description of a function, and that of each parameter."""
    if ":" not in docstring and len(docstring.splitlines()) <= 1:  # no style has lists in one such line
        return docstring.strip(), {}
    from toolpost.schema.docstrings import parse_docstring  # noqa: PLC0415 - the parsers take longer to load than most docstrings need

    return parse_docstring(docstring)


class _Input(NamedTuple):
    schema: JsonSchema
    convert: Convert | None
    single: str | None = None


class _Output(NamedTuple):
    schema: JsonSchema | None = None
    render: Callable[[Any], Any] | None = None


def _single_model_input(fn: Callable[..., Any], parameters: Parameters) -> _Input | None:
    """Use the fields of the model as arguments for `def f(args: Model, ctx)`."""
    if len(parameters.arguments) != 1 or parameters.has_extras:
        return None
    name, model, _ = parameters.arguments[0]
    if name not in _SINGLE_NAMES or not isinstance(model, type) or not issubclass(model, BaseModel):
        return None
    if model.__pydantic_root_model__:  # to import `RootModel` builds validators that most programs have no use for
        return None
    adapter, schema = _adapted(fn, model, "validation")
    if "extra" not in model.model_config:
        # A misspelled argument should be refused, not ignored; a model that wants more says so.
        schema = {**schema, "additionalProperties": False}
    return _Input(schema, build_converter(adapter, schema, single=name), name)


def _input(fn: Callable[..., Any], parameters: Parameters) -> _Input:
    adapter, schema = _adapted(fn, _arguments_type(parameters), "validation")
    properties: dict[str, JsonSchema] = schema.setdefault("properties", {})
    if parameters.has_extras:
        schema["additionalProperties"] = properties.pop(EXTRAS).get("additionalProperties", True)
        _drop_required(schema, EXTRAS)
    for argument in parameters.arguments:
        _complete(properties.get(argument.key), argument)
    types = [argument.annotation for argument in parameters.arguments]
    if all(map(needs_no_conversion, types)) and needs_no_conversion(parameters.extras):
        return _Input(schema, _whole_numbers(fn, parameters, schema))
    return _Input(schema, build_converter(adapter, schema, extras=parameters.has_extras))


def _simple_input(fn: Callable[..., Any], parameters: Parameters) -> _Input | None:
    """Build what pydantic would for a function of plain scalars, in a tenth of the time."""
    properties = {argument.name: _simple_schema(argument.annotation) for argument in parameters.arguments}
    if parameters.has_extras or None in properties.values():
        return None
    schema: JsonSchema = {"additionalProperties": False, "properties": properties, "type": "object"}
    required = [argument.name for argument in parameters.arguments if argument.default is NO_DEFAULT]
    if required:
        schema["required"] = required
    for argument in parameters.arguments:
        _complete(properties[argument.name], argument)
    return _Input(schema, _whole_numbers(fn, parameters, schema, flat=True))


def _whole_numbers(
    fn: Callable[..., Any], parameters: Parameters, schema: JsonSchema, *, flat: bool = False
) -> Convert | None:
    """Build a converter for plain arguments with integers: JSON's 5.0 is one, Python's is not."""
    if "'integer'" not in repr(schema):
        return None

    @functools.cache  # such numbers are rare, so pydantic's adapter is built with the first one
    def read() -> Convert:
        adapter, _ = _adapted(fn, _arguments_type(parameters), "validation")
        return build_converter(adapter, schema, extras=parameters.has_extras)

    def convert_scalars(arguments: dict[str, Any]) -> dict[str, Any]:
        for value in arguments.values():  # in every call; `float in map(type, ...)` takes longer
            if type(value) is float:
                return read()(arguments)
        return arguments

    if flat:
        return convert_scalars
    return lambda arguments: read()(arguments) if has_float(arguments) else arguments


def _simple_schema(annotation: Any) -> JsonSchema | None:
    kind = _SIMPLE.get(annotation) if isinstance(annotation, type) else None
    return {"type": kind} if kind else None


def _arguments_type(parameters: Parameters) -> Any:
    """Build a TypedDict of the arguments, which unlike a model takes names such as `_id`, `json` or `model_config`."""
    fields: dict[str, Any] = {}
    memo: Memo = {}
    for name, written, default in parameters.arguments:
        annotation = modernize(written, memo)
        fields[name] = Required[annotation] if default is NO_DEFAULT else NotRequired[annotation]
    if parameters.has_extras:
        fields[EXTRAS] = Required[GenericAlias(dict, (str, modernize(parameters.extras, memo)))]
    make: Any = TypedDict
    arguments_type = make("Arguments", fields)
    arguments_type.__pydantic_config__ = ConfigDict(extra="forbid")
    return arguments_type


def _adapted(
    fn: Callable[..., Any], annotation: Any, mode: Literal["validation", "serialization"]
) -> tuple[TypeAdapter[Any], JsonSchema]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        return adapter, schema_of(adapter, mode)
    except (PydanticUserError, TypeError, NameError) as exc:
        reason = str(exc).splitlines()[0]
        raise ToolSchemaError(
            f"{function_name(fn)}: {reason}; use types that JSON can carry: "
            "builtins, Literal, Enum, datetime, dataclasses, TypedDict, pydantic models"
        ) from exc


def _drop_required(schema: JsonSchema, name: str) -> None:
    required = [other for other in schema.pop("required", []) if other != name]
    if required:
        schema["required"] = required


def _complete(property_schema: JsonSchema | None, argument: Argument) -> None:
    """Add what pydantic does not know: the description beside the type, and the function's own default."""
    if property_schema is None:
        return
    description = description_of(argument.annotation)
    if description:
        property_schema.setdefault("description", description)
    if argument.default is NO_DEFAULT or is_secret_name(argument.key):
        return
    if argument.default is None and not _admits_null(property_schema):
        # `x: int = None` means "may be left out"; as a default in the schema it would invite null.
        return
    try:
        property_schema["default"] = to_jsonable(argument.default)
    except ToolOutputError:
        return


def _admits_null(schema: JsonSchema) -> bool:
    if "anyOf" in schema:
        return any(option.get("type") == "null" for option in schema["anyOf"])
    if "enum" in schema:
        return None in schema["enum"]
    return "$ref" not in schema and schema.get("type", "null") == "null"


def _describe(schema: JsonSchema, descriptions: Mapping[str, str]) -> None:
    """Describe the properties without a description by the docstring."""
    properties = schema.get("properties")
    if not is_object(properties):
        return
    for name, line in descriptions.items():
        described = properties.get(name)
        if is_object(described):
            described.setdefault("description", line)


def _output(fn: Callable[..., Any]) -> _Output:
    """Derive the schema and rendering of the results; none without a usable annotation."""
    written = read_signature(fn).return_annotation
    if written is NO_DEFAULT or looks_like_raw_result(written):
        return _Output()
    try:
        annotation = resolve_annotation(written, unwrap_function(fn))
    except UnresolvedError:
        return _Output()
    annotation = _streamed_type(annotation, unwrap_function(fn))
    if is_raw_result(annotation):
        return _Output()
    if simple := _simple_schema(annotation):
        return _Output(simple)
    try:
        adapter, schema = _adapted(fn, modernize(annotation, {}), "serialization")
    except ToolSchemaError:
        # A type that pydantic does not know may still be one that can be written; the call will tell.
        return _Output()
    if not schema:
        return _Output()
    return _Output(schema, None if needs_no_conversion(annotation) else build_renderer(adapter))


def _streamed_type(annotation: Any, fn: Callable[..., Any]) -> Any:
    """Return the type of a generator's result, its last value or None without any; of others the annotation."""
    if not (inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)):
        return annotation
    value = next(iter(get_args(annotation)), Any)
    return value if value is Any or is_raw_result(value) else value | None


class Argument(NamedTuple):
    """One argument: its type, and the function's own default."""

    name: str
    annotation: Any
    default: Any = NO_DEFAULT

    @property
    def key(self) -> str:
        """Return the name that callers use: the alias, if a `Field` gives one."""
        for note in annotated_metadata(self.annotation):
            if isinstance(note, FieldInfo):
                alias = note.validation_alias or note.alias
                return alias if isinstance(alias, str) else self.name
        return self.name


class Parameters(NamedTuple):
    """The parameters of a function: arguments of the caller, the context, and `**kwargs`."""

    arguments: tuple[Argument, ...]
    context: str | None
    extras: Any = NO_DEFAULT

    @property
    def has_extras(self) -> bool:
        """Whether the function takes arguments of any name."""
        return self.extras is not NO_DEFAULT


def unwrap_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the annotations and the docstring, behind partials, wrappers and callable objects."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    behind: Callable[..., Any] = getattr(inner, "__func__", inner)
    return behind


def function_name(fn: Callable[..., Any]) -> str:
    """Return the name of a function for messages."""
    return getattr(unwrap_function(fn), "__qualname__", repr(fn))


def read_signature(fn: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a Python function; ToolSchemaError for builtins and classes."""
    if not inspect.isfunction(unwrap_function(fn)):
        raise ToolSchemaError(f"{function_name(fn)} is not a Python function; wrap it in one with annotated parameters")
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError, NameError) as exc:
        raise ToolSchemaError(f"{function_name(fn)} has no readable signature: {exc}") from exc


def read_parameters(fn: Callable[..., Any]) -> Parameters:
    """Read a function's parameters; ToolSchemaError for one that cannot be passed by name."""
    arguments: list[Argument] = []
    context: list[str] = []
    extras: Any = NO_DEFAULT
    for parameter in read_signature(fn).parameters.values():
        _check_fillable(fn, parameter)
        annotation = _annotation(fn, parameter)
        if annotation is _CONTEXT:
            context.append(parameter.name)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            extras = _extras(fn, parameter.name, annotation)
        else:
            arguments.append(_argument(parameter, annotation))
    if len(context) > 1:
        raise ToolSchemaError(f"{function_name(fn)} takes the context twice: {', '.join(context)}")
    return Parameters(tuple(arguments), context[0] if context else None, extras)


def _check_fillable(fn: Callable[..., Any], parameter: Parameter) -> None:
    name = parameter.name
    if parameter.kind is Parameter.POSITIONAL_ONLY:
        raise ToolSchemaError(f"{function_name(fn)}: parameter {name!r} is positional-only; remove the '/' after it")
    if parameter.kind is Parameter.VAR_POSITIONAL:
        raise ToolSchemaError(
            f"{function_name(fn)}: '*{name}' cannot be given by name; use '{name}: list[...]' instead"
        )
    if name in ("self", "cls") and parameter.annotation is Parameter.empty:
        raise ToolSchemaError(f"{function_name(fn)}: parameter {name!r} is not bound; use a bound method as the tool")


def _extras(fn: Callable[..., Any], name: str, annotation: Any) -> Any:
    if get_origin(annotation) in (typing.Unpack, typing_extensions.Unpack):
        raise ToolSchemaError(
            f"{function_name(fn)}: '**{name}' is unpacked; write its fields as parameters of their own"
        )
    return annotation


def _annotation(fn: Callable[..., Any], parameter: Parameter) -> Any:
    """Return the resolved annotation; a missing one is any JSON, or the context when the name is `ctx`."""
    written = parameter.annotation
    if written is Parameter.empty:
        return _CONTEXT if parameter.name == "ctx" else Any
    try:
        annotation = resolve_annotation(written, unwrap_function(fn))
    except UnresolvedError as exc:
        # Linters move an import that only annotations use under TYPE_CHECKING, where it cannot be found.
        if looks_like_context(written):
            return _CONTEXT
        raise ToolSchemaError(
            f"{function_name(fn)}: the annotation {written!r} of {parameter.name!r} cannot be resolved ({exc}); "
            "define it at module level and import it outside TYPE_CHECKING"
        ) from None
    return _CONTEXT if is_context(annotation) else annotation


def _argument(parameter: Parameter, annotation: Any) -> Argument:
    """Build an argument; `x: int = Field(...)` means `Annotated[int, Field(...)]`."""
    if isinstance(parameter.default, FieldInfo):
        return Argument(parameter.name, Annotated[annotation, parameter.default])
    return Argument(parameter.name, annotation, parameter.default)


class UnresolvedError(Exception):
    """An annotation names something that does not exist where the function was defined."""


def resolve_annotation(annotation: Any, fn: Callable[..., Any]) -> Any:
    """Return an annotation with the names in its strings resolved."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    namespace: dict[str, Any] = getattr(fn, "__globals__", {})
    try:
        return get_type_hints(holder, namespace, _enclosing(fn), include_extras=True)["it"]
    except (NameError, TypeError, AttributeError, SyntaxError) as exc:
        raise UnresolvedError(str(exc)) from None


def _enclosing(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the variables of enclosing functions that a function uses."""
    names: tuple[str, ...] = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    cells: tuple[types.CellType, ...] = getattr(fn, "__closure__", None) or ()
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True) if _is_filled(cell)}


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking an empty cell is the only way to find out
    except ValueError:
        return False
    return True


def looks_like_context(text: object) -> bool:
    """Return whether an annotation that could not be resolved is spelled like the context."""
    return isinstance(text, str) and _CONTEXT_NAME.fullmatch(text.strip()) is not None


def looks_like_raw_result(text: object) -> bool:
    """Return whether an annotation that could not be resolved is spelled like ToolOutput or ToolResult."""
    return isinstance(text, str) and _RESULT_NAME.search(text) is not None


def is_context(annotation: Any) -> bool:
    """Return whether an annotation is the context, possibly optional."""
    return any(isinstance(member, type) and issubclass(member, ToolContext) for member in _members(annotation))


def is_raw_result(annotation: Any) -> bool:
    """Return whether results are returned unchanged: ToolOutput, ToolResult or bytes."""
    return any(isinstance(member, type) and issubclass(member, _RAW_RESULTS) for member in _members(annotation))


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a union, or the annotation itself."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def annotated_metadata(annotation: Any) -> tuple[Any, ...]:
    """Return the metadata of `Annotated`."""
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def description_of(annotation: Any) -> str | None:
    """Return the description in `Annotated[T, "..."]` or `Annotated[T, Doc("...")]`."""
    for note in annotated_metadata(annotation):
        if isinstance(note, str):
            return note
        if isinstance(note, Doc):
            return note.documentation
    return None


def needs_no_conversion(annotation: Any) -> bool:
    """Return whether JSON that fits the schema already has the annotated type."""
    return _is_plain(annotation, frozenset())


def _is_plain(annotation: Any, seen: frozenset[Any]) -> bool:
    if any(annotation is atom for atom in _ATOMS):
        return True
    if isinstance(annotation, NewType):
        return _is_plain(annotation.__supertype__, seen)
    if isinstance(annotation, TypeAliasType):
        return annotation in seen or _is_plain(annotation.__value__, seen | {annotation})
    if is_typeddict(annotation):
        return annotation in seen or _is_plain_typeddict(annotation, seen | {annotation})
    return _is_plain_generic(get_origin(annotation), get_args(annotation), seen)


def _is_plain_typeddict(annotation: Any, seen: frozenset[Any]) -> bool:
    try:
        fields = get_type_hints(annotation, include_extras=True)
    except NameError:
        return False
    return all(_is_plain(field, seen) for field in fields.values())


def _is_plain_generic(origin: Any, args: tuple[Any, ...], seen: frozenset[Any]) -> bool:
    if origin is Annotated:
        return _is_plain(args[0], seen) and all(_is_harmless(note, args[0]) for note in args[1:])
    if origin is Literal:
        return all(type(value) in (str, int, bool, type(None)) for value in args)
    if origin in _DICTS:
        return args[:1] in ((), (str,), (Any,)) and all(_is_plain(arg, seen) for arg in args[1:])
    if origin in (Union, types.UnionType, *_LISTS, *_QUALIFIERS):
        return all(_is_plain(arg, seen) for arg in args)
    return False


def _is_harmless(note: Any, annotation: Any) -> bool:
    """Whether metadata neither changes the value nor demands more than the schema says."""
    if isinstance(note, str | Doc):
        return True
    if not isinstance(note, FieldInfo):
        return _is_constraint(note, annotation)
    renames = note.alias is not None or note.validation_alias is not None
    fills = note.default is not PydanticUndefined or note.default_factory is not None
    return not renames and not fills and all(_is_constraint(item, annotation) for item in note.metadata)


def _is_constraint(note: Any, annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        # For a union pydantic may check a constraint without writing it into the schema.
        return False
    kind = type(note).__name__
    settings: dict[str, Any] = getattr(note, "__dict__", {})
    return kind in _CONSTRAINTS or (kind == "_PydanticGeneralMetadata" and set(settings) == {"pattern"})
