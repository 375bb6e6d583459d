"""Regular expressions in schemas: translate them for the engine, measure them, remove those that cannot be bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object

_TOKEN = re.compile(
    r"""(?P<escape>\\.)
    |(?P<group>\((?:\?(?:P?<[A-Za-z_]\w*>|[:=!>]|<[=!]|[aiLmsux-]+:?))?)
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    |(?P<close>\))
    |(?P<repeat>[*+?]|\{\d*,?\d*\})[?+]?
    |(?P<alternative>\|)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
# `[\w-.]` is legal in JavaScript, where the dash is literal; other dialects require an escape.
_DASH_AFTER_CLASS = re.compile(r"(\\[wWdDsS])-(?=[^\]])")
_DASH_BEFORE_CLASS = re.compile(r"(?<=[^\[\\^])-(?=\\[wWdDsS])")
_REFERS_BACK = re.compile(r"\\[1-9]|\\k<|\(\?P=|\(\?\(")
_FIXED = re.compile(r"\{\d+\}")
_AT_MOST_ONCE = ("?", "{1}", "{0,1}")
_DATA = ("enum", "const", "default", "examples")
_REVERSING = ("not", "oneOf", "if", "maxContains")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_MAY_HOLD_PATTERN = frozenset({"pattern", "patternProperties", "$ref", "$dynamicRef", "$recursiveRef"})
_NAMES = ("properties", "$defs", "definitions", "dependentSchemas")  # under these, any name is only a name
_PYTHON_END = re.compile(r"\\.", re.DOTALL)
_SET = re.compile(r"\[\^?(?:\\.|[^\]\\])*\]", re.DOTALL)


def translate_pattern(pattern: str) -> str:
    """Translate a pattern for the engine: escape dashes beside classes, respell Python's end of text as Rust's."""

    def escaped(found: re.Match[str]) -> str:
        text = _DASH_AFTER_CLASS.sub(r"\1\\-", found[0])
        return _DASH_BEFORE_CLASS.sub(r"\\-", text)

    return _PYTHON_END.sub(lambda found: "\\z" if found[0] == "\\Z" else found[0], _SET.sub(escaped, pattern))


def map_patterns(schema: Any, change: Callable[[str], str]) -> Any:
    """Copy a schema with `change` applied to every pattern; data such as `enum` is unchanged."""
    if is_array(schema):
        return [map_patterns(item, change) for item in schema]
    if not is_object(schema):
        return schema
    return {key: _changed(key, value, change) for key, value in schema.items()}


def _changed(key: str, value: Any, change: Callable[[str], str]) -> Any:
    if key in _DATA:
        return value
    if key in _NAMES and is_object(value):
        return {name: map_patterns(inner, change) for name, inner in value.items()}
    if key == "pattern" and isinstance(value, str):
        return change(value)
    if key == "patternProperties" and is_object(value):
        return {change(name): map_patterns(inner, change) for name, inner in value.items()}
    return map_patterns(value, change)


def patterns_in(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield every pattern in a schema, after its keyword: `pattern` or `patternProperties`."""
    if is_array(schema):
        for item in schema:
            yield from patterns_in(item)
    elif is_object(schema):
        for key, value in schema.items():
            yield from _patterns_under(key, value)


def _patterns_under(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if key in _DATA:
        return
    if key == "pattern" and isinstance(value, str):
        yield key, value
        return
    if key == "patternProperties" and is_object(value):
        yield from ((key, name) for name in value)
    named = key == "patternProperties" or key in _NAMES
    yield from patterns_in([*value.values()] if named and is_object(value) else value)


def relax_patterns(schema: Any, unwanted: Callable[[str], bool]) -> Any:
    """Return a schema without the unwanted patterns that accepts at least every value that this one accepts.

    A part without its pattern accepts more. If the whole schema would then reject more, as below `not` and `if`, the
    keyword is removed, too, and `oneOf` becomes `anyOf`.
    """
    if is_array(schema):
        return [relax_patterns(item, unwanted) for item in schema]
    if not is_object(schema):
        return schema
    relaxed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DATA:
            relaxed[key] = value
        elif key in _NAMES and is_object(value):
            relaxed[key] = {name: relax_patterns(inner, unwanted) for name, inner in value.items()}
        elif key == "patternProperties" and is_object(value):
            relaxed[key] = _relaxed_names(value, unwanted)
        elif not (key == "pattern" and isinstance(value, str) and unwanted(value)) and not _reverses(key, schema):
            relaxed[key] = relax_patterns(value, unwanted)
    if "oneOf" in schema and "oneOf" not in relaxed:
        relaxed["allOf"] = [*relaxed.get("allOf", ()), {"anyOf": relax_patterns(schema["oneOf"], unwanted)}]
    return relaxed


def _relaxed_names(named: dict[str, Any], unwanted: Callable[[str], bool]) -> dict[str, Any]:
    """Drop unwanted name patterns; a pattern that matches every name then takes their place."""
    schemas = {name: relax_patterns(inner, unwanted) for name, inner in named.items() if not unwanted(name)}
    return schemas if len(schemas) == len(named) else {**schemas, "": {}}


def _reverses(key: str, schema: JsonSchema) -> bool:
    """Return whether a keyword rejects more if its subschema accepts more; a reference may contain any pattern."""
    if key in _UNEVALUATED:
        return True
    if key in ("then", "else"):
        key = "if"
    held = schema.get("contains" if key == "maxContains" else key)
    return key in _REVERSING and _may_hold_pattern(held)


def _may_hold_pattern(schema: Any) -> bool:
    if is_array(schema):
        return any(map(_may_hold_pattern, schema))
    return is_object(schema) and (
        not _MAY_HOLD_PATTERN.isdisjoint(schema) or any(map(_may_hold_pattern, schema.values()))
    )


def count_repeats(pattern: str) -> int | None:
    """Return how many parts of a pattern may repeat; None if repeats are nested or refer back."""
    # Python's engine cannot be bounded, so a pattern that could backtrack exponentially must not reach it: no repeat
    # around a part that itself varies.
    if _REFERS_BACK.search(pattern):
        return None
    varies = [False]
    last = False
    count = 0
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if kind == "repeat" and last and token["repeat"] not in _AT_MOST_ONCE:
            return None
        last = _close(varies) if kind == "close" else kind == "repeat" and not _FIXED.fullmatch(token["repeat"])
        count += kind == "repeat" and last
        if kind == "group":
            varies.append(False)
        elif kind == "alternative" or last:
            varies[-1] = True
    return count


def _close(varies: list[bool]) -> bool:
    """Return whether the group that ends here varies."""
    return varies.pop() if len(varies) > 1 else varies[0]
