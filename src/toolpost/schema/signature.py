"""Derive the schemas, descriptions and conversions of a tool from a Python function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any, Literal, NamedTuple, NotRequired, Required, get_args

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.errors import PydanticUserError
from typing_extensions import TypedDict

from toolpost.contracts.errors import ToolOutputError, ToolSchemaError
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.annotations import (
    UnresolvedError,
    description_of,
    is_raw_result,
    looks_like_raw_result,
    needs_no_conversion,
    resolve_annotation,
)
from toolpost.schema.json_values import has_float, is_object
from toolpost.schema.parameters import (
    NO_DEFAULT,
    Argument,
    Parameters,
    function_name,
    read_parameters,
    read_signature,
    unwrap_function,
)
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

_SIMPLE: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_SINGLE_NAMES = ("args", "params", "input")


class FunctionSchema(Struct, frozen=True, kw_only=True):
    """The schemas of a function, and the functions that convert for it.

    `convert` turns JSON arguments into keyword arguments and `render` a result into JSON; each is None if no
    conversion is needed.
    """

    input_schema: JsonSchema
    output_schema: JsonSchema | None
    description: str
    context_parameter: str | None
    convert: Convert | None
    render: Callable[[Any], Any] | None


def function_schema(fn: Callable[..., Any]) -> FunctionSchema:
    """Derive the schemas of a function, or raise ToolSchemaError if it cannot be called with JSON."""
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
        convert=inputs.convert,
        render=output.render,
    )


def _documentation(docstring: str) -> tuple[str, Mapping[str, str]]:
    if ":" not in docstring and len(docstring.splitlines()) <= 1:  # no list of parameters in any style
        return docstring.strip(), {}
    from toolpost.schema.docstrings import parse_docstring  # noqa: PLC0415 - the parsers are slow to load, and most docstrings do not need them

    return parse_docstring(docstring)


class _Input(NamedTuple):
    schema: JsonSchema
    convert: Convert | None


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
    if model.__pydantic_root_model__:  # importing `RootModel` builds validators that most programs do not use
        return None
    adapter, schema = _adapted(fn, model, "validation")
    if "extra" not in model.model_config:
        # A misspelled argument is rejected, not ignored; a model that accepts more sets `extra`.
        schema = {**schema, "additionalProperties": False}
    return _Input(schema, build_converter(adapter, schema, single=name))


def _input(fn: Callable[..., Any], parameters: Parameters) -> _Input:
    adapter, schema = _adapted(fn, _arguments_type(parameters), "validation")
    properties: dict[str, JsonSchema] = schema.setdefault("properties", {})
    if parameters.has_extras:
        schema["additionalProperties"] = properties.pop(EXTRAS).get("additionalProperties", True)
        if required := [name for name in schema.pop("required", []) if name != EXTRAS]:
            schema["required"] = required
    for argument in parameters.arguments:
        _complete(properties.get(argument.key), argument)
    types = [argument.annotation for argument in parameters.arguments]
    if all(map(needs_no_conversion, types)) and needs_no_conversion(parameters.extras):
        return _Input(schema, _whole_numbers(fn, parameters, schema))
    return _Input(schema, build_converter(adapter, schema, extras=parameters.has_extras))


def _simple_input(fn: Callable[..., Any], parameters: Parameters) -> _Input | None:
    """Build the input schema of a function with scalar parameters, in a tenth of pydantic's time."""
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
    """Build a converter for plain arguments with integers: 5.0 is an integer in JSON, but not in Python."""
    if "'integer'" not in repr(schema):
        return None

    @functools.cache  # such numbers are rare, so the first one builds pydantic's adapter
    def read() -> Convert:
        adapter, _ = _adapted(fn, _arguments_type(parameters), "validation")
        return build_converter(adapter, schema, extras=parameters.has_extras)

    def convert_scalars(arguments: dict[str, Any]) -> dict[str, Any]:
        for value in arguments.values():
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


def _complete(property_schema: JsonSchema | None, argument: Argument) -> None:
    """Add the description in the annotation and the default of the function, which pydantic does not read."""
    if property_schema is None:
        return
    description = description_of(argument.annotation)
    if description:
        property_schema.setdefault("description", description)
    if argument.default is NO_DEFAULT or is_secret_name(argument.key):
        return
    if argument.default is None and not _admits_null(property_schema):
        # `x: int = None` means "may be omitted"; as a default in the schema it would suggest null.
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
        # Results of a type that pydantic does not know may still be JSON; each call decides.
        return _Output()
    if not schema:
        return _Output()
    return _Output(schema, None if needs_no_conversion(annotation) else build_renderer(adapter))


def _streamed_type(annotation: Any, fn: Callable[..., Any]) -> Any:
    """Return the type of a generator's last value, or None without values; for other functions the annotation."""
    if not (inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)):
        return annotation
    value = next(iter(get_args(annotation)), Any)
    return value if value is Any or is_raw_result(value) else value | None
