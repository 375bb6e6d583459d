"""A command as an operator wrote it, checked once against the schema of its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.catalog.specs import closed_schema
from toolpost.contracts.errors import ConfigError, ToolValidationError
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.templates import filled, slots_of
from toolpost.sources.cli.words import Word, filled_words, half_slot, lost_flag, read_words, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolpost.contracts.options import CliTool
    from toolpost.contracts.spec import JsonSchema

_COMPOSED = ("allOf", "anyOf", "oneOf")


class Template(NamedTuple):
    """What is run: fixed words, words with arguments, and what the command reads."""

    fixed: tuple[str, ...]
    words: tuple[Word, ...]
    stdin: str | None
    required: tuple[str, ...]

    def argv(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The command line of one call."""
        missing = [name for name in self.required if arguments.get(name) is None and self._needs(name)]
        if missing:
            raise ToolValidationError([f"{name}: required, and nothing runs without it" for name in missing])
        return (*self.fixed, *filled_words(self.words, arguments))

    def _needs(self, name: str) -> bool:
        return any(name in word.slots for word in self.words) or name in slots_of(self.stdin or "")

    def input(self, arguments: Mapping[str, Any]) -> bytes:
        """What the command reads in one call."""
        if self.stdin is None:
            return b""
        text = filled(self.stdin, lambda name: _text(arguments.get(name)))
        return text.encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    return "" if value is None else value_text(value)


def read_template(tool: CliTool, fixed: Sequence[str], *, is_described: bool = False) -> tuple[Template, JsonSchema]:
    """The command with the schema of its arguments; ConfigError says where the two do not agree.

    In the words that a manual describes a boolean is a word like any other: `true` or `false`.
    """
    if not is_described:
        _refuse_misspelt([*tool.args, tool.stdin or ""])
    words = tuple(read_words(tool.args))
    schema = _schema(tool, words)
    _check(words, tool.stdin or "", _properties(schema), is_described=is_described)
    return Template(tuple(fixed), words, tool.stdin, _required(schema)), schema


def unused(template: Template, schema: JsonSchema) -> list[str]:
    """The arguments that go nowhere."""
    named = {name for word in template.words for name in (*word.slots, word.flag)} | {*slots_of(template.stdin or "")}
    return [name for name in _properties(schema) if name not in named]


def _schema(tool: CliTool, words: Sequence[Word]) -> JsonSchema:
    """The operator's schema, or one from the placeholders; what it does not name would go nowhere, and is refused."""
    if "input_schema" in tool.model_fields_set:
        return closed_schema({"type": "object", "properties": {}, **tool.input_schema})
    slots = list(dict.fromkeys([*(name for word in words for name in word.slots), *slots_of(tool.stdin or "")]))
    flags = {word.flag: {"type": "boolean"} for word in words if word.flag is not None}
    texts = {name: {"type": "string"} for name in slots}
    return {"type": "object", "properties": {**flags, **texts}, "required": slots, "additionalProperties": False}


def _refuse_misspelt(written: Sequence[str]) -> None:
    for text in written:
        if half_slot(text):
            how = "an argument is written {name}, and a brace itself {{ or }}"
            raise ConfigError(f"the word {text!r} has a brace without its other half; {how}")
        if lost_flag(text):
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
    for name in slots_of(stdin):
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
    """The arguments that a schema names, also in the schemas that it is composed of."""
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
