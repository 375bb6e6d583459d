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
    |(?P<newline>\n)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = frozenset("aftvrdDsSwWbBxuU")
_IN_SET = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL)
_LONGEST = 2000


class PatternError(ValueError):
    """The pattern cannot be searched for; the message says why."""


class SearchPattern(NamedTuple):
    """One pattern in both spellings."""

    python: str
    ripgrep: str


def search_pattern(text: str) -> SearchPattern:
    """Read a pattern; what only one of the two engines knows is refused."""
    if len(text) > _LONGEST:
        raise PatternError(f"it has more than {_LONGEST} characters")
    ripgrep, python = list[str](), list[str]()
    for token in _TOKEN.finditer(text):
        spelled = _spelled(token)
        python.append(spelled.python)
        ripgrep.append(spelled.ripgrep)
    pattern = SearchPattern("".join(python), "".join(ripgrep))
    try:
        re.compile(pattern.python)
        text.encode()
    except (re.error, RecursionError, OverflowError, UnicodeEncodeError) as wrong:
        raise PatternError(str(wrong) or "it is nested too deeply") from None
    return pattern


def _spelled(token: re.Match[str]) -> SearchPattern:
    text = token[0]
    match token.lastgroup:
        case "escape":
            return SearchPattern(text, _escape(text))
        case "set":
            return _set(text)
        case "special":
            raise PatternError("look-around, back references and other extensions with (? are not available")
        case "possessive":
            raise PatternError(f"possessive repeats such as {text!r} are not available")
        case "upto":
            return SearchPattern(text, f"{{0,{token['most']}}}")
        case "brace":
            return SearchPattern(f"\\{text}", f"\\{text}")
        case "newline":
            raise PatternError("lines are searched one by one, so a pattern cannot hold a newline")
        case _:
            return SearchPattern(text, text)


def _escape(text: str) -> str:
    character = text[1]
    if character == "n":
        raise PatternError(r"lines are searched one by one, so a pattern cannot hold \n")
    if character in _ESCAPES:
        return text
    if character.isalnum():
        raise PatternError(f"the escape {text} is not available; neither are back references")
    return f"\\x{{{ord(character):X}}}"


def _set(text: str) -> SearchPattern:
    """A set in brackets, in which a second bracket, `&`, `~` and `|` mean themselves."""
    negated = text.startswith("[^")
    body = text[2 if negated else 1 : -1]
    if "[:" in body or "--" in body:
        raise PatternError(f"the set {text!r} is not available; write \\d, \\w or the ranges themselves")
    parts = [*map(_in_set, _IN_SET.findall(body))]
    start = "[^" if negated else "["
    return SearchPattern(
        f"{start}{''.join(part.python for part in parts)}]", f"{start}{''.join(part.ripgrep for part in parts)}]"
    )


def _in_set(part: str) -> SearchPattern:
    if part in ("\\n", "\n"):  # no line holds one
        return SearchPattern("\\n", "\\n")
    if part in ("\\b", "\\B"):
        raise PatternError(f"{part} is not available in a set")
    if part.startswith("\\"):
        return SearchPattern(part, _escape(part))
    if part in "[]&~|^":
        return SearchPattern(f"\\{part}", f"\\x{{{ord(part):X}}}")
    return SearchPattern(part, part)
