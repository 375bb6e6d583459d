"""Command templates: words with placeholders, filled in without a shell, and the schema of their arguments."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from toolpost.catalog.specs import closed_schema
from toolpost.contracts import errors
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.templates import Slot, fill_template, only_slot, slot_names, split_template
from toolpost.sources.commands.options import CliTool

_FLAG = re.compile(r"\{([A-Za-z_][\w.-]*)\?([^{}]+)\}")
_MEANT = re.compile(r"\{\{|\}\}|\{[A-Za-z_][\w.-]*(?:\?[^{}]+)?\}")  # valid uses of braces
_HALF_SLOT = re.compile(r"\{[A-Za-z_]|[\w.-]\}")
_BEGUN_FLAG = re.compile(r"\{[A-Za-z_][\w.-]*\?")
_BRACES = re.compile(r"\{\{|\}\}")
_SCRIPT = re.compile(r"""[\s'"]""")
_END_OF_OPTIONS = "--"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_COMPOSED = ("allOf", "anyOf", "oneOf")


class CommandTemplate(NamedTuple):
    """Fixed words, words with slots, and the template of stdin."""

    fixed: tuple[str, ...]
    words: tuple[Word, ...]
    stdin: str | None
    required: tuple[str, ...]

    def argv(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        used = {*slot_names(self.stdin or ""), *(name for word in self.words for name in word.slots)}
        missing = [name for name in self.required if arguments.get(name) is None and name in used]
        if missing:
            raise errors.ToolValidationError([f"{name}: required" for name in missing])
        return (*self.fixed, *fill_words(self.words, arguments))

    def input(self, arguments: Mapping[str, Any]) -> bytes:
        if self.stdin is None:
            return b""
        text = fill_template(self.stdin, lambda name: _text(arguments.get(name)))
        return text.encode("utf-8", "surrogatepass")


def parse_template(
    tool: CliTool, fixed: Sequence[str], *, is_described: bool = False
) -> tuple[CommandTemplate, JsonSchema]:
    """Parse a tool into its template and input schema; raise a ConfigError if they contradict each other.

    In the words of a manual, a boolean is filled in like other values: `true` or `false`.
    """
    if not is_described:
        _refuse_misspelt([*tool.args, tool.stdin or ""])
    words = tuple(parse_words(tool.args))
    schema = _schema(tool, words)
    _check(words, tool.stdin or "", _properties(schema), is_described=is_described)
    required: Any = schema.get("required", [])
    if not is_array(required) or not all(isinstance(name, str) for name in required):
        raise errors.ConfigError("`required` in its input_schema is a list of names")
    return CommandTemplate(tuple(fixed), words, tool.stdin, tuple(required)), schema


def unused_arguments(template: CommandTemplate, schema: JsonSchema) -> list[str]:
    """Return the arguments that the template does not use."""
    named = {name for word in template.words for name in (*word.slots, word.flag)} | {*slot_names(template.stdin or "")}
    return [name for name in _properties(schema) if name not in named]


def _text(value: Any) -> str:
    return "" if value is None else value_text(value)


def _schema(tool: CliTool, words: Sequence[Word]) -> JsonSchema:
    """Return the configured schema, or derive one from the slots; unknown arguments are refused."""
    if "input_schema" in tool.model_fields_set:
        return closed_schema({"type": "object", "properties": {}, **tool.input_schema})
    slots = list(dict.fromkeys([*(name for word in words for name in word.slots), *slot_names(tool.stdin or "")]))
    flags = {word.flag: {"type": "boolean"} for word in words if word.flag is not None}
    texts = {name: {"type": "string"} for name in slots}
    return {"type": "object", "properties": {**flags, **texts}, "required": slots, "additionalProperties": False}


def _refuse_misspelt(texts: Sequence[str]) -> None:
    for text in texts:
        if has_half_slot(text):
            how = "an argument is written {name}, and a brace itself {{ or }}"
            raise errors.ConfigError(f"the word {text!r} has a brace without its other half; {how}")
        if has_misplaced_flag(text):
            how = "{name?--word} is a word of its own, without another argument in it; a brace itself is {{ or }}"
            raise errors.ConfigError(f"the word {text!r} has an invalid question mark: {how}")


def _check(words: Sequence[Word], stdin: str, properties: Mapping[str, Any], *, is_described: bool) -> None:
    for word in words:
        for name in (*word.slots, *([word.flag] if word.flag else [])):
            _refuse_unknown(name, properties)
        if word.flag is not None and not _is_boolean(properties[word.flag]):
            raise errors.ConfigError(
                f"{{{word.flag}?{word.text}}} is an optional word, but argument {word.flag!r} is not a boolean"
            )
        if word.is_whole and _is_boolean(properties[word.slots[0]]) and not is_described:
            name = word.slots[0]
            raise errors.ConfigError(
                f"argument {name!r} is a boolean and cannot be a word of its own; "
                f"write {{{name}?--{name}}} for a word that is added if it is true, or --{name}={{{name}}}"
            )
    for name in slot_names(stdin):
        _refuse_unknown(name, properties)


def _refuse_unknown(name: str, properties: Mapping[str, Any]) -> None:
    if name not in properties:
        names = ", ".join(properties) or "none"
        raise errors.ConfigError(f"{{{name}}} names no argument of its input_schema; there are: {names}")


def _is_boolean(schema: Any) -> bool:
    kind: Any = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
    return kind == "boolean" or (isinstance(kind, list) and "boolean" in kind)


def _properties(schema: JsonSchema) -> dict[str, Any]:
    """Return the properties of a schema and of the schemas that it combines."""
    return {name: part for one in _parts(schema) for name, part in _read_properties(one).items()}


def _read_properties(schema: JsonSchema) -> dict[str, Any]:
    properties: Any = schema.get("properties", {})
    if not is_object(properties):
        raise errors.ConfigError("`properties` in its input_schema is a table: each name with its schema")
    return properties


def _parts(schema: JsonSchema) -> Iterator[JsonSchema]:
    yield schema
    for keyword in _COMPOSED:
        parts: Any = schema.get(keyword, [])
        if not is_array(parts):
            raise errors.ConfigError(f"`{keyword}` in its input_schema is a list of schemas")
        for part in parts:
            if is_object(part):
                yield from _parts(part)


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
