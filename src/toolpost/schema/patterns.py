"""Regular expressions of schemas that the fast engine refuses: made portable, or shown to be harmless."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

_BUDGET = 100_000_000
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
# `[\w-.]` is legal in JavaScript, where the dash then means itself; other dialects want it escaped.
_DASH_AFTER_CLASS = re.compile(r"(\\[wWdDsS])-(?=[^\]])")
_DASH_BEFORE_CLASS = re.compile(r"(?<=[^\[\\^])-(?=\\[wWdDsS])")
_REFERS_BACK = re.compile(r"\\[1-9]|\\k<|\(\?P=|\(\?\(")
_FIXED = re.compile(r"\{\d+\}")
_AT_MOST_ONCE = ("?", "{1}", "{0,1}")
_NAMES = ("properties", "$defs", "definitions", "dependentSchemas")  # under these, any name is only a name
_SET = re.compile(r"\[\^?(?:\\.|[^\]\\])*\]", re.DOTALL)


def portable(pattern: str) -> str:
    """The same pattern, spelled so that stricter dialects take it."""

    def escaped(found: re.Match[str]) -> str:
        text = _DASH_AFTER_CLASS.sub(r"\1\\-", found[0])
        return _DASH_BEFORE_CLASS.sub(r"\\-", text)

    return _SET.sub(escaped, pattern)


def with_patterns(schema: Any, change: Callable[[str], str]) -> Any:
    """A copy of a schema with every pattern changed; data to compare with is left alone."""
    if is_array(schema):
        return [with_patterns(item, change) for item in schema]
    if not is_object(schema):
        return schema
    return {key: _changed(key, value, change) for key, value in schema.items()}


def _changed(key: str, value: Any, change: Callable[[str], str]) -> Any:
    if key in ("enum", "const", "default", "examples"):
        return value
    if key in _NAMES and is_object(value):
        return {name: with_patterns(inner, change) for name, inner in value.items()}
    if key == "pattern" and isinstance(value, str):
        return change(value)
    if key == "patternProperties" and is_object(value):
        return {change(name): with_patterns(inner, change) for name, inner in value.items()}
    return with_patterns(value, change)


def harmless(pattern: str) -> str:
    """A pattern in place of another, for when only the rest of a schema matters."""
    return pattern.encode("utf-8", "replace").hex()


def repeats(pattern: str) -> int | None:
    """How many parts of a pattern may repeat; None when repeats are nested or refer back.

    Python's engine cannot be bounded, so a pattern that could make it try exponentially
    many ways must not reach it: no repeat around a part that itself varies.
    """
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
    """Whether the group that ends here varies."""
    return varies.pop() if len(varies) > 1 else varies[0]


def longest_text(repeat_count: int) -> int:
    """The longest text for which so many repeats cost at most a bounded number of steps."""
    return int(_BUDGET ** (1 / (repeat_count + 1)))
