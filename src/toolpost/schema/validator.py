"""Validate values against JSON Schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs
from msgspec import Struct

from toolpost.contracts.errors import ToolSchemaError, ToolValidationError
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.coercion import coerce_value, drop_nulls
from toolpost.schema.drafts import normalize_draft
from toolpost.schema.engine import SchemaEngine, compile_engine, pattern_cost
from toolpost.schema.json_values import (
    AnySchema,
    find_non_json,
    has_member,
    is_array,
    is_object,
    nested_deeper_than,
    numbers_within,
    parts_within,
    text_within,
)
from toolpost.schema.patterns import map_patterns, patterns_in, relax_patterns, translate_pattern
from toolpost.schema.schema_weight import LARGEST_DIVIDED, Weight, weigh
from toolpost.schema.secrets import SecretPaths, secret_paths
from toolpost.schema.subschemas import SchemaDocument, Subschema
from toolpost.schema.violations import Violation, describe

MAX_ISSUES = 10
# The engines recurse; these bounds keep them within a thread's stack.
_MAX_DEPTH = 200
_MAX_FRAMES = 2_000
_UNGUARDED_HEIGHT = 300
# The maximum cost of validating a value against an external schema, in units of about ten nanoseconds. A schema with
# little work per part of a value has no limit: parsing the value takes longer than validating it.
_MAX_WORK = 4_000_000
_MAX_PARTS = 300_000
_LITTLE_WORK = 3
# The number of characters that one small pattern may match, at most a third of a second; more or larger patterns
# reduce the number. Longer text is validated without its patterns.
_MAX_MATCHED = 100_000
_NO_WEIGHT = Weight(1, 1, 1, 1, recursive=False)
# Limits of collecting violations, which can cost far more than validating.
_MAX_STEPS = 10_000
_MAX_COPIED = 3_000_000  # characters; the engine puts a copy of the value into every violation
_MAX_COPIED_ONCE = 1_000_000


class Validator(Struct, frozen=True, kw_only=True):
    """Validate values against one schema.

    `is_valid` is the engine's own method; for a value that is not JSON it may raise ValueError. `check` raises only its
    `error`. `unchecked` lists the patterns that are never matched, because their run time is not bounded. A value of
    more than `size_limit` parts, or with a number beyond `number_limit`, is invalid.
    """

    is_valid: Callable[[Any], bool]
    schema: AnySchema
    engine: SchemaEngine
    lenient: bool
    depth_limit: int | None
    size_limit: int | None
    number_limit: int | None
    secrets: Callable[[], SecretPaths]
    unchecked: tuple[str, ...] = ()

    def check(
        self, instance: Any, tool_name: str | None = None, *, error: type[ToolValidationError] = ToolValidationError
    ) -> None:
        """Raise `error` with every issue, unless the value is valid."""
        try:
            if self.is_valid(instance):
                return
        except ValueError:
            # Not JSON, or too deep: `issues` reports which.
            pass
        raise error(self.issues(instance), tool_name=tool_name)

    def issues(self, instance: Any) -> list[str]:
        """Return the issues of a value, at most ten lines and the number of the rest; empty if it is valid."""
        if self.size_limit is not None and not parts_within(self.size_limit, instance):
            return [f"$: not checked: more than {self.size_limit:,} values are too many for a schema like this one"]
        if self.number_limit is not None and not numbers_within(self.number_limit, instance):
            return [f"$: not checked: a number is larger than {self.number_limit:.0e}, too large for `multipleOf`"]
        if self.depth_limit is not None and nested_deeper_than(self.depth_limit, instance):
            return [f"$: nested deeper than {self.depth_limit} levels"]
        try:
            if self.is_valid(instance):
                return []
            violations = self._violations(instance)
        except ValueError as exc:
            return [_unreadable(instance, exc)]
        secrets = self.secrets()
        lines = list(dict.fromkeys(describe(violation, instance, secrets) for violation in violations))
        if not lines:
            why = "and is too large" if _is_large(instance) else "which is too entangled"
            return [f"$: does not fit the schema, {why} to say where"]
        more = len(lines) - MAX_ISSUES
        return [*lines[:MAX_ISSUES], f"and {more} more"] if more > 0 else lines

    def coerce(self, instance: Any) -> Any:
        """Return the value; if it is invalid, without nulls that represent absent members.

        A lenient validator also converts values to the types of the schema.
        """
        if isinstance(self.schema, bool):
            return instance
        change = coerce_value if self.lenient else drop_nulls
        try:
            return instance if self.is_valid(instance) else change(self.schema, instance)
        except ValueError:
            return instance

    def _violations(self, instance: Any) -> Iterable[Violation]:
        if isinstance(self.schema, bool):
            return self.engine.violations(instance)
        if _is_large(instance):
            return ()
        document = SchemaDocument(self.schema)
        if not _is_costly(document, instance):
            return self.engine.violations(instance)
        weight = weigh(document)
        # A large value of a simple schema: finding one violation is linear, collecting all is not.
        simple = not weight.recursive and weight.work < _MAX_FRAMES
        return self.engine.first_violation(instance) if simple else ()


def compile_validator(schema: AnySchema, *, lenient: bool = False, own: bool = False) -> Validator:
    """Compile a schema, or raise ToolSchemaError if it is unusable. No reference is ever fetched.

    In the operator's `own` schemas patterns may backtrack, and a pattern that cannot be matched makes the schema
    unusable, because the operator relies on it. All other schemas are external.
    """
    if isinstance(schema, bool):
        return _validator(schema, compile_engine(schema), _NO_WEIGHT, lenient=lenient)
    weight = weigh(SchemaDocument(schema))
    if own:
        return _validator(schema, _own_engine(schema), weight, lenient=lenient)
    engine, unchecked = _external_engine(schema, weight)
    return _validator(
        schema,
        engine,
        weight,
        lenient=lenient,
        size_limit=None if weight.cost <= _LITTLE_WORK else min(_MAX_PARTS, _MAX_WORK // weight.cost),
        number_limit=LARGEST_DIVIDED if has_member("multipleOf", schema) else None,
        unchecked=unchecked,
    )


def _validator(
    schema: AnySchema,
    engine: SchemaEngine,
    weight: Weight,
    *,
    lenient: bool,
    size_limit: int | None = None,
    number_limit: int | None = None,
    unchecked: tuple[str, ...] = (),
) -> Validator:
    # The nesting depth at which the engine stays within the stack, unless the schema limits the depth itself.
    is_unbounded = weight.recursive or weight.height > _UNGUARDED_HEIGHT
    depth_limit = min(_MAX_DEPTH, max(8, _MAX_FRAMES // weight.chain)) if is_unbounded else None
    is_valid = engine.is_valid
    if depth_limit is not None:
        is_valid = _guarded(is_valid, lambda instance: not nested_deeper_than(depth_limit, instance))
    if number_limit is not None:
        is_valid = _guarded(is_valid, lambda instance: numbers_within(number_limit, instance))
    if size_limit is not None:  # the outermost, because the others traverse the whole value
        is_valid = _guarded(is_valid, lambda instance: parts_within(size_limit, instance))
    return Validator(
        is_valid=is_valid,
        schema=schema,
        engine=engine,
        lenient=lenient,
        depth_limit=depth_limit,
        size_limit=size_limit,
        number_limit=number_limit,
        secrets=lru_cache(maxsize=1)(lambda: secret_paths(schema)),
        unchecked=unchecked,
    )


def unchecked_patterns(schema: AnySchema) -> tuple[str, ...]:
    """Return the patterns of an external schema that are never matched, each once."""
    patterns = dict.fromkeys(pattern for _, pattern in patterns_in(schema))
    return tuple(pattern for pattern in patterns if pattern_cost(translate_pattern(pattern)) is None)


def _guarded(is_valid: Callable[[Any], bool], guard: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda instance: guard(instance) and is_valid(instance)


def _unreadable(instance: Any, exc: ValueError) -> str:
    if problem := find_non_json(instance):
        return problem
    return "$: nested too deeply to check" if "Recursion" in str(exc) else f"$: {exc}"


def _own_engine(schema: JsonSchema) -> SchemaEngine:
    """Compile an engine that matches every pattern of the schema, as written or translated."""
    declared = normalize_draft(schema)
    for spelled in (declared, map_patterns(declared, translate_pattern)):
        engine = _fast_or_none(spelled, backtracking=True)
        if engine is not None:
            return engine
    shown = ", ".join(repr(pattern[:120]) for pattern in unchecked_patterns(schema)[:3])
    raise ToolSchemaError(f"Schema is unusable: the engine does not take the pattern {shown}; write it more simply")


def _external_engine(schema: JsonSchema, weight: Weight) -> tuple[SchemaEngine, tuple[str, ...]]:
    """Compile an engine whose patterns take bounded time for any value; also return the omitted patterns."""
    declared = normalize_draft(schema)
    patterns = list(patterns_in(declared))
    if not patterns:
        return _engine(declared), ()
    spelled, unchecked = map_patterns(declared, translate_pattern), unchecked_patterns(declared)
    if unchecked:
        spelled = relax_patterns(spelled, lambda pattern: pattern_cost(pattern) is None)
    matching = _engine(spelled)
    cheap = lru_cache(maxsize=1)(lambda: _engine(relax_patterns(spelled, lambda _: True)))  # for long text
    names = sum(keyword == "patternProperties" for keyword, _ in patterns)
    dearest = max(pattern_cost(translate_pattern(pattern)) or 1 for _, pattern in patterns)
    limit = _MAX_MATCHED // (dearest * (weight.work + names))

    def chosen(instance: Any) -> SchemaEngine:
        return matching if text_within(limit, instance) else cheap()

    return SchemaEngine(
        is_valid=lambda instance: chosen(instance).is_valid(instance),
        violations=lambda instance: chosen(instance).violations(instance),
        first_violation=lambda instance: chosen(instance).first_violation(instance),
    ), unchecked


def _engine(schema: JsonSchema) -> SchemaEngine:
    engine = _fast_or_none(schema)
    if engine is None:
        raise ToolSchemaError("Schema is unusable: all its patterns together are too large to be compiled")
    return engine


def _fast_or_none(schema: JsonSchema, *, backtracking: bool = False) -> SchemaEngine | None:
    """Compile a schema; None if the engine rejects a pattern."""
    try:
        return compile_engine(schema, backtracking=backtracking)
    except jsonschema_rs.ValidationError as exc:
        if exc.kind.name == "format" and exc.kind.value == "regex":
            return None
        raise _schema_error(exc) from None
    except (ValueError, jsonschema_rs.ReferencingError) as exc:
        raise _schema_error(exc) from None


def _schema_error(exc: Exception) -> ToolSchemaError:
    """Convert the engine's error about a schema, with the remedy for an external reference."""
    where, problem = "#", str(exc)
    if isinstance(exc, jsonschema_rs.ValidationError):
        where, problem = "/".join(["#", *map(str, exc.instance_path)]), exc.message
    if "not present in a registry" in problem:
        problem = f"{problem[:200]}; a remote schema is never fetched, put it under $defs"
    return ToolSchemaError(f"Schema is unusable at {where}: {problem[:400]}")


def _is_costly(document: SchemaDocument, instance: Any) -> bool:
    """Return whether collecting all violations would exceed a limit of steps, or of copies of the value."""
    # Validation takes linear time, but the engine collects the violations of every alternative, whose number grows
    # exponentially with the depth of a recursive choice.
    stack: list[tuple[JsonSchema, Any]] = [(document.root, instance)]
    steps = 0
    while stack:
        schema, value = stack.pop()
        steps += 1 + sum(len(listed) for word in ("enum", "required") if is_array(listed := schema.get(word)))
        for inner in document.applied(schema):
            stack.extend((inner.schema, part) for part in islice(_parts_under(inner, value), _MAX_STEPS))
            if len(stack) + steps >= _MAX_STEPS:
                return True
    return steps >= _MAX_STEPS or not text_within(_MAX_COPIED // steps, instance)


def _is_large(instance: Any) -> bool:
    """Return whether even one violation, which contains a copy of the value, would take long to build."""
    return not text_within(_MAX_COPIED_ONCE, instance)


def _parts_under(inner: Subschema, value: Any) -> Iterator[Any]:
    """Yield at least the parts of a value that a subschema applies to."""
    if inner.place == "here":
        yield value
    elif is_object(value):
        if inner.keyword != "properties":
            yield from value.values()
        elif isinstance(inner.key, str) and inner.key in value:
            yield value[inner.key]
    elif is_array(value):
        yield from value
