"""Pydantic models as typed views of JSON Schemas, for code that wants attributes instead of a dict.

A view is a convenience: what it cannot express is `Any`, and calls are validated against the schema itself.
"""

from __future__ import annotations

import keyword
import re
from types import GenericAlias, NoneType
from typing import TYPE_CHECKING, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, create_model

from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.contracts.spec import JsonSchema

_SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": NoneType}
_LOCAL = "#/"

_Literal: Any = Literal  # subscripted at run time
_create: Callable[..., type[BaseModel]] = create_model


def arguments_model(name: str, schema: JsonSchema) -> type[BaseModel]:
    """Build a model of the properties of an object schema; those not required are None by default.

    A property whose name no field can have is reached by another name: dump with `by_alias=True`.
    """
    required = set(_array(schema.get("required")))
    types = _Types(schema)
    fields: dict[str, Any] = {}
    for key, declared in _object(schema.get("properties")).items():
        kind = types.of(declared)
        is_required = key in required
        field = _field_name(key, fields)
        facts: dict[str, Any] = {"alias": None if field == key else key}
        facts["description"] = _object(declared).get("description")
        fields[field] = (kind, Field(**facts)) if is_required else (_union([kind, NoneType]), Field(None, **facts))
    more: Literal["allow", "forbid"] = "forbid" if schema.get("additionalProperties") is False else "allow"
    config = ConfigDict(extra=more, validate_by_name=True, validate_by_alias=True, protected_namespaces=())
    return _create(name, __config__=config, **fields)


def result_model(name: str) -> type[BaseModel]:
    """Build a model that takes any result as its one field, `result`."""
    return _create(name, result=(Any, None))


class _Types:
    """Python types of the schemas within one document; each schema is looked at once, also where it holds itself."""

    def __init__(self, root: JsonSchema) -> None:
        self._root = root
        self._known: dict[int, Any] = {}

    def of(self, declared: Any) -> Any:
        """Return the type of a schema; Any where it has none."""
        if id(declared) not in self._known:
            self._known[id(declared)] = Any  # what a schema within itself is
            self._known[id(declared)] = self._derive(_object(declared))
        return self._known[id(declared)]

    def _derive(self, schema: Mapping[str, Any]) -> Any:
        if "$ref" in schema:
            return self.of(self._target(schema["$ref"]))
        if values := [schema["const"]] if "const" in schema else _array(schema.get("enum")):
            return _literal(values)
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
        """Return the schema that a local reference names; None where there is none."""
        if not isinstance(reference, str) or not reference.startswith(_LOCAL):
            return None
        found: Any = self._root
        for step in reference.removeprefix(_LOCAL).split("/"):
            found = _object(found).get(step.replace("~1", "/").replace("~0", "~"))
        return found


def _union(kinds: Sequence[Any]) -> Any:
    """Return the union of types; `Any` takes in the others."""
    return Any if Any in kinds else Union[tuple(kinds)]  # noqa: UP007 - built at run time


def _literal(values: Sequence[Any]) -> Any:
    """Return the type of an enumeration; `Literal` knows neither fractions nor objects."""
    if all(value is None or isinstance(value, (str, int)) for value in values):
        return _Literal[tuple(values)]
    return Any


def _field_name(key: str, taken: Mapping[str, Any]) -> str:
    """Return a name that a field can have: no dash, no leading underscore, no word of Python or pydantic."""
    name = re.sub(r"\W", "_", key).lstrip("_") or "field"
    if name[0].isdigit() or keyword.iskeyword(name) or hasattr(BaseModel, name):
        name = f"field_{name}"
    while name in taken:
        name += "_"
    return name


def _object(value: Any) -> Mapping[str, Any]:
    return value if is_object(value) else {}


def _array(value: Any) -> Sequence[Any]:
    return value if is_array(value) else ()
