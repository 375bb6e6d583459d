"""Words of a command line with placeholders, filled in without a shell."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from toolpost.contracts import errors
from toolpost.schema.templates import Slot, fill_template, only_slot, slot_names, split_template

_FLAG = re.compile(r"\{([A-Za-z_][\w.-]*)\?([^{}]+)\}")
_MEANT = re.compile(r"\{\{|\}\}|\{[A-Za-z_][\w.-]*(?:\?[^{}]+)?\}")  # valid uses of braces
_HALF_SLOT = re.compile(r"\{[A-Za-z_]|[\w.-]\}")
_BEGUN_FLAG = re.compile(r"\{[A-Za-z_][\w.-]*\?")
_BRACES = re.compile(r"\{\{|\}\}")
_SCRIPT = re.compile(r"""[\s'"]""")
_END_OF_OPTIONS = "--"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Word(NamedTuple):
    """One word of the template, with the option word directly before it.

    `flag` is the argument that adds the word. `slots` are the arguments in it: a word with a missing argument is
    omitted with its option. `is_free` allows a value that looks like an option, if no program would parse it as one.
    """

    text: str
    slots: tuple[str, ...] = ()
    flag: str | None = None
    option: str | None = None
    is_whole: bool = False
    is_free: bool = True


def parse_words(texts: Iterable[str]) -> list[Word]:
    """Parse the words after those of the connection.

    A `--` applies to the slots that follow it directly: after another word it may belong to another program.
    """
    words: list[Word] = []
    ended = False
    for text in texts:
        word = _parse_word(text, ended=ended)
        ended = text == _END_OF_OPTIONS or (ended and bool(word.slots))
        if word.slots and _begins_with_slot(text) and words and _is_option(words[-1]):
            word = word._replace(option=words.pop().text)
        words.append(word)
    return words


def fill_words(words: Iterable[Word], arguments: Mapping[str, Any]) -> list[str]:
    """Fill the words with the arguments of one call; raise a ToolValidationError for a value that cannot be a word."""
    argv: list[str] = []
    for word in words:
        if word.flag is not None:
            argv += [word.text] if arguments.get(word.flag) is True else []
        elif not word.slots:
            argv.append(word.text)
        elif values := _values(word, arguments):
            argv += values if word.option is None else [word.option, *values]
    return argv


def has_half_slot(text: str) -> bool:
    """Return whether a slot lacks one of its braces; words of a script may contain other braces."""
    rest = _MEANT.sub("", text)
    return rest.count("{") != rest.count("}") and not _SCRIPT.search(text) and _HALF_SLOT.search(text) is not None


def has_misplaced_flag(text: str) -> bool:
    """Return whether a flag is misplaced: in the middle of a word, or with an argument in it."""
    if _FLAG.fullmatch(text) or _SCRIPT.search(text):
        return False
    return _BEGUN_FLAG.search(_BRACES.sub("", text)) is not None


def _parse_word(text: str, *, ended: bool) -> Word:
    if (flag := _FLAG.fullmatch(text)) is not None:
        return Word(flag[2], flag=flag[1])
    slots = tuple(slot_names(text))
    if not slots:
        return Word("".join(cast("tuple[str, ...]", split_template(text))))
    is_free = ended or not _begins_with_slot(text)
    return Word(text, slots, is_whole=only_slot(text) is not None, is_free=is_free)


def _begins_with_slot(text: str) -> bool:
    return isinstance(split_template(text)[0], Slot)


def _is_option(word: Word) -> bool:
    """Return whether a word is an option that may take the next word as its value."""
    if word.slots or word.flag or word.option:
        return False
    return word.text.startswith("-") and word.text.strip("-") != "" and "=" not in word.text


def _values(word: Word, arguments: Mapping[str, Any]) -> list[str]:
    """Fill one word: no word if an argument is missing, several if the word is one slot and its value a list."""
    values = [arguments.get(name) for name in word.slots]
    if any(value is None for value in values):
        return []
    if word.is_whole:
        return [_fit(value_text(item), word, [item]) for item in _items(values[0])]
    return [_fit(fill_template(word.text, lambda name: value_text(arguments[name])), word, values)]


def _items(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else (value,)


def _fit(text: str, word: Word, values: Sequence[Any]) -> str:
    """Return the text if it can be a word at this place; raise a ToolValidationError if not."""
    names = ", ".join(word.slots)
    if "\0" in text:
        raise errors.ToolValidationError(f"{names}: contains a NUL character, which is not allowed in a command line")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        what = f"the character {text[error.start]!r}, which is not allowed in a command line here"
        raise errors.ToolValidationError(f"{names}: contains {what}") from None
    if word.is_free or not text.startswith("-"):
        return text
    are_numbers = all(isinstance(value, (int, float)) for value in values)
    # If the option takes no operand, the program would parse this text as an option.
    if not (word.option and are_numbers):
        raise errors.ToolValidationError(f"{names}: begins with '-' and would be parsed as an option of the command")
    return text


def value_text(value: Any) -> str:
    """Return a string unchanged and any other value as JSON."""
    return value if isinstance(value, str) else _encode(value)
