"""Validate values against JSON Schemas, drop nulls that stand for nothing, and coerce what is nearly right."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind
from msgspec import Struct

from toolpost.contracts.errors import ToolSchemaError, ToolValidationError
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import (
    AnySchema,
    find_non_json,
    has_member,
    is_array,
    is_object,
    json_type,
    nested_deeper_than,
    numbers_within,
    parts_within,
    text_within,
)
from toolpost.schema.patterns import map_patterns, patterns_in, relax_patterns, translate_pattern
from toolpost.schema.schema_checks import LARGEST_DIVIDED, Weight, weigh
from toolpost.schema.secrets import SecretPaths, secret_paths
from toolpost.schema.subschemas import SchemaDocument, Subschema, normalize_draft, references
from toolpost.schema.violations import Violation, describe

_COERCION_BUDGET = 20_000
_COERCION_DEPTH = 100
_MAX_DIGITS = 300
_INTEGER = re.compile(r"\s*([+-]?\d+)(\.0+)?\s*", re.ASCII)
_NUMBER = re.compile(r"\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?\s*", re.ASCII)


def coerce_value(schema: JsonSchema, instance: Any) -> Any:
    """Return a copy of a value coerced to a schema as far as possible."""
    return _Coercion(SchemaDocument(schema), converts=True).value(schema, instance, 0)


def drop_nulls(schema: JsonSchema, instance: Any) -> Any:
    """Return a copy of a value without the null members that its schema lists, does not require and does not admit.

    Models and frameworks send null for an argument that they leave out.
    """
    return _Coercion(SchemaDocument(schema), converts=False).value(schema, instance, 0)


class _Coercion(Struct):
    """One walk over a value and its schema; `left` bounds the number of steps.

    It drops nulls that stand for an absent member, and `converts` values to the types of the schema if asked to.
    """

    document: SchemaDocument
    converts: bool
    left: int = _COERCION_BUDGET

    def value(self, schema: Any, value: Any, depth: int) -> Any:
        """Coerce a value to `schema` as far as possible."""
        if not is_object(schema) or self.left <= 0 or depth > _COERCION_DEPTH:
            return value
        self.left -= 1
        if self.converts:
            value = _typed(schema, value)
        value = self._members(schema, value, depth + 1)
        for part in self._conjuncts(schema):
            value = self.value(part, value, depth + 1)
        for options in _choices(schema):
            value = self._chosen(options, value, depth + 1)
        return value

    def _conjuncts(self, rules: JsonSchema) -> Iterator[Any]:
        for reference in references(rules):
            yield self.document.target(reference, rules)
        parts = rules.get("allOf")
        if is_array(parts):
            yield from parts

    def _chosen(self, options: list[Any], value: Any, depth: int) -> Any:
        """Coerce a value to the first alternative that it then fits."""
        if any(self.fits(option, value, depth) for option in options):
            return value
        for option in options:
            attempt = self.value(option, value, depth)
            if self.fits(option, attempt, depth):
                return attempt
        return value

    def _members(self, rules: JsonSchema, value: Any, depth: int) -> Any:
        if is_object(value):
            return {
                key: self.value(_property(rules, key), member, depth)
                for key, member in value.items()
                if member is not None or not self._is_absent(rules, key, depth)
            }
        if is_array(value):
            return [self.value(_item(rules, index), item, depth) for index, item in enumerate(value)]
        return value

    def _is_absent(self, rules: JsonSchema, key: str, depth: int) -> bool:
        """Return whether null stands for an absent member: one that is listed, not required, and not null itself."""
        properties, required = rules.get("properties"), rules.get("required")
        if not is_object(properties) or key not in properties or (is_array(required) and key in required):
            return False
        return not self.fits(properties[key], None, depth)

    def fits(self, schema: Any, value: Any, depth: int) -> bool:
        """Return whether a value has the types, constants and required fields of a schema, to pick an alternative."""
        if not is_object(schema):
            return schema is not False
        if self.left <= 0 or depth > _COERCION_DEPTH:
            return True
        self.left -= 1
        if not (_has_type(schema, value) and _has_tag(schema, value) and _has_fields(schema, value)):
            return False
        if not all(self.fits(part, value, depth + 1) for part in self._conjuncts(schema)):
            return False
        if not all(any(self.fits(o, value, depth + 1) for o in options) for options in _choices(schema)):
            return False
        return all(self.fits(inner, member, depth + 1) for inner, member in _applied(schema, value))


def _choices(rules: JsonSchema) -> Iterator[list[Any]]:
    for keyword in ("anyOf", "oneOf"):
        options = rules.get(keyword)
        if is_array(options) and options:
            yield options


def _applied(rules: JsonSchema, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each member of a value after its schema."""
    if is_object(value):
        yield from ((_property(rules, key), member) for key, member in value.items())
    elif is_array(value):
        yield from ((_item(rules, index), item) for index, item in enumerate(value))


def _property(rules: JsonSchema, key: str) -> Any:
    properties = rules.get("properties")
    if is_object(properties) and key in properties:
        return properties[key]
    # With patterns around, which properties are additional cannot be told cheaply.
    return True if "patternProperties" in rules else rules.get("additionalProperties", True)


def _item(rules: JsonSchema, index: int) -> Any:
    for keyword in ("prefixItems", "items"):
        first = rules.get(keyword)
        if is_array(first) and index < len(first):
            return first[index]
    return rules.get("additionalItems" if is_array(rules.get("items")) else "items", True)


def _types(rules: JsonSchema) -> list[Any]:
    """Return the types that a schema allows, by `type` or by the values that it lists."""
    kind = rules.get("type")
    if kind is None:
        return list(dict.fromkeys(json_type(option) for option in _listed(rules)))
    return kind if is_array(kind) else [kind]


def _listed(rules: JsonSchema) -> list[Any]:
    """Return the values of `enum` or `const`."""
    options = rules.get("enum", [rules["const"]] if "const" in rules else [])
    return options if is_array(options) else []


def _has_type(rules: JsonSchema, value: Any) -> bool:
    types = _types(rules)
    kind = json_type(value)
    if not types or kind in types or (kind == "integer" and "number" in types):
        return True
    return kind == "number" and "integer" in types and float(value).is_integer()


def _has_tag(rules: JsonSchema, value: Any) -> bool:
    options = _listed(rules)
    return not options or any(option == value and type(option) is type(value) for option in options)


def _has_fields(rules: JsonSchema, value: Any) -> bool:
    required = rules.get("required")
    return not is_object(value) or not is_array(required) or all(name in value for name in required)


def _typed(rules: JsonSchema, value: Any) -> Any:
    """Convert a value to the first allowed type that it can be read as."""
    if value is None or _has_type(rules, value):
        return value
    for kind in _types(rules):
        reader = _READERS.get(kind)
        result = reader(value) if reader else _NOTHING
        if result is not _NOTHING:
            return result
    return value


_NOTHING = object()


def _read_integer(value: Any) -> Any:
    match = _INTEGER.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_DIGITS else None
    return int(match[1]) if match else _NOTHING


def _read_number(value: Any) -> Any:
    match = _NUMBER.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_DIGITS else None
    return _parsed(value) if match else _NOTHING


def _read_boolean(value: Any) -> Any:
    return {"true": True, "false": False}.get(value.strip().lower(), _NOTHING) if isinstance(value, str) else _NOTHING


def _read_string(value: Any) -> Any:
    match value:
        case bool():
            return _NOTHING
        case int():
            return _NOTHING if value.bit_length() > _MAX_DIGITS * 3 else str(value)
        case float():
            return json.dumps(value) if math.isfinite(value) else _NOTHING
        case _:
            return _NOTHING


def _read_array(value: Any) -> Any:
    parsed = _read_json(value, list)
    return [value] if parsed is _NOTHING else parsed


def _read_json(value: Any, kind: type) -> Any:
    parsed = _parsed(value) if isinstance(value, str) else _NOTHING
    return parsed if isinstance(parsed, kind) else _NOTHING


def _parsed(text: str) -> Any:
    """Parse JSON text; NaN and infinite numbers are not JSON."""
    try:
        return _decode(text.strip())
    except (ValueError, RecursionError):
        return _NOTHING


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_decode = json.JSONDecoder(parse_float=_finite, parse_constant=_finite).decode


_READERS: dict[str, Callable[[Any], Any]] = {
    "integer": _read_integer,
    "number": _read_number,
    "boolean": _read_boolean,
    "string": _read_string,
    "object": lambda value: _read_json(value, dict),
    "array": _read_array,
}


MAX_ISSUES = 10
# The engines recurse; these bounds keep them within a thread's stack.
_MAX_DEPTH = 200
_MAX_FRAMES = 2_000
_UNGUARDED_HEIGHT = 300
# What checking a value may cost, in units of about ten nanoseconds, where the schema is from outside. One that costs
# little for each part of a value is never refused: reading the value has taken longer.
_MAX_WORK = 4_000_000
_MAX_PARTS = 300_000
_LITTLE_WORK = 3
# So many characters may be matched with one small pattern, at most a third of a second; with more patterns, or larger
# ones, so many fewer. What is longer is checked for all but its patterns.
_MAX_MATCHED = 100_000
_NO_WEIGHT = Weight(1, 1, 1, 1, recursive=False)


class Validator(Struct, frozen=True, kw_only=True):
    """Validate values against one schema.

    `is_valid` is the engine's own method, the fastest there is; for a value that is not JSON it may raise ValueError.
    `check` raises nothing but its error. `unchecked` are the patterns that are never matched, because nothing bounds
    their run time. A value of more than `size_limit` parts, or with a number beyond `number_limit`, does not fit.
    """

    is_valid: Callable[[Any], bool]
    schema: AnySchema
    engine: Engine
    lenient: bool
    depth_limit: int | None
    size_limit: int | None
    number_limit: int | None
    secrets: Callable[[], SecretPaths]
    unchecked: tuple[str, ...] = ()

    def check(
        self, instance: Any, tool_name: str | None = None, *, error: type[ToolValidationError] = ToolValidationError
    ) -> None:
        """Raise `error`, naming every issue, unless the value fits."""
        try:
            if self.is_valid(instance):
                return
        except ValueError:
            # Not JSON, or too deep: `issues` finds out which.
            pass
        raise error(self.issues(instance), tool_name=tool_name)

    def issues(self, instance: Any) -> list[str]:
        """Return what is wrong with a value, at most ten lines and a count of the rest; empty when it fits."""
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
            why = "and is too large" if is_large(instance) else "which is too entangled"
            return [f"$: does not fit the schema, {why} to say where"]
        return _shortened(lines)

    def coerce(self, instance: Any) -> Any:
        """Return the value, without nulls that stand for absent members if it does not fit the schema as it is.

        A lenient validator also converts what is nearly right.
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
        if is_large(instance):
            return ()
        document = SchemaDocument(self.schema)
        if not is_costly(document, instance):
            return self.engine.violations(instance)
        weight = weigh(document)
        # A large value of a simple schema: finding one violation is linear, collecting all is not.
        simple = not weight.recursive and weight.work < _MAX_FRAMES
        return self.engine.first_violation(instance) if simple else ()


def compile_validator(schema: AnySchema, *, lenient: bool = False, own: bool = False) -> Validator:
    """Compile a schema; ToolSchemaError where it is unusable. No reference is ever fetched.

    In the operator's `own` schemas patterns may backtrack, and a pattern that cannot be matched makes the schema
    unusable, because somebody relies on it. All other schemas are external.
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
    engine: Engine,
    weight: Weight,
    *,
    lenient: bool,
    size_limit: int | None = None,
    number_limit: int | None = None,
    unchecked: tuple[str, ...] = (),
) -> Validator:
    depth_limit = _depth_limit(weight)
    is_valid = engine.is_valid
    if depth_limit is not None:
        is_valid = _guarded(is_valid, lambda instance: not nested_deeper_than(depth_limit, instance))
    if number_limit is not None:
        is_valid = _guarded(is_valid, lambda instance: numbers_within(number_limit, instance))
    if size_limit is not None:  # the outermost, because the others look at the whole value
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


def _depth_limit(weight: Weight) -> int | None:
    """Return how deep values may be nested for the engine to stay within the stack; None where the schema limits it."""
    if not weight.recursive and weight.height <= _UNGUARDED_HEIGHT:
        return None
    return min(_MAX_DEPTH, max(8, _MAX_FRAMES // weight.chain))


def _guarded(is_valid: Callable[[Any], bool], may_look: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda instance: may_look(instance) and is_valid(instance)


def _unreadable(instance: Any, exc: ValueError) -> str:
    if problem := find_non_json(instance):
        return problem
    return "$: nested too deeply to check" if "Recursion" in str(exc) else f"$: {exc}"


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - MAX_ISSUES
    return [*lines[:MAX_ISSUES], f"and {more} more"] if more > 0 else lines


def _own_engine(schema: JsonSchema) -> Engine:
    """Compile an engine that matches every pattern of the schema, as written or translated."""
    declared = normalize_draft(schema)
    for spelled in (declared, map_patterns(declared, translate_pattern)):
        engine = _fast_or_none(spelled, backtracking=True)
        if engine is not None:
            return engine
    shown = ", ".join(repr(pattern[:120]) for pattern in unchecked_patterns(schema)[:3])
    raise ToolSchemaError(f"Schema is unusable: the engine does not take the pattern {shown}; write it more simply")


def _external_engine(schema: JsonSchema, weight: Weight) -> tuple[Engine, tuple[str, ...]]:
    """Compile an engine whose patterns take bounded time for any value; also return the patterns left out."""
    declared = normalize_draft(schema)
    patterns = list(patterns_in(declared))
    if not patterns:
        return _engine(declared), ()
    spelled, unchecked = map_patterns(declared, translate_pattern), unchecked_patterns(declared)
    if unchecked:
        spelled = relax_patterns(spelled, lambda pattern: pattern_cost(pattern) is None)
    matching = _engine(spelled)
    cheap = lru_cache(maxsize=1)(lambda: _engine(relax_patterns(spelled, lambda _: True)))  # few are ever needed
    names = sum(keyword == "patternProperties" for keyword, _ in patterns)
    dearest = max(pattern_cost(translate_pattern(pattern)) or 1 for _, pattern in patterns)
    limit = _MAX_MATCHED // (dearest * (weight.work + names))

    def chosen(instance: Any) -> Engine:
        return matching if text_within(limit, instance) else cheap()

    return Engine(
        is_valid=lambda instance: chosen(instance).is_valid(instance),
        violations=lambda instance: chosen(instance).violations(instance),
        first_violation=lambda instance: chosen(instance).first_violation(instance),
    ), unchecked


def _engine(schema: JsonSchema) -> Engine:
    engine = _fast_or_none(schema)
    if engine is None:
        raise ToolSchemaError("Schema is unusable: all its patterns together are too large to be compiled")
    return engine


def _fast_or_none(schema: JsonSchema, *, backtracking: bool = False) -> Engine | None:
    """Compile a schema; None when the engine refuses a pattern."""
    try:
        return compile_engine(schema, backtracking=backtracking)
    except jsonschema_rs.ValidationError as exc:
        if exc.kind.name == "format" and exc.kind.value == "regex":
            return None
        raise _schema_error(exc) from None
    except (ValueError, jsonschema_rs.ReferencingError) as exc:
        raise _schema_error(exc) from None


def _schema_error(exc: Exception) -> ToolSchemaError:
    """Convert the engine's error about a schema, with the remedy when a reference leads outside."""
    where, problem = "#", str(exc)
    if isinstance(exc, jsonschema_rs.ValidationError):
        where, problem = "/".join(["#", *map(str, exc.instance_path)]), exc.message
    if "not present in a registry" in problem:
        problem = f"{problem[:200]}; a remote schema is never fetched, put it under $defs"
    return ToolSchemaError(f"Schema is unusable at {where}: {problem[:400]}")


class Engine(Struct, frozen=True, kw_only=True):
    """A compiled schema: the verdict, all violations, or only the first one.

    Each may raise ValueError for a value that is not JSON or nested too deeply.
    """

    is_valid: Callable[[Any], bool]
    violations: Callable[[Any], Iterable[Violation]]
    first_violation: Callable[[Any], Iterable[Violation]]


# A linear engine takes time by the size of the compiled pattern times the length of the text: at worst about 3 µs a
# character for the smallest of these sizes, and as many times that as stands beside each.
_SIZES = {4 << 10: 1, 16 << 10: 3, 64 << 10: 10, 256 << 10: 40}
_DFA_BYTES = 1 << 20
_LINEAR = jsonschema_rs.RegexOptions(size_limit=max(_SIZES), dfa_size_limit=_DFA_BYTES)
_BACKTRACKING = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
_GAVE_UP = (ValidationErrorKind.BacktrackLimitExceeded, ValidationErrorKind.RegexEngineFailure)


@lru_cache(maxsize=4096)
def pattern_cost(pattern: str) -> int | None:
    """Return the cost of matching a character, in units of a small pattern; None where it is not linear."""
    for size, cost in _SIZES.items():
        options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_DFA_BYTES)
        try:
            jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except (ValueError, jsonschema_rs.ValidationError):
            continue
        return cost
    return None


def compile_engine(schema: AnySchema, *, backtracking: bool = False) -> Engine:
    """Compile a schema without network access; ValueError where it is invalid."""
    patterns = _BACKTRACKING if backtracking else _LINEAR
    # Formats stay notes: RFC 3339 would refuse the dates without a zone that most servers take and send.
    # The mask keeps values out of the engine's own texts.
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

    return Engine(is_valid=validator.is_valid, violations=violations, first_violation=first_violation)


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


_BUDGET = 10_000
_MAX_COPIED = 3_000_000  # characters; the engine puts a copy of the value into every violation
_MAX_COPIED_ONCE = 1_000_000
_LISTS = ("enum", "required")


def is_costly(document: SchemaDocument, instance: Any) -> bool:
    """Return whether collecting all violations would exceed a limit of steps, or of copies of the value."""
    # The verdict takes linear time, but the engine collects the violations of every alternative, whose number grows
    # exponentially with the depth of a recursive choice.
    stack: list[tuple[JsonSchema, Any]] = [(document.root, instance)]
    steps = 0
    while stack:
        schema, value = stack.pop()
        steps += 1 + sum(len(listed) for word in _LISTS if is_array(listed := schema.get(word)))
        for inner in document.applied(schema):
            stack.extend((inner.schema, part) for part in islice(_parts(inner, value), _BUDGET))
            if len(stack) + steps >= _BUDGET:
                return True
    return steps >= _BUDGET or not text_within(_MAX_COPIED // steps, instance)


def is_large(instance: Any) -> bool:
    """Return whether even one violation, which holds a copy of the value, would take long to build."""
    return not text_within(_MAX_COPIED_ONCE, instance)


def _parts(inner: Subschema, value: Any) -> Iterator[Any]:
    """Yield the parts of a value that a subschema applies to, or a few more."""
    if inner.place == "here":
        yield value
    elif is_object(value):
        if inner.keyword != "properties":
            yield from value.values()
        elif isinstance(inner.key, str) and inner.key in value:
            yield value[inner.key]
    elif is_array(value):
        yield from value
