"""Regular expressions for searching lines, in the words that ripgrep and Python have in common.

Both can be told the same pattern: no look-around, no back references, nothing that spans lines.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<escape>\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.))
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    |(?P<group>\(\?(?:P<\w+>|[ims]*(?:-[ims]+)?[:)]))
    |(?P<special>\(\?)
    |(?P<possessive>(?:[*+?]|\{\d*,?\d*\})\+)
    |(?P<upto>\{,(?P<most>\d+)\})
    |(?P<repeat>[*+?]|\{\d+(?:,\d*)?\})
    |(?P<brace>[{}])
    |(?P<newline>[\n\r])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = frozenset("aftvdDsSwWbBxuU")
_IN_SET = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL)
_NUMBERED = re.compile(r"\\[xuU]([0-9a-fA-F]+)")
_LONGEST = 2000
# Bytes that are no UTF-8, as Python decodes them with `surrogateescape`; ripgrep has nothing match them.
_BROKEN = r"[\udc80-\udcff]"
_SURROGATES = range(0xD800, 0xE000)
_LINE_ENDS = (0x0A, 0x0D)


class PatternError(ValueError):
    """The pattern cannot be searched for; the message says why."""


class SearchPattern(NamedTuple):
    """One pattern in all its spellings; `strict` is Python's for texts that hold bytes that are no UTF-8."""

    python: str
    ripgrep: str
    strict: str


def search_pattern(text: str) -> SearchPattern:
    """Read a pattern; what only one of the two engines knows is refused."""
    if len(text) > _LONGEST:
        raise PatternError(f"it has more than {_LONGEST} characters")
    spelled = [_spelled(token) for token in _TOKEN.finditer(text)]
    pattern = SearchPattern(*("".join(column) for column in zip(*spelled, strict=True)))
    try:
        re.compile(pattern.python)
        re.compile(pattern.strict)
        text.encode()
    except (re.error, RecursionError, OverflowError, UnicodeEncodeError) as wrong:
        raise PatternError(str(wrong) or "it is nested too deeply") from None
    return pattern


def _spelled(token: re.Match[str]) -> SearchPattern:
    text = token[0]
    match token.lastgroup:
        case "escape":
            return _escape(text)
        case "set":
            return _set(text)
        case "special":
            raise PatternError("look-around, back references and other extensions with (? are not available")
        case "possessive":
            raise PatternError(f"possessive repeats such as {text!r} are not available")
        case "upto":
            return SearchPattern(text, f"{{0,{token['most']}}}", text)
        case "brace":
            return _same(f"\\{text}")
        case "newline":
            raise _no_line_end("a newline")
        case _:
            return _same(text) if text != "." else SearchPattern(text, text, f"(?:(?!{_BROKEN}).)")


def _same(text: str) -> SearchPattern:
    return SearchPattern(text, text, text)


def _escape(text: str) -> SearchPattern:
    match text[1]:
        case "n" | "r":
            raise _no_line_end(text)
        case "B":  # Python's own never fits an empty line
            return SearchPattern(r"(?!\b)", text, r"(?!\b)")
        case "W" | "D" | "S":
            return SearchPattern(text, text, f"(?:(?!{_BROKEN}){text})")
        case _ if _code(text) in _LINE_ENDS:
            raise _no_line_end(text)
        case _:
            return SearchPattern(text, _in_ripgrep(text), text)


def _no_line_end(what: str) -> PatternError:
    return PatternError(
        f"lines are searched one by one, so a pattern cannot hold {what}; $ is the end of a line, however it ends"
    )


def _in_ripgrep(text: str) -> str:
    """An escape as ripgrep writes it."""
    character = text[1]
    if _code(text) in _SURROGATES:
        raise PatternError(f"{text} is half of a surrogate pair and no character")
    if character in _ESCAPES:
        return text
    if character.isalnum():
        raise PatternError(f"the escape {text} is not available; neither are back references")
    return f"\\x{{{ord(character):X}}}"


def _code(text: str) -> int:
    """The character that an escape names by its number; -1 where it names none."""
    found = _NUMBERED.fullmatch(text)
    return int(found[1], 16) if found else -1


def _set(text: str) -> SearchPattern:
    """A set in brackets, in which a second bracket, `&`, `~` and `|` mean themselves."""
    negated = text.startswith("[^")
    body = text[2 if negated else 1 : -1]
    if "[:" in body or "--" in body:
        raise PatternError(f"the set {text!r} is not available; write \\d, \\w or the ranges themselves")
    parts = [*map(_in_set, _IN_SET.findall(body))]
    start = "[^" if negated else "["
    python, ripgrep = (f"{start}{''.join(column)}]" for column in zip(*parts, strict=True))
    return SearchPattern(python, ripgrep, f"(?:(?!{_BROKEN}){python})")


def _in_set(part: str) -> tuple[str, str]:
    """A part of a set for Python, and for ripgrep."""
    if part in "\n\r":  # no line holds one, but a set may
        return f"\\x{ord(part):02x}", f"\\x{ord(part):02x}"
    if part in ("\\n", "\\r"):
        return part, part
    if part in ("\\b", "\\B"):
        raise PatternError(f"{part} is not available in a set")
    if part.startswith("\\"):
        return part, _in_ripgrep(part)
    if part in "[]&~|^":
        return f"\\{part}", f"\\x{{{ord(part):X}}}"
    return part, part
