"""Parse the documents of an API: JSON or YAML, gzipped or not, in any Unicode encoding."""

from __future__ import annotations

import codecs
import json
import math
import re
import zlib
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit, urlunsplit

from toolpost.contracts.errors import ConfigError
from toolpost.schema.json_values import cooperative_decoder, is_array, is_object
from toolpost.sources.openapi.yaml_text import YamlError, load_yaml

Dialect = Literal["2.0", "3.0", "3.1", "3.2"]
MAX_BYTES = 64 * 1024 * 1024
TOO_LARGE = "document_too_large"
# Invalid JSON (a trailing comma, a comment) is often valid YAML, but parsing it as YAML is slow.
_LONGEST_JSON_AS_YAML = 4 * 1024 * 1024
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# Longer BOMs first: that of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GZIP = b"\x1f\x8b"
_OTHER_FORMATS = {
    "swaggerVersion": "Swagger 1, which is not supported; convert it to OpenAPI 3",
    "asyncapi": "AsyncAPI, which describes messages",
    "utcp_version": "a UTCP manual; connect it with transport: utcp",
    "arazzo": "an Arazzo workflow; use the document of the API that it refers to",
    "overlay": "an OpenAPI overlay; apply it to its document first",
    "discoveryVersion": "a Google discovery document; convert it to OpenAPI 3",
    "mcpServers": "a list of MCP servers; connect those with transport: mcp",
    "__schema": "a GraphQL schema; connect it with transport: graphql",
    "$schema": "a JSON Schema",
    "paths": "one without a version; add `openapi: 3.1.0`",
}


class ParsedDocument(NamedTuple):
    """OpenAPI document and its version."""

    data: dict[str, Any]
    dialect: Dialect


def parse_openapi(raw: bytes, shown: str, *, limit: int = MAX_BYTES) -> ParsedDocument:
    """Parse the first document of an API; a ConfigError names the format that it looks like instead."""
    data = parse_document(raw, shown, limit=limit)
    if not is_object(data):
        kind = "a list" if is_array(data) else "text" if isinstance(data, str) else "a single value"
        raise ConfigError(f"{shown} is not an OpenAPI document: it contains {kind}, not keys and values")
    return ParsedDocument(data, _dialect(data, shown))


def _dialect(data: dict[str, Any], shown: str) -> Dialect:
    version = str(data.get("openapi", data.get("swagger", "")))
    if version.startswith(("2", "3.0", "3.1")):
        return cast("Dialect", {"2": "2.0"}.get(version[0], version[:3]))
    if version.startswith("3"):
        # Later 3.x versions promise compatibility.
        return "3.0" if version == "3" else "3.2"
    if version:
        raise ConfigError(f"{shown} has version {version[:20]!r}; 2.0, 3.0, 3.1 and 3.2 are supported")
    raise ConfigError(f"{shown} is not an OpenAPI document: {_guess(data)}")


def _guess(data: dict[str, Any]) -> str:
    for key, kind in _OTHER_FORMATS.items():
        if key in data:
            return f"it looks like {kind}"
    info = data.get("info")
    if is_object(info) and "_postman_id" in info:
        return "it looks like a Postman collection; export it as OpenAPI"
    keys = ", ".join(repr(str(key)[:40]) for key in list(data)[:5])
    return f"neither 'openapi' nor 'swagger' is among its keys ({keys or 'it has none'})"


def parse_document(raw: bytes, shown: str, *, limit: int = MAX_BYTES) -> Any:
    """Parse JSON or YAML; a ConfigError names the format that other bytes look like."""
    text = _text(decompress(raw, shown, limit=limit), shown)
    body = text.lstrip()
    if not body:
        raise ConfigError(f"{shown} is empty; use the address of an OpenAPI document")
    if (guess := _not_a_document(body)) is not None:
        raise ConfigError(
            f"{shown} looks like {guess}, not like an OpenAPI document; use the address of the document itself"
        )
    return _json(body, shown) if body[0] in "{[" else _yaml(text, shown)


def _text(raw: bytes, shown: str) -> str:
    encoding = next((name for mark, name in _MARKS if raw.startswith(mark)), None) or _detect_encoding(raw[:4])
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        guess = _binary(raw) or f"not {encoding.upper()} text (byte {error.start})"
        raise ConfigError(f"{shown} is {guess}; use the address of a JSON or YAML document") from None


def _detect_encoding(head: bytes) -> str:
    """Detect the encoding of a text without a BOM by its zero bytes (RFC 4627 §3)."""
    zeros = tuple(byte == 0 for byte in head)
    match zeros:
        case (True, True, True, False):
            return "utf-32-be"
        case (False, True, True, True):
            return "utf-32-le"
        case (True, False, _, _):
            return "utf-16-be"
        case (False, True, _, _):
            return "utf-16-le"
        case _:
            return "utf-8"


def _binary(raw: bytes) -> str | None:
    kinds = {b"PK": "a ZIP archive", b"%PDF": "a PDF", b"\x89PNG": "an image", b"BZh": "a bzip2 archive"}
    return next((kind for magic, kind in kinds.items() if raw.startswith(magic)), None)


def _not_a_document(body: str) -> str | None:
    head = body[:1000].lower()
    if head.startswith("#%raml"):
        return "RAML"
    if head.startswith("<"):
        return "a web page (HTML)" if "<html" in head or head.startswith("<!doctype html") else "XML"
    return None


def _json(body: str, shown: str) -> Any:
    try:
        data = cooperative_decoder(body, parse_float=_finite, parse_constant=str).decode(body)
        # A lone surrogate escape cannot be encoded as UTF-8.
        return _replace_surrogates(data) if "\\ud" in body or "\\uD" in body else data
    except RecursionError:
        raise ConfigError(f"{shown} is nested too deeply") from None
    except ValueError as error:
        return _lenient_json(body, shown, error)


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _lenient_json(body: str, shown: str, error: ValueError) -> Any:
    if len(body) <= _LONGEST_JSON_AS_YAML:
        try:
            return load_yaml(body)
        except YamlError:
            pass
    problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    line = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
    cut = not body.rstrip().endswith(("}", "]"))
    guess = "looks like JSON that was cut off" if cut else "is not valid JSON"
    raise ConfigError(f"{shown} {guess}: {problem}{line}") from None


def _replace_surrogates(data: Any) -> Any:
    if isinstance(data, str):
        return _LONE_SURROGATE.sub("\ufffd", data)
    if is_array(data):
        return [_replace_surrogates(item) for item in data]
    if is_object(data):
        return {_replace_surrogates(key): _replace_surrogates(value) for key, value in data.items()}
    return data


def _yaml(text: str, shown: str) -> Any:
    try:
        return load_yaml(text)
    except YamlError as error:
        raise ConfigError(f"{shown} is neither JSON nor valid YAML: {error}") from None


def decompress(raw: bytes, shown: str, *, limit: int = MAX_BYTES) -> bytes:
    """Decompress gzip, up to the limit; return other bytes unchanged."""
    if len(raw) > limit:
        raise _too_large(shown, limit)
    decompress = b""
    while raw[:2] == _GZIP:
        stream = zlib.decompressobj(wbits=31)
        try:
            decompress += stream.decompress(raw, limit + 1 - len(decompress))
        except zlib.error as error:
            raise ConfigError(f"{shown} is gzipped and damaged: {error}; fetch it again") from None
        if len(decompress) > limit:
            raise _too_large(shown, limit)
        if not stream.eof:
            raise ConfigError(f"{shown} is gzipped and ends too early; fetch it again")
        raw = stream.unused_data
        if raw[:2] != _GZIP:
            return decompress
    return raw


def _too_large(shown: str, limit: int) -> ConfigError:
    size = format_size(limit)
    return ConfigError(f"{shown} is larger than {size}, the limit for the document of an API", code=TOO_LARGE)


def redact_url(address: str) -> str:
    """Return an address for messages, without user info, query and fragment, which may contain secrets."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "the document"
    if not parts.scheme or not parts.netloc:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def format_size(limit: int) -> str:
    """Format a number of bytes for messages."""
    return f"{limit / (1024 * 1024):,.0f} MiB" if limit >= 1024 * 1024 else f"{limit:,} bytes"
