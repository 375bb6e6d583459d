"""Compiled schemas of `jsonschema_rs`, without network access and with limits on patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind
from msgspec import Struct

from toolpost.schema.json_values import AnySchema, is_object
from toolpost.schema.subschemas import SchemaDocument
from toolpost.schema.violations import Violation

# The time of a linear engine is proportional to the size of the compiled pattern times the length of the text: at most
# about 3 µs per character for the smallest of these sizes, multiplied by the factor of the others.
_SIZES = {4 << 10: 1, 16 << 10: 3, 64 << 10: 10, 256 << 10: 40}
_DFA_BYTES = 1 << 20
_LINEAR = jsonschema_rs.RegexOptions(size_limit=max(_SIZES), dfa_size_limit=_DFA_BYTES)
_BACKTRACKING = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
_GAVE_UP = (ValidationErrorKind.BacktrackLimitExceeded, ValidationErrorKind.RegexEngineFailure)


class SchemaEngine(Struct, frozen=True, kw_only=True):
    """A compiled schema: whether a value is valid, all violations, or only the first one.

    Each may raise ValueError for a value that is not JSON or nested too deeply.
    """

    is_valid: Callable[[Any], bool]
    violations: Callable[[Any], Iterable[Violation]]
    first_violation: Callable[[Any], Iterable[Violation]]


def compile_engine(schema: AnySchema, *, backtracking: bool = False) -> SchemaEngine:
    """Compile a schema without network access; ValueError if it is invalid."""
    patterns = _BACKTRACKING if backtracking else _LINEAR
    # Formats are not validated: RFC 3339 would reject the dates without a zone that most servers accept and send.
    # The mask keeps values out of the engine's messages.
    validator = jsonschema_rs.validator_for(
        schema, offline=True, validate_formats=False, mask="value", pattern_options=patterns
    )

    def violations(instance: Any) -> list[Violation]:
        return [_violation(schema, error) for error in validator.iter_errors(instance)]

    def first_violation(instance: Any) -> list[Violation]:
        try:
            validator.validate(instance)
        except jsonschema_rs.ValidationError as error:
            return [_violation(schema, error)]
        return []

    return SchemaEngine(is_valid=validator.is_valid, violations=violations, first_violation=first_violation)


def _violation(schema: AnySchema, error: jsonschema_rs.ValidationError) -> Violation:
    kind = error.kind
    path = tuple(error.instance_path)
    if isinstance(kind, _GAVE_UP):
        return Violation(path, "costlyPattern")
    match kind.name:
        case "required":
            return Violation(path, "required", names=(str(kind.value),))
        case "additionalProperties" | "unevaluatedProperties":
            return Violation(path, kind.name, names=tuple(kind.value), known=_known(schema, error.evaluation_path))
        case "anyOf" | "oneOf":
            branches: list[list[jsonschema_rs.ValidationError]] = kind.value
            return Violation(path, kind.name, branches=tuple(tuple(_violation(schema, e) for e in b) for b in branches))
        case name:
            return Violation(path, name, expected=kind.value)


def _known(schema: AnySchema, evaluation_path: list[str | int]) -> tuple[str, ...]:
    """Return the property names beside the keyword at `evaluation_path`."""
    place = SchemaDocument(schema).walk(evaluation_path[:-1]) if is_object(schema) else None
    properties = place.get("properties") if is_object(place) else None
    return tuple(properties) if is_object(properties) else ()


@lru_cache(maxsize=4096)
def pattern_cost(pattern: str) -> int | None:
    """Return the cost of matching a character, in units of a small pattern; None if it is not linear."""
    for size, cost in _SIZES.items():
        options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_DFA_BYTES)
        try:
            jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except (ValueError, jsonschema_rs.ValidationError):
            continue
        return cost
    return None
