"""Messages: encode, decode, correlation ids, and templates with `{name}` placeholders filled for every call."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring_ascii
from json.scanner import make_scanner
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from toolpost.contracts.errors import ConfigError, ToolClientError, ToolOutputError, ToolValidationError
from toolpost.schema.json_size import MAX_DIRECT_VALUES, SMALL, measure_json
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.templates import fill_template, only_slot, slot_names, split_template
from toolpost.web.requests import UnsendableError, format_value, sanitize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.contracts.config import WebSocketOptions

    Build = Callable[["Arguments", int], str]
    Part = Callable[["Arguments", int], str | None]

_SHOWN = 80


def json_text(value: Any) -> str:
    """Encode a value as JSON in ASCII."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolValidationError(f"the message is not JSON: {error}") from None


def json_value(message: str | bytes) -> Any:
    """Parse a JSON message; raise a ToolOutputError with its beginning when it is none."""
    if len(message) > SMALL:
        measure_json(
            message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message, MAX_DIRECT_VALUES
        )
    try:
        text = message if isinstance(message, str) else message.decode()
        if text[:1] == "{":  # half the price of `decode`, where there is no white space around it
            value, end = _scan(text, 0)
            if end == len(text):
                return value
        return _decoder.decode(text)
    except (ValueError, RecursionError, StopIteration):
        raise ToolOutputError(f"the answer is not JSON: {excerpt(message)}") from None


def excerpt(message: str | bytes) -> str:
    """Return the beginning of a message for an error."""
    head = message[: 4 * _SHOWN]
    return repr(beginning(sanitize(head if isinstance(head, str) else head.decode(errors="replace"), ()), _SHOWN))


def beginning(text: str, longest: int) -> str:
    """Shorten a text; an ellipsis marks the cut, since a secret may have been cut in two."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def sendable_text(text: str) -> str:
    """Return a text that can be sent; raise for half of a surrogate pair, which has no bytes."""
    octets(text)
    return text


def octets(text: str) -> bytes:
    """Encode a text; raise a ToolValidationError when it has no bytes."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolValidationError(f"the message cannot be sent: {error.reason}") from None


def listed(value: Any) -> Any:
    """Convert a value for a JSON list: bytes become base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _decode_text(message: str | bytes) -> str:
    try:
        return message if isinstance(message, str) else message.decode()
    except UnicodeDecodeError:
        raise ToolOutputError("the answer is not text; `format: bytes` takes it as it is") from None


def _bytes(message: str | bytes) -> bytes:
    return message.encode() if isinstance(message, str) else message


ENCODERS: dict[str, Callable[[str], str | bytes]] = {"json": str, "text": sendable_text, "bytes": octets}
DECODERS: dict[str, Callable[[str | bytes], Any]] = {"json": json_value, "text": _decode_text, "bytes": _bytes}


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_decoder = json.JSONDecoder(parse_constant=_no_number)
_scan = make_scanner(cast("Any", _decoder))  # its stub wants a scanner of a decoder


Path = tuple[str, ...]

_JSON_RPC = "2.0"


def path_of(field: str) -> Path:
    """Split a dotted path."""
    return tuple(field.split("."))


def value_at(value: Any, path: Path) -> Any:
    """Return the value at a path, or None."""
    for key in path:
        if not is_object(value):
            return None
        value = value.get(key)
    return value


class Correlation(NamedTuple):
    """Where messages carry their correlation ids."""

    sent: Path
    returned: Path
    as_text: bool = False

    @classmethod
    def of(cls, options: WebSocketOptions) -> Correlation:
        """Read the paths of the source's configuration."""
        returned = options.reply_id_field or options.id_field
        return cls(path_of(options.id_field), path_of(returned), options.id_type == "text")

    def taken(self, answer: Any) -> int | None:
        """Remove the id from an answer and return its number; None for a message that answers no call.

        Such a message may lose the value at the place of the id.
        """
        path = self.returned
        holder = answer if len(path) == 1 else value_at(answer, path[:-1])
        if not is_object(holder) or ("method" in answer and _is_request(answer)):
            return None
        value = holder.pop(path[-1], None)
        return value if type(value) is int else _number(value)


def _is_request(message: dict[str, Any]) -> bool:
    """Return whether a message is a JSON-RPC request of the server, whose id is not one of a call."""
    return message.get("jsonrpc") == _JSON_RPC and "result" not in message and "error" not in message


def _number(value: Any) -> int | None:
    """Parse an id, also one that a server turned into a text. `True` is a number to Python, but no id."""
    if type(value) is str and value.isdecimal() and len(value) < 20:
        return int(value)
    return None


def result_of(answer: Any) -> Any:
    """Return the result of an answer: its JSON-RPC `result`, or all of it; raise a ToolClientError for an error."""
    if not is_object(answer):
        return answer
    if (error := answer.get("error")) and _describes_failure(error):
        raise ToolClientError(f"the server answered with an error: {_words(error, answer)}", code="error_answer")
    if answer.get("jsonrpc") == _JSON_RPC and "result" in answer:
        return answer["result"]
    return answer


def _describes_failure(error: Any) -> bool:
    """Return whether an `error` value describes a failure; a number may as well be the error of a measurement."""
    return error is True or isinstance(error, (str, dict))


def _words(error: Any, answer: dict[str, Any]) -> str:
    reason = answer.get("message", "no reason is given") if error is True else error
    if not is_object(reason):
        return sanitize(reason if isinstance(reason, str) else json_text(reason), ())
    message, code = reason.get("message"), reason.get("code")
    if not isinstance(message, str):
        return sanitize(json_text(reason), ())
    return sanitize(message if code is None else f"{message} (code {code})", ())


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


def list_placeholders(template: Any) -> list[str]:
    """List the placeholders of a template, each once, in order."""
    return list(dict.fromkeys(_names(template)))


def _whole(part: Part, template: Any) -> Build:
    def build(arguments: Arguments, number: int) -> str:
        text = part(arguments, number)
        if text is None:
            missing = [name for name in list_placeholders(template) if name not in arguments]
            raise ToolValidationError(f"{', '.join(map(repr, missing))}: there is no message without it")
        return text

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
    """Return whether every placeholder is a whole value, so that a message is its literals and arguments in turn."""
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
            return _mark(template)
        case str() if (slot := only_slot(template)) is not None:
            return _slot(slot.name)
        case str():
            return _quote(_text(template))
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


def _quote(part: Part) -> Part:
    def fill(arguments: Arguments, number: int) -> str | None:
        text = part(arguments, number)
        return None if text is None else json_text(text)

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


def _mark(template: _Marked) -> Part:
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
        members = [key + text for key, part in parts if (text := part(arguments, number)) is not None]
        return f"{{{','.join(members)}}}"

    return fill


def _array(template: list[Any]) -> Part:
    parts = [_part(item) for item in template]

    def fill(arguments: Arguments, number: int) -> str:
        items = [text for part in parts if (text := part(arguments, number)) is not None]
        return f"[{','.join(items)}]"

    return fill
