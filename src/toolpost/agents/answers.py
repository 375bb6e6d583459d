"""Structured answers: read JSON from what a model wrote, and validate it against a schema or a type."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from toolpost.contracts.errors import ConfigError, ToolSchemaError, ToolValidationError
from toolpost.schema.json_values import is_object
from toolpost.schema.pydantic_types import schema_of
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.spec import JsonSchema

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_MOST_ISSUES = 5


class AnswerSchema:
    """The schema of an answer, made from a JSON Schema or from a type such as a pydantic model."""

    def __init__(self, given: Mapping[str, Any] | type) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        if is_object(given):
            self.schema: JsonSchema = given
        else:
            self._adapter = _adapter(given)
            self.schema = schema_of(self._adapter, "validation")
        try:
            self._validator = compile_validator(self.schema, own=True)
        except ToolSchemaError as error:
            raise ConfigError(f"answer_schema cannot be used: {error}") from error

    def read(self, text: str) -> Any:
        """Return the answer that a text has, of the given type; ToolValidationError says what is wrong with it."""
        value = text if self._validator.is_valid(text) else read_json(text)
        self._validator.check(value)
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            raise ToolValidationError([_issue(each) for each in error.errors()[:_MOST_ISSUES]]) from error


def _adapter(given: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(given)
    except Exception as error:
        hint = "give a JSON Schema as a dict, or a type such as a pydantic model"
        raise ConfigError(f"answer_schema {given!r} cannot be used: {error}; {hint}") from error


def _issue(detail: Any) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    return f"${place}: {detail['msg']}"


def read_json(text: str) -> Any:
    """Return the JSON value in a model's text: all of it, a fenced block, or the first object or array."""
    stripped = text.strip()
    fenced = _FENCED.search(stripped)
    for candidate in (stripped, fenced[1].strip() if fenced else ""):
        try:
            return json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
    start = min((at for at in (stripped.find("{"), stripped.find("[")) if at >= 0), default=-1)
    if start < 0:
        raise ToolValidationError("$: there is no JSON in it")
    try:
        return json.JSONDecoder(parse_constant=_refuse).raw_decode(stripped, start)[0]
    except (ValueError, RecursionError) as error:
        raise ToolValidationError(f"$: it is not JSON: {error}") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
