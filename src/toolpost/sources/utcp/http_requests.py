"""The request of one call, planned from its template: path, headers, body, and the query for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_plus, urlencode

from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.makers import maker
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.utcp.templates import HttpTemplate, SseTemplate, StreamTemplate
from toolpost.web.encoding import UnsendableError, compact_json, percent, sendable_header, text_of
from toolpost.web.files import file_of, is_file, type_of
from toolpost.web.media_types import media_type
from toolpost.web.multipart import FormPart, multipart_body
from toolpost.web.planned import PlannedRequest
from toolpost.web.presentation import NOTHING
from toolpost.web.targets import pairs_of, target_of
from toolpost.wire.guard import split_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from toolpost.sources.utcp.templates import RequestTemplate, WebTemplate
    from toolpost.web.encoding import Pair
    from toolpost.web.targets import Slot, Target

_new_request = maker(PlannedRequest)
_NONE: AbstractSet[str] = frozenset()


class _Body(NamedTuple):
    data: bytes
    content_type: str


class RequestPlan:
    """A template made ready to be called: what is the same for every call is worked out once."""

    __slots__ = ("_body_field", "_header_fields", "_headers", "_method", "_names", "_place", "_target", "_template")

    def __init__(self, template: RequestTemplate) -> None:
        self._template = template
        self._body_field = template.body_field
        self._header_fields = template.header_fields
        self._headers = tuple(template.headers.items())
        self._method = None if isinstance(template, SseTemplate) else template.http_method
        self._place = split_url(template.url)
        self._target: Target | None = None  # read with the first call, which is where an error in it belongs
        self._names = _NONE

    def request(self, arguments: Mapping[str, Any]) -> PlannedRequest:
        """Plan a call; what is null is left out. A ToolValidationError names the argument that cannot be sent."""
        rest = {name: value for name, value in arguments.items() if value is not None}
        headers = headers_of(self._template, rest) if self._header_fields else self._headers
        sent = None if self._body_field is None else rest.pop(self._body_field, None)
        target = self._target or self._targeted(rest)
        names = self._names if self._target else _names_of(target)
        if names and not names.isdisjoint(rest):
            doubled = sorted(names & rest.keys())
            raise ToolValidationError([f"{name}: the address has a value of its own for it" for name in doubled])
        query = (*target.query, *(pair for name, value in rest.items() for pair in _query(name, value)))
        body = None
        if sent is not None:
            body, headers = _with_body(self._template, sent, headers)
        method = self._method or ("GET" if body is None else "POST")
        return _new_request((method, target.address, query, tuple(headers), (), body, NOTHING))

    def _targeted(self, rest: dict[str, Any]) -> Target:
        """The address; one without places for arguments stays as it is for every call."""
        target = _target(self._place, rest)
        if "{" not in self._place[1]:
            self._target, self._names = target, _names_of(target)
        return target


def bare_request(method: str, url: str, headers: Sequence[Pair], body: bytes | None = None) -> PlannedRequest:
    """A request to an address that has no places for arguments."""
    address, _, query = url.partition("#")[0].partition("?")
    return PlannedRequest(method=method, address=address, query=pairs_of(query), headers=tuple(headers), body=body)


def headers_of(template: WebTemplate, rest: dict[str, Any]) -> list[Pair]:
    """The template's headers and those that are arguments, which are taken out of the rest; null is none."""
    fields = {name: rest.pop(name) for name in template.header_fields if name in rest}
    given = [(name, _sendable(name, value)) for name, value in fields.items() if value is not None]
    taken = {name.lower() for name, _ in given}
    return [*(pair for pair in template.headers.items() if pair[0].lower() not in taken), *given]


def _names_of(target: Target) -> AbstractSet[str]:
    return {unquote_plus(name) for name, _ in target.query} if target.query else _NONE


def _target(place: tuple[str, str], rest: dict[str, Any]) -> Target:
    """The address with the path's arguments in their places, which are taken out of the rest."""
    used: set[str] = set()

    def fill(slot: Slot) -> str:
        if slot.name not in rest:
            raise ToolValidationError(f"{slot.name}: it stands in the address and must be given")
        used.add(slot.name)
        return percent(_text(slot.name, rest[slot.name]))

    try:
        target = target_of(*place, fill)
    except UnsendableError as error:
        raise ToolValidationError(str(error)) from error
    for name in used:
        del rest[name]
    return target


def _query(name: str, value: Any) -> Iterator[Pair]:
    """A list is sent as its items, each under the same name."""
    for item in value if is_array(value) else [value]:
        if item is not None:
            yield percent(name), percent(_text(name, item))


def _with_body(template: RequestTemplate, sent: Any, headers: Sequence[Pair]) -> tuple[bytes, list[Pair]]:
    """The body, and the headers with its type; one that the template writes as a header holds."""
    said = next((value for name, value in headers if name.lower() == "content-type"), None)
    offered = template.content_type if isinstance(template, (HttpTemplate, StreamTemplate)) else "application/json"
    try:
        body = _body(sent, said or offered)
    except UnsendableError as error:
        raise ToolValidationError(f"{template.body_field}: {error}") from error
    others = [pair for pair in headers if pair[0].lower() != "content-type"]
    return body.data, [*others, ("Content-Type", body.content_type)]


def _body(sent: Any, content_type: str) -> _Body:
    match media_type(content_type).kind:
        case "json":
            return _Body(compact_json(sent).encode(), content_type)
        case "form" if is_object(sent):
            return _Body(urlencode([*_fields(sent)]).encode(), content_type)
        case "multipart" if is_object(sent):
            data, boundary = multipart_body([*_parts(sent)])
            return _Body(data, f"multipart/form-data; boundary={boundary}")
        case _ if is_file(sent):
            return _Body(file_of(sent, {}).data, content_type)
        case _:
            return _Body(text_of(sent).encode(), content_type)


def _fields(sent: dict[str, Any]) -> Iterator[Pair]:
    for name, value in sent.items():
        for item in value if is_array(value) else [value]:
            if item is not None:
                yield name, text_of(item)


def _parts(sent: dict[str, Any]) -> Iterator[FormPart]:
    for name, value in sent.items():
        if is_file(value):
            file = file_of(value, {})
            yield FormPart(name, file.data, type_of(file), file.name or name)
        elif value is not None:
            yield FormPart(name, text_of(value).encode())


def _text(name: str, value: Any) -> str:
    try:
        return text_of(value)
    except UnsendableError as error:
        raise ToolValidationError(f"{name}: {error}") from error


def _sendable(name: str, value: Any) -> str:
    try:
        return sendable_header(text_of(value))
    except (UnsendableError, UnicodeEncodeError) as error:
        raise ToolValidationError(f"{name}: {error}") from error
