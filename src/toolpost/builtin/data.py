"""Tools for data formats: JSON and base64."""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Annotated, Any, cast

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.spec import ToolCategory
from toolpost.schema.json_values import refuse_constant

# Deeper values cannot be validated, displayed or stored.
_DEEPEST = 200
_MOST_DIGITS = 4000

# Explicit, because clients reject a property without a type.
JsonValue = str | float | bool | dict[str, Any] | list[Any] | None


class ParseResult(TypedDict):
    """The value of a JSON text."""

    data: JsonValue


class StringifyResult(TypedDict):
    """A JSON text."""

    text: str


class EncodeResult(TypedDict):
    """Base64."""

    encoded: str


class DecodeResult(TypedDict):
    """The decoded text."""

    decoded: str


def data_tools() -> list[FunctionTool]:
    """Return the tools of this module."""
    return [json_parse, json_stringify, base64_encode, base64_decode]


@tool(side_effects="pure", category=ToolCategory.DATA, tags=["builtin", "data"], timeout_s=10)
def json_parse(text: Annotated[str, Field(description="The JSON text")]) -> ParseResult:
    """Parse a JSON text; NaN and Infinity are not JSON."""
    try:
        data = json.loads(text, parse_constant=refuse_constant, parse_float=_float, parse_int=_int)
    except RecursionError:
        raise _too_deep("json_parse") from None
    except ValueError as wrong:
        raise ToolClientError(f"not JSON: {wrong}", tool_name="json_parse", code="json_invalid") from None
    if _depth_exceeds(data, _DEEPEST):
        raise _too_deep("json_parse")
    return {"data": data}


@tool(side_effects="pure", category=ToolCategory.DATA, tags=["builtin", "data"], timeout_s=10)
def json_stringify(
    data: Annotated[JsonValue, Field(description="Any JSON value")],
    pretty: Annotated[bool, Field(description="Indent, with one member per line")] = False,  # noqa: FBT002 - an argument of the tool
) -> StringifyResult:
    """Convert a value to JSON text."""
    try:
        return {"text": json.dumps(data, ensure_ascii=False, indent=2 if pretty else None, allow_nan=False)}
    except RecursionError:
        raise _too_deep("json_stringify") from None
    except (TypeError, ValueError) as wrong:
        message = f"the value cannot be written as JSON: {wrong}"
        raise ToolClientError(message, tool_name="json_stringify", code="json_invalid") from None


@tool(side_effects="pure", category=ToolCategory.DATA, tags=["builtin", "data"], timeout_s=10)
def base64_encode(text: Annotated[str, Field(description="The text, which is encoded as UTF-8 first")]) -> EncodeResult:
    """Encode a text as base64."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        message = "the text contains half of a surrogate pair, which UTF-8 cannot encode; correct the text"
        raise ToolClientError(message, tool_name="base64_encode", code="encoding_wrong") from None
    return {"encoded": base64.b64encode(data).decode()}


@tool(side_effects="pure", category=ToolCategory.DATA, tags=["builtin", "data"], timeout_s=10)
def base64_decode(
    encoded: Annotated[str, Field(description="Base64 of UTF-8 text; URL-safe or without padding, too")],
) -> DecodeResult:
    """Decode base64 to text."""
    plain = "".join(encoded.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as wrong:
        raise ToolClientError(f"not base64: {wrong}", tool_name="base64_decode", code="base64_invalid") from None
    try:
        return {"decoded": data.decode()}
    except UnicodeDecodeError as wrong:
        message = f"the {len(data)} decoded bytes are not UTF-8 text: {wrong.reason} at byte {wrong.start}"
        raise ToolClientError(message, tool_name="base64_decode", code="encoding_wrong") from None


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is too large to be stored")
    return number


def _int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits, which is more than {_MOST_DIGITS}")
    return int(text)


def _too_deep(tool_name: str) -> ToolClientError:
    message = f"the value is nested more than {_DEEPEST} levels deep; split it first"
    return ToolClientError(message, tool_name=tool_name, code="json_too_deep")


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [part for item in level for part in _members(item)]
        if not level:
            return False
    return True


def _members(value: Any) -> list[Any]:
    """Return the containers directly inside a value; other values add no depth."""
    inside: Any = ()
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value).values()
    elif isinstance(value, list):
        inside = cast("Any", value)
    return [part for part in inside if isinstance(part, (dict, list))]
