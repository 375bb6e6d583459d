"""Command templates: the words of a command and the schema of its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from toolpost.catalog.specs import closed_schema
from toolpost.contracts import errors
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.templates import fill_template, slot_names
from toolpost.sources.commands.options import CliTool
from toolpost.sources.commands.words import Word, fill_words, has_half_slot, has_misplaced_flag, parse_words, value_text

_COMPOSED = ("allOf", "anyOf", "oneOf")


class CommandTemplate(NamedTuple):
    """Fixed words, words with slots, and the template of stdin."""

    fixed: tuple[str, ...]
    words: tuple[Word, ...]
    stdin: str | None
    required: tuple[str, ...]

    def argv(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        missing = [name for name in self.required if arguments.get(name) is None and self._needs(name)]
        if missing:
            raise errors.ToolValidationError([f"{name}: required" for name in missing])
        return (*self.fixed, *fill_words(self.words, arguments))

    def _needs(self, name: str) -> bool:
        return any(name in word.slots for word in self.words) or name in slot_names(self.stdin or "")

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
