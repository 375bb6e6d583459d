"""What a connection leads to, as plain data: JSON or YAML, and told by its keys what it is."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

import yaml

from toolpost.contracts.errors import ConfigError
from toolpost.schema.jsontypes import is_array, is_object

Kind = Literal["manual", "openapi", "client", "template"]

MAX_BYTES = 64 * 1024 * 1024
# YAML is slow to read, and what it repeats by name is as large as written out.
_LONGEST_YAML = 8 * 1024 * 1024
_MOST_PARTS = 500_000
_DEEPEST = 200
_OPENAPI = ("openapi", "swagger")
_OTHER_FORMATS = {
    "mcpServers": "a list of MCP servers; connect those with transport: mcp",
    "__schema": "a GraphQL schema; connect it with transport: graphql",
    "asyncapi": "AsyncAPI, which describes messages",
    "paths": "an OpenAPI document whose version is missing; add `openapi: 3.1.0`",
    "manuals": "a client configuration, but its key is manual_call_templates, not manuals",
    "$schema": "a JSON Schema",
}
_loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Document(NamedTuple):
    """Data and what it is: a manual, an API's own document, a client's configuration, or one call template.

    `text` is what it was read from.
    """

    kind: Kind
    data: dict[str, Any]
    text: str


def document_of(raw: str | bytes, shown: str) -> Document:
    """Read a document; ConfigError says what was found where it is none of these."""
    text = _text(raw, shown)
    data = _parsed(text, shown)
    if is_array(data) and data and all(is_object(item) and "tool_call_template" in item for item in data):
        data = {"tools": data}
    if not is_object(data):
        what = "a list" if is_array(data) else "text" if isinstance(data, str) else "a single value"
        raise ConfigError(f"{shown} is not a UTCP manual: it holds {what}, not keys and values")
    kind = _kind(data, shown)
    if kind != "openapi":  # whoever reads those has limits of its own
        _weigh(data, shown, most=max(_MOST_PARTS, len(text)))
    return Document(kind, data, text)


def _text(raw: str | bytes, shown: str) -> str:
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{shown} is larger than {MAX_BYTES // 2**20} MiB, more than any manual needs")
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{shown} is not UTF-8 text; a manual is JSON or YAML") from None
    body = text.strip()
    if not body:
        raise ConfigError(f"{shown} is empty; give a UTCP manual")
    if body[0] == "<":
        raise ConfigError(f"{shown} looks like a web page, not like a UTCP manual; give the manual's own address")
    return body


def _kind(data: dict[str, Any], shown: str) -> Kind:
    if "manual_call_templates" in data:
        return "client"
    if is_array(data.get("tools")):
        return "manual"
    if any(key in data for key in _OPENAPI):
        return "openapi"
    if isinstance(data.get("call_template_type"), str):
        return "template"
    if "utcp_version" in data:
        raise ConfigError(f"{shown} is a UTCP manual without a list of tools; it needs `tools`")
    looks = next((kind for key, kind in _OTHER_FORMATS.items() if key in data), "")
    keys = ", ".join(repr(str(key)[:40]) for key in list(data)[:5]) or "none"
    told = f"it looks like {looks}" if looks else f"'utcp_version' and 'tools' are not among its keys ({keys})"
    raise ConfigError(f"{shown} is not a UTCP manual: {told}")


def _parsed(body: str, shown: str) -> Any:
    fault = ""
    if body[0] in "{[":
        try:
            return json.loads(body, parse_constant=str)
        except RecursionError:
            raise ConfigError(f"{shown} is nested too deeply") from None
        except ValueError as error:
            fault = f"it is not JSON: {error}"
    if len(body) > _LONGEST_YAML:
        raise ConfigError(f"{shown} cannot be read: {fault or 'it is too long for YAML; write it as JSON'}")
    try:
        return yaml.load(body, Loader=_loader)  # noqa: S506 - a safe loader, in C where there is one
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        told = fault or " ".join(f"it is neither JSON nor YAML: {error}".split())
        raise ConfigError(f"{shown} cannot be read: {told[:300]}") from None


def _weigh(data: dict[str, Any], shown: str, *, most: int) -> None:
    """Refuse what is small as YAML and endless as data: names that stand for one another."""
    open_parts: list[tuple[dict[str, Any] | list[Any], int]] = [(data, 0)]
    seen = 0
    while open_parts:
        part, depth = open_parts.pop()
        seen += len(part)
        if seen > most or depth > _DEEPEST:
            told = "is nested too deeply, or repeats itself by name too often"
            raise ConfigError(f"{shown} {told}; write it out as plain JSON")
        children = part.values() if is_object(part) else part
        open_parts += [(child, depth + 1) for child in children if is_object(child) or is_array(child)]
