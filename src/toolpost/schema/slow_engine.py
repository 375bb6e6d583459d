"""The pure-Python engine, for schemas whose patterns only Python's regular expressions take."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import jsonschema
from jsonschema import validators
from jsonschema.protocols import Validator as PythonValidator
from referencing import Registry

from toolpost.contracts.errors import ToolSchemaError
from toolpost.schema.engine import Engine
from toolpost.schema.faults import Fault
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.schema.patterns import longest_text, repeats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolpost.contracts.spec import JsonSchema

_NAME_REPEATS = 1
# Its types leave most of it unknown.
_validators: Any = validators


def slow_engine(schema: JsonSchema) -> Engine:
    """Compile a schema for Python's `jsonschema`; a pattern that could run away is a ToolSchemaError."""
    for pattern, limit in _patterns(schema):
        _check_pattern(pattern, limit)
    kind = _validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    bounded: type[PythonValidator] = _validators.extend(kind, {"pattern": _match_pattern})
    # An empty registry has no way to retrieve; the default one would ask the network.
    registry: Registry[Any] = Registry()
    validator = bounded(schema, registry=registry)

    def is_valid(instance: Any) -> bool:
        return not any(True for _ in _errors(validator, instance))

    def faults(instance: Any) -> list[Fault]:
        return [_fault(error) for error in _errors(validator, instance)]

    def first_fault(instance: Any) -> list[Fault]:
        return [_fault(error) for error in islice(_errors(validator, instance), 1)]

    return Engine(is_valid=is_valid, faults=faults, first_fault=first_fault)


def _errors(validator: PythonValidator, instance: Any) -> Iterator[jsonschema.ValidationError]:
    try:
        yield from validator.iter_errors(instance)
    except RecursionError:
        raise ValueError("nested too deeply to check") from None


def _patterns(schema: JsonSchema) -> Iterator[tuple[str, int | None]]:
    """Each pattern, with the number of repeats it may have when texts of any length can meet it."""
    stack: list[Any] = [schema]
    while stack:
        part = stack.pop()
        if is_array(part):
            stack.extend(part)
        if is_object(part):
            stack.extend(part.values())
            yield from _own_patterns(part)


def _own_patterns(keywords: JsonSchema) -> Iterator[tuple[str, int | None]]:
    pattern, named = keywords.get("pattern"), keywords.get("patternProperties")
    if isinstance(pattern, str):
        yield pattern, None
    if is_object(named):
        yield from ((name, _NAME_REPEATS) for name in named)


def _check_pattern(pattern: str, limit: int | None) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        raise ToolSchemaError(f"Schema is unusable: no engine takes the pattern {pattern[:120]!r} ({exc})") from None
    count = repeats(pattern)
    if count is None or (limit is not None and count > limit):
        raise ToolSchemaError(
            f"Schema is unusable: the pattern {pattern[:120]!r} could run for ever; simplify its repeats"
        )


def _match_pattern(
    validator: PythonValidator, pattern: str, instance: Any, schema: JsonSchema
) -> Iterable[jsonschema.ValidationError]:
    """The keyword `pattern`; a text too long for the pattern's cost counts as no match."""
    del validator, schema
    if not isinstance(instance, str):
        return
    if len(instance) > longest_text(repeats(pattern) or 0) or not re.search(pattern, instance):
        yield jsonschema.ValidationError("does not match")


def _fault(error: jsonschema.ValidationError) -> Fault:
    path = tuple(error.absolute_path)
    keyword = str(error.validator) if error.validator else "falseSchema"
    special = _SPECIAL.get(keyword)
    return special(path, error) if special else Fault(path, keyword, expected=error.validator_value)


def _of_type(path: tuple[str | int, ...], error: jsonschema.ValidationError) -> Fault:
    types: Any = error.validator_value
    return Fault(path, "type", expected=types if is_array(types) else [types])


def _of_required(path: tuple[str | int, ...], error: jsonschema.ValidationError) -> Fault:
    required: Any = error.validator_value
    instance: Any = error.instance
    missing = tuple(str(name) for name in required if name not in instance)
    return Fault(path, "required", names=missing)


def _of_extra(path: tuple[str | int, ...], error: jsonschema.ValidationError) -> Fault:
    schema: Any = error.schema
    instance: Any = error.instance
    known: JsonSchema = schema.get("properties", {})
    patterns: JsonSchema = schema.get("patternProperties", {})
    extra = [name for name in instance if name not in known and not any(re.search(p, name) for p in patterns)]
    return Fault(path, str(error.validator), names=tuple(extra), known=tuple(known))


def _of_choice(path: tuple[str | int, ...], error: jsonschema.ValidationError) -> Fault:
    options: Any = error.validator_value
    # The fault of `false` does not say which alternative it is of.
    branches: list[list[Fault]] = [[Fault(path, "falseSchema")] if option is False else [] for option in options]
    for inner in error.context or ():
        if inner.schema_path:
            branches[cast("int", inner.schema_path[0])].append(_fault(inner))
    return Fault(path, str(error.validator), branches=tuple(map(tuple, branches)))


_SPECIAL: dict[str, Callable[[tuple[str | int, ...], jsonschema.ValidationError], Fault]] = {
    "type": _of_type,
    "required": _of_required,
    "additionalProperties": _of_extra,
    "unevaluatedProperties": _of_extra,
    "anyOf": _of_choice,
    "oneOf": _of_choice,
}
