"""Templates of messages: build the message of a call from its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from toolpost.contracts.errors import ConfigError, ToolValidationError
from toolpost.http.encoding import UnsendableError, format_value
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.templates import fill_template, only_slot, slot_names, split_template
from toolpost.sources.websocket.correlation import Correlation, Path
from toolpost.sources.websocket.messages import json_text

Arguments: TypeAlias = dict[str, Any]
Build: TypeAlias = Callable[[Arguments, int], str]
Fill: TypeAlias = Callable[[Arguments, int], Any]
_ABSENT: Final = object()  # the value of a part with a missing argument


def json_message(template: Any, correlation: Correlation | None = None) -> Build:
    """Return a function that builds a JSON message from arguments and an id.

    Without a template, the arguments are the message. Raises a ConfigError if the template has no place for the id.
    """
    if correlation is not None:
        template = _with_id(template, correlation.sent, _Id(correlation.as_text))
    if template is None:
        return lambda arguments, _: json_text(arguments)
    fill = _whole(_compile(template), template)
    return lambda arguments, number: json_text(fill(arguments, number))


def text_message(template: Any) -> Build:
    """Return a function that builds a text message from arguments; values that are not strings become JSON."""
    return _whole(_text(template), template) if isinstance(template, str) else json_message(template)


def list_placeholders(template: Any) -> list[str]:
    """List the placeholders of a template, each once, in order."""
    return list(dict.fromkeys(_names(template)))


class _Id(NamedTuple):
    """The place of the correlation id in a template."""

    as_text: bool

    def value(self, number: int) -> int | str:
        return str(number) if self.as_text else number


class _Marked(NamedTuple):
    """An argument that contains the id; without a name, all arguments as one object."""

    name: str | None
    path: Path
    id: _Id


def _names(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield from slot_names(template)
    elif isinstance(template, _Marked):
        yield from () if template.name is None else (template.name,)
    elif is_object(template):
        for value in template.values():
            yield from _names(value)
    elif is_array(template):
        for item in template:
            yield from _names(item)


def _with_id(template: Any, path: Path, mark: _Id) -> Any:
    """Return the template with the id at a path."""
    if template is None:
        return _Marked(None, path, mark)
    if isinstance(template, str) and (slot := only_slot(template)) is not None:
        return _Marked(slot.name, path, mark)
    if not is_object(template):
        raise ConfigError(f"its message has no object for an id at {path[0]!r}")
    key, *rest = path
    if not rest and key in template:
        raise ConfigError(f"its message already has {key!r}, the place of the call's id; set options.id_field")
    return {**template, key: _with_id(template.get(key, {}), tuple(rest), mark) if rest else mark}


def _whole(fill: Fill, template: Any) -> Fill:
    def build(arguments: Arguments, number: int) -> Any:
        value = fill(arguments, number)
        if value is _ABSENT:
            missing = [name for name in list_placeholders(template) if name not in arguments]
            raise ToolValidationError(f"{', '.join(map(repr, missing))}: required for the message")
        return value

    return build


def _compile(template: Any) -> Fill:
    """Return a function that fills in a template; members and items with a missing argument are omitted."""
    match template:
        case _Id():
            return lambda _, number: template.value(number)
        case _Marked():
            return _marked(template)
        case str() if (slot := only_slot(template)) is not None:
            return lambda arguments, _: arguments.get(slot.name, _ABSENT)
        case str():
            return _text(template)
        case _:
            return _container(template)


def _container(template: Any) -> Fill:
    if is_object(template):
        members = [(key, _compile(value)) for key, value in template.items()]
        return lambda arguments, number: {
            key: value for key, fill in members if (value := fill(arguments, number)) is not _ABSENT
        }
    if is_array(template):
        items = [_compile(item) for item in template]
        return lambda arguments, number: [value for fill in items if (value := fill(arguments, number)) is not _ABSENT]
    return lambda _, __: template


def _text(template: str) -> Fill:
    names = slot_names(template)
    if not names:
        literal = "".join(piece for piece in split_template(template) if isinstance(piece, str))
        return lambda _, __: literal

    def fill(arguments: Arguments, _: int) -> Any:
        if any(name not in arguments for name in names):
            return _ABSENT
        return fill_template(template, lambda name: _word(name, arguments[name]))

    return fill


def _word(name: str, value: Any) -> str:
    try:
        return "null" if value is None else format_value(value)
    except UnsendableError as wrong:
        raise ToolValidationError(f"{name!r} cannot be part of the message: {wrong}") from None


def _marked(template: _Marked) -> Fill:
    name, path, mark = template
    return lambda arguments, number: _with_value(
        arguments if name is None else arguments.get(name, {}), path, mark.value(number)
    )


def _with_value(value: Any, path: Path, mark: int | str) -> dict[str, Any]:
    """Return a copy of a value with the id at a path."""
    if not is_object(value):
        raise ToolValidationError(f"the message has no object for its id at {path[0]!r}")
    key, *rest = path
    if not rest and key in value:
        raise ToolValidationError(f"the message already has {key!r}, the place of the call's id")
    return {**value, key: _with_value(value.get(key, {}), tuple(rest), mark) if rest else mark}
