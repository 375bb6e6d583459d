"""Documents of an API: parse JSON and YAML, gzipped or not, in any Unicode encoding, and resolve references."""

from __future__ import annotations

import codecs
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

import yaml
from yaml import events

from toolpost.contracts.errors import ConfigError
from toolpost.schema.json_values import cooperative_decoder, is_array, is_object

MAX_VALUES = 3_000_000
MAX_DEPTH = 250
# Pure Python takes ten seconds for each megabyte.
_LONGEST_FOR_PURE = 1_000_000
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVED_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null"))
_MERGE = "<<"

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# A number with a leading zero is octal in YAML 1.1 and decimal in 1.2; such scalars stay text.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,1000})", re.ASCII)
_BASED = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)


class YamlError(ValueError):
    """Invalid YAML text."""


def load_yaml(text: str) -> Any:
    """Parse the first document of a YAML text to dicts with string keys, lists and scalars."""
    escaped = _EscapedText.over(text)
    try:
        return _build(escaped.text, _FAST, escaped)
    except yaml.YAMLError as error:
        message = _describe_error(error)
    # The two parsers differ about tabs inside of block scalars, and real documents have them.
    for respelled, loader in _respellings(escaped):
        try:
            return _build(respelled, loader, escaped)
        except yaml.YAMLError:
            continue
    raise YamlError(message)


def _respellings(escaped: _EscapedText) -> Iterable[tuple[str, Any]]:
    text = escaped.text
    if "\t" not in text:
        return
    yield escaped.with_tabs(), _FAST
    if len(text) <= _LONGEST_FOR_PURE:
        yield text, yaml.SafeLoader
    yield text.replace("\t", "  "), _FAST


# YAML 1.2 §5.4: the separators of lines and paragraphs are text; for PyYAML, which is YAML 1.1, they end a line.
# Control characters are outside of both versions, but other parsers take them, and some descriptions hold them.
_UNREADABLE = "\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff"
_TAB = "\t"
_PRIVATE_ESCAPE = re.compile(r"\\u([eEfF][0-9a-fA-F]{3})")
_CHUNK = 1 << 20
# Header of a block scalar; the lines after it are its text.
_BLOCK_HEADER = re.compile(r"(?:^|[\s:-])[|>][-+0-9]{0,2}[ \t]*(?:#.*)?$")
_LEADING_TABS = re.compile(r"( *)(\t[ \t]*)(.*)", re.DOTALL)


class _EscapedText(NamedTuple):
    """Text with characters that PyYAML rejects replaced by private-use ones, and the mapping back."""

    original: str
    text: str
    back: Mapping[int, int]

    @classmethod
    def over(cls, text: str) -> _EscapedText:
        odd = _characters(text, re.compile(f"[{_UNREADABLE}]"))
        if _TAB in text:
            odd.add(_TAB)
        if not odd:
            return cls(text, text, {})
        private = {ord(character) for character in _characters(text, re.compile("[\ue000-\uf8ff]"))}
        private |= {int(digits, 16) for digits in _characters(text, _PRIVATE_ESCAPE)}
        free = (code for code in range(0xE000, 0xF900) if code not in private)
        there = dict(zip(map(ord, sorted(odd)), free, strict=False))
        back = {code: original for original, code in there.items()}
        there.pop(ord(_TAB), None)  # almost always whitespace
        if not there:
            return cls(text, text, back)
        return cls(text, "".join(chunk.translate(there) for chunk in _chunks(text)), back)

    def with_tabs(self) -> str:
        """Return the text with tabs at the start of block scalar lines protected."""
        tab = next((chr(code) for code, original in self.back.items() if original == ord(_TAB)), _TAB)
        return "".join(_with_block_tabs(self.text.splitlines(keepends=True), tab))

    def restore(self, scalar: str) -> str:
        """Restore the original characters of a scalar."""
        return scalar.translate(self.back)


def _characters(text: str, kind: re.Pattern[str]) -> set[str]:
    return {match for chunk in _chunks(text) for match in kind.findall(chunk)}


def _chunks(text: str) -> Iterator[str]:
    """Split the text: a regex search over all of it would block other threads."""
    return (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))


def _with_block_tabs(lines: Iterable[str], tab: str) -> Iterator[str]:
    outside = -1  # the indentation of the line with the header, while within its block scalar
    for line in lines:
        indentation = len(line) - len(line.lstrip(" "))
        if line.strip() and indentation <= outside:
            outside = -1
        if outside >= 0 and (match := _LEADING_TABS.match(line)):
            spaces, tabs, rest = match.groups()
            yield f"{spaces}{tabs.replace(_TAB, tab)}{rest}" if rest.strip() else "\n"
            continue
        if outside < 0 and _BLOCK_HEADER.search(line.rstrip("\r\n")):
            outside = indentation
        yield line


def _describe_error(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        return f"{where}{error.problem or error.context}"
    return str(getattr(error, "reason", error))


class _Anchored(NamedTuple):
    """Value of an anchor, and the number of values it stands for."""

    value: Any
    weight: int


class _Open:
    """Mapping or sequence under construction."""

    __slots__ = ("anchor", "key", "merged", "value", "weight")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        self.merged: list[Any] = []
        self.weight = 1


def _build(text: str, loader: Any, escaped: _EscapedText) -> Any:
    # The stubs of yaml lack the events.
    parsed = cast("Iterable[Any]", yaml.parse(text, Loader=loader))  # pyright: ignore[reportUnknownMemberType]
    return _Builder(None if text is escaped.original else escaped).build(parsed)


class _Builder:
    """Builds data from parser events, without recursion and with a limit on repeated values."""

    def __init__(self, escaped: _EscapedText | None) -> None:
        self._escaped = escaped
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._plain: dict[str, Any] = {}
        self._root: Any = None

    def build(self, parsed: Iterable[Any]) -> Any:
        for event in parsed:
            kind = event.__class__
            if kind is events.ScalarEvent:
                self._scalar(event)
            elif kind is events.MappingStartEvent:
                self._begin({}, event)
            elif kind is events.SequenceStartEvent:
                self._begin([], event)
            elif kind is events.AliasEvent:
                self._alias(event)
            elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
                self._end()
            elif kind is events.DocumentEndEvent:
                break
        return self._root

    def _begin(self, value: dict[str, Any] | list[Any], event: Any) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise YamlError(f"line {event.start_mark.line + 1}: nested deeper than {MAX_DEPTH} levels")
        if self._expects_key():
            raise YamlError(f"line {event.start_mark.line + 1}: a key must be text")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(value, event.anchor))

    def _expects_key(self) -> bool:
        top = self._stack[-1] if self._stack else None
        return top is not None and top.key is None and isinstance(top.value, dict)

    def _end(self) -> None:
        ended = self._stack.pop()
        if ended.merged and isinstance(ended.value, dict):
            ended.value = _merge(ended.value, ended.merged)
        if ended.anchor is not None:
            self._anchors[ended.anchor] = _Anchored(ended.value, ended.weight)
        self._place(ended.value, ended.weight)

    def _scalar(self, event: Any) -> None:
        text = event.value if self._escaped is None else self._escaped.restore(event.value)
        if self._expects_key():
            self._stack[-1].key = text
            return
        plain = event.implicit[0] or event.tag in _RESOLVED_TAGS
        value = self._resolve_plain(text) if plain else text
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, 1)
        self._place(value, 1)

    def _resolve_plain(self, text: str) -> Any:
        try:
            return self._plain[text]
        except KeyError:
            value = self._plain[text] = plain_value(text)
            return value

    def _alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise YamlError(f"line {event.start_mark.line + 1}: *{event.anchor} names nothing, or what it is part of")
        if self._expects_key():
            self._stack[-1].key = str(anchored.value)
        else:
            self._place(anchored.value, anchored.weight)

    def _place(self, value: Any, weight: int) -> None:
        if not self._stack:
            self._root = value
            return
        top = self._stack[-1]
        top.weight += weight
        if top.weight > MAX_VALUES:
            raise YamlError(f"it holds more than {MAX_VALUES:,} values, those that its anchors repeat included")
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is not None:
            if top.key == _MERGE:
                top.merged.append(value)
            else:
                top.value[top.key] = value
            top.key = None


def _merge(own: dict[str, Any], merged: list[Any]) -> dict[str, Any]:
    """Merge `<<` mappings into a mapping; its own keys win, then the first mapping."""
    whole: dict[str, Any] = {}
    for value in merged:
        for mapping in value if is_array(value) else [value]:
            if is_object(mapping):
                whole = {**mapping, **whole}
    return {**whole, **own}


def plain_value(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if len(text) < 100 and _FLOAT.fullmatch(text):
        number = float(text)
        # JSON has no infinity.
        return number if math.isfinite(number) else text
    return text


Dialect = Literal["2.0", "3.0", "3.1", "3.2"]

MAX_BYTES = 64 * 1024 * 1024
TOO_LARGE = "document_too_large"
# Invalid JSON (a trailing comma, a comment) is often valid YAML, but parsing it so is slow.
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


class ParsedDocument(NamedTuple):
    """OpenAPI document and its version."""

    data: dict[str, Any]
    dialect: Dialect


def parse_openapi(raw: bytes, shown: str, *, limit: int = MAX_BYTES) -> ParsedDocument:
    """Parse the first document of an API; ConfigError says what else it looks like."""
    data = parse_document(raw, shown, limit=limit)
    if not is_object(data):
        raise ConfigError(f"{shown} is not an OpenAPI document: it holds {_kind(data)}, not keys and values")
    return ParsedDocument(data, _dialect(data, shown))


def parse_document(raw: bytes, shown: str, *, limit: int = MAX_BYTES) -> Any:
    """Parse JSON or YAML; ConfigError says what the bytes look like if they are neither."""
    text = _text(decompress(raw, shown, limit=limit), shown)
    body = text.lstrip()
    if not body:
        raise ConfigError(f"{shown} is empty; give the address of an OpenAPI document")
    if (guess := _not_a_document(body)) is not None:
        raise ConfigError(f"{shown} looks like {guess}, not like an OpenAPI document; give the document's own address")
    return _json(body, shown) if body[0] in "{[" else _yaml(text, shown)


def redact_url(address: str) -> str:
    """Return an address for messages, without user info, query and fragment, which may hold secrets."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "the document"
    if not parts.scheme or not parts.netloc:
        return address
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


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
            raise ConfigError(f"{shown} is gzipped and damaged: {error}; fetch it anew") from None
        if len(decompress) > limit:
            raise _too_large(shown, limit)
        if not stream.eof:
            raise ConfigError(f"{shown} is gzipped and ends too early; fetch it anew")
        raw = stream.unused_data
        if raw[:2] != _GZIP:
            return decompress
    return raw


def format_size(limit: int) -> str:
    """Return a number of bytes for messages."""
    return f"{limit / (1024 * 1024):,.0f} MiB" if limit >= 1024 * 1024 else f"{limit:,} bytes"


def _too_large(shown: str, limit: int) -> ConfigError:
    size = format_size(limit)
    return ConfigError(f"{shown} is larger than {size}, more than any API's description needs", code=TOO_LARGE)


def _text(raw: bytes, shown: str) -> str:
    encoding = next((name for mark, name in _MARKS if raw.startswith(mark)), None) or _detect_encoding(raw[:4])
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        guess = _binary(raw) or f"not {encoding.upper()} text (byte {error.start})"
        raise ConfigError(f"{shown} is {guess}; give the address of a JSON or YAML document") from None


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


def _dialect(data: dict[str, Any], shown: str) -> Dialect:
    version = str(data.get("openapi", data.get("swagger", "")))
    if version.startswith(("2", "3.0", "3.1")):
        return cast("Dialect", {"2": "2.0"}.get(version[0], version[:3]))
    if version.startswith("3"):
        # Later 3.x versions promise compatibility.
        return "3.0" if version == "3" else "3.2"
    if version:
        raise ConfigError(f"{shown} is written in version {version[:20]!r}; 2.0, 3.0, 3.1 and 3.2 are understood")
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


_OTHER_FORMATS = {
    "swaggerVersion": "Swagger 1, which is not understood; convert it to OpenAPI 3",
    "asyncapi": "AsyncAPI, which describes messages",
    "utcp_version": "a UTCP manual; connect it with transport: utcp",
    "arazzo": "an Arazzo workflow; give the API it refers to",
    "overlay": "an OpenAPI overlay; apply it to its document first",
    "discoveryVersion": "a Google discovery document; convert it to OpenAPI 3",
    "mcpServers": "a list of MCP servers; connect those with transport: mcp",
    "__schema": "a GraphQL schema; connect it with transport: graphql",
    "$schema": "a JSON Schema",
    "paths": "one whose version is missing; add `openapi: 3.1.0`",
}


def _kind(value: Any) -> str:
    return "a list" if is_array(value) else "text" if isinstance(value, str) else "a single value"


_MAX_HOPS = 50
# Keywords whose values are data, where `$ref` is no reference.
_DATA = frozenset({"example", "examples", "default", "enum", "const", "value", "mapping"})
# Keywords whose keys are names, not keywords.
_NAMED = frozenset(
    {
        "properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "paths", "schemas",
        "responses", "parameters", "requestBodies", "headers", "securitySchemes", "securityDefinitions", "links",
        "callbacks", "pathItems", "mediaTypes", "content", "encoding", "additionalOperations",
    }
)  # fmt: skip
_INDEX = re.compile(r"[0-9]{1,6}", re.ASCII)
_BARE_NAMES = ("#/components/schemas/", "#/definitions/")


class ResolvedNode(NamedTuple):
    """Resolved node, and the base URI of references within it."""

    node: Any
    base: str


class _Hops:
    """References followed in one lookup; detects cycles and limits their number."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def take(self, reference: str, base: str) -> bool:
        """Record a reference; return False if it is part of a cycle or beyond the limit."""
        if (reference, base) in self._taken or len(self._taken) >= _MAX_HOPS:
            return False
        self._taken.add((reference, base))
        return True


class DocumentReference(NamedTuple):
    """Text of a `$ref`, and its base URI."""

    text: str
    base: str


class DocumentRegistry:
    """Parsed documents by URL; `root` is the first one.

    `has_access_flags` is True if any schema is read-only or write-only; otherwise requests and
    responses share their schemas.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.has_access_flags = False
        self._resources: dict[str, Any] = {}
        self._anchors: dict[str, Any] = {}
        self._homes: dict[str, str] = {}

    def add(self, address: str, data: Any) -> list[DocumentReference]:
        """Add a document; return its references to unknown documents."""
        self._resources[address] = data
        self._homes[address] = address
        return [reference for reference in self._scan(address, data) if self._leaves(reference)]

    def lookup(self, reference: str, base: str) -> ResolvedNode | None:
        """Resolve a reference, through any others; return None if it is broken."""
        return self._step(reference, base, _Hops())

    def resolve(self, node: Any, base: str) -> ResolvedNode | None:
        """Return the node, or the one that it references."""
        if is_object(node) and isinstance(node.get("$ref"), str):
            return self.lookup(node["$ref"], base)
        return ResolvedNode(node, base)

    def base_uri(self, node: dict[str, Any], base: str) -> str:
        """Return the base URI within a schema: its `$id` if it has one."""
        own = node.get("$id")
        return urldefrag(_join_url(base, own)).url if isinstance(own, str) and own else base

    def _step(self, reference: str, base: str, hops: _Hops) -> ResolvedNode | None:
        """Resolve one reference and those that it leads to."""
        if not hops.take(reference, base):
            return None
        address, _, fragment = reference.partition("#")
        address = _join_url(base, address) if address else base
        target = self._within(address, fragment, hops)
        if target is None and reference.startswith("#") and base in self._homes:
            # Invalid within a schema that has a `$id`, but some documents do it.
            target = self._within(self._homes[base], fragment, hops)
        if target is None and reference.isidentifier():
            target = self._bare(reference)
        if target is not None and _is_alias(target.node):
            return self._step(target.node["$ref"], target.base, hops)
        return target

    def _within(self, address: str, fragment: str, hops: _Hops) -> ResolvedNode | None:
        resource = self._resources.get(address)
        if resource is None:
            return None
        if not fragment:
            return ResolvedNode(resource, address)
        if not fragment.startswith("/"):
            anchored = self._anchors.get(f"{address}#{fragment}")
            return None if anchored is None else ResolvedNode(anchored, address)
        place: ResolvedNode | None = ResolvedNode(resource, address)
        for part in fragment.split("/")[1:]:
            place = place and self._member(place, part, hops)
        return place

    def _member(self, place: ResolvedNode, part: str, hops: _Hops) -> ResolvedNode | None:
        """Resolve one token of a JSON Pointer (RFC 6901), following a reference in its way."""
        node = place.node
        if is_array(node):
            return (
                ResolvedNode(node[int(part)], place.base) if _INDEX.fullmatch(part) and int(part) < len(node) else None
            )
        if not is_object(node):
            return None
        base = self.base_uri(node, place.base)
        # Some keys contain a percent sign.
        for key in (unquote(part), part):
            if (name := key.replace("~1", "/").replace("~0", "~")) in node:
                return ResolvedNode(node[name], base)
        target = self._step(node["$ref"], base, hops) if isinstance(node.get("$ref"), str) else None
        return target and self._member(target, part, hops)

    def _bare(self, name: str) -> ResolvedNode | None:
        """Look up a schema by its bare name, as in Swagger 1 and some later documents."""
        return next(
            (target for start in _BARE_NAMES if (target := self._within(self.root, start[1:] + name, _Hops()))), None
        )

    def _leaves(self, reference: DocumentReference) -> bool:
        if reference.text.startswith("#"):
            return False
        address = urldefrag(_join_url(reference.base, reference.text)).url
        return address not in self._resources and self.lookup(reference.text, reference.base) is None

    def _scan(self, address: str, data: Any) -> Iterator[DocumentReference]:
        """Yield every reference of a document; register `$id` and anchors on the way."""
        level: list[tuple[Any, bool, str]] = [(data, False, address)]
        for _ in range(MAX_DEPTH):
            below: list[tuple[Any, bool, str]] = []
            for node, named, base in level:
                if is_array(node):
                    below.extend((item, False, base) for item in node if is_object(item) or is_array(item))
                elif named:
                    below.extend((value, False, base) for value in node.values() if is_object(value))
                else:
                    yield from self._scan_node(node, base, below)
            if not below:
                return
            level = below
        raise ConfigError(f"the document is nested deeper than {MAX_DEPTH} levels")

    def _scan_node(
        self, node: dict[str, Any], base: str, below: list[tuple[Any, bool, str]]
    ) -> Iterator[DocumentReference]:
        if "$id" in node or "$anchor" in node or "$dynamicAnchor" in node:
            base = self._name(node, base)
        if node.get("readOnly") is True or node.get("writeOnly") is True:
            self.has_access_flags = True
        for key, value in node.items():
            if is_object(value) or is_array(value):
                if key not in _DATA:
                    below.append((value, key in _NAMED and is_object(value), base))
            elif key == "$ref" and isinstance(value, str):
                yield DocumentReference(value, base)

    def _name(self, node: dict[str, Any], base: str) -> str:
        home = self._homes.get(base, base)
        base = self.base_uri(node, base)
        if base not in self._resources:
            self._resources[base] = node
            self._homes[base] = home
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(keyword), str):
                self._anchors.setdefault(f"{base}#{anchor}", node)
        return base


def _is_alias(node: Any) -> bool:
    return is_object(node) and len(node) == 1 and isinstance(node.get("$ref"), str)


def _join_url(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        # Brackets without an IPv6 address; the reference stays unresolved.
        return reference
