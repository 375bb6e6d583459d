"""The words of a command: read once from what an operator wrote, and filled with the arguments of each call."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.templates import Slot, filled, only_slot, pieces_of, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_FLAG = re.compile(r"\{([A-Za-z_][\w.-]*)\?([^{}]+)\}")
_MEANT = re.compile(r"\{\{|\}\}|\{[A-Za-z_][\w.-]*(?:\?[^{}]+)?\}")  # what braces are for
_HALF_SLOT = re.compile(r"\{[A-Za-z_]|[\w.-]\}")
_BEGUN_FLAG = re.compile(r"\{[A-Za-z_][\w.-]*\?")
_BRACES = re.compile(r"\{\{|\}\}")
_SCRIPT = re.compile(r"""[\s'"]""")
_END_OF_OPTIONS = "--"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Word(NamedTuple):
    """One word of the template, with the option word directly before it.

    `flag` is the argument that says whether the word is there. `slots` are the arguments in it: a word whose
    argument is absent is left out, its option too. `is_free` says that a value may look like an option, because
    nobody takes it for one.
    """

    text: str
    slots: tuple[str, ...] = ()
    flag: str | None = None
    option: str | None = None
    is_whole: bool = False
    is_free: bool = True


def read_words(words: Iterable[str]) -> list[Word]:
    """The words after those of the connection.

    A `--` counts for the slots that follow it directly: behind another word it may be another program's.
    """
    found: list[Word] = []
    ended = False
    for text in words:
        word = _read_word(text, ended=ended)
        ended = text == _END_OF_OPTIONS or (ended and bool(word.slots))
        if word.slots and _begins_with_slot(text) and found and _is_option(found[-1]):
            word = word._replace(option=found.pop().text)
        found.append(word)
    return found


def _read_word(text: str, *, ended: bool) -> Word:
    if (flag := _FLAG.fullmatch(text)) is not None:
        return Word(flag[2], flag=flag[1])
    slots = tuple(slots_of(text))
    if not slots:
        return Word("".join(cast("tuple[str, ...]", pieces_of(text))))
    is_free = ended or not _begins_with_slot(text)
    return Word(text, slots, is_whole=only_slot(text) is not None, is_free=is_free)


def half_slot(text: str) -> bool:
    """Whether a brace is missing from what is meant as a slot; a script has braces of its own."""
    rest = _MEANT.sub("", text)
    return rest.count("{") != rest.count("}") and not _SCRIPT.search(text) and _HALF_SLOT.search(text) is not None


def lost_flag(text: str) -> bool:
    """Whether a flag stands where it is none: in the middle of a word, or with an argument in it."""
    if _FLAG.fullmatch(text) or _SCRIPT.search(text):
        return False
    return _BEGUN_FLAG.search(_BRACES.sub("", text)) is not None


def _begins_with_slot(text: str) -> bool:
    return isinstance(pieces_of(text)[0], Slot)


def _is_option(word: Word) -> bool:
    """Whether it may want the next word; what has its value behind an equals sign does not."""
    if word.slots or word.flag or word.option:
        return False
    return word.text.startswith("-") and word.text.strip("-") != "" and "=" not in word.text


def filled_words(words: Iterable[Word], arguments: Mapping[str, Any]) -> list[str]:
    """The words of one call; ToolValidationError names an argument that cannot be one."""
    found: list[str] = []
    for word in words:
        if word.flag is not None:
            found += [word.text] if arguments.get(word.flag) is True else []
        elif not word.slots:
            found.append(word.text)
        elif values := _values(word, arguments):
            found += values if word.option is None else [word.option, *values]
    return found


def _values(word: Word, arguments: Mapping[str, Any]) -> list[str]:
    """What a word becomes: nothing when an argument is absent, several words when it is a list and nothing else."""
    given = [arguments.get(name) for name in word.slots]
    if any(value is None for value in given):
        return []
    if word.is_whole:
        return [_fit(value_text(item), word, [item]) for item in _items(given[0])]
    return [_fit(filled(word.text, lambda name: value_text(arguments[name])), word, given)]


def _items(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else (value,)


def _fit(text: str, word: Word, values: Sequence[Any]) -> str:
    """The text that these values make, if it can be a word here."""
    names = ", ".join(word.slots)
    if "\0" in text:
        raise ToolValidationError(f"{names}: holds a NUL character, which no command line can carry")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        what = f"the character {text[error.start]!r}, which no command line can carry here"
        raise ToolValidationError(f"{names}: holds {what}") from None
    if word.is_free or not text.startswith("-"):
        return text
    are_numbers = all(isinstance(value, (int, float)) for value in values)
    if not (word.option and are_numbers):  # An option may want no operand: a text in its place would be an option.
        raise ToolValidationError(f"{names}: begins with '-', and would be taken for an option of the command")
    return text


def value_text(value: Any) -> str:
    """A value as a command reads it: a text as it is, everything else as JSON writes it."""
    return value if isinstance(value, str) else _encode(value)
