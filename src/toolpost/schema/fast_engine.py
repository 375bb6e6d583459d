"""The engine: jsonschema-rs, with its regular expressions bounded and the network shut.

Schemas of the operator's own may use patterns that backtrack, each match of which is bounded. Those from outside get
the linear engine only, because their author also chooses the texts, and how many there are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind

from toolpost.schema.engine import Engine
from toolpost.schema.faults import Fault
from toolpost.schema.json_values import is_object
from toolpost.schema.subschemas import Document

if TYPE_CHECKING:
    from toolpost.schema.json_values import AnySchema

# A linear engine takes time by the size of the compiled pattern times the length of the text: at worst about 3 µs a
# character for the smallest of these sizes, and as many times that as stands beside each.
_SIZES = {4 << 10: 1, 16 << 10: 3, 64 << 10: 10, 256 << 10: 40}
_DFA_BYTES = 1 << 20
_LINEAR = jsonschema_rs.RegexOptions(size_limit=max(_SIZES), dfa_size_limit=_DFA_BYTES)
_BACKTRACKING = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
_GAVE_UP = (ValidationErrorKind.BacktrackLimitExceeded, ValidationErrorKind.RegexEngineFailure)


@lru_cache(maxsize=4096)
def pattern_cost(pattern: str) -> int | None:
    """What matching one character may cost, in units of a small pattern; None when no linear engine takes it."""
    for size, cost in _SIZES.items():
        options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_DFA_BYTES)
        try:
            jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except (ValueError, jsonschema_rs.ValidationError):
            continue
        return cost
    return None


def fast_engine(schema: AnySchema, *, backtracking: bool = False) -> Engine:
    """Compile a schema; nothing is fetched, and whatever is wrong with the schema is raised as a ValueError."""
    patterns = _BACKTRACKING if backtracking else _LINEAR
    # Formats stay notes: RFC 3339 would refuse the dates without a zone that most servers take and send.
    # The mask keeps values out of the engine's own texts.
    validator = jsonschema_rs.validator_for(
        schema, offline=True, validate_formats=False, mask="value", pattern_options=patterns
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
