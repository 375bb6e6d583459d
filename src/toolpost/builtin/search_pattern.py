"""Regular expressions of grep_files: Python's notation, translated to the syntax of ripgrep.

Look-around, back references and possessive repeats are not available, nor is a pattern that spans lines. Stray braces
and brackets are literal, as in Python. Other errors are reported by ripgrep.
"""

from __future__ import annotations

import re

_LONGEST_PATTERN = 2000
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
_LINE_ENDS = (0x0A, 0x0D)


class PatternError(ValueError):
    """The pattern cannot be used; the message contains the reason."""


def translate_pattern(text: str) -> str:
    """Translate a pattern to the syntax of ripgrep; raise a PatternError for syntax that is not available."""
    if len(text) > _LONGEST_PATTERN:
        raise PatternError(f"it has more than {_LONGEST_PATTERN} characters")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise PatternError("it contains half of a surrogate pair")
    return "".join(map(_translate, _TOKEN.finditer(text)))


def _translate(token: re.Match[str]) -> str:
    text = token[0]
    match token.lastgroup:
        case "escape" if text[1] in "nr" or _code(text) in _LINE_ENDS:
            raise _no_line_end(text)
        case "escape":
            return _escape(text)
        case "set":
            return _set(text)
        case "special":
            raise PatternError("look-around, back references and other extensions with (? are not available")
        case "possessive":
            raise PatternError(f"possessive repeats such as {text!r} are not available")
        case "upto":
            return f"{{0,{token['most']}}}"
        case "brace":
            return f"\\{text}"
        case "newline":
            raise _no_line_end("a newline")
        case _:
            return text


def _no_line_end(name: str) -> PatternError:
    return PatternError(
        f"lines are searched one by one, so a pattern cannot contain {name}; $ is the end of a line, however it ends"
    )


def _escape(text: str) -> str:
    character = text[1:2]
    if character in _ESCAPES:
        return text
    if character.isalnum():
        raise PatternError(f"the escape {text} is not available; neither are back references")
    return f"\\x{{{ord(character):X}}}"


def _code(text: str) -> int:
    """Return the code point of a numeric escape; -1 for other escapes."""
    match = _NUMBERED.fullmatch(text)
    return int(match[1], 16) if match else -1


def _set(text: str) -> str:
    """Translate a set in brackets, in which a second bracket, `&`, `~` and `|` are literal."""
    start = "[^" if text.startswith("[^") else "["
    body = text[len(start) : -1]
    if "[:" in body or "--" in body:
        raise PatternError(f"the set {text!r} is not available; write \\d, \\w or the ranges themselves")
    return f"{start}{''.join(map(_in_set, _IN_SET.findall(body)))}]"


def _in_set(part: str) -> str:
    if part in ("\\b", "\\B"):
        raise PatternError(f"{part} is not available in a set")
    if part in "[]&~|^\n\r":
        return f"\\x{{{ord(part):X}}}"
    return part if part in ("\\n", "\\r") or not part.startswith("\\") else _escape(part)
