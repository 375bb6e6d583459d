"""Build the HTTP request of an operation: serialize parameters, encode the body, and set headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from toolpost.contracts.errors import ToolSchemaError, ToolValidationError
from toolpost.http.content import parse_media_type
from toolpost.http.encoding import (
    BuiltUrl,
    Pair,
    PathParameter,
    UnsendableError,
    build_url,
    check_header_value,
    compact_json,
    encode_cookie_name,
    encode_cookie_value,
    format_value,
    percent_encode,
)
from toolpost.schema.json_values import is_array, is_object, json_type
from toolpost.sources.files import (
    File,
    FormPart,
    encode_multipart,
    file_media_type,
    find_artifact_id,
    is_file,
    parse_file,
)
from toolpost.sources.openapi import models
from toolpost.sources.openapi.definitions import DEFINITION_PREFIX
from toolpost.sources.requests import NOTHING, PlannedRequest
from toolpost.wire.messages import MANAGED_HEADERS

Artifacts = Mapping[str, File]
_MAX_ACCEPTED = 6
_MAX_REFERENCE_DEPTH = 20
T = TypeVar("T")
_JSON = "application/json"
_WITH_JSON = frozenset({"", "*/*", "application/*"})
_PLAIN_FIELD = models.FieldEncoding()
_DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|"}
_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")
# RFC 3986's reserved characters, without those that end a query or have a meaning in one.
_QUERY_RESERVED = ":/?@!$'()*,;="
_PATH_RESERVED = ":@!$&'()*+,;="
_DOTS = frozenset({".", ".."})


class RequestBuilder:
    """Builder of the requests of one operation.

    A URL without parameters and the Accept header are built once, which saves 3 µs per call (measured 2026-11).
    """

    def __init__(self, operation: models.ApiOperation) -> None:
        self.operation = operation
        self._method = operation.method.upper()
        names = [parameter.argument for parameter in operation.parameters]
        self._known = frozenset([*names, operation.body.argument] if operation.body is not None else names)
        self._sent = tuple(parameter for parameter in operation.parameters if parameter.location != "path")
        self._slots = {parameter.name: parameter for parameter in operation.parameters if parameter.location == "path"}
        self._fixed = _target(operation, {}, {}) if operation.servers and "{" not in operation.path else None
        self._accept_header = ("Accept", _accept_header(operation))

    def build(self, arguments: Mapping[str, Any], files: Mapping[str, File] | None = None) -> PlannedRequest:
        """Build the request; `files` holds the artifacts that `find_artifact_ids` names."""
        if not self._known.issuperset(arguments):
            unknown = min(arguments.keys() - self._known)
            raise ToolValidationError(
                f"unknown argument {unknown!r}; known are: {', '.join(sorted(self._known)) or 'none'}"
            )
        target = self._fixed or _target(self.operation, self._slots, arguments)
        query = [*target.query]
        headers: list[Pair] = []
        cookies: list[Pair] = []
        for parameter in self._sent:
            value = arguments.get(parameter.argument)
            if value is None:
                if parameter.required:
                    raise _missing_argument(parameter)
            elif parameter.location == "query":
                query += _serialize(parameter, value, _serialize_query)
            elif parameter.location == "header":
                headers += _serialize(parameter, value, _headers)
            else:
                cookies += _serialize(parameter, value, _serialize_cookie)
        body = self.operation.body
        encoded = None if body is None else _encode_argument(self.operation, body, arguments, files or {})
        all_headers = tuple(_with_content_headers(headers, encoded, self._accept_header))
        data = None if encoded is None else encoded.data
        return PlannedRequest(self._method, target.address, tuple(query), all_headers, tuple(cookies), data, NOTHING)

    def has_header(self, header: str, arguments: Mapping[str, Any]) -> bool:
        return any(
            parameter.location == "header"
            and parameter.name.lower() == header.lower()
            and arguments.get(parameter.argument) is not None
            for parameter in self._sent
        )


def _missing_argument(parameter: models.Parameter) -> ToolValidationError:
    return ToolValidationError(f"{parameter.argument!r} is required, and null cannot be sent in its place")


def _target(
    operation: models.ApiOperation, slots: Mapping[str, models.Parameter], arguments: Mapping[str, Any]
) -> BuiltUrl:
    if not operation.servers:
        raise ToolSchemaError(f"{operation.method} {operation.path} has no server; set base_url.")

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
            reason = "it contains half of a surrogate pair, which is not a character"
        case RecursionError():
            reason = "it is nested too deeply"
        case _:
            reason = str(error)
    return ToolValidationError(f"{argument!r} cannot be sent in the {place}: {reason}")


def _headers(parameter: models.Parameter, value: Any) -> list[Pair]:
    if parameter.name.lower() in MANAGED_HEADERS:  # the transport sets them
        return []
    if not models.HEADER_NAME.fullmatch(parameter.name):
        raise UnsendableError("its name in the document is not a valid header name")
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
        check_header_value(encoded.content_type)  # a document may declare any string as a media type
    except (UnsendableError, UnicodeEncodeError, RecursionError) as error:
        raise _unsendable(body.argument, "body", error) from None
    return encoded


def _admits_null(schema: object, operation: models.ApiOperation, depth: int = 0) -> bool:
    if not is_object(schema) or depth > _MAX_REFERENCE_DEPTH:
        return False
    kinds = schema.get("type")
    if kinds == "null" or (is_array(kinds) and "null" in kinds) or schema.get("nullable") is True:
        return True
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    reference = str(schema.get("$ref", ""))
    if reference.startswith(DEFINITION_PREFIX):
        inner.append(operation.definitions.get(reference.removeprefix(DEFINITION_PREFIX), {}))
    return any(_admits_null(part, operation, depth + 1) for part in inner)


def _with_content_headers(headers: list[Pair], encoded: EncodedBody | None, accept: Pair) -> list[Pair]:
    names = {name.lower() for name, _ in headers}
    if encoded is not None:
        if parse_media_type(encoded.content_type).kind == "multipart":  # its boundary must match the body
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
    named = [
        kind
        for kind in dict.fromkeys(offered)
        if kind.isprintable() and parse_media_type(kind).essence and not parse_media_type(kind).is_range
    ]
    named.sort(key=lambda kind: parse_media_type(kind).kind != "json")
    graded = [kind if at == 0 else f"{kind};q=0.9" for at, kind in enumerate(named[:_MAX_ACCEPTED])]
    return ", ".join([*graded, "*/*;q=0.1"] if graded else ["application/json", "*/*;q=0.9"])


class EncodedBody(NamedTuple):
    """Encoded request body and its content type."""

    data: bytes
    content_type: str


def _encode_body(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    kind = parse_media_type(body.content_type)
    if kind.is_range or not kind.essence:
        return _of_any_type(body, value, artifacts)
    match kind.kind:
        case "json":
            return _json(body, value)
        case "lines":
            return _lines(body, value)
        case "form":
            return _form(body, value, artifacts)
        case "multipart":
            return _multipart(body, value, artifacts)
        case "yaml":
            if is_file(value) or isinstance(value, str):
                return _text(body, value, artifacts)
            return _json(body, value)  # every JSON document is a YAML document
        case "binary":
            return _file(body, value, artifacts)
        case "events" | "xml" | "text":
            return _text(body, value, artifacts)


def _of_any_type(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    """Encode a body of a media range: a file in its own type, other values as JSON where the range allows it."""
    if is_file(value) or parse_media_type(body.content_type).essence not in _WITH_JSON:
        file = parse_file(value, artifacts)
        return EncodedBody(file.data, file_media_type(file))
    return EncodedBody(compact_json(value).encode(), _JSON)


def _json(body: models.RequestBody, value: Any) -> EncodedBody:
    return EncodedBody(compact_json(value).encode(), body.content_type)


def _lines(body: models.RequestBody, value: Any) -> EncodedBody:
    if isinstance(value, str):
        return EncodedBody(value.encode(), body.content_type)
    if not is_array(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} requires a list, one item per line")
    opening = "\x1e" if parse_media_type(body.content_type).essence.endswith("json-seq") else ""  # RFC 7464
    return EncodedBody("".join(f"{opening}{compact_json(item)}\n" for item in value).encode(), body.content_type)


def _text(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    if is_file(value):
        return _file(body, value, artifacts)
    if is_object(value) or is_array(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} requires a string")
    text, kind = format_value(value), parse_media_type(body.content_type)
    try:
        data = text.encode(kind.charset or "utf-8")
    except UnicodeEncodeError as error:
        raise UnsendableError(f"it contains characters that {kind.charset or 'utf-8'} does not have") from error
    if kind.kind == "xml" or kind.charset or data.isascii():
        return EncodedBody(data, body.content_type)
    return EncodedBody(data, f"{body.content_type}; charset=utf-8")  # RFC 9110 has no default, and XML declares its own


def _file(body: models.RequestBody, value: Any, artifacts: Artifacts) -> EncodedBody:
    if (is_object(value) and not is_file(value)) or is_array(value):
        raise UnsendableError(f"{body.content_type} is bytes, not {json_type(value)}; use a file or a string")
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
    if not is_object(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} requires an object, one member per field")
    for name, item in value.items():
        if item is not None:
            part = body.parts.get(name, _PLAIN_FIELD)
            yield name, _join_nested_lists(item, part.item_delimiters), part


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
    """Serialize a path parameter; with `spanning` (`{+name}`, `{name*}`) it may contain several segments."""
    reserved = _PATH_RESERVED if parameter.allow_reserved or spanning else ""
    safe = f"{reserved}/" if spanning else reserved

    def encode(text: str) -> str:
        return quote(_refuse_dot_segments(text), safe=safe)

    if parameter.content_type is not None:
        return encode(_document(parameter, value))
    items = [] if value is None else _flatten(value, explode=parameter.explode, encode=encode)
    if not any(items):
        raise UnsendableError("it is empty, and the path would address another resource")
    return _path_style(parameter, value, items)


def _serialize_query(parameter: models.Parameter, value: Any) -> list[Pair]:
    """Serialize a query parameter to percent-encoded pairs; unset and empty values have none."""
    encode = _quote_reserved if parameter.allow_reserved else percent_encode
    if parameter.content_type is not None:
        return [(percent_encode(parameter.name), encode(_document(parameter, value)))]
    if value in ([], {}) and parameter.allow_empty:
        return [(percent_encode(parameter.name), "")]
    return _serialize_pairs(parameter.name, value, style=parameter.style, explode=parameter.explode, encode=encode)


def _serialize_pairs(
    name: str, value: Any, *, style: models.Style, explode: bool, encode: Callable[[str], str] | None = None
) -> list[Pair]:
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
    delimiter = _DELIMITERS.get(style, ",")
    return delimiter.join(_check_delimiter(_flatten(value, explode=False), delimiter))


def _serialize_header(parameter: models.Parameter, value: Any) -> str:
    """Serialize a header parameter; raise UnsendableError for characters that are not allowed in a header."""
    if parameter.content_type is not None:
        return check_header_value(_document(parameter, value))
    if not (is_array(value) or is_object(value)):
        return check_header_value(format_value(value))
    return check_header_value(",".join(_check_delimiter(_flatten(value, explode=parameter.explode), ",")))


def _serialize_cookie(parameter: models.Parameter, value: Any) -> list[Pair]:
    """Serialize a cookie parameter; percent-encode characters that are not allowed in a cookie."""
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
        raise UnsendableError(f"an item contains {delimiter!r}, the separator of items")
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
        raise UnsendableError("it contains the path segment '.' or '..', which would change the path")
    return text


def _quote_reserved(text: str) -> str:
    """Percent-encode all but reserved characters and existing triplets (RFC 6570 reserved expansion)."""
    pieces = _TRIPLET.split(text)
    return "".join(piece if at % 2 else quote(piece, safe=_QUERY_RESERVED) for at, piece in enumerate(pieces))


def find_artifact_ids(operation: models.ApiOperation, arguments: Mapping[str, Any]) -> list[str]:
    """Return the IDs of the artifacts among the files of the request body, each once."""
    body = operation.body
    if body is None or parse_media_type(body.content_type).kind in ("json", "lines"):
        return []
    value = arguments.get(body.argument)
    places = [value]
    if is_object(value) and not is_file(value):
        fields = [item for name, item in value.items() if body.parts.get(name, _PLAIN_FIELD).is_file]
        places = [place for item in fields for place in (item if is_array(item) else [item])]
    return list(dict.fromkeys(artifact_id for place in places if (artifact_id := find_artifact_id(place)) is not None))
