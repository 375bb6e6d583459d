"""Messages with `UTCP_ARG_name_UTCP_ARG` where an argument goes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.web.encoding import UnsendableError, compact_json, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"UTCP_ARG_(.+?)_UTCP_ARG")


def message_of(template: Any, arguments: Mapping[str, Any]) -> str:
    """The text to send: the template with its places filled, or without one all arguments as JSON.

    In a template that is JSON written as text, a value cannot end the quotes that it stands in.
    """
    if template is None:
        return _json(dict(arguments))
    if isinstance(template, str):
        return _filled(template, arguments, escaped=template.lstrip()[:1] in ("{", "["))
    return _json(_inside(template, arguments))


def words_of(arguments: Mapping[str, Any]) -> str:
    """The values alone, which is all that a text format without a template can mean."""
    return " ".join(_text(name, value) for name, value in arguments.items() if value is not None)


def _inside(part: Any, arguments: Mapping[str, Any]) -> Any:
    if isinstance(part, str):
        return _filled(part, arguments, escaped=False)
    if is_array(part):
        return [_inside(item, arguments) for item in part]
    if is_object(part):
        return {key: _inside(value, arguments) for key, value in part.items()}
    return part


def _filled(template: str, arguments: Mapping[str, Any], *, escaped: bool) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1]
        if arguments.get(name) is None:
            raise ToolValidationError(f"{name}: its message needs it")
        text = _text(name, arguments[name])
        return compact_json(text)[1:-1] if escaped and isinstance(arguments[name], str) else text

    return _PLACEHOLDER.sub(value, template)


def _text(name: str, value: Any) -> str:
    try:
        return text_of(value)
    except UnsendableError as error:
        raise ToolValidationError(f"{name}: {error}") from error


def _json(value: Any) -> str:
    try:
        return compact_json(value)
    except UnsendableError as error:
        raise ToolValidationError(str(error)) from error
