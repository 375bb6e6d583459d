"""Where the places for arguments stand in a command of bash, and which of them no value can turn into code.

Only what is plain to read is taken: a place among bare words, or between simple quotes. All else is refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from toolpost.contracts.errors import ConfigError

MARK = "UTCP_ARG_"
PLACE = r"UTCP_ARG_(?P<place>[a-zA-Z0-9_]+?)_UTCP_END"
# What bash would read a second time: a place in it would not be plain. A name alone, or a command of plain words, is.
_PLAIN = r"\$\{\w+\}|\$\([^()'\"`$\\#<]*\)"
_PIECES = {
    "": re.compile(
        rf"{PLACE}|\\.|{_PLAIN}|<<<|(?P<nested>\$[(\[{{'\"]|`|<<|\(\()"
        r"|(?P<comment>(?:^|(?<=[\s;&|()]))#[^\n]*)|(?P<quote>['\"])|.",
        re.DOTALL,
    ),
    '"': re.compile(rf"{PLACE}|\\.|{_PLAIN}|(?P<nested>\$[(\[{{]|`)|(?P<quote>\")|.", re.DOTALL),
    "'": re.compile(rf"{PLACE}|(?P<quote>')|.", re.DOTALL),
}
_TELLING = re.compile(rf"['\"`]|{MARK}")
_HERE = "\0"  # a place, in the outline of a command
_BEGINS_WORD = re.compile(r"(?:^|[\s;&|(])\Z")
_AFTER_END_OF_OPTIONS = re.compile(rf"(?:^|\s)--(?:\s+{_HERE})*\s+\Z")
_AFTER_OPTION = re.compile(r"(?:^|\s)-\S+\s+\Z")
_AFTER_REDIRECTION = re.compile(r"[<>]\s*\Z")
# Words that read their arguments as code, or as arithmetic, which may hold code.
_READS_CODE = re.compile(
    r"(?:^|[\s;&|(/])(?P<word>\[\[|\.|alias|at|batch|declare|eval|getopts|let|local|mapfile|parallel|read|readarray"
    r"|readonly|source|ssh|su|trap|typeset|unset|watch)(?=[\s;&|)]|\Z)"
)
_INTERPRETS = re.compile(
    r"(?:^|[\s;&|(/])(?P<word>(?:ba|da|k|z|fi)?sh\s[^;&|\n]*?-\w*c|(?:python[\d.]*|perl|ruby|node|php)(?:\s+-\S+)*\s+-\w*[cenpr])\w*(?=\s|\Z)"
)
_NAMED_BY_ARGUMENT = re.compile(rf"(?P<word>\w\[)[^\]]*{_HERE}|(?P<option>-v)\s+\S*{_HERE}")
_IN_PROGRAM = re.compile(
    rf"(?:^|[\s;&|(/])(?P<word>[gmn]?awk|sed)\s[^;|\n]*?(?:[^\s{_HERE}]{_HERE}|{_HERE}[^\s{_HERE}])"
)


class Place(NamedTuple):
    """A place for an argument, and the quotes that it stands in.

    `option` says whether a value there may look like an option: any, a number, or none.
    """

    name: str
    quotes: str
    option: str


def pieces_of(command: str) -> list[str | Place]:
    """A command as text and places; ConfigError where a place is not plain."""
    pieces, outline = _read(command)
    if any(isinstance(piece, Place) for piece in pieces):
        _refuse_code(outline)
    return pieces


def refuse_code_beside(command: str) -> None:
    """Refuse a step without places that reads code, which values of other steps could become."""
    try:
        outline = _read(command)[1]
    except ConfigError:
        outline = command
    _refuse_code(outline.replace("((", " [[ "))


def _read(command: str) -> tuple[list[str | Place], str]:
    """The pieces of a command, and its outline: bare text as it is, what is quoted as letters, and the places."""
    pieces: list[str | Place] = []
    quotes, outline, at, found = "", "", 0, 0
    while (match := _PIECES[quotes].match(command, at)) is not None:
        at, text = match.end(), match[0]
        kind = match.lastgroup
        if kind == "nested" or (kind == "comment" and _TELLING.search(text)):
            raise _unplain(text)
        if kind == "place":
            pieces.append(Place(match["place"], quotes, _option(outline)))
            outline, found = outline + _HERE, found + 1
            continue
        pieces.append(text)
        if kind == "quote":
            quotes = "" if quotes else text
        elif kind != "comment":
            outline += "q" if quotes or text.startswith("\\") else text
    if quotes or found != command.count(MARK):
        raise _unplain(quotes or MARK)
    return pieces, outline


def _option(outline: str) -> str:
    free = (_AFTER_END_OF_OPTIONS, _AFTER_REDIRECTION)
    if not _BEGINS_WORD.search(outline) or any(pattern.search(outline) for pattern in free):
        return "any"
    return "number" if _AFTER_OPTION.search(outline) else "none"


def _refuse_code(outline: str) -> None:
    for pattern in (_READS_CODE, _INTERPRETS, _NAMED_BY_ARGUMENT, _IN_PROGRAM):
        if (found := pattern.search(outline)) is not None:
            word = " ".join((found["word"] or found[0]).split()).replace(_HERE, "")
            raise ConfigError(
                f"its command has {word!r}, which would take an argument for code; put it into a script of its own "
                "that takes the argument as a word"
            )


def _unplain(text: str) -> ConfigError:
    return ConfigError(
        f"its command has {text[:20]!r} beside or around a place for an argument, so that it is not plain how bash "
        "would read it; arguments stand among bare words or between simple quotes, and not in $( ), ${ }, backticks, "
        "here-documents or comments"
    )
