"""A command of bash as the words that it means, with `{name}` where an argument goes, to be run without a shell.

Only what is the same without a shell is taken: words, quotes, variables. All else is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError
from toolpost.schema.templates import slots_of
from toolpost.sources.utcp.command_places import PLACE

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE = r"\$(?P<variable>[A-Za-z_]\w*+(?!\\\n)|\{[A-Za-z_]\w*\})"
_FLAGS = re.DOTALL | re.ASCII
_PIECES = {
    "": re.compile(
        rf"{PLACE}|{_VARIABLE}|(?P<joined>\\\n)|\\(?P<escaped>.)|(?P<quote>['\"])|(?P<space>[ \t]+)"
        r"|(?P<shell>[;&|<>()`*?\[\n\r\\]|\$(?=[\w@*#?$!({\['\"-]|\\\n)"
        r"|\{(?=.*(?:,|\.\.).*\})|(?:^|(?<=[\s=:]))~|(?:^|(?<=\s))\#)|(?P<text>.)",
        _FLAGS,
    ),
    '"': re.compile(
        rf"{PLACE}|{_VARIABLE}|(?P<joined>\\\n)|\\(?P<escaped>[$`\"\\])|(?P<quote>\")"
        r"|(?P<shell>`|\$(?=[\w@*#?$!({\[-]|\\\n))|(?P<text>.)",
        _FLAGS,
    ),
    "'": re.compile(rf"{PLACE}|(?P<quote>')|(?P<text>.)", _FLAGS),
}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)


class Wording:
    """Reads one command; `missing` are the variables in it that the environment of the command does not have."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.missing: list[str] = []
        self._env = env
        self._words: list[str] = []
        self._word: str | None = None

    def read(self, command: str) -> tuple[str, ...]:
        """The words of a command; ConfigError where only a shell could run it."""
        text, quotes, at = command.strip(), "", 0
        while (match := _PIECES[quotes].match(text, at)) is not None:
            at = match.end()
            match match.lastgroup:
                case "quote":
                    quotes = "" if quotes else match[0]
                    self._add("")
                case "space":
                    self._end_word()
                case "joined":
                    continue
                case _:
                    self._add(self._piece(match))
        if quotes:
            raise ConfigError(f"its command has a quote {quotes} that is never closed")
        self._end_word()
        return self._checked(text)

    def _piece(self, found: re.Match[str]) -> str:
        match found.lastgroup:
            case "place":
                return f"{{{_name(found['place'])}}}"
            case "variable":
                return _literal(self._variable(found["variable"].strip("{}")))
            case "escaped":
                return _literal(found["escaped"])
            case "shell":
                raise ConfigError(
                    f"its command has {found[0]!r}, which only a shell reads; put it in quotes if it is meant as text"
                )
            case _:
                return _literal(found[0])

    def _variable(self, name: str) -> str:
        if name not in self._env:
            self.missing.append(name)
        return self._env.get(name, "")

    def _add(self, piece: str) -> None:
        self._word = (self._word or "") + piece

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
        self._word = None

    def _checked(self, text: str) -> tuple[str, ...]:
        if _ASSIGNMENT.match(text):
            raise ConfigError("its command begins by setting a variable, which only a shell does; use env_vars")
        if not self._words or not self._words[0]:
            raise ConfigError("its command is empty")
        if slots_of(self._words[0]):
            raise ConfigError("its command has an argument in the place of the program; a program must be written")
        return tuple(self._words)


def _name(place: str) -> str:
    if place[0].isdigit():
        raise ConfigError(f"its command has a place for {place!r}; an argument's name begins with a letter")
    return place


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
