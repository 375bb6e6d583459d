"""Build the HTTP request of an operation: serialize parameters, encode the body, set headers and credentials."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote

from toolpost.contracts.calls import NO_CREDENTIAL, Credential
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolSchemaError, ToolValidationError
from toolpost.schema.json_values import is_array, is_object, json_type
from toolpost.sources.openapi import models
from toolpost.web.client_credentials import ClientTokens, parse_grant
from toolpost.web.content import MediaType, parse_media_type
from toolpost.web.requests import (
    NOTHING,
    BuiltUrl,
    File,
    FormPart,
    Pair,
    PathParameter,
    PlannedRequest,
    Presentation,
    UnsendableError,
    build_url,
    check_header_value,
    compact_json,
    encode_cookie_name,
    encode_cookie_value,
    encode_multipart,
    file_media_type,
    find_artifact_id,
    format_value,
    is_file,
    parse_file,
    percent_encode,
    present_headers,
    present_key,
)
from toolpost.wire.messages import MANAGED_HEADERS

Artifacts = Mapping[str, File]

_MAX_ACCEPTED = 6
_MAX_REFERENCE_DEPTH = 20
_NONE: AbstractSet[str] = frozenset()
T = TypeVar("T")
_JSON = "application/json"
_WITH_JSON = frozenset({"", "*/*", "application/*"})
_PLAIN_FIELD = models.FieldEncoding()
_DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|"}
_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")
# Parameter and field serialization: OpenAPI styles, percent-encoded as RFC 3986 asks. A value that its
# location cannot carry is refused, never changed.
# RFC 3986's reserved characters, without those that end a query or have a meaning in one.
_QUERY_RESERVED = ":/?@!$'()*,;="
_PATH_RESERVED = ":@!$&'()*+,;="
_DOTS = frozenset({".", ".."})
_INTERACTIVE = frozenset({"digest", "negotiate", "ntlm", "hoba", "mutual", "scram-sha-1", "scram-sha-256"})
_PAIRS = (("client_id", "client_secret"), ("username", "password"))


class RequestBuilder:
    """Builds requests for one operation; precomputes what is the same for every call."""

    __slots__ = ("_accept_header", "_fixed", "_known", "_method", "_sent", "_slots", "operation")

    def __init__(self, operation: models.ApiOperation) -> None:
        self.operation = operation
        self._method = operation.method.upper()
        self._known = frozenset(_arguments_of(operation))
        self._sent = tuple(
            (parameter, *_PLACES[parameter.location])
            for parameter in operation.parameters
            if parameter.location != "path"
        )
        self._slots = {parameter.name: parameter for parameter in operation.parameters if parameter.location == "path"}
        self._fixed = _target(operation, {}, {}) if operation.servers and "{" not in operation.path else None
        self._accept_header = ("Accept", _accept_header(operation))

    def build(self, arguments: Mapping[str, Any], files: Mapping[str, File] | None = None) -> PlannedRequest:
        """Build the request; `files` holds the artifacts that `find_artifact_ids` names."""
        if not self._known.issuperset(arguments):
            _refuse_unknown(self._known, arguments)
        target = self._fixed or _target(self.operation, self._slots, arguments)
        query = [*target.query]
        headers: list[Pair] = []
        cookies: list[Pair] = []
        destinations = (query, headers, cookies)
        for parameter, place, write in self._sent:
            value = arguments.get(parameter.argument)
            if value is not None:
                destinations[place].extend(_serialize(parameter, value, write))
            elif parameter.required:
                raise _missing_argument(parameter)
        body = self.operation.body
        encoded = None if body is None else _encode_argument(self.operation, body, arguments, files or {})
        all_headers = tuple(_with_content_headers(headers, encoded, self._accept_header))
        data = None if encoded is None else encoded.data
        return PlannedRequest(self._method, target.address, tuple(query), all_headers, tuple(cookies), data, NOTHING)

    def has_header(self, header: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the arguments set this header."""
        return any(
            parameter.location == "header"
            and parameter.name.lower() == header.lower()
            and arguments.get(parameter.argument) is not None
            for parameter, _, _ in self._sent
        )


def find_artifact_ids(operation: models.ApiOperation, arguments: Mapping[str, Any]) -> list[str]:
    """Return the ids of the artifacts that the request body takes files from, each once."""
    body = operation.body
    if body is None or parse_media_type(body.content_type).kind in ("json", "lines"):
        return []
    value = arguments.get(body.argument)
    places = [value]
    if is_object(value) and not is_file(value):
        fields = [item for name, item in value.items() if body.parts.get(name, _PLAIN_FIELD).is_file]
        places = [place for item in fields for place in (item if is_array(item) else [item])]
    return list(dict.fromkeys(artifact_id for place in places if (artifact_id := find_artifact_id(place)) is not None))


def _arguments_of(operation: models.ApiOperation) -> list[str]:
    body = operation.body
    return [*(parameter.argument for parameter in operation.parameters), *([] if body is None else [body.argument])]


def _refuse_unknown(known: frozenset[str], arguments: Mapping[str, Any]) -> NoReturn:
    unknown = min(arguments.keys() - known)
    raise ToolValidationError(f"unknown argument {unknown!r}; known are: {', '.join(sorted(known)) or 'none'}")


def _missing_argument(parameter: models.Parameter) -> ToolValidationError:
    return ToolValidationError(f"{parameter.argument!r} is required, and null cannot be sent in its place")


def _target(
    operation: models.ApiOperation, slots: Mapping[str, models.Parameter], arguments: Mapping[str, Any]
) -> BuiltUrl:
    if not operation.servers:
        raise ToolSchemaError(f"{operation.method} {operation.path} has no server; give one with base_url.")

    def fill(slot: PathParameter) -> str:
        parameter = slots.get(slot.written) or slots.get(slot.name)
        if parameter is None:
            raise ToolSchemaError(f"The document does not declare {slot.name!r} in the path {operation.path!r}.")
        value = arguments.get(parameter.argument)
        if value is None:
            raise _missing_argument(parameter)
        return _serialize(parameter, value, lambda of, value: _serialize_path(of, value, spanning=slot.spanning))

    try:
        return build_url(operation.servers[0], operation.path, fill)
    except UnsendableError as error:
        raise ToolValidationError(f"the path cannot be filled in: {error}") from error


def _serialize(parameter: models.Parameter, value: Any, write: Callable[[models.Parameter, Any], T]) -> T:
    try:
        inner = parameter.item_delimiters
        return write(parameter, _join_nested_lists(value, inner) if inner else value)
    except (UnsendableError, UnicodeEncodeError, RecursionError) as error:
        raise _unsendable(parameter.argument, parameter.location, error) from None


def _unsendable(argument: str, place: str, error: Exception) -> ToolValidationError:
    match error:
        case UnicodeEncodeError():
            reason = "it holds half of a surrogate pair, which is no character"
        case RecursionError():
            reason = "it is nested too deeply"
        case _:
            reason = str(error)
    return ToolValidationError(f"{argument!r} cannot be sent in the {place}: {reason}")


def _headers(parameter: models.Parameter, value: Any) -> list[Pair]:
    if parameter.name.lower() in MANAGED_HEADERS:  # the transport sets them
        return []
    if not models.HEADER_NAME.fullmatch(parameter.name):
        raise UnsendableError("the document gives it a name that no header can have")
    return [(parameter.name, _serialize_header(parameter, value))]


def _encode_argument(
    operation: models.ApiOperation, body: models.RequestBody, arguments: Mapping[str, Any], files: Mapping[str, File]
) -> EncodedBody | None:
    value = arguments.get(body.argument)
    if value is None and not (body.argument in arguments and _admits_null(body.schema, operation)):
        if body.required:
            raise ToolValidationError(f"{body.argument!r} is required")
        return None
    try:
        encoded = _encode_body(body, value, files)
        check_header_value(encoded.content_type)  # a document may name any text as a media type
    except (UnsendableError, UnicodeEncodeError, RecursionError) as error:
        raise _unsendable(body.argument, "body", error) from None
    return encoded


def _admits_null(schema: object, operation: models.ApiOperation, depth: int = 0) -> bool:
    """Return whether a schema explicitly allows null."""
    if not is_object(schema) or depth > _MAX_REFERENCE_DEPTH:
        return False
    kinds = schema.get("type")
    if kinds == "null" or (is_array(kinds) and "null" in kinds) or schema.get("nullable") is True:
        return True
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    reference = str(schema.get("$ref", ""))
    if reference.startswith(models.DEFINITION_PREFIX):
        inner.append(operation.definitions.get(reference.removeprefix(models.DEFINITION_PREFIX), {}))
    return any(_admits_null(part, operation, depth + 1) for part in inner)


def _with_content_headers(headers: list[Pair], encoded: EncodedBody | None, accept: Pair) -> list[Pair]:
    """Add Content-Type and Accept where the arguments do not set them."""
    names = {name.lower() for name, _ in headers} if headers else _NONE
    if encoded is not None:
        if parse_media_type(encoded.content_type).kind == "multipart":  # the boundary is ours
            headers = [pair for pair in headers if pair[0].lower() != "content-type"]
            names = names - {"content-type"}
        if "content-type" not in names:
            headers.append(("Content-Type", encoded.content_type))
    if "accept" not in names:
        headers.append(accept)
    return headers


def _accept_header(operation: models.ApiOperation) -> str:
    """Build the Accept header: declared media types, JSON first, then anything."""
    offered = [kind for answer in operation.responses if answer.status[:1] in ("2", "d") for kind in answer.content]
    named = [kind for kind in dict.fromkeys(offered) if _can_be_named(kind)]
    named.sort(key=lambda kind: parse_media_type(kind).kind != "json")
    graded = [kind if at == 0 else f"{kind};q=0.9" for at, kind in enumerate(named[:_MAX_ACCEPTED])]
    return ", ".join([*graded, "*/*;q=0.1"] if graded else ["application/json", "*/*;q=0.9"])


def _can_be_named(kind: str) -> bool:
    return bool(parse_media_type(kind).essence) and not parse_media_type(kind).is_range and kind.isprintable()


class EncodedBody(NamedTuple):
    """Encoded request body and its content type."""

    data: bytes
    content_type: str


def _encode_body(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    """Encode a request body in its media type."""
    kind = parse_media_type(body.content_type)
    if kind.is_range or not kind.essence:
        return _of_any_type(body, value, artifacts)
    return _WRITERS[kind.kind](body, value, artifacts)


def _of_any_type(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    """Encode a body of a media range: a file in its own type, other values as JSON where the range allows it."""
    if is_file(value) or parse_media_type(body.content_type).essence not in _WITH_JSON:
        file = parse_file(value, artifacts)
        return EncodedBody(file.data, file_media_type(file))
    return EncodedBody(compact_json(value).encode(), _JSON)


def _json(body: models.RequestBody, value: Any, _: Artifacts) -> EncodedBody:
    return EncodedBody(compact_json(value).encode(), body.content_type)


def _lines(body: models.RequestBody, value: Any, _: Artifacts) -> EncodedBody:
    if isinstance(value, str):
        return EncodedBody(value.encode(), body.content_type)
    if not is_array(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} wants a list, one item a line")
    opening = "\x1e" if parse_media_type(body.content_type).essence.endswith("json-seq") else ""  # RFC 7464
    return EncodedBody("".join(f"{opening}{compact_json(item)}\n" for item in value).encode(), body.content_type)


def _text(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    if is_file(value):
        return _file(body, value, artifacts)
    if is_object(value) or is_array(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} is written as text")
    text, kind = format_value(value), parse_media_type(body.content_type)
    try:
        data = text.encode(kind.charset or "utf-8")
    except UnicodeEncodeError as error:
        raise UnsendableError(f"it holds characters that {kind.charset or 'utf-8'} does not have") from error
    return EncodedBody(data, _with_charset(body.content_type, kind, data))


def _with_charset(content_type: str, kind: MediaType, data: bytes) -> str:
    """Add `charset=utf-8` to non-ASCII text; RFC 9110 has no default charset, and XML declares its own."""
    return content_type if kind.kind == "xml" or kind.charset or data.isascii() else f"{content_type}; charset=utf-8"


def _yaml(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    if is_file(value) or isinstance(value, str):
        return _text(body, value, artifacts)
    return _json(body, value, artifacts)  # every JSON document is a YAML document


def _file(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    if (is_object(value) and not is_file(value)) or is_array(value):
        raise UnsendableError(f"{body.content_type} is bytes, not {json_type(value)}; give a file or a text")
    file = parse_file(value if is_file(value) else format_value(value), artifacts)
    content_type = value.get("content_type") if is_object(value) else None
    return EncodedBody(file.data, str(content_type) if content_type else body.content_type)


def _form(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    if isinstance(value, str):
        return EncodedBody(value.encode(), body.content_type)
    pairs = [pair for name, item, part in _fields(body, value) for pair in _form_pairs(name, item, part, artifacts)]
    return EncodedBody("&".join(f"{name}={text}" for name, text in pairs).encode(), body.content_type)


def _form_pairs(name: str, value: Any, part: models.FieldEncoding, artifacts: Artifacts) -> list[Pair]:
    if part.is_file and is_file(value):
        return [(percent_encode(name), "".join(f"%{byte:02X}" for byte in parse_file(value, artifacts).data))]
    if _is_document(value, part):
        return [(percent_encode(name), percent_encode(compact_json(value)))]
    if (is_array(value) or is_object(value)) and part.style != "deepObject" and not part.explode:
        return [
            (percent_encode(name), percent_encode(_join_delimited(value, part.style)))
        ]  # servers decode a form before they split
    return _serialize_pairs(name, value, style=part.style, explode=part.explode)


def _is_document(value: Any, part: models.FieldEncoding) -> bool:
    """Return whether a form field is sent as one JSON document: if declared so, and by default for objects."""
    if part.content_type is not None and parse_media_type(part.content_type).kind == "json":
        return True
    return is_object(value) and part.style == "form" and part.explode


def _multipart(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    parts = [
        form_part for name, item, part in _fields(body, value) for form_part in _form_parts(name, item, part, artifacts)
    ]
    data, boundary = encode_multipart(parts)
    return EncodedBody(data, f"{parse_media_type(body.content_type).essence}; boundary={boundary}")


def _form_parts(name: str, value: Any, part: models.FieldEncoding, artifacts: Artifacts) -> Iterator[FormPart]:
    headers = tuple(part.headers.items())
    if part.is_file:
        for item in value if is_array(value) else [value]:
            file = parse_file(item, artifacts)
            yield FormPart(name, file.data, file_media_type(file, part.content_type or ""), file.name or name, headers)
    elif _is_document(value, part):
        yield FormPart(name, compact_json(value).encode(), part.content_type or _JSON, None, headers)
    else:
        for key, item in _plain_parts(name, value, part):
            content_type = _JSON if is_object(item) or is_array(item) else part.content_type
            yield FormPart(key, format_value(item).encode(), content_type, None, headers)


def _plain_parts(name: str, value: Any, part: models.FieldEncoding) -> Iterator[tuple[str, Any]]:
    if part.style == "deepObject":
        yield from _flatten_deep_object(name, value)
    elif is_array(value) and part.explode:
        yield from ((name, item) for item in value if item is not None)
    elif is_array(value) or is_object(value):
        yield name, _join_delimited(value, part.style)
    else:
        yield name, value


def _fields(body: models.RequestBody, value: Any) -> Iterator[tuple[str, Any, models.FieldEncoding]]:
    """Yield the form fields that are not null."""
    if not is_object(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} wants an object, one member a field")
    for name, item in value.items():
        if item is not None:
            part = body.parts.get(name, _PLAIN_FIELD)
            yield name, _join_nested_lists(item, part.item_delimiters), part


_WRITERS: dict[str, Callable[[models.RequestBody, Any, Artifacts], EncodedBody]] = {
    "json": _json,
    "lines": _lines,
    "events": _text,
    "form": _form,
    "multipart": _multipart,
    "yaml": _yaml,
    "xml": _text,
    "text": _text,
    "binary": _file,
}


def _join_nested_lists(value: Any, delimiters: str) -> Any:
    """Join each list within a list into one string, with the delimiter of its level."""
    if not is_array(value) or not delimiters:
        return value
    return [_inner_text(item, delimiters) for item in value]


def _inner_text(value: Any, delimiters: str) -> Any:
    if not is_array(value) or not delimiters:
        return value
    items = [format_value(_inner_text(item, delimiters[1:])) for item in value if item is not None]
    return delimiters[0].join(_check_delimiter(items, delimiters[0]))


def _serialize_path(parameter: models.Parameter, value: Any, *, spanning: bool = False) -> str:
    """Serialize a path parameter; with `spanning` (`{+name}`, `{name*}`) it may hold several segments."""
    reserved = _PATH_RESERVED if parameter.allow_reserved or spanning else ""
    safe = f"{reserved}/" if spanning else reserved

    def encode(text: str) -> str:
        return quote(_refuse_dot_segments(text), safe=safe)

    if parameter.content_type is not None:
        return encode(_document(parameter, value))
    items = [] if value is None else _flatten(value, explode=parameter.explode, encode=encode)
    if not any(items):
        raise UnsendableError("it is empty, and the path would address something else; give a value")
    return _path_style(parameter, value, items)


def _serialize_query(parameter: models.Parameter, value: Any) -> list[Pair]:
    """Serialize a query parameter to percent-encoded pairs; unset and empty values give none."""
    if value.__class__ is str and parameter.style == "form" and parameter.content_type is None:
        return [
            (
                percent_encode(parameter.name),
                _quote_reserved(value) if parameter.allow_reserved else percent_encode(value),
            )
        ]
    encode = _quote_reserved if parameter.allow_reserved else percent_encode
    if parameter.content_type is not None:
        return [(percent_encode(parameter.name), encode(_document(parameter, value)))]
    if value in ([], {}) and parameter.allow_empty:
        return [(percent_encode(parameter.name), "")]
    return _serialize_pairs(parameter.name, value, style=parameter.style, explode=parameter.explode, encode=encode)


def _serialize_pairs(
    name: str, value: Any, *, style: models.Style, explode: bool, encode: Callable[[str], str] | None = None
) -> list[Pair]:
    """Serialize one value to percent-encoded pairs for a query or a form."""
    encode = encode or percent_encode
    if style == "deepObject":
        return [(percent_encode(key), encode(text)) for key, text in _flatten_deep_object(name, value)]
    if value is None or value in ([], {}):
        return []
    if not (is_array(value) or is_object(value)):
        return [(percent_encode(name), encode(format_value(value)))]
    if explode:
        return [(percent_encode(key), encode(format_value(item))) for key, item in _explode(name, value)]
    return [(percent_encode(name), _join(value, style, encode))]


def _flatten_deep_object(name: str, value: Any) -> Iterator[Pair]:
    """Yield `name[key][inner]` pairs; lists of scalars as `name[]`, which PHP, Rails, qs and Stripe accept."""
    if is_object(value):
        for key, part in value.items():
            yield from _flatten_deep_object(f"{name}[{key}]", part)
    elif is_array(value):
        nested = any(is_object(part) or is_array(part) for part in value)
        for index, part in enumerate(value):
            yield from _flatten_deep_object(f"{name}[{index}]" if nested else f"{name}[]", part)
    elif value is not None:
        yield name, format_value(value)


def _join_delimited(value: list[Any] | dict[str, Any], style: models.Style) -> str:
    """Join a list or an object into one string without percent-encoding."""
    delimiter = _DELIMITERS.get(style, ",")
    return delimiter.join(_check_delimiter(_flatten(value, explode=False), delimiter))


def _serialize_header(parameter: models.Parameter, value: Any) -> str:
    """Serialize a header parameter; raise UnsendableError for characters a header cannot carry."""
    if parameter.content_type is not None:
        return check_header_value(_document(parameter, value))
    if not (is_array(value) or is_object(value)):
        return check_header_value(format_value(value))
    return check_header_value(",".join(_check_delimiter(_flatten(value, explode=parameter.explode), ",")))


def _serialize_cookie(parameter: models.Parameter, value: Any) -> list[Pair]:
    """Serialize a cookie parameter, percent-encoding what a cookie cannot carry."""
    if parameter.content_type is not None:
        return [(encode_cookie_name(parameter.name), encode_cookie_value(_document(parameter, value)))]
    if parameter.explode and (is_array(value) or is_object(value)):
        members = _explode(parameter.name, value)
        return [(encode_cookie_name(key), encode_cookie_value(format_value(item))) for key, item in members]
    return [(encode_cookie_name(parameter.name), ",".join(_flatten(value, explode=False, encode=encode_cookie_value)))]


def _document(parameter: models.Parameter, value: Any) -> str:
    if isinstance(value, str) and parse_media_type(parameter.content_type or "").kind != "json":
        return value
    return compact_json(value)


def _flatten(value: Any, *, explode: bool, encode: Callable[[str], str] = str) -> list[str]:
    """Return the items of a list, the keys and values of an object (`key=value` if exploded), or the scalar."""
    if is_array(value):
        return [encode(format_value(item)) for item in value if item is not None]
    if is_object(value):
        members = [(encode(key), encode(format_value(item))) for key, item in value.items() if item is not None]
        return [f"{k}={v}" for k, v in members] if explode else [text for member in members for text in member]
    return [encode(format_value(value))]


def _explode(name: str, value: list[Any] | dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each item with its name; a list within an object repeats its key, as in HTML forms."""
    members = [(name, item) for item in value] if is_array(value) else [*value.items()] if is_object(value) else []
    for key, item in members:
        if is_array(item) and is_object(value):
            yield from ((key, inner) for inner in item if inner is not None)
        elif item is not None:
            yield key, item


def _join(value: list[Any] | dict[str, Any], style: models.Style, encode: Callable[[str], str]) -> str:
    delimiter = _DELIMITERS.get(style)
    if delimiter is None:
        return ",".join(_flatten(value, explode=False, encode=encode))
    return encode(delimiter).join(map(encode, _check_delimiter(_flatten(value, explode=False), delimiter)))


def _check_delimiter(items: list[str], delimiter: str) -> list[str]:
    if any(delimiter in item for item in items):
        raise UnsendableError(f"an item holds {delimiter!r}, which separates items here")
    return items


def _path_style(parameter: models.Parameter, value: Any, items: list[str]) -> str:
    if parameter.style == "label":
        return "." + ("." if parameter.explode else ",").join(items)
    if parameter.style != "matrix":
        return ",".join(items)
    if is_object(value) and parameter.explode:
        return "".join(f";{item}" for item in items)
    name = percent_encode(parameter.name)
    return "".join(f";{name}={item}" for item in items) if parameter.explode else f";{name}={','.join(items)}"


def _refuse_dot_segments(text: str) -> str:
    """Raise UnsendableError for `.` and `..` path segments.

    Encoding them does not help: URL parsers and proxies decode `%2E` and `%2F` and then resolve them.
    """
    if "." in text and not _DOTS.isdisjoint(re.split(r"[/\\]", text)):
        raise UnsendableError("it holds the step '.' or '..', which would lead to another path")
    return text


def _quote_reserved(text: str) -> str:
    """Percent-encode all but reserved characters and existing triplets (RFC 6570 reserved expansion)."""
    pieces = _TRIPLET.split(text)
    return "".join(piece if at % 2 else quote(piece, safe=_QUERY_RESERVED) for at, piece in enumerate(pieces))


_PLACES: dict[str, tuple[int, Callable[[models.Parameter, Any], list[Pair]]]] = {
    "query": (0, _serialize_query),
    "header": (1, _headers),
    "cookie": (2, _serialize_cookie),
}


def environment_variable(source: str, scheme: str) -> str:
    """Return the name of the environment variable that holds a scheme's value."""
    return re.sub(r"[^A-Z0-9]", "_", f"TOOLPOST_{source}_{scheme}".upper())


def scheme_values(
    source: str, auth_config: Mapping[str, Any], schemes: Iterable[str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return scheme values by name, from `auth_config.schemes` or else the environment."""
    values: Any = auth_config.get("schemes") or {}
    if not is_object(values):
        raise ConfigError(f"auth_config.schemes of source {source!r} is a table: a scheme's name and its value.")
    scheme_names = list(schemes)
    if unknown := [name for name in values if name not in scheme_names]:
        names = ", ".join(map(repr, scheme_names)) or "none"
        raise ConfigError(f"auth_config.schemes of source {source!r}: no scheme {unknown[0]!r}; there are: {names}.")
    from_environment = {name: _read_environment(environment_variable(source, name), environ) for name in scheme_names}
    return {name: value for name, value in {**from_environment, **values}.items() if value}


def _read_environment(variable: str, environ: Mapping[str, str]) -> Any:
    for pair in _PAIRS:
        values = {key: environ.get(f"{variable}_{key.upper()}") for key in pair}
        if all(values.values()):
            return values
    return environ.get(variable)


class Credentials:
    """Selects the credentials of operations; `values` come from `scheme_values`.

    `headers` are the configured headers of every request: one with the name of a scheme's header
    satisfies that scheme, and nothing is added for it.
    """

    def __init__(
        self,
        schemes: Mapping[str, models.SecurityScheme],
        values: Mapping[str, Any],
        *,
        source: str = "",
        tokens: ClientTokens | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._schemes = schemes
        self._values = values
        self._source = source
        self._tokens = tokens
        self._sent = {name.lower(): value for name, value in (headers or {}).items()}

    async def present(self, operation: models.ApiOperation, credential: Credential = NO_CREDENTIAL) -> Presentation:
        """Return the credentials to send; raise ToolAuthError naming the missing scheme and how to set it.

        `credential` is the source's plain one: it is used for the first scheme it fits, and sent
        unchanged if the document declares no scheme that it fits.
        """
        if not self._schemes:
            return present_headers(credential)
        # Where authentication is optional (an empty alternative), a configured credential is still sent.
        for needs in sorted(operation.security, key=lambda needs: not needs):
            presentation = await self._alternative(needs, credential)
            if presentation is not None:
                return presentation
        if not operation.security:
            return NOTHING
        if credential.headers and not self._fits_anywhere(operation, credential):
            return present_headers(credential)
        raise ToolAuthError(self._missing(operation))

    def forget(self, presentation: Presentation) -> bool:
        """Discard the cached tokens of a presentation; return whether there were any."""
        for token in presentation.tokens:
            if self._tokens is not None:
                self._tokens.forget(token)
        return bool(presentation.tokens)

    async def _alternative(
        self, needs: tuple[models.SecurityRequirement, ...], credential: Credential
    ) -> Presentation | None:
        whole, plain = NOTHING, credential
        for need in needs:
            scheme = self._schemes.get(need.scheme)
            if scheme is None:
                return None
            presentation = await self._by_value(scheme, need)
            if presentation is None:
                presentation, plain = self._without_value(scheme, plain)
            if presentation is None:
                return None
            whole = presentation if whole is NOTHING else whole.joined(presentation)
        return whole

    def _without_value(
        self, scheme: models.SecurityScheme, plain: Credential
    ) -> tuple[Presentation | None, Credential]:
        """Use the plain credential if it fits, else a configured header; return it with the unused plain credential."""
        met = _is_satisfied(scheme, self._sent)
        if met and _header_of(scheme) not in map(str.lower, plain.headers):
            return NOTHING, plain
        presentation = _adapt(scheme, plain)
        if presentation is None and met:
            return NOTHING, plain
        return presentation, NO_CREDENTIAL

    async def _by_value(self, scheme: models.SecurityScheme, need: models.SecurityRequirement) -> Presentation | None:
        value = self._values.get(scheme.name)
        if not value or _explain_unsupported(scheme):
            return None
        if scheme.type in ("oauth2", "openIdConnect") and is_object(value) and "client_id" in value:
            return await self._by_client(scheme, value, need)
        return _check_presentation(scheme.name, _by_secret(scheme, value))

    async def _by_client(
        self, scheme: models.SecurityScheme, client: dict[str, Any], need: models.SecurityRequirement
    ) -> Presentation:
        if self._tokens is None:
            raise ConfigError(f"scheme {scheme.name!r} wants client credentials, but nothing can fetch tokens here.")
        if not client.get("client_secret"):
            raise ConfigError(f"auth_config.schemes.{scheme.name} has a client_id, and needs client_secret too.")
        flow: Any = scheme.flows.get("clientCredentials")
        url = scheme.token_url or (flow.get("tokenUrl") if is_object(flow) else None)
        token = await self._tokens.token(parse_grant(scheme.name, url, client, need.scopes))
        return Presentation(headers=(("Authorization", f"{token.kind} {token.value}"),), tokens=(token.value,))

    def _fits_anywhere(self, operation: models.ApiOperation, credential: Credential) -> bool:
        named = {need.scheme for needs in operation.security for need in needs}
        schemes = [self._schemes[name] for name in named if name in self._schemes]
        return any(_adapt(scheme, credential) is not None for scheme in schemes)

    def _missing(self, operation: models.ApiOperation) -> str:
        alternatives = [
            " together with ".join(self._describe_scheme(need.scheme) for need in n) for n in operation.security
        ]
        names = list(dict.fromkeys(need.scheme for needs in operation.security for need in needs))
        name = next((name for name in names if name not in self._values), names[0])
        return (
            f"{operation.method.upper()} {operation.path} needs a credential for {', or '.join(alternatives)}. "
            f"Set auth_config.schemes.{name} of source {self._source!r}, "
            f"or the environment variable {environment_variable(self._source, name)}."
        )

    def _describe_scheme(self, name: str) -> str:
        scheme = self._schemes.get(name)
        if scheme is None:
            return f"{name!r} (which the document does not explain)"
        return f"{name!r} ({_explain_unsupported(scheme) or _kind(scheme)})"


def _by_secret(scheme: models.SecurityScheme, value: Any) -> Presentation:
    match scheme.type:
        case "apiKey":
            return present_key(
                scheme.location, scheme.parameter, _credential_text(scheme.name, value, "value", "api_key", "key")
            )
        case "http" if scheme.scheme.lower() == "basic":
            pair = _basic(scheme.name, value)
            return Presentation(headers=(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),))
        case "http" if scheme.scheme.lower() != "bearer":
            return Presentation(
                headers=(("Authorization", f"{scheme.scheme} {_credential_text(scheme.name, value, 'value')}"),)
            )
        case _:
            token = _credential_text(scheme.name, value, "token", "value")
            return Presentation(headers=(("Authorization", f"Bearer {token}"),))


def _credential_text(name: str, value: Any, *keys: str) -> str:
    text = next((value[key] for key in keys if key in value), None) if is_object(value) else value
    if isinstance(text, str) and text:
        return text
    raise ConfigError(f"auth_config.schemes.{name} wants a text, or a table with {' or '.join(keys)}.")


def _basic(name: str, value: Any) -> str:
    if is_object(value) and "username" in value:
        return f"{value['username']}:{value.get('password', '')}"
    if isinstance(value, str) and ":" in value:
        return value
    raise ConfigError(f"auth_config.schemes.{name} wants a table with username and password, or user:password.")


def _adapt(scheme: models.SecurityScheme, credential: Credential) -> Presentation | None:
    """Return the plain credential in the form of this scheme, or None if it does not fit."""
    headers = {name.lower(): value for name, value in credential.headers.items()}
    word = headers.get("authorization", "").partition(" ")[0].lower()
    match scheme.type:
        case "http" if word and word == scheme.scheme.lower():
            return Presentation(headers=(("Authorization", headers["authorization"]),))
        case "oauth2" | "openIdConnect" if word == "bearer":
            return Presentation(headers=(("Authorization", headers["authorization"]),))
        case "apiKey":
            key = _find_key(scheme, headers)
            return None if key is None else present_key(scheme.location, scheme.parameter, key)
        case _:
            return None


def _find_key(scheme: models.SecurityScheme, headers: Mapping[str, str]) -> str | None:
    if scheme.location == "header" and scheme.parameter.lower() in headers:
        return headers[scheme.parameter.lower()]
    if scheme.location == "cookie" and "cookie" in headers:
        return headers["cookie"].partition("=")[2]
    keys = [value for name, value in headers.items() if name not in ("authorization", "cookie")]
    return keys[0] if len(keys) == 1 else None


def _is_satisfied(scheme: models.SecurityScheme, sent: Mapping[str, str]) -> bool:
    """Return whether the configured headers already satisfy a scheme."""
    if _explain_unsupported(scheme) or not sent.get(_header_of(scheme)):
        return False
    if scheme.type != "apiKey" or scheme.location == "header":
        return True
    return scheme.parameter in {pair.partition("=")[0].strip() for pair in sent["cookie"].split(";")}


def _header_of(scheme: models.SecurityScheme) -> str:
    """Return the lower-case header name of a scheme; empty for query schemes."""
    if scheme.type != "apiKey":
        return "authorization"
    return {"header": scheme.parameter.lower(), "cookie": "cookie"}.get(scheme.location, "")


def _explain_unsupported(scheme: models.SecurityScheme) -> str:
    """Return why a scheme is unsupported, or an empty string."""
    if scheme.type == "mutualTLS":
        return "a client certificate, which is not supported"
    if scheme.type == "http" and scheme.scheme.lower() in _INTERACTIVE:
        return f"HTTP {scheme.scheme}, which is not supported"
    return ""


def _kind(scheme: models.SecurityScheme) -> str:
    match scheme.type:
        case "apiKey":
            return f"API key, {scheme.location} {scheme.parameter!r}"
        case "http":
            return f"HTTP {scheme.scheme}"
        case "oauth2":
            return "OAuth 2: an access token, or client_id and client_secret"
        case "openIdConnect" | "mutualTLS":
            return "OpenID Connect: an access token"


def _check_presentation(name: str, presentation: Presentation) -> Presentation:
    """Raise ConfigError, without the secret, if a value holds a line break or another character illegal in headers."""
    try:
        for _, value in presentation.headers:
            check_header_value(value)
    except (UnsendableError, UnicodeEncodeError):
        raise ConfigError(f"auth_config.schemes.{name} holds a character that a header cannot carry.") from None
    return presentation
