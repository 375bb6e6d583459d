"""The fast engine: jsonschema-rs, with its regular expressions bounded and the network shut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind

from toolpost.schema.engine import Engine
from toolpost.schema.faults import Fault
from toolpost.schema.jsontypes import is_object
from toolpost.schema.subschemas import Document

if TYPE_CHECKING:
    from toolpost.schema.jsontypes import AnySchema

_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
_GAVE_UP = (ValidationErrorKind.BacktrackLimitExceeded, ValidationErrorKind.RegexEngineFailure)


def fast_engine(schema: AnySchema) -> Engine:
    """Compile a schema; nothing is fetched, and whatever is wrong with the schema is raised as a ValueError."""
    # Formats stay notes: RFC 3339 would refuse the dates without a zone that most servers take and send.
    # The mask keeps values out of the engine's own texts.
    validator = jsonschema_rs.validator_for(
        schema, offline=True, validate_formats=False, mask="value", pattern_options=_PATTERNS
    )

    def faults(instance: Any) -> list[Fault]:
        return [_fault(schema, error) for error in validator.iter_errors(instance)]

    def first_fault(instance: Any) -> list[Fault]:
        try:
            validator.validate(instance)
        except jsonschema_rs.ValidationError as error:
            return [_fault(schema, error)]
        return []

    return Engine(is_valid=validator.is_valid, faults=faults, first_fault=first_fault)


def _fault(schema: AnySchema, error: jsonschema_rs.ValidationError) -> Fault:
    kind = error.kind
    path = tuple(error.instance_path)
    if isinstance(kind, _GAVE_UP):
        return Fault(path, "costlyPattern")
    match kind.name:
        case "required":
            return Fault(path, "required", names=(str(kind.value),))
        case "additionalProperties" | "unevaluatedProperties":
            return Fault(path, kind.name, names=tuple(kind.value), known=_known(schema, error.evaluation_path))
        case "anyOf" | "oneOf":
            branches: list[list[jsonschema_rs.ValidationError]] = kind.value
            return Fault(path, kind.name, branches=tuple(tuple(_fault(schema, e) for e in b) for b in branches))
        case name:
            return Fault(path, name, expected=kind.value)


def _known(schema: AnySchema, evaluation_path: list[str | int]) -> tuple[str, ...]:
    """The property names next to the keyword that a value came to by `evaluation_path`."""
    place = Document(schema).walked(evaluation_path[:-1]) if is_object(schema) else None
    properties = place.get("properties") if is_object(place) else None
    return tuple(properties) if is_object(properties) else ()
