"""Convert JSON to Python objects and back by pydantic: schemas from types, and models as typed views of schemas.

A typed view is a convenience: parts that it cannot express are `Any`, and calls are validated against the schema.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias, NoneType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, structs
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, core_schema, to_jsonable_python
from typing_extensions import TypedDict, is_typeddict

from toolpost.contracts.errors import ToolOutputError, ToolValidationError
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import as_object, is_array, is_object, quote, spell_path, spell_value
from toolpost.schema.secrets import SecretPaths, is_secret_path, secret_paths
from toolpost.schema.violations import plain_message

# The field for `**kwargs`; no parameter can have this name.
EXTRAS = "**"
_QUALIFIERS = (Required, NotRequired)
_IS_OLD = sys.version_info < (3, 12)
Memo = dict[Any, Any]
_SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": NoneType}
_LOCAL = "#/"
_Literal: Any = Literal  # subscripted at run time
_create: Callable[..., type[BaseModel]] = create_model


def build_converter(
    adapter: TypeAdapter[Any], schema: JsonSchema, *, single: str | None = None, extras: bool = False
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Build a function from JSON arguments to keyword arguments; `single` names the parameter that takes them all."""
    property_names = frozenset(schema.get("properties", ()))

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        values = arguments
        if extras:
            values = {name: value for name, value in arguments.items() if name in property_names}
            values[EXTRAS] = {name: value for name, value in arguments.items() if name not in property_names}
        try:
            value = adapter.validate_python(values)
        except ValidationError as exc:
            value = _read_as_json(adapter, values, exc, schema)
        if single is not None:
            return {single: value}
        return {**value.pop(EXTRAS), **value} if extras else value

    return convert


def _read_as_json(adapter: TypeAdapter[Any], given: Any, refused: ValidationError, schema: JsonSchema) -> Any:
    """Retry as JSON text: a strict model accepts a date as text only there."""
    try:
        return adapter.validate_json(json.dumps(given))
    except ValidationError as exc:
        refused = exc
    except (TypeError, ValueError):
        # Not JSON: pydantic's message about the Python value applies.
        pass
    raise ToolValidationError(_lines(refused, schema)) from None


def _lines(exc: ValidationError, schema: JsonSchema) -> list[str]:
    secrets = secret_paths(schema)
    details = exc.errors(include_url=False, include_context=False)
    return list(dict.fromkeys(_line(detail, secrets) for detail in details))


def _line(detail: ErrorDetails, secrets: SecretPaths) -> str:
    path = tuple(step for step in detail["loc"] if step != EXTRAS)
    if detail["type"] == "missing":
        return f"{spell_path(path[:-1])}: missing required {quote(str(path[-1]))}"
    got = detail["input"]
    if is_secret_path(path, secrets):
        # A validator's message may quote the value.
        return f"{spell_path(path)}: not accepted, got {spell_value(got, hidden=True)}"
    return f"{spell_path(path)}: {plain_message(detail['msg'])}, got {spell_value(got)}"


def build_renderer(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    """Build a function that converts the result of a tool to JSON data."""

    def render(value: Any) -> Any:
        try:
            return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except (ValueError, TypeError, AttributeError, RecursionError) as exc:
            raise _unwritable(value, exc) from exc

    return render


def to_jsonable(value: Any) -> Any:
    """Convert any result to JSON data: models, dataclasses, structs, dates, sets; bytes become base64."""
    try:
        return to_jsonable_python(value, by_alias=True, bytes_mode="base64", fallback=_struct_dict)
    except (ValueError, TypeError, RecursionError) as exc:
        raise _unwritable(value, exc) from exc


def _unwritable(value: Any, exc: Exception) -> ToolOutputError:
    reason = str(exc).splitlines()[0][:200] if str(exc) else type(exc).__name__
    return ToolOutputError(f"$: a result of type {type(value).__name__} cannot be written as JSON ({reason})")


def _struct_dict(value: Any) -> dict[str, Any]:
    """Return the fields of a struct, which pydantic does not support."""
    if not isinstance(value, Struct):
        raise TypeError(f"Unable to serialize unknown type: {type(value)}")
    return structs.asdict(value)


def schema_of(adapter: TypeAdapter[Any], mode: Literal["validation", "serialization"]) -> JsonSchema:
    """Generate the JSON Schema of a type, for parsing or writing values, without generated titles."""
    schema = adapter.json_schema(mode=mode, schema_generator=_Untitled)
    for name, definition in schema.get("$defs", {}).items():
        _drop_title(definition, name)
    definitions = schema.get("$defs")
    if set(schema) == {"$ref", "$defs"} and is_object(definitions):  # the root of a recursive type is a reference
        root = definitions.get(str(schema["$ref"]).removeprefix("#/$defs/"))
        return {**root, "$defs": definitions} if is_object(root) else schema
    return schema


class _Untitled(GenerateJsonSchema):
    """Omit titles generated from names, which cost tokens and tell a model nothing; written titles are kept."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _untitled(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _untitled(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _untitled(super().typed_dict_schema(schema), schema)


def _untitled(result: JsonSchemaValue, schema: CoreSchema) -> JsonSchemaValue:
    _drop_title(result, getattr(schema.get("cls"), "__name__", ""))
    return result


def _drop_title(schema: JsonSchema, name: str) -> None:
    """Remove a title that only repeats the name of a class."""
    if name and schema.get("title") == name:
        del schema["title"]


def modernize(annotation: Any, memo: Memo) -> Any:
    """Rebuild every TypedDict of `typing` with typing_extensions; `memo` keeps one replacement for each."""
    if not _IS_OLD:  # pydantic takes the standard library's from Python 3.12 on
        return annotation
    if is_typeddict(annotation):
        return memo[annotation] if annotation in memo else _rebuilt(annotation, memo)
    args = get_args(annotation)
    if not args or get_origin(annotation) is Literal:
        return annotation
    return _with_args(annotation, args, memo)


def _with_args(annotation: Any, args: tuple[Any, ...], memo: Memo) -> Any:
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        return _subscripted(Annotated, (modernize(args[0], memo), *args[1:]))
    changed = tuple(modernize(arg, memo) for arg in args)
    if changed == args:
        return annotation
    if origin in (Union, types.UnionType):
        return _subscripted(Union, changed)
    return _subscripted(origin, changed[0] if origin in _QUALIFIERS else changed)


def _subscripted(form: Any, args: Any) -> Any:
    return form[args]


def _rebuilt(old: Any, memo: Memo) -> Any:
    # A modern one is unchanged, and so is one that contains itself; pydantic then reports the remedy.
    memo[old] = old
    if type(old).__module__ != "typing":
        return old
    hints = get_type_hints(old, include_extras=True)
    fields = {
        name: _field(modernize(hint, memo), required=name in old.__required_keys__) for name, hint in hints.items()
    }
    make: Any = TypedDict
    memo[old] = new = make(old.__name__, fields)
    new.__doc__ = old.__doc__
    new.__module__ = old.__module__
    return new


def _field(hint: Any, *, required: bool) -> Any:
    if get_origin(hint) in _QUALIFIERS:
        return hint
    return _subscripted(Required if required else NotRequired, hint)


def arguments_model(name: str, schema: JsonSchema) -> type[BaseModel]:
    """Build a model of the properties of an object schema; those not required are None by default.

    A property with a name that no field can have gets another name: dump with `by_alias=True`.
    """
    required = set(_array(schema.get("required")))
    types = _Types(schema)
    fields: dict[str, Any] = {}
    for key, declared in as_object(schema.get("properties")).items():
        kind = types.of(declared)
        is_required = key in required
        field = _field_name(key, fields)
        facts: dict[str, Any] = {"alias": None if field == key else key}
        facts["description"] = as_object(declared).get("description")
        fields[field] = (kind, Field(**facts)) if is_required else (_union([kind, NoneType]), Field(None, **facts))
    more: Literal["allow", "forbid"] = "forbid" if schema.get("additionalProperties") is False else "allow"
    config = ConfigDict(extra=more, validate_by_name=True, validate_by_alias=True, protected_namespaces=())
    return _create(name, __config__=config, **fields)


def result_model(name: str) -> type[BaseModel]:
    """Build a model with the one field `result`, which accepts any value."""
    return _create(name, result=(Any, None))


class _Types:
    """Python types of the schemas within one document; each schema is converted once, even if it contains itself."""

    def __init__(self, root: JsonSchema) -> None:
        self._root = root
        self._known: dict[int, Any] = {}

    def of(self, declared: Any) -> Any:
        """Return the type of a schema, or Any."""
        if id(declared) not in self._known:
            self._known[id(declared)] = Any  # the type of a schema within itself
            self._known[id(declared)] = self._derive(as_object(declared))
        return self._known[id(declared)]

    def _derive(self, schema: Mapping[str, Any]) -> Any:
        if "$ref" in schema:
            return self.of(self._target(schema["$ref"]))
        if values := [schema["const"]] if "const" in schema else _array(schema.get("enum")):
            # `Literal` supports neither fractions nor objects.
            is_literal = all(value is None or isinstance(value, (str, int)) for value in values)
            return _Literal[tuple(values)] if is_literal else Any
        if options := _array(schema.get("anyOf")) or _array(schema.get("oneOf")):
            return _union([self.of(option) for option in options])
        kinds = schema["type"] if is_array(schema.get("type")) else [schema.get("type")]
        return _union([self._named(kind, schema) for kind in kinds])

    def _named(self, kind: Any, schema: Mapping[str, Any]) -> Any:
        if kind == "array":
            return GenericAlias(list, (self.of(schema.get("items")),))
        if kind == "object":
            return dict[str, Any]
        return _SCALARS.get(kind, Any) if isinstance(kind, str) else Any

    def _target(self, reference: Any) -> Any:
        """Return the target of a local reference; None if it does not exist."""
        if not isinstance(reference, str) or not reference.startswith(_LOCAL):
            return None
        target: Any = self._root
        for step in reference.removeprefix(_LOCAL).split("/"):
            target = as_object(target).get(step.replace("~1", "/").replace("~0", "~"))
        return target


def _union(kinds: Sequence[Any]) -> Any:
    """Return the union of types; `Any` includes the others."""
    return Any if Any in kinds else Union[tuple(kinds)]  # noqa: UP007 - built at run time


def _field_name(key: str, taken: Mapping[str, Any]) -> str:
    """Return a valid field name: no dash, no leading underscore, no keyword of Python, no attribute of a model."""
    name = re.sub(r"\W", "_", key).lstrip("_") or "field"
    if name[0].isdigit() or keyword.iskeyword(name) or hasattr(BaseModel, name):
        name = f"field_{name}"
    while name in taken:
        name += "_"
    return name


def _array(value: Any) -> Sequence[Any]:
    return value if is_array(value) else ()
