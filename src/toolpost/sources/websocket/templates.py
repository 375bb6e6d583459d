"""Message templates with `{name}` placeholders, parsed once and filled for every call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from toolpost.contracts.errors import ConfigError, ToolValidationError
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.templates import fill_template, only_slot, slot_names, split_template
from toolpost.sources.websocket.messages import json_text
from toolpost.web.encoding import UnsendableError, format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.sources.websocket.messages import Correlation, Path

    Build = Callable[["Arguments", int], str]
    Part = Callable[["Arguments", int], str | None]

Arguments: TypeAlias = dict[str, Any]


class _Id(NamedTuple):
    """The place of the correlation id in a template."""

    as_text: bool


class _Hole(NamedTuple):
    """The place of a whole argument in a template; without a name, of the id."""

    name: str | None


class _Marked(NamedTuple):
    """An argument that holds the id inside; without a name, all arguments as one object."""

    name: str | None
    path: Path
    id: _Id


def json_message(template: Any, correlation: Correlation | None = None) -> Build:
    """Return a function that builds a JSON message from arguments and an id; without a template they are the message.

    Raises a ConfigError when the template has no place for the id.
    """
    if correlation is not None:
        template = _with_id(template, correlation.sent, _Id(correlation.as_text))
    if template is None:
        return lambda arguments, _: json_text(arguments)
    build = _whole(_part(template), template)
    return _flat(template, build) if _is_flat(template) else build


def text_message(template: Any) -> Build:
    """Return a function that builds a text message from arguments; other values than text become JSON."""
    if not isinstance(template, str):
        return json_message(template)
    return _whole(_text(template), template)


def wanted(template: Any) -> list[str]:
    """List the placeholders of a template, each once, in order."""
    return list(dict.fromkeys(_names(template)))


def _whole(part: Part, template: Any) -> Build:
    def build(arguments: Arguments, number: int) -> str:
        made = part(arguments, number)
        if made is None:
            missing = [name for name in wanted(template) if name not in arguments]
            raise ToolValidationError(f"{', '.join(map(repr, missing))}: there is no message without it")
        return made

    return build


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
        raise ConfigError(f"its message has no object that could hold an id as {path[0]!r}")
    key, *rest = path
    if not rest and key in template:
        raise ConfigError(f"its message has {key!r} of its own, where the id of a call goes; set websocket.id_field")
    return {**template, key: _with_id(template.get(key, {}), tuple(rest), mark) if rest else mark}


def _is_flat(template: Any) -> bool:
    """Whether every placeholder is a whole value, so that a message is its literals and arguments in turn."""
    if isinstance(template, str):
        return only_slot(template) is not None or not slot_names(template)
    if is_object(template):
        return all(map(_is_flat, template.values()))
    if is_array(template):
        return all(map(_is_flat, template))
    return not isinstance(template, _Marked)


def _flat(template: Any, otherwise: Build) -> Build:
    """Return a builder for flat templates, which encodes the literals once, at a third of the cost."""
    first, rest = "", list[tuple[str | None, str]]()
    for piece in _laid_out(template):
        if isinstance(piece, _Hole):
            rest.append((piece.name, ""))
        elif rest:
            rest[-1] = (rest[-1][0], rest[-1][1] + piece)
        else:
            first += piece

    def build(arguments: Arguments, number: int) -> str:
        text = first
        try:
            for name, literal in rest:
                text += (str(number) if name is None else json_text(arguments[name])) + literal
        except KeyError:
            return otherwise(arguments, number)
        return text

    return build


def _laid_out(template: Any) -> Iterator[str | _Hole]:
    """Yield the pieces of a flat template, in order."""
    if isinstance(template, _Id):
        yield from ('"', _Hole(None), '"') if template.as_text else (_Hole(None),)
    elif isinstance(template, str):
        slot = only_slot(template)
        yield json_text("".join(map(str, split_template(template)))) if slot is None else _Hole(slot.name)
    elif is_object(template):
        for place, (key, value) in enumerate(template.items()):
            yield f"{',' if place else '{'}{json_text(key)}:"
            yield from _laid_out(value)
        yield "}" if template else "{}"
    elif is_array(template):
        for place, item in enumerate(template):
            yield "," if place else "["
            yield from _laid_out(item)
        yield "]" if template else "[]"
    else:
        yield json_text(template)


def _part(template: Any) -> Part:
    match template:
        case _Id(as_text=as_text):
            return (lambda _, number: f'"{number}"') if as_text else (lambda _, number: str(number))
        case _Marked():
            return _marked(template)
        case str() if (slot := only_slot(template)) is not None:
            return _slot(slot.name)
        case str():
            return _quoted(_text(template))
        case _:
            return _container(template)


def _container(template: Any) -> Part:
    if is_object(template):
        return _object(template)
    if is_array(template):
        return _array(template)
    literal = json_text(template)
    return lambda _, __: literal


def _slot(name: str) -> Part:
    def fill(arguments: Arguments, _: int) -> str | None:
        return json_text(arguments[name]) if name in arguments else None

    return fill


def _quoted(text: Part) -> Part:
    def fill(arguments: Arguments, number: int) -> str | None:
        made = text(arguments, number)
        return None if made is None else json_text(made)

    return fill


def _text(template: str) -> Part:
    """Fill the placeholders of a text; None when an argument is missing."""
    names = slot_names(template)
    if not names:
        literal = "".join(piece for piece in split_template(template) if isinstance(piece, str))
        return lambda _, __: literal

    def fill(arguments: Arguments, _: int) -> str | None:
        if any(name not in arguments for name in names):
            return None
        return fill_template(template, lambda name: _word(name, arguments[name]))

    return fill


def _word(name: str, value: Any) -> str:
    try:
        return "null" if value is None else format_value(value)
    except UnsendableError as wrong:
        raise ToolValidationError(f"{name!r} cannot be put into the message: {wrong}") from None


def _marked(template: _Marked) -> Part:
    name, path, mark = template

    def fill(arguments: Arguments, number: int) -> str | None:
        value = arguments if name is None else arguments.get(name, {})
        return json_text(_with_value(value, path, str(number) if mark.as_text else number))

    return fill


def _with_value(value: Any, path: Path, mark: int | str) -> dict[str, Any]:
    """Return a copy of a value with the id at a path."""
    if not is_object(value):
        raise ToolValidationError(f"the message has no object that could hold its id as {path[0]!r}")
    key, *rest = path
    if not rest and key in value:
        raise ToolValidationError(f"the message has {key!r} of its own, where the id of the call goes")
    return {**value, key: _with_value(value.get(key, {}), tuple(rest), mark) if rest else mark}


def _object(template: dict[str, Any]) -> Part:
    parts = [(f"{json_text(key)}:", _part(value)) for key, value in template.items()]

    def fill(arguments: Arguments, number: int) -> str:
        made = [key + text for key, part in parts if (text := part(arguments, number)) is not None]
        return f"{{{','.join(made)}}}"

    return fill


def _array(template: list[Any]) -> Part:
    parts = [_part(item) for item in template]

    def fill(arguments: Arguments, number: int) -> str:
        made = [text for part in parts if (text := part(arguments, number)) is not None]
        return f"[{','.join(made)}]"

    return fill
