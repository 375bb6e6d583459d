"""JSON to Python objects and back, by pydantic, with errors in Toolpost's own words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from toolpost.contracts.errors import ToolOutputError, ToolValidationError
from toolpost.schema.json_values import quote, spell_path, spell_value
from toolpost.schema.pydantic_words import in_plain_words
from toolpost.schema.secrets import is_secret_path, secret_paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

    from toolpost.contracts.spec import JsonSchema
    from toolpost.schema.secrets import SecretPaths

# The field of the arguments that stands for `**kwargs`; no parameter can have this name.
EXTRAS = "**"


def converter(
    adapter: TypeAdapter[Any], schema: JsonSchema, *, single: str | None = None, extras: bool = False
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function from JSON arguments to keyword arguments; `single` names the parameter that takes them all."""
    known = frozenset(schema.get("properties", ()))

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        given = _gathered(arguments, known) if extras else arguments
        try:
            value = adapter.validate_python(given)
        except ValidationError as exc:
            value = _read_as_json(adapter, given, exc, schema)
        if single is not None:
            return {single: value}
        return {**value.pop(EXTRAS), **value} if extras else value

    return convert


def _gathered(arguments: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The arguments with those that no parameter takes put aside."""
    named = {name: value for name, value in arguments.items() if name in known}
    return {**named, EXTRAS: {name: value for name, value in arguments.items() if name not in known}}


def _read_as_json(adapter: TypeAdapter[Any], given: Any, refused: ValidationError, schema: JsonSchema) -> Any:
    """Try once more as JSON text: a strict model takes a date as text only there."""
    try:
        return adapter.validate_json(json.dumps(given))
    except ValidationError as exc:
        refused = exc
    except (TypeError, ValueError):
        # Not JSON at all; what pydantic said about the Python value stands.
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
        # A validator's own text may quote the value.
        return f"{spell_path(path)}: not accepted, got {spell_value(got, hidden=True)}"
    return f"{spell_path(path)}: {in_plain_words(detail['msg'])}, got {spell_value(got)}"


def renderer(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    """A function from what a tool returns to plain JSON data."""

    def render(value: Any) -> Any:
        try:
            return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except (ValueError, TypeError, AttributeError, RecursionError) as exc:
            raise _unwritable(value, exc) from exc

    return render


def to_jsonable(value: Any) -> Any:
    """Any result as plain JSON data: models, dataclasses, dates, sets; bytes become base64."""
    try:
        return to_jsonable_python(value, by_alias=True, bytes_mode="base64")
    except (ValueError, TypeError, RecursionError) as exc:
        raise _unwritable(value, exc) from exc


def _unwritable(value: Any, exc: Exception) -> ToolOutputError:
    reason = str(exc).splitlines()[0][:200] if str(exc) else type(exc).__name__
    return ToolOutputError(f"$: a result of type {type(value).__name__} cannot be written as JSON ({reason})")
