"""What a request carries: a value written as the body's media type asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_array, is_object, json_type
from toolpost.sources.openapi.operation import Part
from toolpost.sources.openapi.serialization import (
    deep_members,
    delimited,
    styled_pairs,
    with_inner_lists,
)
from toolpost.web.encoding import (
    UnsendableError,
    compact_json,
    percent,
    text_of,
)
from toolpost.web.files import artifact_id_of, file_of, is_file, type_of
from toolpost.web.media_types import media_type
from toolpost.web.multipart import FormPart, multipart_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from toolpost.sources.openapi.operation import Body
    from toolpost.web.encoding import Pair
    from toolpost.web.files import File
    from toolpost.web.media_types import MediaType

    Artifacts = Mapping[str, File]

_JSON = "application/json"
_WITH_JSON = frozenset({"", "*/*", "application/*"})
_PLAIN_FIELD = Part()


class Payload(NamedTuple):
    """A body as bytes, and the content type that says how to read them."""

    data: bytes
    content_type: str


def payload_of(body: Body, value: Any, artifacts: Artifacts) -> Payload:
    """The bytes of a body."""
    kind = media_type(body.content_type)
    if kind.is_range or not kind.essence:
        return _of_any_type(body, value, artifacts)
    return _WRITERS[kind.kind](body, value, artifacts)


def artifacts_wanted(body: Body, value: Any) -> list[str]:
    """The artifacts that a body takes its files from, each once."""
    if media_type(body.content_type).kind in ("json", "lines"):
        return []
    places = [value]
    if is_object(value) and not is_file(value):
        fields = [item for name, item in value.items() if body.parts.get(name, _PLAIN_FIELD).is_file]
        places = [place for item in fields for place in (item if is_array(item) else [item])]
    return list(dict.fromkeys(found for place in places if (found := artifact_id_of(place)) is not None))


def _of_any_type(body: Body, value: Any, artifacts: Artifacts) -> Payload:
    """A range such as `*/*` or `image/*`: a file goes as what it is, everything else as JSON where that is one."""
    if is_file(value) or media_type(body.content_type).essence not in _WITH_JSON:
        file = file_of(value, artifacts)
        return Payload(file.data, type_of(file))
    return Payload(compact_json(value).encode(), _JSON)


def _json(body: Body, value: Any, _: Artifacts) -> Payload:
    return Payload(compact_json(value).encode(), body.content_type)


def _lines(body: Body, value: Any, _: Artifacts) -> Payload:
    if isinstance(value, str):
        return Payload(value.encode(), body.content_type)
    if not is_array(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} wants a list, one item a line")
    opening = "\x1e" if media_type(body.content_type).essence.endswith("json-seq") else ""  # RFC 7464
    return Payload("".join(f"{opening}{compact_json(item)}\n" for item in value).encode(), body.content_type)


def _text(body: Body, value: Any, artifacts: Artifacts) -> Payload:
    if is_file(value):
        return _file(body, value, artifacts)
    if is_object(value) or is_array(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} is written as text")
    text, kind = text_of(value), media_type(body.content_type)
    try:
        data = text.encode(kind.charset or "utf-8")
    except UnicodeEncodeError as error:
        raise UnsendableError(f"it holds characters that {kind.charset or 'utf-8'} does not have") from error
    return Payload(data, _with_charset(body.content_type, kind, data))


def _with_charset(content_type: str, kind: MediaType, data: bytes) -> str:
    """RFC 9110 names no default for text, so that anything beyond ASCII says what it is; XML says so itself."""
    return content_type if kind.kind == "xml" or kind.charset or data.isascii() else f"{content_type}; charset=utf-8"


def _yaml(body: Body, value: Any, artifacts: Artifacts) -> Payload:
    if is_file(value) or isinstance(value, str):
        return _text(body, value, artifacts)
    return _json(body, value, artifacts)  # every JSON document is a YAML document


def _file(body: Body, value: Any, artifacts: Artifacts) -> Payload:
    if (is_object(value) and not is_file(value)) or is_array(value):
        raise UnsendableError(f"{body.content_type} is bytes, not {json_type(value)}; give a file or a text")
    file = file_of(value if is_file(value) else text_of(value), artifacts)
    said = value.get("content_type") if is_object(value) else None
    return Payload(file.data, str(said) if said else body.content_type)


def _form(body: Body, value: Any, artifacts: Artifacts) -> Payload:
    if isinstance(value, str):
        return Payload(value.encode(), body.content_type)
    pairs = [pair for name, item, part in _fields(body, value) for pair in _form_pairs(name, item, part, artifacts)]
    return Payload("&".join(f"{name}={text}" for name, text in pairs).encode(), body.content_type)


def _form_pairs(name: str, value: Any, part: Part, artifacts: Artifacts) -> list[Pair]:
    if part.is_file and is_file(value):
        return [(percent(name), "".join(f"%{byte:02X}" for byte in file_of(value, artifacts).data))]
    if _is_document(value, part):
        return [(percent(name), percent(compact_json(value)))]
    if (is_array(value) or is_object(value)) and part.style != "deepObject" and not part.explode:
        return [(percent(name), percent(delimited(value, part.style)))]  # a form is decoded before anybody splits
    return styled_pairs(name, value, style=part.style, explode=part.explode)


def _is_document(value: Any, part: Part) -> bool:
    """Whether a field is one JSON document: where the API says so, and by default for objects."""
    if part.content_type is not None and media_type(part.content_type).kind == "json":
        return True
    return is_object(value) and part.style == "form" and part.explode


def _multipart(body: Body, value: Any, artifacts: Artifacts) -> Payload:
    parts = [found for name, item, part in _fields(body, value) for found in _form_parts(name, item, part, artifacts)]
    data, boundary = multipart_body(parts)
    return Payload(data, f"{media_type(body.content_type).essence}; boundary={boundary}")


def _form_parts(name: str, value: Any, part: Part, artifacts: Artifacts) -> Iterator[FormPart]:
    headers = tuple(part.headers.items())
    if part.is_file:
        for item in value if is_array(value) else [value]:
            file = file_of(item, artifacts)
            yield FormPart(name, file.data, type_of(file, part.content_type or ""), file.name or name, headers)
    elif _is_document(value, part):
        yield FormPart(name, compact_json(value).encode(), part.content_type or _JSON, None, headers)
    else:
        for key, item in _plain_parts(name, value, part):
            content_type = _JSON if is_object(item) or is_array(item) else part.content_type
            yield FormPart(key, text_of(item).encode(), content_type, None, headers)


def _plain_parts(name: str, value: Any, part: Part) -> Iterator[tuple[str, Any]]:
    if part.style == "deepObject":
        yield from deep_members(name, value)
    elif is_array(value) and part.explode:
        yield from ((name, item) for item in value if item is not None)
    elif is_array(value) or is_object(value):
        yield name, delimited(value, part.style)
    else:
        yield name, value


def _fields(body: Body, value: Any) -> Iterator[tuple[str, Any, Part]]:
    """The fields that are set; a form cannot say null."""
    if not is_object(value):
        raise UnsendableError(f"it is {json_type(value)}; {body.content_type} wants an object, one member a field")
    for name, item in value.items():
        if item is not None:
            part = body.parts.get(name, _PLAIN_FIELD)
            yield name, with_inner_lists(item, part.item_delimiters), part


_WRITERS: dict[str, Callable[[Body, Any, Artifacts], Payload]] = {
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
