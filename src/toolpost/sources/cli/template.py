"""Command templates: parsed and checked once against the schema of their arguments, filled for every call."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.catalog.specs import closed_schema
from toolpost.contracts.errors import ConfigError, ToolValidationError
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.templates import Slot, fill_template, only_slot, slot_names, split_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolpost.contracts.config import CliTool
    from toolpost.contracts.spec import JsonSchema

_COMPOSED = ("allOf", "anyOf", "oneOf")
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

    `flag` is the argument that decides whether the word is there. `slots` are the arguments in it: a word whose
    argument is absent is left out, its option too. `is_free` allows a value
    that looks like an option, where no program would parse it as one.
    """

    text: str
    slots: tuple[str, ...] = ()
    flag: str | None = None
    option: str | None = None
    is_whole: bool = False
    is_free: bool = True


def parse_words(words: Iterable[str]) -> list[Word]:
    """Parse the words after those of the connection.

    A `--` counts for the slots that follow it directly: behind another word it may be another program's.
    """
    found: list[Word] = []
    ended = False
    for text in words:
        word = _parse_word(text, ended=ended)
        ended = text == _END_OF_OPTIONS or (ended and bool(word.slots))
        if word.slots and _begins_with_slot(text) and found and _is_option(found[-1]):
            word = word._replace(option=found.pop().text)
        found.append(word)
    return found


def _parse_word(text: str, *, ended: bool) -> Word:
    if (flag := _FLAG.fullmatch(text)) is not None:
        return Word(flag[2], flag=flag[1])
    slots = tuple(slot_names(text))
    if not slots:
        return Word("".join(cast("tuple[str, ...]", split_template(text))))
    is_free = ended or not _begins_with_slot(text)
    return Word(text, slots, is_whole=only_slot(text) is not None, is_free=is_free)


def has_half_slot(text: str) -> bool:
    """Return whether a slot lacks one of its braces; words of a script may have braces of their own."""
    rest = _MEANT.sub("", text)
    return rest.count("{") != rest.count("}") and not _SCRIPT.search(text) and _HALF_SLOT.search(text) is not None


def has_misplaced_flag(text: str) -> bool:
    """Return whether a flag is misplaced: in the middle of a word, or with an argument in it."""
    if _FLAG.fullmatch(text) or _SCRIPT.search(text):
        return False
    return _BEGUN_FLAG.search(_BRACES.sub("", text)) is not None


def _begins_with_slot(text: str) -> bool:
    return isinstance(split_template(text)[0], Slot)


def _is_option(word: Word) -> bool:
    """Return whether a word is an option that may take the next word as its value."""
    if word.slots or word.flag or word.option:
        return False
    return word.text.startswith("-") and word.text.strip("-") != "" and "=" not in word.text


def fill_words(words: Iterable[Word], arguments: Mapping[str, Any]) -> list[str]:
    """Fill the words with the arguments of one call; raise a ToolValidationError for a value that cannot be a word."""
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
    """Fill one word: no word when an argument is absent, several when the word is one slot and its value a list."""
    given = [arguments.get(name) for name in word.slots]
    if any(value is None for value in given):
        return []
    if word.is_whole:
        return [_fit(value_text(item), word, [item]) for item in _items(given[0])]
    return [_fit(fill_template(word.text, lambda name: value_text(arguments[name])), word, given)]


def _items(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else (value,)


def _fit(text: str, word: Word, values: Sequence[Any]) -> str:
    """Return the text if it can be a word at this place; raise a ToolValidationError if not."""
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
    """Return a string unchanged and any other value as JSON."""
    return value if isinstance(value, str) else _encode(value)


class Template(NamedTuple):
    """Fixed words, words with slots, and the template of stdin."""

    fixed: tuple[str, ...]
    words: tuple[Word, ...]
    stdin: str | None
    required: tuple[str, ...]

    def argv(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Build the command line of one call."""
        missing = [name for name in self.required if arguments.get(name) is None and self._needs(name)]
        if missing:
            raise ToolValidationError([f"{name}: required, and nothing runs without it" for name in missing])
        return (*self.fixed, *fill_words(self.words, arguments))

    def _needs(self, name: str) -> bool:
        return any(name in word.slots for word in self.words) or name in slot_names(self.stdin or "")

    def input(self, arguments: Mapping[str, Any]) -> bytes:
        """Build the stdin of one call."""
        if self.stdin is None:
            return b""
        text = fill_template(self.stdin, lambda name: _text(arguments.get(name)))
        return text.encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    return "" if value is None else value_text(value)


def parse_template(tool: CliTool, fixed: Sequence[str], *, is_described: bool = False) -> tuple[Template, JsonSchema]:
    """Parse a tool into its template and input schema; raise a ConfigError where the two do not agree.

    In the words that a manual describes a boolean is a word like any other: `true` or `false`.
    """
    if not is_described:
        _refuse_misspelt([*tool.args, tool.stdin or ""])
    words = tuple(parse_words(tool.args))
    schema = _schema(tool, words)
    _check(words, tool.stdin or "", _properties(schema), is_described=is_described)
    return Template(tuple(fixed), words, tool.stdin, _required(schema)), schema


def unused_arguments(template: Template, schema: JsonSchema) -> list[str]:
    """Return the arguments that the template does not use."""
    named = {name for word in template.words for name in (*word.slots, word.flag)} | {*slot_names(template.stdin or "")}
    return [name for name in _properties(schema) if name not in named]


def _schema(tool: CliTool, words: Sequence[Word]) -> JsonSchema:
    """Return the configured schema, or derive one from the slots; unknown arguments are refused."""
    if "input_schema" in tool.model_fields_set:
        return closed_schema({"type": "object", "properties": {}, **tool.input_schema})
    slots = list(dict.fromkeys([*(name for word in words for name in word.slots), *slot_names(tool.stdin or "")]))
    flags = {word.flag: {"type": "boolean"} for word in words if word.flag is not None}
    texts = {name: {"type": "string"} for name in slots}
    return {"type": "object", "properties": {**flags, **texts}, "required": slots, "additionalProperties": False}


def _refuse_misspelt(written: Sequence[str]) -> None:
    for text in written:
        if has_half_slot(text):
            how = "an argument is written {name}, and a brace itself {{ or }}"
            raise ConfigError(f"the word {text!r} has a brace without its other half; {how}")
        if has_misplaced_flag(text):
            how = "{name?--word} is a word of its own, without another argument in it; a brace itself is {{ or }}"
            raise ConfigError(f"the word {text!r} has a question mark that means nothing there: {how}")


def _check(words: Sequence[Word], stdin: str, properties: Mapping[str, Any], *, is_described: bool) -> None:
    for word in words:
        for name in (*word.slots, *([word.flag] if word.flag else [])):
            _refuse_unknown(name, properties)
        if word.flag is not None and not _is_boolean(properties[word.flag]):
            raise ConfigError(
                f"{{{word.flag}?{word.text}}} is a word that is there or not, but argument {word.flag!r} is no boolean"
            )
        if word.is_whole and _is_boolean(properties[word.slots[0]]) and not is_described:
            name = word.slots[0]
            raise ConfigError(
                f"argument {name!r} is a boolean and cannot be a word of its own; "
                f"write {{{name}?--{name}}} for a word that is there when it is true, or --{name}={{{name}}}"
            )
    for name in slot_names(stdin):
        _refuse_unknown(name, properties)


def _refuse_unknown(name: str, properties: Mapping[str, Any]) -> None:
    if name not in properties:
        known = ", ".join(properties) or "none"
        raise ConfigError(f"{{{name}}} names no argument of its input_schema; there are: {known}")


def _is_boolean(schema: Any) -> bool:
    kind: Any = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
    return kind == "boolean" or (isinstance(kind, list) and "boolean" in kind)


def _required(schema: JsonSchema) -> tuple[str, ...]:
    required: Any = schema.get("required", [])
    if not is_array(required) or not all(isinstance(name, str) for name in required):
        raise ConfigError("`required` in its input_schema is a list of names")
    return tuple(required)


def _properties(schema: JsonSchema) -> dict[str, Any]:
    """Return the properties of a schema and of the schemas that it is composed of."""
    return {name: part for one in _parts(schema) for name, part in _named(one).items()}


def _named(schema: JsonSchema) -> dict[str, Any]:
    properties: Any = schema.get("properties", {})
    if not is_object(properties):
        raise ConfigError("`properties` in its input_schema is a table: each name with its schema")
    return properties


def _parts(schema: JsonSchema) -> Iterator[JsonSchema]:
    yield schema
    for keyword in _COMPOSED:
        parts: Any = schema.get(keyword, [])
        if not is_array(parts):
            raise ConfigError(f"`{keyword}` in its input_schema is a list of schemas")
        for part in parts:
            if is_object(part):
                yield from _parts(part)
